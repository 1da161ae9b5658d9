"""A file of features, and what the caller says about its columns -> ids and channels, by the rules for all tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcfi.errors import FeatureError, ParameterError, TooLargeError
from pcfi.files.edge_files import kind_of_ends
from pcfi.files.node_files import choose_columns, differ
from pcfi.files.opening import InputFile
from pcfi.files.paths import full_path, table_suffix
from pcfi.files.text import holds_integers
from pcfi.inputs.columns import EdgeColumns, Kind, NodeColumns
from pcfi.outofcore.edge_tables import SUFFIXES as EDGE_SUFFIXES
from pcfi.outofcore.feature_stores import FeatureStore, ParquetStore, open_features

ROWS_IN_SAMPLE = 1 << 16  # enough to reject most columns before all of their values are compared


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeSource:
    """A file of features, and what its columns are.

    Attributes
    ----------
    store : FeatureStore
        The channels.
    id : str or None
        The column of ids; None: nodes are named by row numbers.
    schema : pyarrow.Schema or None
        Of all columns; None for a file without names of columns.
    """

    store: FeatureStore
    id: str | None = None
    schema: Any = None
    categories: dict[str, list[str]] = field(default_factory=dict)

    @property
    def channels(self) -> list[str]:
        """Columns of numbers that are filled."""
        return self.store.names


def ends_of(graph: Any, columns: EdgeColumns) -> Callable[[], Kind | None]:
    """What the ends of an edge file hold, looked up when it matters; None if it names nodes by row numbers."""

    def look() -> Kind | None:
        path = full_path(graph) if isinstance(graph, str | Path) else ""
        return kind_of_ends(InputFile.of_table(path), columns) if table_suffix(path) in EDGE_SUFFIXES else None

    return look


def open_nodes(path: Any, columns: NodeColumns, ends: Callable[[], Kind | None], limit: int) -> NodeSource:
    """Choose columns by the rules for all tables; looking for ids takes at most `limit` bytes of memory."""
    store = open_features(path, "features")
    if not isinstance(store, ParquetStore):
        named = {"id": columns.id, "columns": columns.channels, "exclude": columns.exclude}
        for parameter, value in named.items():
            if value:
                raise ParameterError(f"names columns, but {path} has none: leave it out", parameter=parameter)
        return NodeSource(store=store)
    if not store.shape[0]:
        raise FeatureError(f"{store.path} has no rows: one row per node is needed")

    def sample(name: str) -> Any:
        return next(store.batches(0, store.shape[0], ROWS_IN_SAMPLE, [name]))[1].column(name)

    def is_unique(name: str) -> bool:
        if not differ(sample(name)):
            return False
        try:
            return differ(store.column(name, limit))
        except TooLargeError as error:
            text = f"{error}; if it does not hold ids"
            raise TooLargeError(text, remedy="name the column that does with {id}") from None

    def could_name_ends(name: str) -> bool:
        return ends() is not Kind.INTEGER or holds_integers(sample(name))

    table = store.schema.empty_table()
    id_column, channels = choose_columns(table, columns, InputFile.of_table(store.path), is_unique, could_name_ends)
    return NodeSource(store=open_features(path, "features", channels), id=id_column, schema=store.schema)
