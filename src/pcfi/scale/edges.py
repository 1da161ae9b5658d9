"""An edge file -> checked chunks of edges, a bounded number at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pcfi.errors import GraphError, ParameterError, UnsupportedTypeError
from pcfi.graphs import check_edge_index_range, check_edge_index_shape, check_weights, whole_numbers
from pcfi.optional import load
from pcfi.scale.paths import opened, suffix_of

Array = npt.NDArray[Any]

SOURCE_NAMES = ("source", "src", "from")
TARGET_NAMES = ("target", "dst", "to")
WEIGHT_NAMES = ("weight", "weights")


class Chunk(NamedTuple):
    """Some edges: from `source` to `target`; an empty array of weights means that all are 1."""

    source: Array
    target: Array
    weights: Array


class EdgeFile(Protocol):
    """Edges that can be read again and again, a chunk at a time."""

    @property
    def weighted(self) -> bool:
        """Whether edges have weights of their own."""

    def chunks(self, size: int) -> Iterator[Chunk]:
        """About `size` edges at a time, in the order of the file, as they stand there."""

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

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Slices of the arrays."""
        for start in range(0, self.index.shape[1], size):
            part = slice(start, start + size)
            weights = np.empty(0) if self.weights is None else np.asarray(self.weights[part])
            yield Chunk(np.asarray(self.index[0, part]), np.asarray(self.index[1, part]), weights)

    def largest(self) -> int | None:
        """Unknown without reading."""
        return None


@dataclass(frozen=True, eq=False)
class TableEdges:
    """Columns of a Parquet or CSV file; `ids` (a pyarrow array) maps what stands there to row numbers."""

    path: str
    columns: tuple[str, str]
    weight: str | None
    ids: Any = None

    @property
    def weighted(self) -> bool:
        """Whether edges have weights of their own."""
        return self.weight is not None

    def chunks(self, size: int) -> Iterator[Chunk]:
        """Batches of the file."""
        wanted = [*self.columns, *([self.weight] if self.weight else [])]
        batches = _parquet_batches if suffix_of(self.path) == ".parquet" else _csv_batches
        seen = 0
        for batch in batches(self.path, wanted, size):
            source, target = (self._numbers(batch.column(name), name, seen) for name in self.columns)
            weights = np.empty(0)
            if self.weight:
                weights = _plain(batch.column(self.weight), self.weight, seen)
            seen += batch.num_rows
            yield Chunk(source, target, weights)

    def _numbers(self, column: Any, name: str, seen: int) -> Array:
        if self.ids is None:
            return _plain(column, name, seen)
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            found = pc.index_in(column.cast(self.ids.type), value_set=self.ids)
        except pa.ArrowInvalid as error:
            raise GraphError(f"column {name!r} cannot be read as ids of type {self.ids.type}: {error}") from None
        if found.null_count:
            edge = int(np.flatnonzero(np.asarray(found.is_null()))[0])
            raise GraphError(
                f"edge {seen + edge} names node {column[edge].as_py()!r}, which is not among the "
                f"{len(self.ids):,} ids: drop the edge or add the node ({found.null_count:,} such in this part)"
            )
        return np.asarray(found)

    def largest(self) -> int | None:
        """The largest maximum that the statistics of a Parquet file name, if they do."""
        if self.ids is not None:
            return len(self.ids) - 1
        return _parquet_largest(self.path, self.columns) if suffix_of(self.path) == ".parquet" else None


def _plain(column: Any, name: str, seen: int) -> Array:
    if column.null_count:
        edge = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise GraphError(f"edge {seen + edge} has no value in column {name!r}: drop the edge")
    array = np.asarray(column)
    if array.dtype.kind not in "iufb":
        raise GraphError(
            f"column {name!r} holds {column.type}, but must hold numbers: pass ids= (the ids of the nodes in the order "
            "of their rows) if nodes are named"
        )
    return array


def _parquet_batches(path: str, columns: list[str], size: int) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with opened(path) as file:
        yield from pq.ParquetFile(file, pre_buffer=False).iter_batches(batch_size=size, columns=columns)


def _csv_batches(path: str, columns: list[str], size: int) -> Iterator[Any]:
    from pyarrow import csv

    with opened(path) as file:
        yield from csv.open_csv(
            file,
            read_options=csv.ReadOptions(block_size=min(size * 16, 1 << 26)),
            parse_options=csv.ParseOptions(delimiter=_delimiter(path)),
            convert_options=csv.ConvertOptions(include_columns=columns),
        )


def _delimiter(path: str) -> str:
    return "\t" if suffix_of(path) == ".tsv" else ","


def _parquet_largest(path: str, columns: tuple[str, str]) -> int | None:
    import pyarrow.parquet as pq

    largest = -1
    with opened(path) as file:
        facts = pq.ParquetFile(file).metadata
        places = [facts.schema.to_arrow_schema().names.index(name) for name in columns]
        for group in range(facts.num_row_groups):
            for place in places:
                found = facts.row_group(group).column(place).statistics
                if found is None or not found.has_min_max or not isinstance(found.max, int):
                    return None
                largest = max(largest, found.max)
    return largest


def open_edges(
    edges: Any, *, source: str | None = None, target: str | None = None, weight: Any = None, ids: Any = None
) -> EdgeFile:
    """The edges of an array or a file; names and ids are checked, the edges themselves when they are read."""
    if isinstance(edges, np.ndarray):
        return _array_edges(edges, weight, ids)
    if not isinstance(edges, str | Path):
        raise UnsupportedTypeError(
            f"edges is a {type(edges).__qualname__}, but must be the path of an edge file (.npy, .parquet, .csv, "
            ".tsv) or a (2, E) array"
        )
    path = str(edges)
    kind = suffix_of(path)
    if kind == ".npy":
        return _array_edges(_mapped(path), weight, ids)
    if kind not in (".parquet", ".csv", ".tsv"):
        raise ParameterError(f"edges is {path!r}, but an edge file ends in .npy, .parquet, .csv or .tsv")
    load("pyarrow", "an edge table", "scale")
    names = _column_names(path)
    columns = (_choose(names, source, SOURCE_NAMES, 0, "source"), _choose(names, target, TARGET_NAMES, 1, "target"))
    return TableEdges(path, columns, _choose_weight(names, weight), _arrow_ids(ids))


def _array_edges(index: Array, weights: Any, ids: Any) -> ArrayEdges:
    if ids is not None:
        raise ParameterError("ids= is for edge tables: an edge array holds row numbers already")
    check_edge_index_shape(index)
    if isinstance(weights, str | Path):
        weights = _mapped(str(weights))
    if weights is not None and np.shape(weights) != (index.shape[1],):
        raise GraphError(
            f"weight has shape {np.shape(weights)}, but there are {index.shape[1]} edges: pass one weight per edge"
        )
    return ArrayEdges(index, None if weights is None else np.asarray(weights))


def _mapped(path: str) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array
    except FileNotFoundError:
        raise ParameterError(f"there is no file {path!r}") from None
    except ValueError as error:
        raise GraphError(f"{path!r} cannot be read as .npy: {error}") from None


def _column_names(path: str) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    try:
        with opened(path) as file:
            if suffix_of(path) == ".parquet":
                return list(pq.ParquetFile(file).schema_arrow.names)
            options = csv.ParseOptions(delimiter=_delimiter(path))
            return list(csv.open_csv(file, parse_options=options).schema.names)
    except pa.ArrowInvalid as error:
        raise GraphError(f"{path!r} cannot be read: {error}") from None


def _choose(names: list[str], given: str | None, usual: tuple[str, ...], place: int, what: str) -> str:
    if given is not None:
        if given not in names:
            raise ParameterError(f"{what} must be a column of the edge file, got {given!r}: it has {names}")
        return given
    found = [name for name in names if name.lower() in usual]
    if found:
        return found[0]
    if len(names) <= place:
        raise GraphError(f"the edge file has the columns {names}, but a source and a target are needed")
    return names[place]


def _choose_weight(names: list[str], given: Any) -> str | None:
    if given is None:
        return next((name for name in names if name.lower() in WEIGHT_NAMES), None)
    if given not in names:
        raise ParameterError(f"weight must be a column of the edge file, got {given!r}: it has {names}")
    return str(given)


def _arrow_ids(ids: Any) -> Any:
    if ids is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else pa.array(ids)
    if array.null_count:
        raise GraphError(f"ids holds {array.null_count:,} nulls: every node needs an id")
    if pc.count_distinct(array).as_py() != len(array):
        raise GraphError("ids holds the same id more than once: every node needs one of its own")
    return array


def checked(chunk: Chunk, seen: int, n_nodes: int, wanted: str) -> Chunk:
    """The chunk with row numbers as integers, or an error that names the edge by its place in the file."""
    try:
        index = whole_numbers(np.stack([chunk.source, chunk.target]))
        check_edge_index_range(index, n_nodes, wanted)
        weights = chunk.weights
        if len(weights):
            weights = np.asarray(check_weights(weights, len(weights)), dtype=np.float64)
    except GraphError as error:
        raise GraphError(f"{error} (counted from edge {seen:,} of the file)" if seen else str(error)) from None
    if index.dtype not in (np.int32, np.int64):
        index = index.astype(np.int64)
    return Chunk(index[0], index[1], weights)


def count_nodes(edges: EdgeFile, size: int) -> int:
    """One more than the largest row number."""
    largest = edges.largest()
    if largest is None:
        largest = -1
        for chunk in edges.chunks(size):
            for end in (chunk.source, chunk.target):
                largest = max(largest, int(end.max(initial=-1)))
    return largest + 1
