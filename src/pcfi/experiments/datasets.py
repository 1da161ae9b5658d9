"""The paper's data sets by name: features, labels and edges of the largest connected component."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.errors import DatasetError, ParameterError
from pcfi.experiments.catalog import DATASETS, SYNTHETIC

Array = npt.NDArray[Any]

INSTALL = 'the laboratory needs PyTorch Geometric: pip install "pcfi[experiments]"'


@dataclass(frozen=True, eq=False)
class Dataset:
    """A graph with features and labels; its arrays are read-only.

    Attributes
    ----------
    name : str
        As in `DATASETS`, or of a synthetic graph.
    features : float32 array of shape (n_nodes, n_channels)
        As the loaders give them.
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


@lru_cache(maxsize=2)
def load(name: str) -> Dataset:
    """A data set by name, from the data folder; downloaded into it when it is not there yet.

    The folder is `PCFI_DATA` if that is set, else the platform's folder for caches. What was read once is kept in it in
    a form that loads faster.
    """
    synthetic = SYNTHETIC.fullmatch(name)
    if synthetic:
        from pcfi.experiments.synthetic import homophily_graph

        return homophily_graph(float(synthetic["homophily"]), float(synthetic["scale"]), name=name)
    if name not in DATASETS:
        raise ParameterError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}")
    fast = folder() / "pcfi" / f"{name}.npz"
    if not fast.exists():
        dataset = _read(name)
        _keep(dataset, fast)
        return dataset
    return _restore(name, fast)


def folder() -> Path:
    """Where data sets are kept: `PCFI_DATA`, else the platform's folder for caches."""
    chosen = os.environ.get("PCFI_DATA")
    if chosen:
        return Path(chosen)
    try:
        from platformdirs import user_cache_path
    except ImportError:
        raise DatasetError(INSTALL) from None
    return Path(user_cache_path("pcfi"))


def _read(name: str) -> Dataset:
    if name == "OGBN-Arxiv":
        from pcfi.experiments.arxiv import read_arxiv

        return read_arxiv(folder() / "ogbn_arxiv")
    try:
        from torch_geometric.datasets import Amazon, Planetoid
    except ImportError:
        raise DatasetError(INSTALL) from None
    loader = Amazon if name in ("Photo", "Computers") else Planetoid
    data = fetch(name, lambda: loader(str(folder()), name))[0]
    return connected(name, data.x.numpy(), data.y.numpy(), data.edge_index.numpy())


def fetch(name: str, load: Callable[[], Any]) -> Any:
    """What `load` gives, or an error that says what to do when there is no network."""
    try:
        return load()
    except (OSError, TimeoutError) as error:
        raise DatasetError(
            f"{name} is not in {folder()} and could not be downloaded ({type(error).__name__}: {error}): connect to the "
            "network once, or set PCFI_DATA to a folder that holds it"
        ) from error


def connected(
    name: str, features: Array, labels: Array, edges: Array, split: dict[str, Array] | None = None
) -> Dataset:
    """The largest connected component of a graph, made undirected, without self-loops."""
    from scipy import sparse
    from scipy.sparse import csgraph

    n_nodes = len(features)
    adjacency = sparse.coo_array(
        (np.ones(edges.shape[1], bool), (edges[0], edges[1])), shape=(n_nodes, n_nodes)
    ).tocsr()
    adjacency = adjacency.maximum(adjacency.T)
    component = csgraph.connected_components(adjacency, directed=False)[1]
    chosen = np.flatnonzero(component == np.bincount(component).argmax())
    kept = adjacency[chosen][:, chosen].tocoo()
    row, column = kept.coords
    order = np.lexsort((column, row))
    row, column = row[order], column[order]
    number = np.full(n_nodes, -1)
    number[chosen] = np.arange(len(chosen))
    return Dataset(
        name=name,
        features=np.ascontiguousarray(features[chosen], dtype=np.float32),
        labels=labels[chosen].astype(np.int64),
        edges=np.stack([row, column])[:, row != column].astype(np.int64),
        split=split and {part: _inside(number[nodes]) for part, nodes in split.items()},
    )


def _inside(numbers: Array) -> Array:
    return numbers[numbers >= 0].astype(np.int64)


def _keep(dataset: Dataset, path: Path) -> None:
    """Write a data set so that it loads fast: features as the places and values of what is not 0, when few are."""
    flat = dataset.features.ravel()
    places = np.flatnonzero(flat)
    few = len(places) < flat.size // 4
    arrays = {
        "shape": np.array(dataset.features.shape),
        "places": places if few else np.empty(0, np.int64),
        "values": flat[places] if few else flat,
        "labels": dataset.labels,
        "edges": dataset.edges,
        **{f"split_{part}": nodes for part, nodes in (dataset.split or {}).items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as scratch:
        np.savez(scratch, **arrays)
    Path(scratch.name).replace(path)


def _restore(name: str, path: Path) -> Dataset:
    with np.load(path, allow_pickle=False) as kept:
        shape = tuple(kept["shape"])
        features = kept["values"]
        if len(kept["places"]):
            features = np.zeros(shape[0] * shape[1], np.float32)
            features[kept["places"]] = kept["values"]
        split = {key.removeprefix("split_"): kept[key] for key in kept.files if key.startswith("split_")}
        return Dataset(name, features.reshape(shape), kept["labels"], kept["edges"], split or None)
