"""A node file -> a table of pyarrow, and which of its columns are ids and channels."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pcfi.errors import FileError, ParameterError, counted
from pcfi.files.binary import FEATURES, as_table, read_arrow, read_h5ad, read_npy, read_npz, read_parquet
from pcfi.files.formats import NODE_FORMATS
from pcfi.files.opening import InputFile, clear_errors, open_input
from pcfi.files.text import (
    DRESSED,
    MARKERS,
    NUMBER,
    codes,
    dialect_of,
    empty_as_null,
    header,
    read_text,
    refuse_mixed,
    typed,
)
from pcfi.inputs.node_tables import is_number

ID_NAMES = ("id", "node", "node_id")
LIKELY_ID = r"[\W_][iI][dD]$|[a-z0-9]I[dD]$"  # customer_id, customer ID, customerId


@dataclass(frozen=True)
class Wanted:
    """What the user says about the columns of a node file.

    Attributes
    ----------
    id : str or None
    columns : sequence of str
        The channels; empty: all columns of numbers.
    exclude : sequence of str
        Columns that are no channels.
    categorical : sequence of str
    missing : sequence of str
        Markers of missing cells, besides null and NaN.
    """

    id: str | None = None
    columns: Sequence[str] = ()
    exclude: Sequence[str] = ()
    categorical: Sequence[str] = ()
    missing: Sequence[str] = ()

    def names(self) -> list[tuple[str, str]]:
        """Every column that an option names, with the option."""
        single = [("--id", self.id)] if self.id is not None else []
        several = (("--columns", self.columns), ("--exclude", self.exclude), ("--categorical", self.categorical))
        return [*single, *((option, name) for option, names in several for name in names)]


@dataclass(frozen=True, eq=False)
class NodeFileContents:
    """A node table, read, and what its columns are.

    Attributes
    ----------
    table : pyarrow.Table
    id : str or None
        The column of ids; None: nodes are named by their row numbers.
    channels : list of str
        Columns of numbers to fill.
    categorical : list of str
        Columns of categories to fill.
    ids_are_text : bool
        Whether ids come from a text file, where 7 and 007 are two ids, and other columns pass through as text.
    dialect : str
        How such a file is written, in words, if not as its suffix says.
    """

    table: Any
    id: str | None
    channels: list[str]
    categorical: list[str] = field(default_factory=list)
    ids_are_text: bool = False
    dialect: str = ""

    @property
    def passed(self) -> list[str]:
        """Columns that pass through untouched, besides the ids."""
        used = {self.id, *self.channels, *self.categorical}
        return [name for name in self.table.column_names if name not in used]

    def typed(self, table: Any) -> Any:
        """A table of these columns with those that pass through as text in the types that their values have."""
        if self.ids_are_text:
            for name in set(self.passed).intersection(table.column_names):
                table = table.set_column(table.column_names.index(name), name, typed(table[name]))
        return table


def read_nodes(path: str, wanted: Wanted) -> NodeFileContents:
    """Read a node file and decide which columns are ids and channels."""
    source = open_input(path, NODE_FORMATS, "nodes")
    with clear_errors(source):
        table = _read(source, wanted)
    if table.num_rows == 0:
        raise FileError(f"{source.words} has no rows: one row per node is needed")
    id_column, channels = choose_columns(table, wanted, source, lambda name: differ(table[name]))
    if id_column is not None and table[id_column].null_count:
        lacking = _lacking(table[id_column], id_column)
        raise FileError(f"{source.words}: the column {lacking}, but every node needs an id of its own")
    table = mark_missing(table, channels, wanted.missing)
    usual = MARKERS if source.format.is_text else ()
    table = mark_missing(table, wanted.categorical, [*wanted.missing, *usual])
    dialect = str(dialect_of(source)) if source.format.is_text else ""
    return NodeFileContents(table, id_column, channels, list(wanted.categorical), source.format.is_text, dialect)


def choose_columns(
    table: Any, wanted: Wanted, source: InputFile, is_unique: Callable[[str], bool]
) -> tuple[str | None, list[str]]:
    """The column of ids, if there is one, and the channels. The table may be empty if types say all."""
    _check_names(table.column_names, wanted, source)
    id_column = _choose_id(table.schema, wanted, is_unique)
    return id_column, _choose_channels(table, wanted, id_column, source)


def _read(source: InputFile, wanted: Wanted) -> Any:
    readers = {"parquet": read_parquet, "arrow": read_arrow, "h5ad": read_h5ad}
    if source.format.name in readers:
        return readers[source.format.name](source)
    if source.format.is_text:
        return empty_as_null(_read_text(source, wanted))
    return as_table(read_npy(source) if source.format.name == "npy" else read_npz(source, FEATURES), source)


def _read_text(source: InputFile, wanted: Wanted) -> Any:
    """A text file; ids stay text, and whether a column is one may depend on its values."""
    names = header(source)
    kept, likely = _untouched(names, wanted), _likely_ids(names, wanted)
    kept |= codes(source).difference(wanted.columns)
    table = read_text(source, as_text={*kept, *likely}, missing=wanted.missing)
    found = next((name for name in likely if differ(table[name])), None)
    if kept.issuperset(set(likely) - {found}):
        return table
    return read_text(source, as_text={*kept, *([found] if found else [])}, missing=wanted.missing)


def differ(column: Any) -> bool:
    """Whether no value is missing or stands twice."""
    import pyarrow.compute as pc

    return bool(column.null_count == 0 and pc.count_distinct(column).as_py() == len(column))


def _lacking(column: Any, name: str) -> str:
    import pyarrow.compute as pc

    row = pc.index(pc.is_null(column), True).as_py()
    return f"{name!r} lacks {counted(column.null_count, 'id')}, first in row {row + 1}"


def nearly_ids(nodes: NodeFileContents) -> str:
    """Why a column of text that looks like ids was not taken, in words; empty if there is none."""
    import pyarrow.compute as pc

    for name in nodes.passed:
        column = nodes.table[name]
        if not _is_text(column.type) or 10 * pc.count_distinct(column).as_py() < 9 * len(column):
            continue
        if column.null_count:
            return _lacking(column, name)
        counts = pc.value_counts(column)
        twice = counts.field("values")[pc.index(pc.greater(counts.field("counts"), 1), True).as_py()]
        return f"{name!r} holds {twice.as_py()!r} more than once"
    return ""


def dressed_numbers(nodes: NodeFileContents, wanted: Wanted) -> list[tuple[str, str]]:
    """Columns that pass through as text though all their values are numbers with separators or signs, and a value."""
    import pyarrow.compute as pc

    found = []
    for name in nodes.passed:
        column = nodes.table[name]
        if wanted.columns or name in wanted.exclude or not _is_text(column.type) or column.null_count == len(column):
            continue
        dressed = pc.match_substring_regex(column, DRESSED)
        if pc.all(dressed).as_py() and not pc.all(pc.match_substring_regex(column, NUMBER)).as_py():
            found.append((name, str(column[pc.index(pc.is_valid(column), True).as_py()].as_py())))
    return found


def _untouched(names: Sequence[str], wanted: Wanted) -> set[str]:
    """Columns that are no channels for sure, so that their text is kept as it is written: 007 stays 007."""
    id_column = wanted.id or _named_id(names)
    others = set(names).difference(wanted.columns) if wanted.columns else set(wanted.exclude)
    return {*others, *wanted.categorical, *([id_column] if id_column is not None else [])}


def _check_names(names: Sequence[str], wanted: Wanted, source: InputFile) -> None:
    for option, name in wanted.names():
        if name not in names:
            shown = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            raise ParameterError(f"{option} names {name!r}, but {source.words} has only the columns {shown}")


def _named_id(names: Sequence[str]) -> str | None:
    return next((name for wanted in ID_NAMES for name in names if name.lower() == wanted), None)


def _likely_ids(names: Sequence[str], wanted: Wanted) -> list[str]:
    """Columns named as ids often are, customer_id or userId: they are if all values differ, unless another is named."""
    named = wanted.id or _named_id(names)
    if named is not None and named not in wanted.columns:
        return []
    used = {*wanted.columns, *wanted.categorical}
    return [name for name in names if name not in used and re.search(LIKELY_ID, name)]


def _choose_id(schema: Any, wanted: Wanted, is_unique: Callable[[str], bool]) -> str | None:
    """The column that is named; else by its usual name; else the first of unique things: likely names, then texts."""
    from pyarrow import types

    found = wanted.id or _named_id(schema.names)
    if found is not None and found not in wanted.columns:
        return found
    used = {*wanted.columns, *wanted.categorical}
    texts = [str(one.name) for one in schema if one.name not in used and _is_text(one.type)]
    likely = [
        name for name in _likely_ids(schema.names, wanted) if name in texts or types.is_integer(schema.field(name).type)
    ]
    return next((name for name in (*likely, *texts) if is_unique(name)), None)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def _choose_channels(table: Any, wanted: Wanted, id_column: str | None, source: InputFile) -> list[str]:
    if wanted.columns:
        for name in wanted.columns:
            refuse_mixed(table, name, source)
        return list(wanted.columns)
    apart = {id_column, *wanted.exclude, *wanted.categorical}
    candidates = [field_ for field_ in table.schema if field_.name not in apart]
    if source.format.is_text:
        for field_ in candidates:
            refuse_mixed(table, field_.name, source)
    channels = [str(field_.name) for field_ in candidates if is_number(field_.type)]
    if not channels and not wanted.categorical:
        there = ", ".join(f"{field_.name!r} ({field_.type})" for field_ in list(table.schema)[:20])
        raise FileError(
            f"{source.words} has no columns of numbers to fill, besides ids and what --exclude names: it has {there}; "
            "columns of categories can be filled with --categorical"
        )
    return channels


def like_ids(nodes: NodeFileContents) -> str | None:
    """A channel of whole numbers that are all different, if nodes go by row number: perhaps it holds their ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if nodes.id is not None or nodes.table.num_rows < 2:
        return None
    for name in nodes.channels:
        column = nodes.table[name]
        whole = pa.types.is_integer(column.type) and column.null_count == 0
        if whole and len(pc.unique(column)) == len(column):
            return name
    return None


def mark_missing(table: Any, names: Sequence[str], markers: Sequence[str]) -> Any:
    """The table with null where one of these columns holds a marker, and with all of them in types that can be used."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in names:
        column = table[name]
        coded = pa.types.is_dictionary(column.type)
        if coded and markers:
            column = column.cast(column.type.value_type)
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.string())  # from text to float rounds rightly, from decimal it may not
        if pa.types.is_null(column.type) or pa.types.is_decimal(table[name].type):
            column = column.cast(pa.float64())
        for marker in markers:
            value = _as_type(marker, column.type)
            if value is not None:
                column = pc.if_else(pc.equal(column, value), pa.scalar(None, column.type), column)
        if coded and markers:
            column = column.dictionary_encode()
        if column is not table[name]:
            table = table.set_column(table.column_names.index(name), name, column)
    return table


def _as_type(marker: str, kind: Any) -> Any:
    """The marker as something that a column of this type can hold, or None."""
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.scalar(marker, kind)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    try:
        number = float(marker)
        whole = pa.types.is_integer(kind)
        return (
            pa.scalar(int(number), kind)
            if whole and number == int(number)
            else None
            if whole
            else pa.scalar(number, kind)
        )
    except (ValueError, OverflowError, pa.ArrowInvalid):
        return None


def described(nodes: NodeFileContents, path: str, n_nodes: int | None = None) -> str:
    """What was chosen, in a sentence; `n_nodes` is for a table that is not here as a whole."""
    rows = counted(nodes.table.num_rows if n_nodes is None else n_nodes, "node")
    ids = "named by row numbers" if nodes.id is None else f"ids in {nodes.id!r}"
    channels = (
        f"{counted(len(nodes.channels), 'channel')} ({shown(nodes.channels)})" if nodes.channels else "no channel"
    )
    categorical = f", categories {shown(nodes.categorical)}" if nodes.categorical else ""
    passed = f"; passed through: {shown(nodes.passed)}" if nodes.passed else ""
    return f"{path}{nodes.dialect}: {rows}, {ids}, {channels}{categorical}{passed}"


def shown(names: Sequence[str], most: int = 6) -> str:
    """A few names of a list.

    >>> shown(["a", "b", "c", "d"], 2)
    'a, b, ... d'
    """
    return ", ".join(names) if len(names) <= most + 1 else ", ".join([*names[:most], f"... {names[-1]}"])
