"""`Dataset`: a graph with features and labels; its construction from raw arrays, and the data folder."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import DatasetError

INSTALL = '`pcfi reproduce` needs more packages: pip install "pcfi[experiments]"'


@dataclass(frozen=True, eq=False)
class Dataset:
    """A graph with features and labels; its arrays are read-only.

    Attributes
    ----------
    name : str
        One of `DATASETS`, or the name of a synthetic graph.
    features : float32 array of shape (n_nodes, n_channels)
        As published.
    labels : int64 array of shape (n_nodes,)
        Class of each node, from 0.
    edges : int64 array of shape (2, E)
        Every undirected edge in both directions, without self-loops, sorted.
    split : dict of int64 arrays, or None
        The data set's own "train", "validation" and "test" nodes, if it has them.
    """

    name: str
    features: Array
    labels: Array
    edges: Array
    split: dict[str, Array] | None = None

    def __post_init__(self) -> None:
        for array in (self.features, self.labels, self.edges, *(self.split or {}).values()):
            array.flags.writeable = False

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.features)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.labels.max()) + 1


def folder() -> Path:
    """Return the folder of the data sets: `PCFI_DATA`, or a folder in the user's cache."""
    if path := os.environ.get("PCFI_DATA"):
        return Path(path)
    try:
        from platformdirs import user_cache_path
    except ImportError:
        raise DatasetError(INSTALL) from None
    return Path(user_cache_path("pcfi"))


def fetch(name: str, load: Callable[[], Any]) -> Any:
    """Return the result of `load`; if it fails, raise an error that says what to do without network."""
    try:
        return load()
    except (OSError, TimeoutError) as error:
        raise DatasetError(
            f"{name} is not in {folder()} and could not be downloaded ({type(error).__name__}: {error}): connect to "
            "the network once, or set PCFI_DATA to a folder that holds it"
        ) from error


def largest_component(
    name: str, features: Array, labels: Array, edges: Array, split: dict[str, Array] | None = None
) -> Dataset:
    """Return the largest connected component of a graph, undirected and without self-loops."""
    from scipy import sparse
    from scipy.sparse import csgraph

    n_nodes = len(features)
    adjacency = sparse.coo_array(
        (np.ones(edges.shape[1], bool), (edges[0], edges[1])), shape=(n_nodes, n_nodes)
    ).tocsr()
    adjacency = adjacency.maximum(adjacency.T)
    component = csgraph.connected_components(adjacency, directed=False)[1]
    nodes_kept = np.flatnonzero(component == np.bincount(component).argmax())
    component_edges = adjacency[nodes_kept][:, nodes_kept].tocoo()
    row, column = component_edges.coords
    order = np.lexsort((column, row))
    row, column = row[order], column[order]
    number = np.full(n_nodes, -1)
    number[nodes_kept] = np.arange(len(nodes_kept))
    return Dataset(
        name=name,
        features=np.ascontiguousarray(features[nodes_kept], dtype=np.float32),
        labels=labels[nodes_kept].astype(np.int64),
        edges=np.stack([row, column])[:, row != column].astype(np.int64),
        split=split and {part: _valid(number[nodes]) for part, nodes in split.items()},
    )


def _valid(numbers: Array) -> Array:
    return numbers[numbers >= 0].astype(np.int64)
