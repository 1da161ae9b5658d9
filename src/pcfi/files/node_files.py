"""A node file -> a table of pyarrow, and which of its columns are ids and channels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pcfi.errors import FileError, counted
from pcfi.files.binary import FEATURES, as_table, read_arrow, read_h5ad, read_npy, read_npz, read_parquet
from pcfi.files.duckdb_files import read_duckdb
from pcfi.files.formats import NODE_FORMATS
from pcfi.files.geo_files import GeometryColumn, geometry_of, read_geo
from pcfi.files.hive import partition_columns
from pcfi.files.opening import InputFile, clear_errors, open_input
from pcfi.files.text import (
    DRESSED,
    DelimitedTable,
    empty_as_null,
    holds_integers,
    read_text,
    refuse_mixed,
    typed,
)
from pcfi.files.text_types import NUMBER, ColumnType
from pcfi.files.written_cells import WrittenCells
from pcfi.inputs.columns import (
    TEXT_MARKERS,
    Kind,
    NodeColumns,
    check_name,
    choose_channels,
    choose_id,
    id_by_name,
    id_like_names,
    marker_values,
    shortened,
)
from pcfi.inputs.ids import open_frame
from pcfi.inputs.node_tables import kind_of_arrow, with_categories

LONG = r"\d{19}"  # more digits than an integer of 64 bits may have


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeFileContents:
    """A node table and the roles of its columns.

    Attributes
    ----------
    table : pyarrow.Table
    id : str or None
        The id column; None: nodes are named by their row numbers.
    channels : list of str
        Columns of numbers to fill.
    categorical : list of str
        Categorical columns to fill.
    ids_are_text : bool
        Whether ids come from a text file, where 7 and 007 are two ids, and other columns pass through as text.
    written : WrittenCells or None
        The cells of such a file as they are written.
    geometry : GeometryColumn or None
        The column that holds geometry, if one does.
    partitions : tuple of str
        Columns that the folders of a dataset hold.
    """

    table: Any
    id: str | None = None
    channels: list[str] = field(default_factory=list)
    categorical: list[str] = field(default_factory=list)
    ids_are_text: bool = False
    written: WrittenCells | None = None
    geometry: GeometryColumn | None = None
    partitions: tuple[str, ...] = ()

    @property
    def passed(self) -> list[str]:
        """Columns that are left unchanged, besides the ids."""
        used = {self.id, *self.channels, *self.categorical}
        return [name for name in self.table.column_names if name not in used]

    def typed(self, table: Any) -> Any:
        """A table of these columns with those that pass through as text in the types that their values have."""
        if self.ids_are_text:
            for name in set(self.passed).intersection(table.column_names):
                table = table.set_column(table.column_names.index(name), name, typed(table[name]))
        return table


def _no_ends() -> Kind | None:
    return None


def read_nodes(path: str, columns: NodeColumns, ends: Callable[[], Kind | None] = _no_ends) -> NodeFileContents:
    """Read a node file and decide which columns are ids and channels.

    `ends` returns what the ends of the edges hold; None if the graph names nodes by row numbers. Without `ends` the
    graph is made from the nodes, and a column called id that does not name them passes through.
    """
    source = open_input(path, NODE_FORMATS, "nodes")
    texts: DelimitedTable | None = None
    types: dict[str, ColumnType] = {}
    with clear_errors(source):
        geometry: GeometryColumn | None = None
        if source.format.is_text:
            texts, types = _read_text(source, columns)
            table = empty_as_null(texts.typed(types))
        else:
            table, geometry = read_binary(source)
    if table.num_rows == 0:
        raise FileError(f"{source.words} has no rows: one row per node is needed")

    def could_name_ends(name: str) -> bool:
        return ends() is not Kind.INTEGER or holds_integers(table[name])

    id_column, channels = choose_columns(table, columns, source, lambda name: differ(table[name]), could_name_ends)
    is_needed = ends is not _no_ends or columns.id is not None
    if id_column is not None and not is_needed and not differ(table[id_column]):
        id_column = None  # as the Id of many maps, which is 0 everywhere
    if id_column is not None and table[id_column].null_count:
        lacking = _lacking(table[id_column], id_column)
        raise FileError(f"{source.words}: the column {lacking}, but every node needs an id of its own")
    is_text = source.format.is_text
    markers = TEXT_MARKERS if is_text else ()
    columns = with_categories(columns, open_frame(table, "the node table"), id_column, markers)
    _refuse_nothing(table, columns, channels, source)
    table = mark_missing(table, channels, columns.missing_values)
    table = mark_missing(table, columns.categorical, [*columns.missing_values, *markers])
    return NodeFileContents(
        table=table,
        id=id_column,
        channels=channels,
        categorical=list(columns.categorical),
        ids_are_text=is_text,
        written=None if texts is None else WrittenCells.of(texts, types),
        geometry=geometry,
        partitions=partitions_of(source),
    )


def partitions_of(source: InputFile) -> tuple[str, ...]:
    """Columns that the folders of a dataset hold."""
    if source.format.name != "parquet" or source.data is not None:
        return ()
    return tuple(partition_columns([part.path for part in source.parts()], source.path))


def choose_columns(
    table: Any,
    columns: NodeColumns,
    source: InputFile,
    is_unique: Callable[[str], bool],
    could_name_ends: Callable[[str], bool],
) -> tuple[str | None, list[str]]:
    """The id column, if there is one, and the channels. The table may be empty if types say all."""
    _check(table.column_names, columns, source)
    kinds = {one.name: kind_of_arrow(one.type) for one in table.schema}
    id_column = choose_id(kinds, columns, is_unique, could_name_ends=could_name_ends)
    channels = choose_channels(kinds, columns, id_column)
    if source.format.is_text or columns.channels is not None:
        apart = {id_column, *columns.exclude, *columns.categorical}
        for name in columns.channels if columns.channels is not None else [one for one in kinds if one not in apart]:
            refuse_mixed(table, name, source, list(map(str, columns.missing_values)))
    if not columns.finds_categories:
        _refuse_nothing(table, columns, channels, source)
    return id_column, channels


def _refuse_nothing(table: Any, columns: NodeColumns, channels: Sequence[str], source: InputFile) -> None:
    """Raise an error if no column is to be filled."""
    if not channels and not columns.categorical:
        there = ", ".join(f"{one.name!r} ({one.type})" for one in list(table.schema)[:20])
        raise FileError(
            f"{source.words} has no numeric columns to fill, besides ids and excluded columns: it has {there}",
            remedy="categorical columns can be filled with {categorical}",
        )


def _check(names: Sequence[str], columns: NodeColumns, source: InputFile) -> None:
    check_name("id", columns.id, names, source.words)
    columns.check(names, source.words)


def read_binary(source: InputFile) -> tuple[Any, GeometryColumn | None]:
    """The table of a file that is not text, and its column of geometry, if it has one."""
    if source.format.is_geo:
        return read_geo(source)
    if source.format.name == "duckdb":
        return read_duckdb(source.path), None
    readers = {"parquet": read_parquet, "arrow": read_arrow, "h5ad": read_h5ad}
    if source.format.name in readers:
        return geometry_of(readers[source.format.name](source), source)
    return as_table(read_npy(source) if source.format.name == "npy" else read_npz(source, FEATURES), source), None


def _read_text(source: InputFile, columns: NodeColumns) -> tuple[DelimitedTable, dict[str, ColumnType]]:
    """A text file as it is written, and the types of its columns; ids stay text, which may depend on their values."""
    texts = read_text(source, missing=list(map(str, columns.missing_values)), decimal=columns.decimal)
    names = texts.cells.column_names
    _check(names, columns, source)
    candidates = [] if id_by_name(names, columns) is not None else id_like_names(names, columns)
    unique = next((name for name in candidates if differ(empty_as_null(texts.cells.select([name]))[name])), None)
    kept = text_columns(names, columns) | ({unique} if unique is not None else set())
    return texts, texts.types(kept, channels=columns.channels or ())


def text_columns(names: Sequence[str], columns: NodeColumns) -> set[str]:
    """Columns that are not channels for sure, so that their text is kept as it is written: 007 stays 007."""
    id_column = id_by_name(names, columns)
    others = set(names).difference(columns.channels) if columns.channels is not None else set(columns.exclude)
    return {*others, *columns.categorical, *([id_column] if id_column is not None else [])}


def differ(column: Any) -> bool:
    """Whether all values are present and unique."""
    import pyarrow.compute as pc

    return bool(column.null_count == 0 and pc.count_distinct(column).as_py() == len(column))


def _lacking(column: Any, name: str) -> str:
    import pyarrow.compute as pc

    row = pc.index(pc.is_null(column), True).as_py()
    return f"{name!r} lacks {counted(column.null_count, 'id')}, first in row {row + 1}"


def nearly_ids(nodes: NodeFileContents) -> str:
    """Why a text column that looks like ids was not used, as text; empty if there is none."""
    import pyarrow.compute as pc

    for name in nodes.passed:
        column = nodes.table[name]
        if kind_of_arrow(column.type) is not Kind.TEXT or 10 * pc.count_distinct(column).as_py() < 9 * len(column):
            continue
        if column.null_count:
            return _lacking(column, name)
        counts = pc.value_counts(column)
        repeated = pc.index(pc.greater(counts.field("counts"), 1), True).as_py()
        if repeated >= 0:
            return f"{name!r} holds {counts.field('values')[repeated].as_py()!r} more than once"
    return ""


def dressed_numbers(nodes: NodeFileContents, columns: NodeColumns) -> list[tuple[str, str]]:
    """Text columns whose values are all formatted numbers, such as $1,234, and a value of each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    examples = []
    for name in nodes.passed:
        column = nodes.table[name]
        is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
        is_text = kind_of_arrow(column.type) is Kind.TEXT and not is_bytes
        if columns.channels is not None or name in columns.exclude or not is_text or column.null_count == len(column):
            continue
        dressed = pc.match_substring_regex(column, DRESSED)
        is_plain = pc.all(pc.match_substring_regex(column, NUMBER)).as_py()
        if pc.all(dressed).as_py() and (not is_plain or pc.any(pc.match_substring_regex(column, LONG)).as_py()):
            examples.append((name, str(column[pc.index(pc.is_valid(column), True).as_py()].as_py())))
    return examples


def mark_missing(table: Any, names: Sequence[str], markers: Sequence[Any]) -> Any:
    """The table with null where one of these columns holds a marker, and with all of them in types that can be used."""
    for name in names:
        column = _marked(table[name], markers)
        if column is not table[name]:
            table = table.set_column(table.column_names.index(name), name, column)
    return table


def _marked(column: Any, markers: Sequence[Any]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    before = column.type
    if pa.types.is_dictionary(before) and markers:
        column = column.cast(before.value_type)
    if pa.types.is_decimal(before):
        column = column.cast(pa.string())  # text to float rounds correctly, decimal to float may not
    if pa.types.is_null(before) or pa.types.is_decimal(before):
        column = column.cast(pa.float64())
    for value in [] if pa.types.is_boolean(column.type) else marker_values(markers, kind_of_arrow(column.type)):
        try:
            marker = pa.scalar(value, column.type)
        except (OverflowError, pa.ArrowInvalid):  # beyond what the column can hold
            continue
        column = pc.if_else(pc.equal(column, marker), pa.scalar(None, column.type), column)
    return column.dictionary_encode() if pa.types.is_dictionary(before) and markers else column


def described(nodes: NodeFileContents, path: str, n_nodes: int | None = None) -> str:
    """Message about the chosen columns; `n_nodes` is given for a table that is read in parts."""
    rows = counted(nodes.table.num_rows if n_nodes is None else n_nodes, "node")
    ids = "named by row numbers" if nodes.id is None else f"ids in {nodes.id!r}"
    channels = (
        f"{counted(len(nodes.channels), 'channel')} ({shortened(nodes.channels)})" if nodes.channels else "no channel"
    )
    categorical = f", categories {shortened(nodes.categorical)}" if nodes.categorical else ""
    passed = f"; passed through: {shortened(nodes.passed)}" if nodes.passed else ""
    dialect = nodes.written.words if nodes.written is not None else ""
    return f"{path}{dialect}: {rows}, {ids}, {channels}{categorical}{passed}"
