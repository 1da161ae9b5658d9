"""Tables of pandas, polars and pyarrow: what their columns hold, which ids name the rows, and ids -> row numbers."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, GraphError, UnsupportedTypeError, counted
from pcfi.inputs.columns import Kind, NodeColumns, check_distinct, check_name, choose_id
from pcfi.optional import load

FRAMES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
ROWS_IN_SAMPLE = 1 << 14  # enough to reject most columns before all of their values are compared
DIGITS = r"^\s*[-+]?\d+\s*$"


def is_frame(value: object) -> bool:
    """Whether this is a table of pandas, polars or pyarrow; loads none of them."""
    kinds = (getattr(sys.modules.get(library), kind, None) for library, kind in FRAMES.items())
    return any(kind is not None and isinstance(value, kind) for kind in kinds)


def open_frame(frame: Any, what: str) -> Any:
    """The table as a narwhals DataFrame."""
    if not is_frame(frame):
        advice = ": call .collect() first" if hasattr(frame, "collect") else ""
        raise UnsupportedTypeError(
            f"{what} is a {type(frame).__module__}.{type(frame).__qualname__}, but must be a table of pandas, polars "
            f"or pyarrow{advice}"
        )
    names = list(map(str, frame.column_names if hasattr(frame, "column_names") else frame.columns))
    check_distinct(names, what)
    return narwhals().from_native(frame, eager_only=True)


def narwhals() -> Any:
    """The library that speaks to all libraries of tables."""
    return load("narwhals", "a table", "frames")


def kind_of(dtype: Any) -> Kind:
    """What a column of this dtype of narwhals holds."""
    nw = narwhals()
    if dtype.is_integer():
        return Kind.INTEGER
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Kind.NUMBER
    return Kind.TEXT if dtype == nw.String else Kind.OTHER


def kinds_of(frame: Any) -> dict[str, Kind]:
    """What each column of a narwhals DataFrame holds; one without a type that is null everywhere can be a channel."""
    kinds = {name: kind_of(dtype) for name, dtype in frame.schema.items()}
    for name, dtype in frame.schema.items():
        series = frame.get_column(name)
        is_object = str(getattr(series.to_native(), "dtype", "")) == "object"  # which narwhals takes for text
        if (is_object or dtype == narwhals().Unknown) and len(series) and series.is_null().all():
            kinds[name] = Kind.NUMBER
    return kinds


def is_unique(series: Any) -> bool:
    """Whether all values of a column differ and none is missing."""
    start = series.head(ROWS_IN_SAMPLE)
    if start.n_unique() < len(start):
        return False
    return not series.is_null().any() and series.n_unique() == len(series)


def holds_digits(series: Any) -> bool:
    """Whether a text column holds integers, by its first rows."""
    return bool(series.head(ROWS_IN_SAMPLE).drop_nulls().str.contains(DIGITS).all())


@dataclass(frozen=True, eq=False)
class Ids:
    """The ids of the nodes, in the order of the rows.

    Attributes
    ----------
    series : narwhals Series or None
        None: nodes are named by their row numbers.
    column : str or None
        The column that holds them; None if that is an index, or there is none.
    words : str
        How an error speaks of them.
    doubt : str
        Why an index cannot name nodes; an error where the graph needs names, and empty where it can.
    named_by_user : bool
        Whether the caller says which column holds them.
    """

    series: Any
    column: str | None
    words: str
    doubt: str = ""
    named_by_user: bool = False

    @staticmethod
    def of(frame: Any, columns: NodeColumns, ends: Kind | None = None) -> "Ids":
        """The ids of a table by the rules of `pcfi.inputs.columns`; `ends` is how the edges name nodes, if by id."""
        index = getattr(frame.to_native(), "index", None)
        levels = [] if index is None else [name for name in index.names if name is not None]
        if columns.id is not None and columns.id not in frame.columns:
            check_name("id", columns.id, [*frame.columns, *levels], "the node table")
            column = None
        else:
            column = choose_id(
                kinds_of(frame),
                columns,
                lambda name: is_unique(frame.get_column(name)),
                has_index=index is not None and not _is_default(index),
                could_name_ends=lambda name: (
                    ends is Kind.TEXT or (ends is not None and holds_digits(frame.get_column(name)))
                ),
            )
        chosen = columns.id is not None
        if column is not None:
            ids = Ids(frame.get_column(column), column, f"the column {column!r}", named_by_user=chosen)
            doubt = "" if chosen or ends is not None else ids._doubt()
            # the Id of many maps is 0 everywhere: it passes through where the graph does not name nodes
            return replace(ids, series=None, doubt=doubt) if doubt else ids._certain()
        if index is None:
            return Ids.of_rows()
        if index.nlevels > 1:
            text = "the nodes have an index of several levels: name the id column with id="
            return Ids(None, None, "the index", text)
        ids = Ids(narwhals().from_native(index.to_series(), series_only=True), None, "the index", "", chosen)
        return replace(ids, doubt=ids._doubt())

    @staticmethod
    def of_rows() -> "Ids":
        """Nodes named by their row numbers."""
        return Ids(None, None, "their row numbers")

    def _doubt(self) -> str:
        """What is wrong with ids that are missing or stand twice."""
        n_null = int(self.series.is_null().sum())
        if n_null:
            return f"{self.words} holds {counted(n_null, 'missing id')}: every node needs one"
        if self.series.n_unique() < len(self.series):
            twice = self.series.filter(self.series.is_duplicated()).to_list()[0]
            return f"the id {twice!r} stands more than once in {self.words}: keep one row per node"
        return ""

    def _certain(self) -> "Ids":
        doubt = self._doubt()
        if doubt:
            raise FeatureError(doubt)
        return self

    def rows(self, names: Any, what: str, nodes: Any = None) -> Array:
        """Row of each id in the series `names`, -1 where there is none. `nodes` is the node table, for errors."""
        if self.doubt:
            raise FeatureError(self.doubt)
        try:
            if self.series is None:
                return _row_numbers(names, what, self.words)
            return locate(self.series, names, f"the ids in {self.words}", what)
        except GraphError as error:
            repeated = "" if nodes is None else _repeated_ids(nodes, names)
            if repeated:
                raise GraphError(f"{error.message}; {repeated}") from None
            raise


def _repeated_ids(nodes: Any, names: Any) -> str:
    """Say which text column holds most of these names, but one of them more than once; empty if none does."""
    named = set(names.to_list())
    for column in nodes.columns:
        values = nodes.get_column(column)
        if match_kind(values) != "strings" or not values.is_duplicated().any():
            continue
        if 2 * len(named & set(values.to_list())) > len(named):
            twice = values.filter(values.is_duplicated()).to_list()[0]
            where = f"the column {column!r} of the nodes probably holds the ids"
            return f"{where}, but {twice!r} stands there more than once: keep one row per node"
    return ""


def _is_default(index: Any) -> bool:
    """Whether an index of pandas is 0, 1, 2, ..."""
    if index.nlevels > 1 or index.dtype.kind not in "iu":
        return False
    return bool(np.array_equal(np.asarray(index), np.arange(len(index))))


def _row_numbers(names: Any, what: str, words: str) -> Array:
    if not names.dtype.is_integer():
        raise GraphError(
            f"{what} holds {match_kind(names)}, but the nodes are named by {words}",
            remedy="name the column of the nodes that holds ids with {id}",
        )
    return np.asarray(names.cast(narwhals().Int64).fill_null(-1).to_numpy())


def match_kind(series: Any) -> str:
    """What a column holds, in words: two columns can be matched if they hold the same."""
    nw = narwhals()
    if series.dtype.is_integer():
        return "integers"
    if series.dtype in (nw.String, nw.Categorical, nw.Enum):
        return "strings"
    return "objects" if series.dtype == nw.Object else str(series.dtype)


def locate(keys: Any, values: Any, keys_are: str, values_are: str) -> Array:
    """Position of each element of `values` in `keys` (narwhals series without duplicates), -1 where it is not.

    By a hash table of the library that holds `keys`; no Python loop.
    """
    nw = narwhals()
    if values.implementation != keys.implementation:
        values = nw.new_series("values", values.to_numpy(), backend=keys.implementation)
    if len(values) == 0:
        return np.empty(0, dtype=np.int64)
    kinds = match_kind(keys), match_kind(values)
    if kinds[0] != kinds[1]:
        raise GraphError(f"{keys_are} are {kinds[0]}, but {values_are} holds {kinds[1]}: convert one to the other")
    if kinds[0] == "strings":
        keys, values = keys.cast(nw.String), values.cast(nw.String)
    elif keys.dtype != values.dtype:
        keys, values = keys.cast(nw.Int64), values.cast(nw.Int64)
    return _LOCATE[str(keys.implementation)](keys.to_native(), values.to_native())


def _locate_pandas(keys: Any, values: Any) -> Array:
    import pandas as pd

    return np.asarray(pd.Index(keys).get_indexer(pd.Index(values)), dtype=np.int64)


def _locate_polars(keys: Any, values: Any) -> Array:
    import polars as pl

    table = pl.DataFrame({"key": keys}).with_row_index("row")
    joined = pl.DataFrame({"key": values}).join(table, on="key", how="left", maintain_order="left")
    return np.asarray(joined["row"].cast(pl.Int64).fill_null(-1).to_numpy())


def _locate_pyarrow(keys: Any, values: Any) -> Array:
    from pyarrow import compute

    positions = compute.index_in(values, value_set=keys.combine_chunks())
    return np.asarray(compute.fill_null(positions, -1).to_numpy(), dtype=np.int64)


_LOCATE: dict[str, Callable[[Any, Any], Array]] = {
    "pandas": _locate_pandas,
    "polars": _locate_polars,
    "pyarrow": _locate_pyarrow,
}
