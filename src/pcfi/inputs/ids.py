"""pandas, polars and pyarrow tables: kinds of columns, ids of the rows, and ids -> row numbers."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, GraphError, UnsupportedTypeError, counted
from pcfi.inputs.columns import Kind, NodeColumns, check_distinct, check_name, choose_id
from pcfi.inputs.id_index import MIN_HASHED, IdIndex
from pcfi.optional import load

FRAMES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
ROWS_IN_SAMPLE = 1 << 14  # enough to reject most columns without reading all of their values
DIGITS = r"^\s*[-+]?\d+\s*$"


def is_frame(value: object) -> bool:
    """Whether this is a pandas, polars or pyarrow table; does not load these libraries."""
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
    """The library that gives pandas, polars and pyarrow tables a common interface."""
    return load("narwhals", "a table", "frames")


def kind_of(dtype: Any) -> Kind:
    """Kind of a column with this narwhals dtype."""
    nw = narwhals()
    if dtype.is_integer():
        return Kind.INTEGER
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Kind.NUMBER
    return Kind.TEXT if dtype == nw.String else Kind.OTHER


def kinds_of(frame: Any) -> dict[str, Kind]:
    """Kind of each column of a narwhals DataFrame; an untyped column of nulls can be a channel."""
    kinds = {name: kind_of(dtype) for name, dtype in frame.schema.items()}
    for name, dtype in frame.schema.items():
        series = frame.get_column(name)
        is_object = str(getattr(series.to_native(), "dtype", "")) == "object"  # which narwhals treats as text
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
        Description of the ids in messages.
    problem : str
        Why the index or column cannot be used as ids, empty if it can; an error if the graph uses ids.
    named_by_user : bool
        Whether the caller names the id column.
    """

    series: Any
    column: str | None
    words: str
    problem: str = ""
    named_by_user: bool = False

    @staticmethod
    def of(frame: Any, columns: NodeColumns, ends: Kind | None = None) -> "Ids":
        """The ids of a table by the rules of `pcfi.inputs.columns`; `ends` is the kind of ids that the edges use."""
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
            problem = "" if chosen or ends is not None else ids._find_problem()
            # many maps have a column Id that is 0 everywhere: it is ignored unless the graph uses ids
            return replace(ids, series=None, problem=problem) if problem else ids._checked()
        if index is None:
            return Ids.of_rows()
        if index.nlevels > 1:
            text = "the nodes have an index of several levels: name the id column with id="
            return Ids(None, None, "the index", text)
        ids = Ids(narwhals().from_native(index.to_series(), series_only=True), None, "the index", "", chosen)
        return replace(ids, problem=ids._find_problem())

    @staticmethod
    def of_rows() -> "Ids":
        """Ids that are row numbers."""
        return Ids(None, None, "their row numbers")

    @cached_property
    def index(self) -> IdIndex | None:
        """The rows of the ids, if there are many; None if there are few, and for ids of pandas and polars."""
        if self.series is None or not self.series.implementation.is_pyarrow() or len(self.series) < MIN_HASHED:
            return None
        return IdIndex(self.series.to_native())

    def _is_unique(self) -> bool:
        if self.index is not None and self.index.is_hashed:
            return self.index.first_repeated is None
        return bool(self.series.n_unique() == len(self.series))

    def _find_problem(self) -> str:
        """Describe missing or duplicate ids; empty if there are none."""
        n_null = int(self.series.is_null().sum())
        if n_null:
            return f"{self.words} holds {counted(n_null, 'missing id')}: every node needs one"
        if not self._is_unique():
            twice = self.series.filter(self.series.is_duplicated()).to_list()[0]
            return f"the id {twice!r} is duplicated in {self.words}: keep one row per node"
        return ""

    def _checked(self) -> "Ids":
        problem = self._find_problem()
        if problem:
            raise FeatureError(problem)
        return self

    def rows(self, names: Any, what: str, nodes: Any = None) -> Array:
        """Row of each id in the series `names`, -1 where there is none. `nodes` is the node table, for errors."""
        if self.problem:
            repeated = "" if nodes is None else _repeated_ids(nodes, names)
            raise FeatureError(f"{self.problem}; {repeated}" if repeated else self.problem)
        try:
            if self.series is None:
                return _row_numbers(names, what, self.words)
            return locate(self.series, names, f"the ids in {self.words}", what, self.index)
        except GraphError as error:
            _refuse_missing(names, what)
            repeated = "" if nodes is None else _repeated_ids(nodes, names)
            if repeated:
                raise GraphError(f"{error.message}; {repeated}") from None
            raise


def _refuse_missing(names: Any, what: str) -> None:
    """Raise `GraphError` if numbers that name nodes are missing: pandas then holds integers as floats."""
    if not names.dtype.is_float():
        return
    missing = np.isnan(names.cast(narwhals().Float64).to_numpy())
    if missing.any():
        raise GraphError(
            f"{what} holds {counted(int(missing.sum()), 'missing id')}, first in edge {int(np.argmax(missing))}: drop "
            "these edges, and convert the column to integers"
        )


def _repeated_ids(nodes: Any, names: Any) -> str:
    """Message about a text column that contains most of these ids, but not uniquely; empty if there is none."""
    named = set(names.to_list())
    for column in nodes.columns:
        values = nodes.get_column(column).drop_nulls()
        if match_kind(values) != "strings" or not values.is_duplicated().any():
            continue
        if 2 * len(named & set(values.to_list())) > len(named):
            twice = values.filter(values.is_duplicated()).to_list()[0]
            where = f"the column {column!r} of the nodes probably holds the ids"
            return f"{where}, but {twice!r} is duplicated: keep one row per node"
    return ""


def _is_default(index: Any) -> bool:
    """Whether an index of pandas is 0, 1, 2, ..."""
    if index.nlevels > 1 or index.dtype.kind not in "iu":
        return False
    return bool(np.array_equal(np.asarray(index), np.arange(len(index))))


def _row_numbers(names: Any, what: str, words: str) -> Array:
    if not names.dtype.is_integer():
        raise GraphError(
            f"{what} holds {match_kind(names)}, but the nodes are identified by {words}",
            remedy="name the id column of the nodes with {id}",
        )
    return np.asarray(names.cast(narwhals().Int64).fill_null(-1).to_numpy())


def match_kind(series: Any) -> str:
    """Kind of values in a column as text; two columns can be matched if it is the same."""
    nw = narwhals()
    if series.dtype.is_integer():
        return "integers"
    if series.dtype in (nw.String, nw.Categorical, nw.Enum):
        return "strings"
    return "objects" if series.dtype == nw.Object else str(series.dtype)


def locate(keys: Any, values: Any, keys_are: str, values_are: str, index: IdIndex | None = None) -> Array:
    """Position of each element of `values` in `keys` (narwhals series without duplicates), -1 if it is not there.

    Uses the hash table of the library that holds `keys`, or `index`, the table of `keys`.
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
        keys, values, index = keys.cast(nw.Int64), values.cast(nw.Int64), None
    if index is not None:
        return index.rows(values.to_native())
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
    return IdIndex(keys).rows(values)


_LOCATE: dict[str, Callable[[Any, Any], Array]] = {
    "pandas": _locate_pandas,
    "polars": _locate_polars,
    "pyarrow": _locate_pyarrow,
}
