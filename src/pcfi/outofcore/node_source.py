"""A file of features, and the columns that the caller names -> ids and channels, by the rules for all tables."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, ParameterError, TooLargeError
from pcfi.files.edge_files import kind_of_ends
from pcfi.files.formats import Format
from pcfi.files.geo_files import geometry_of
from pcfi.files.node_files import NodeFileContents, choose_columns, differ, dressed_numbers
from pcfi.files.opening import InputFile, clear_errors
from pcfi.files.paths import full_path, is_address, suffix_of, table_suffix
from pcfi.files.text import holds_integers
from pcfi.files.text_batches import TextBatches
from pcfi.inputs.code_columns import MIN_ROWS, are_unique_integers, holds_codes
from pcfi.inputs.columns import TEXT_MARKERS, EdgeColumns, Kind, NodeColumns
from pcfi.inputs.node_tables import kind_of_arrow
from pcfi.outofcore.edge_tables import SUFFIXES as EDGE_SUFFIXES
from pcfi.outofcore.edge_tables import first_ends
from pcfi.outofcore.feature_stores import FeatureStore, ParquetStore, open_features
from pcfi.outofcore.node_conversion import conversion_facts, convert_nodes
from pcfi.outofcore.unfilled_columns import count_values
from pcfi.system_memory import size_in_words

ROWS_AT_A_TIME = 1 << 16  # also enough to reject most columns as ids before all of their values are compared
TEXT_SUFFIXES = (".csv", ".tsv")


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeSource:
    """The features of a run, and the roles of their columns.

    Attributes
    ----------
    store : FeatureStore
        The channels.
    id : str or None
        The id column; None: nodes are named by row numbers.
    schema : pyarrow.Schema or None
        Of all columns of the caller's table; None for a file without names of columns.
    channels : list of str
        Columns of numbers that are filled.
    categories : dict of lists of str
        Categories of each categorical column.
    original : dict or None
        Of a table that was converted: its path, its stamp and the columns that the caller named.
    gaps : dict of int
        Number of missing cells of each column that is not filled; empty if the caller named the columns, or if a
        converted table was found.
    has_names : bool
        Whether columns have names; the columns of an array have numbers, as in `pcfi.impute`, unless the caller
        reads every file as a table.
    """

    store: FeatureStore
    id: str | None = None
    schema: Any = None
    channels: list[str] = field(default_factory=list)
    categories: dict[str, list[str]] = field(default_factory=dict)
    original: dict[str, Any] | None = None
    gaps: dict[str, int] = field(default_factory=dict)
    has_names: bool = True

    @property
    def partitions(self) -> tuple[str, ...]:
        """Columns that the folders of the caller's dataset hold."""
        return partitions_of(self.store, self.original)


def partitions_of(store: FeatureStore, original: dict[str, Any] | None) -> tuple[str, ...]:
    """Columns that the folders of a dataset hold, of features or of the original of converted ones."""
    return tuple(getattr(store, "partitions", ()) if original is None else original["partitions"])


def ends_of(graph: Any, columns: EdgeColumns) -> Callable[[], Kind | None]:
    """A function that returns the kind of the ends of an edge file; None if they are row numbers."""

    def look() -> Kind | None:
        path = full_path(graph) if isinstance(graph, str | Path) else ""
        return kind_of_ends(InputFile.of_table(path), columns) if table_suffix(path) in EDGE_SUFFIXES else None

    return look


def id_like_channel(nodes: NodeSource, graph: Any, columns: EdgeColumns, limit: int) -> str | None:
    """A channel of unique integers that contains every id in the first edges: perhaps the ids."""
    import pyarrow.compute as pc

    path = full_path(graph) if isinstance(graph, str | Path) else ""
    if nodes.id is not None or not isinstance(nodes.store, ParquetStore) or table_suffix(path) not in EDGE_SUFFIXES:
        return None
    rows = _ParquetRows(nodes.store)
    numbers = [name for name in nodes.channels if kind_of_arrow(rows.schema.field(name).type) is Kind.INTEGER]
    candidates = [name for name in numbers if differ(rows.sample(name))]
    ends = first_ends(path, columns, ROWS_AT_A_TIME) if candidates else []
    if not ends or any(kind_of_arrow(end.type) is not Kind.INTEGER for end in ends):
        return None
    for name in candidates:
        with suppress(TooLargeError):
            ids = rows.column(name, limit)
            holds_all = all(
                pc.all(pc.is_in(end.cast(ids.type), value_set=ids.combine_chunks())).as_py() for end in ends
            )
            if holds_all and differ(ids):
                return name
    return None


def code_channels(nodes: NodeSource, limit: int) -> list[str]:
    """Channels that hold codes, as `code_columns` finds them in a table."""
    if not isinstance(nodes.store, ParquetStore) or nodes.store.shape[0] < MIN_ROWS:
        return []
    rows, found = _ParquetRows(nodes.store), []
    for name in nodes.channels:
        kind = kind_of_arrow(rows.schema.field(name).type)
        if kind not in (Kind.INTEGER, Kind.NUMBER) or not _may_be_codes(rows.sample(name)):
            continue
        with suppress(TooLargeError):
            column = rows.column(name, limit)
            if _may_be_codes(column) and holds_codes(name, _as_floats(column)):
                found.append(name)
    return found


def text_numbers(nodes: NodeSource, columns: NodeColumns) -> list[tuple[str, str]]:
    """Columns of text whose first rows are all numbers with separators or signs, and a value of each."""
    if not isinstance(nodes.store, ParquetStore):
        return []
    rows = _ParquetRows(nodes.store)
    taken = {nodes.id, *nodes.channels, *nodes.categories}
    names = [field.name for field in rows.schema if field.name not in taken and kind_of_arrow(field.type) is Kind.TEXT]
    if not names or columns.channels is not None:
        return []
    head = next(rows.read(names))
    return dressed_numbers(NodeFileContents(table=head, id=None, channels=[], categorical=[]), columns)


def _may_be_codes(column: Any) -> bool:
    values = _as_floats(column)
    return len(values) > 0 and not np.isnan(values).any() and are_unique_integers(values)


def _as_floats(column: Any) -> Array:
    import pyarrow as pa

    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))


@dataclass(frozen=True, kw_only=True)
class ConversionFile:
    """Path of the converted table, and whether a run that is resumed has written it before."""

    path: Path
    is_done: bool


def open_nodes(
    path: Any, columns: NodeColumns, ends: Callable[[], Kind | None], limit: int, conversion: ConversionFile | None
) -> NodeSource:
    """Choose columns by the rules for all tables; looking for ids takes at most `limit` bytes of memory.

    Text files, categories and markers of missing cells are converted to plain channels first, once for a run; without
    a `conversion` file, only the columns are chosen.
    """
    if not isinstance(path, str | Path) or table_suffix(full_path(path)) not in TEXT_SUFFIXES:
        is_parquet = isinstance(path, str | Path) and suffix_of(full_path(path)) == ".parquet"
        store = open_features(path, "features", [] if is_parquet else None)
        if not isinstance(store, ParquetStore) and (conversion is None or not columns.has_choices):
            return NodeSource(store=store, channels=store.names, has_names=False)
        if not store.shape[0]:
            raise FeatureError(f"{store.path} has no rows: one row per node is needed")
        rows: _Rows = _ParquetRows(store) if isinstance(store, ParquetStore) else _ArrayRows(store)
    elif is_address(full_path(path)) or Path(full_path(path)).exists():
        rows = _TextRows(full_path(path))
    else:
        raise ParameterError(f"there is no file {full_path(path)!r}")
    if not isinstance(rows, _ParquetRows) and conversion is not None:
        return _converted(rows, columns, ends, limit, conversion)
    chosen = _choose(rows, columns, ends, limit)
    if conversion is not None and (chosen.columns.categorical or columns.missing_values):
        return replace(_converted(rows, columns, ends, limit, conversion), gaps=chosen.gaps)
    return NodeSource(
        store=open_features(path, "features", chosen.channels),
        id=chosen.id,
        schema=rows.schema,
        channels=chosen.channels,
        categories={name: [] for name in chosen.columns.categorical},
        gaps=chosen.gaps,
    )


def _converted(
    rows: "_Rows", columns: NodeColumns, ends: Callable[[], Kind | None], limit: int, conversion: ConversionFile
) -> NodeSource:
    gaps: dict[str, int] = {}
    if not (conversion.is_done and conversion.path.exists()):
        rows.prepare(columns)
        chosen = _choose(rows, columns, ends, limit)
        gaps, is_text = chosen.gaps, rows.file.format.is_text
        with clear_errors(rows.file):
            convert_nodes(rows.tables, conversion.path, chosen.columns, chosen.id, chosen.channels, is_text=is_text)
    facts = conversion_facts(conversion.path)
    store = open_features(conversion.path, "features", facts["channels"])
    schema = _first_columns(store, facts["n_columns"])
    return NodeSource(
        store=store,
        id=facts["id"],
        schema=schema,
        channels=[name for name in facts["channels"] if name in schema.names],
        categories=facts["categories"],
        gaps=gaps,
        original={
            "path": rows.file.path,
            "stamp": rows.stamp(),
            "partitions": list(rows.partitions),
            "id": columns.id,
            "channels": columns.channels,
            "exclude": list(columns.exclude),
            "categorical": list(columns.categorical),
            "finds_categories": columns.finds_categories,
            "missing_values": list(map(str, columns.missing_values)),
            "decimal": columns.decimal,
        },
    )


def _first_columns(store: Any, count: int) -> Any:
    """The schema without the channels of categories, which stand last."""
    import pyarrow as pa

    return pa.schema(list(store.schema)[:count])


@dataclass(frozen=True)
class _ChosenColumns:
    """Ids, channels, the caller's choices with the categorical columns that were found, and gaps as in `NodeSource`."""

    id: str | None
    channels: list[str]
    columns: NodeColumns
    gaps: dict[str, int]


def _choose(rows: "_Rows", columns: NodeColumns, ends: Callable[[], Kind | None], limit: int) -> _ChosenColumns:
    def is_unique(name: str) -> bool:
        return differ(rows.sample(name)) and differ(rows.column(name, limit))

    def could_name_ends(name: str) -> bool:
        return ends() is not Kind.INTEGER or holds_integers(rows.sample(name))

    table, _ = geometry_of(rows.schema.empty_table(), rows.file)  # geometry is not a name
    id_column, channels = choose_columns(table, columns, rows.file, is_unique, could_name_ends)
    rows.keep_text(id_column)
    apart = {id_column, *channels, *columns.exclude, *columns.categorical}
    fields = [] if columns.channels is not None else [one for one in table.schema if one.name not in apart]
    found: list[str] = []
    gaps: dict[str, int] = {}
    if fields:
        is_text = rows.file.format.is_text
        markers = [*map(str, columns.missing_values), *(TEXT_MARKERS if is_text else ())]
        counted = count_values(fields, rows.read([one.name for one in fields]), markers)
        found = [name for name, one in counted.items() if columns.finds_categories and one.holds_categories]
        gaps = {name: one.n_missing for name, one in counted.items() if one.n_missing and name not in found}
    resolved = replace(columns, categorical=[*columns.categorical, *found], finds_categories=False)
    return _ChosenColumns(id_column, channels, resolved, gaps)


class _Rows:
    """A node table that is read some rows at a time."""

    file: InputFile
    schema: Any
    partitions: Sequence[str] = ()

    def prepare(self, columns: NodeColumns) -> None:
        """Determine the types of the columns."""

    def tables(self) -> Iterator[Any]:
        """All rows, some at a time."""
        raise NotImplementedError

    def read(self, names: list[str] | None) -> Iterator[Any]:  # noqa: ARG002
        """The same with at least these columns."""
        return self.tables()

    def stamp(self) -> list[Any]:
        """Facts that change when the file changes: its size and time."""
        raise NotImplementedError

    def keep_text(self, name: str | None) -> None:
        """Read the ids as they are written."""

    def sample(self, name: str) -> Any:
        """The first values of a column."""
        return next(self.tables())[name]

    def column(self, name: str, limit: int) -> Any:
        """A complete column, if it takes at most `limit` bytes."""
        import pyarrow as pa

        parts, size = [], 0
        for table in self.tables():
            parts.append(table[name])
            size += parts[-1].nbytes
            if size > limit:
                raise TooLargeError(
                    f"the column {name!r} of {self.file.path!r} takes more than {size_in_words(limit)}, too much for "
                    "the memory that was granted",
                    remedy="grant more, or if it does not hold ids, name the column that does with {id}",
                )
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks])


class _ParquetRows(_Rows):
    def __init__(self, store: ParquetStore) -> None:
        self.file, self.schema, self._store = InputFile.of_table(store.path), store.schema, store
        self.partitions = tuple(store.partitions)

    def tables(self) -> Iterator[Any]:
        return self.read(None)

    def read(self, names: list[str] | None) -> Iterator[Any]:
        import pyarrow as pa

        for _, batch in self._store.batches(0, self._store.shape[0], ROWS_AT_A_TIME, names):
            yield pa.Table.from_batches([batch])

    def stamp(self) -> list[Any]:
        return self._store.stamp

    def sample(self, name: str) -> Any:
        return next(self.read([name]))[name]

    def column(self, name: str, limit: int) -> Any:
        try:
            return self._store.column(name, limit)
        except TooLargeError as error:
            text = f"{error}; if it does not hold ids"
            raise TooLargeError(text, remedy="name the column that does with {id}") from None


class _ArrayRows(_Rows):
    def __init__(self, store: FeatureStore) -> None:
        import pyarrow as pa

        self.file, self._store = InputFile(store.path, Format("npy")), store
        self.schema = pa.schema([(name, pa.from_numpy_dtype(store.dtype)) for name in store.names])

    def tables(self) -> Iterator[Any]:
        import pyarrow as pa

        for _, rows in self._store.chunks(0, self._store.shape[0], ROWS_AT_A_TIME):
            yield pa.table(list(np.ascontiguousarray(rows.T)), schema=self.schema)

    def stamp(self) -> list[Any]:
        return self._store.stamp


class _TextRows(_Rows):
    def __init__(self, path: str) -> None:
        self.file = InputFile.of_table(path)
        self._batches: Any = None

    def prepare(self, columns: NodeColumns) -> None:
        with clear_errors(self.file):
            self._batches = TextBatches(self.file, columns)
        self.schema = self._batches.schema

    def tables(self) -> Iterator[Any]:
        yield from self._batches.batches()

    def stamp(self) -> list[Any]:
        if is_address(self.file.path):
            return []
        facts = Path(self.file.path).stat()
        return [facts.st_size, facts.st_mtime_ns]

    def keep_text(self, name: str | None) -> None:
        if name is not None:
            self._batches.with_text(name)
            self.schema = self._batches.schema
