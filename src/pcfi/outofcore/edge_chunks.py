"""An edge file -> checked chunks of edges, a bounded number at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pcfi._typing import Array
from pcfi.errors import GraphError, ParameterError, UnsupportedTypeError
from pcfi.files.paths import suffix_of, table_suffix
from pcfi.inputs.columns import EdgeColumns
from pcfi.inputs.graphs import check_edge_index_range, check_edge_index_shape, check_weights, whole_numbers
from pcfi.outofcore.edge_tables import SUFFIXES, EdgeChunk, graph_errors, open_table


class EdgeFile(Protocol):
    """Edges that can be read repeatedly, a chunk at a time."""

    @property
    def weighted(self) -> bool:
        """Whether edges have weights of their own."""

    @property
    def held(self) -> int:
        """Bytes of memory that are held while chunks are read, besides the chunks."""

    def chunks(self, size: int) -> Iterator[EdgeChunk]:
        """About `size` edges at a time, in the order of the file, not checked yet."""

    def largest(self) -> int | None:
        """The largest integer among sources and targets if that is known without reading; else None."""


@dataclass(frozen=True, eq=False)
class ArrayEdges:
    """A (2, E) edge index, in memory or mapped, with or without one weight per edge."""

    index: Array
    weights: Array | None

    @property
    def weighted(self) -> bool:
        """Whether edges have weights of their own."""
        return self.weights is not None

    @property
    def held(self) -> int:
        """0, because no ids are mapped."""
        return 0

    def chunks(self, size: int) -> Iterator[EdgeChunk]:
        """Slices of the arrays."""
        for start in range(0, self.index.shape[1], size):
            part = slice(start, start + size)
            weights = np.empty(0) if self.weights is None else np.asarray(self.weights[part])
            yield EdgeChunk(np.asarray(self.index[0, part]), np.asarray(self.index[1, part]), weights)

    def largest(self) -> int | None:
        """Unknown without reading."""
        return None


def open_edges(
    edges: Any,
    *,
    source: str | None = None,
    target: str | None = None,
    weight: Any = None,
    ids: Any = None,
    unknown_ids: str = "error",
) -> EdgeFile:
    """Open the edges of an array or a file; names and ids are checked now, the edges when they are read."""
    if isinstance(edges, np.ndarray):
        return _array_edges(edges, weight, ids)
    if not isinstance(edges, str | Path):
        raise UnsupportedTypeError(
            f"edges is a {type(edges).__qualname__}, but it must be the path of an edge file (.npy, .parquet, .csv, "
            ".tsv) or a (2, E) array"
        )
    path = str(edges)
    if suffix_of(path) == ".npy":
        return _array_edges(_mapped(path), weight, ids)
    if table_suffix(path) not in SUFFIXES:
        raise ParameterError(
            f"edges is {path!r}, but an edge file ends in .npy, .parquet, .csv or .tsv (text also in .gz or .zst)"
        )
    columns = EdgeColumns(source=source, target=target, weight=weight, unknown_ids=unknown_ids)
    return open_table(path, columns, ids)


def _array_edges(index: Array, weights: Any, ids: Any) -> ArrayEdges:
    if ids is not None:
        raise ParameterError("ids= is for edge tables: an edge array holds row numbers already")
    check_edge_index_shape(index)
    if isinstance(weights, str | Path):
        weights = _mapped(str(weights))
    weights = None if weights is False else weights
    if weights is not None and np.shape(weights) != (index.shape[1],):
        raise GraphError(
            f"weight has shape {np.shape(weights)}, but there are {index.shape[1]} edges: pass one weight per edge"
        )
    return ArrayEdges(index, None if weights is None else np.asarray(weights))


def _mapped(path: str) -> Array:
    if not Path(path).is_file():
        raise ParameterError(f"there is no file {path!r}")
    with graph_errors(path):
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def checked(chunk: EdgeChunk, seen: int, n_nodes: int, n_nodes_origin: str) -> EdgeChunk:
    """The chunk with row numbers as integers, or an error that names the edge by its place in the file."""
    try:
        index = whole_numbers(np.stack([chunk.source, chunk.target]))
        check_edge_index_range(index, n_nodes, n_nodes_origin)
        weights = chunk.weights
        if len(weights):
            weights = np.asarray(check_weights(weights, len(weights)), dtype=np.float64)
    except GraphError as error:
        raise GraphError(f"{error} (counted from edge {seen:,} of the file)" if seen else str(error)) from None
    if index.dtype not in (np.int32, np.int64):
        index = index.astype(np.int64)
    return EdgeChunk(index[0], index[1], weights)


def count_nodes(edges: EdgeFile, size: int) -> int:
    """One more than the largest row number."""
    largest = edges.largest()
    if largest is None:
        largest = -1
        for chunk in edges.chunks(size):
            for end in (chunk.source, chunk.target):
                largest = max(largest, int(end.max(initial=-1)))
    return largest + 1
