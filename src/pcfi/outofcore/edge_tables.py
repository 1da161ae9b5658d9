"""Columns of an edge table, Parquet or CSV -> chunks of edges between row numbers; ids are mapped on the way."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ColumnWarning, GraphError, PcfiError, counted
from pcfi.files.opening import InputFile
from pcfi.files.paths import opened, table_suffix
from pcfi.files.text import DelimitedTable, first_rows, parse_options
from pcfi.inputs.columns import (
    EdgeColumns,
    check_distinct,
    choose_edge_columns,
    headless,
    looks_like_data,
    unused_weight,
)
from pcfi.inputs.id_index import IdIndex
from pcfi.inputs.node_tables import kind_of_arrow
from pcfi.optional import load
from pcfi.outofcore.feature_stores import parquet_files

SUFFIXES = (".parquet", ".csv", ".tsv")
IDS = ("source", "target")  # names of the columns of ids, and then of row numbers


class EdgeChunk(NamedTuple):
    """Some edges: from `source` to `target`; an empty array of weights means that all are 1."""

    source: Array
    target: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class TableEdges:
    """Columns of a CSV file, of a Parquet file or of a folder of them.

    Attributes
    ----------
    path : str
    columns : tuple of str
        Source and target.
    weight : str or None
    ids : pyarrow.Array or None
        The ids of the nodes, if they are named by ids; None: by row numbers.
    drops : bool
        Whether edges that name an unknown id are left out.
    """

    path: str
    columns: tuple[str, str]
    weight: str | None
    ids: Any = None
    drops: bool = False

    @property
    def weighted(self) -> bool:
        """Whether edges have weights of their own."""
        return self.weight is not None

    @property
    def held(self) -> int:
        """Bytes of memory that mapping ids takes."""
        return 0 if self.ids is None else self.ids.nbytes + IdIndex.size(len(self.ids), self.ids.nbytes)

    def chunks(self, size: int) -> Iterator[EdgeChunk]:
        """Batches of the file."""
        with graph_errors(self.path):
            seen = 0
            for batch in self._plain(size) if self.ids is None else self._numbered(size):
                weights = np.empty(0)
                if self.weight:
                    weights = _numbers(batch.column("weight"), self.weight, seen)
                ends = [_numbers(batch.column(end), name, seen) for end, name in zip(IDS, self.columns, strict=True)]
                seen += batch.num_rows
                yield EdgeChunk(ends[0], ends[1], weights)

    def _plain(self, size: int) -> Iterator[Any]:
        """Batches with the columns "source", "target" and, if there are weights, "weight", not checked yet."""
        read = _parquet_batches if table_suffix(self.path) == ".parquet" else _csv_batches
        names = {"source": self.columns[0], "target": self.columns[1]} | (
            {"weight": self.weight} if self.weight else {}
        )
        import pyarrow as pa

        for batch in read(self.path, names, size, None if self.ids is None else self.ids.type):
            yield pa.record_batch({name: batch.column(column) for name, column in names.items()})

    def _numbered(self, size: int) -> Iterator[Any]:
        """The same with row numbers for ids, by one hash table of the ids for all batches."""
        import pyarrow as pa

        index, seen = IdIndex(self.ids), 0
        for batch in self._of_one_type(size):
            rows = {end: index.rows(batch.column(end)) for end in IDS}
            unknown = np.logical_or(*(found < 0 for found in rows.values()))
            if unknown.any():
                self._refuse_unknown(batch, rows, unknown, seen)
            numbered = pa.record_batch(rows | ({"weight": batch.column("weight")} if self.weight else {}))
            yield numbered.filter(pa.array(~unknown)) if unknown.any() else numbered
            seen += batch.num_rows

    def _of_one_type(self, size: int) -> Iterator[Any]:
        """Batches whose ends have the type of the ids."""
        import pyarrow as pa

        fields = [pa.field(end, self.ids.type) for end in IDS] + (
            [pa.field("weight", pa.float64())] if self.weight else []
        )
        seen = 0
        for batch in self._plain(size):
            columns = [self._cast(batch.column(field.name), field, seen) for field in fields]
            seen += batch.num_rows
            yield pa.record_batch(columns, schema=pa.schema(fields))

    def _cast(self, column: Any, field: Any, seen: int) -> Any:
        import pyarrow as pa

        name = self.weight if field.name == "weight" else self.columns[IDS.index(field.name)]
        try:
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            what = "weights" if field.name == "weight" else f"ids of type {field.type}"
            raise GraphError(f"column {name!r} cannot be read as {what} (after edge {seen:,}): {error}") from None

    def _refuse_unknown(self, batch: Any, rows: dict[str, Array], unknown: Array, seen: int) -> None:
        """Raise `GraphError` that names the first unknown id, unless edges of unknown ids are left out."""
        if self.drops:
            return
        edge = int(np.argmax(unknown))
        end = next(end for end in IDS if rows[end][edge] < 0)
        raise GraphError(
            f"edge {seen + edge} names {batch.column(end)[edge].as_py()!r}, which is not among the "
            f"{counted(len(self.ids), 'id')} of the nodes; {counted(int(unknown.sum()), 'edge')} of "
            f"{batch.num_rows:,} in this part of the file do so",
            remedy="add the rows, or leave these edges out with {unknown_ids='drop'}",
        )

    def largest(self) -> int | None:
        """The largest maximum that the statistics of a Parquet file name, if they do."""
        if self.ids is not None:
            return len(self.ids) - 1
        return _parquet_largest(self.path, self.columns) if table_suffix(self.path) == ".parquet" else None


def _numbers(column: Any, name: str, seen: int) -> Array:
    if column.null_count:
        edge = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise GraphError(f"edge {seen + edge} has no value in column {name!r}: drop the edge")
    array = np.asarray(column)
    if array.dtype.kind not in "iufb":
        raise GraphError(
            f"column {name!r} holds {column.type}, but must hold row numbers",
            remedy="name the column of the nodes that holds ids with {id}",
        )
    return array


def _parquet_batches(path: str, names: dict[str, str], size: int, _: Any) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for part in parquet_files(path):
        with opened(part) as file:
            batches = pq.ParquetFile(file, pre_buffer=False).iter_batches
            yield from batches(batch_size=size, columns=list(names.values()))


def _csv_batches(path: str, names: dict[str, str], size: int, ids: Any) -> Iterator[Any]:
    """Batches of a text file; types are not guessed from the first rows: 007 may be an id, weights may begin with 1."""
    import pyarrow as pa
    from pyarrow import csv

    file = InputFile.of_table(path)
    types = {names[end]: ids for end in IDS if ids is not None}
    if "weight" in names:
        types[names["weight"]] = pa.float64()
    decimal = weight_decimal(file, names["weight"]) if "weight" in names else "."
    options = csv.ConvertOptions(include_columns=list(names.values()), column_types=types, decimal_point=decimal)
    with file.arrow() as stream:
        blocks = csv.ReadOptions(block_size=min(size * 16, 1 << 26))
        yield from csv.open_csv(stream, blocks, parse_options(file), options)


def weight_decimal(file: InputFile, weight: str) -> str:
    """The decimal mark of the weights, by the first rows; a row that is written in another way is an error later."""
    rows = first_rows(file).select([weight])
    return DelimitedTable(file, rows).types(())[weight].decimal if rows.num_rows else "."


def _parquet_largest(path: str, columns: tuple[str, str]) -> int | None:
    import pyarrow.parquet as pq

    largest = -1
    for part in parquet_files(path):
        with opened(part) as file:
            facts = pq.ParquetFile(file).metadata
        paths = [facts.schema.column(leaf).path for leaf in range(facts.num_columns)]  # a struct has several leaves
        if any(paths.count(name) != 1 for name in columns):
            return None
        places = [paths.index(name) for name in columns]
        for group in range(facts.num_row_groups):
            for place in places:
                statistics = facts.row_group(group).column(place).statistics
                if statistics is None or not statistics.has_min_max or not isinstance(statistics.max, int):
                    return None
                largest = max(largest, statistics.max)
    return largest


@contextmanager
def graph_errors(path: str) -> Iterator[None]:
    """Raise errors of a library about a bad file as a `GraphError` that names the file."""
    try:
        yield
    except (PcfiError, MemoryError, ModuleNotFoundError, NameError, AttributeError):  # the last are bugs of pcfi
        raise
    except Exception as error:
        raise GraphError(f"{path!r} cannot be read: {' '.join(str(error).split())}") from None


def open_table(path: str, columns: EdgeColumns, ids: Any) -> TableEdges:
    """An edge table with its columns chosen and its ids checked; the edges are checked when they are read."""
    load("pyarrow", "an edge table", "scale")
    schema = schema_of(path)
    chosen = choose_edge_columns(schema.names, columns, "the edge file")
    unused = unused_weight({one.name: kind_of_arrow(one.type) for one in schema}, chosen, columns)
    if unused is not None:
        text = f"the edges are unweighted, although the column {unused!r} of the edge file holds numbers: pass weight="
        warnings.warn(f"{text}{unused!r} if these are weights, or weight=False if not", ColumnWarning, stacklevel=4)
    checked = _checked_ids(ids)
    if table_suffix(path) != ".parquet" and looks_like_data(chosen.ends, lambda name: _is_id(name, checked)):
        raise headless(repr(path), chosen.ends)
    return TableEdges(path, chosen.ends, chosen.weight, checked, columns.unknown_ids == "drop")


def _is_id(name: str, ids: Any) -> bool:
    """Whether a name is among the ids; without ids, whether it is a row number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return name.isdecimal() if ids is None else bool(pc.any(pc.equal(ids.cast(pa.string()), name)).as_py())


def first_ends(path: str, columns: EdgeColumns, size: int) -> list[Any]:
    """What both ends of the first edges hold."""
    chosen = choose_edge_columns(schema_of(path).names, columns, "the edge file")
    batch = next(TableEdges(path, chosen.ends, None)._plain(size), None)
    return [] if batch is None else [batch.column(end) for end in IDS]


def schema_of(path: str) -> Any:
    """Names and types of the columns of an edge table; of a text file, as its first rows have them."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    with graph_errors(path):
        if table_suffix(path) == ".parquet":
            parts = parquet_files(path)
            if not parts:
                raise GraphError(f"there is no Parquet file in {path!r}")
            with opened(parts[0]) as file:
                schema = pq.ParquetFile(file).schema_arrow
        else:
            source = InputFile.of_table(path)
            with source.arrow() as stream:
                schema = csv.open_csv(stream, parse_options=parse_options(source)).schema
        check_distinct(schema.names, repr(path), GraphError)
        return schema


def _checked_ids(ids: Any) -> Any:
    if ids is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    array = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else pa.array(ids)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        raise GraphError(f"ids holds {array.null_count:,} nulls: every node needs an id")
    if pc.count_distinct(array).as_py() != len(array):
        counts = pc.value_counts(array)
        twice = counts.field("values")[pc.index(pc.greater(counts.field("counts"), 1), True).as_py()].as_py()
        raise GraphError(f"the id {twice!r} is duplicated: ids must be unique")
    return array
