"""Rules that choose the id, channel, edge and weight columns of a table, and the values that mean missing.

Pure functions of column names and kinds. Tables in memory, files, and files larger than memory all use them, so that a
column has the same meaning everywhere. `docs/reading-tables.md` describes the rules.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from pcfi.errors import FeatureError, GraphError, ParameterError

ID_NAMES = ("id", "node", "node_id")
ID_LIKE = r"[\W_][iI][dD]$|[a-z0-9]I[dD]$"  # customer_id, customer ID, customerId
END_NAMES = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("source_id", "target_id"),
    ("src_id", "dst_id"),
    ("from_id", "to_id"),
    ("node1", "node2"),
    ("node_1", "node_2"),
    ("u", "v"),
    ("i", "j"),
)
WEIGHT_NAMES = ("weight", "weights", "w")
TEXT_MARKERS = ("", "NA", "N/A", "n/a", "null", "NULL", "NaN", "nan")  # missing in text columns of a text file
UNKNOWN_IDS = ("error", "drop")
MAX_NAMES_SHOWN = 20  # column names in an error
MAX_EXACT_INTEGER = 2**53  # float64 cannot represent all integers beyond

Weight = str | Literal[False] | None


class Kind(Enum):
    """Kind of values in a column, as the rules of this module distinguish them."""

    INTEGER = "integers"
    NUMBER = "numbers"
    TEXT = "text"
    OTHER = "something else"

    @property
    def is_number(self) -> bool:
        """Whether such a column can be a channel."""
        return self in (Kind.INTEGER, Kind.NUMBER)


@dataclass(frozen=True, kw_only=True)
class NodeColumns:
    """The user's choices for the columns of a node table.

    Attributes
    ----------
    id : str or None
    channels : sequence of str or None
        Columns of numbers to fill; None: all of them.
    exclude : sequence of str
        Numeric columns that are not channels.
    categorical : sequence of str
        Categorical columns to fill.
    finds_categories : bool
        Whether other columns with missing cells are categorical, too, if their values are (`category_columns`).
    missing_values : sequence
        Values that mean missing, besides null and NaN.
    decimal : "." or "," or None
        Decimal mark of a text file; None: detected for each column.
    """

    id: Any = None
    channels: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    categorical: Sequence[str] = ()
    finds_categories: bool = False
    missing_values: Sequence[Any] = ()
    decimal: str | None = None

    def __post_init__(self) -> None:
        check_decimal(self.decimal)

    @property
    def filled(self) -> set[str]:
        """Columns that the user names as channels or as categorical."""
        return {*(self.channels or ()), *self.categorical}

    @property
    def has_choices(self) -> bool:
        """Whether the user names columns or values that mean missing."""
        return any((self.id, self.channels, self.exclude, self.categorical, self.missing_values))

    def check(self, names: Sequence[str], what: str) -> None:
        """Raise `ParameterError` if a named column does not exist in `what`, or if the id column is to be filled."""
        lists = {"channels": self.channels or (), "exclude": self.exclude, "categorical": self.categorical}
        ids = id_by_name(names, self)
        for parameter, columns in lists.items():
            if isinstance(columns, str):
                raise ParameterError(
                    f"must be a list of columns, got {columns!r}: use [{columns!r}]", parameter=parameter
                )
            for name in columns:
                check_name(parameter, name, names, what)
            if ids is not None and ids in columns and parameter != "exclude":
                raise ParameterError(
                    f"names {ids!r}, which holds the ids",
                    parameter=parameter,
                    remedy="leave it out, or name another column with {id}",
                )


@dataclass(frozen=True, kw_only=True)
class EdgeColumns:
    """The user's choices for the columns of an edge table.

    Attributes
    ----------
    source, target : str or None
        None: chosen by common names.
    weight : str, False or None
        None: chosen by common names; False: every edge has weight 1.
    unknown_ids : {"error", "drop"}
        What to do with an edge that refers to an unknown id.
    decimal : "." or "," or None
        As in `NodeColumns`.
    """

    source: str | None = None
    target: str | None = None
    weight: Weight = None
    unknown_ids: str = "error"
    decimal: str | None = None

    def __post_init__(self) -> None:
        check_decimal(self.decimal)
        if self.source is not None and self.source == self.target:
            raise ParameterError(
                f"source and target are both {self.source!r}, so every edge would link a node to itself: name two "
                "different columns"
            )
        if self.unknown_ids not in UNKNOWN_IDS:
            allowed = ", ".join(map(repr, UNKNOWN_IDS))
            raise ParameterError(f"must be one of {allowed}, got {self.unknown_ids!r}", parameter="unknown_ids")


@dataclass(frozen=True)
class ChosenEdgeColumns:
    """Columns of an edge table that hold the ends and, if any, the weights."""

    source: str
    target: str
    weight: str | None = None

    @property
    def ends(self) -> tuple[str, str]:
        """Both ends."""
        return self.source, self.target

    def __str__(self) -> str:
        weight = "unweighted" if self.weight is None else f"weights in {self.weight!r}"
        return f"{self.source!r} to {self.target!r}, {weight}"


def listed(names: Iterable[Any]) -> str:
    """Column names as an error lists them."""
    names = list(names)
    shown = ", ".join(map(repr, names[:MAX_NAMES_SHOWN])) + (", ..." if len(names) > MAX_NAMES_SHOWN else "")
    return shown or "no columns"


def shortened(names: Sequence[str], n_shown: int = 6) -> str:
    """Column names as text, shortened if there are many.

    >>> shortened(["age", "income", "weight", "height"], 2)
    'age, income, ... height'
    """
    if len(names) <= n_shown + 1:
        return ", ".join(map(str, names))
    return ", ".join([*map(str, names[:n_shown]), f"... {names[-1]}"])


def check_name(parameter: str, name: Any, names: Sequence[Any], what: str) -> None:
    """Raise `ParameterError` if there is no such column."""
    if name is not None and name not in names:
        raise ParameterError(f"names {name!r}, but {what} has only the columns {listed(names)}", parameter=parameter)


def check_decimal(decimal: Any) -> None:
    """Raise `ParameterError` if this is not a decimal mark."""
    if decimal not in (None, ".", ","):
        raise ParameterError(f"must be '.' or ',', got {decimal!r}", parameter="decimal")


def check_distinct(names: Sequence[str], what: str, error: type[Exception] = FeatureError) -> None:
    """Raise an error if two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise error(f"{what} has several columns named {twice!r}: rename them")


# Nodes


def id_by_name(names: Sequence[str], columns: NodeColumns) -> Any:
    """The id column that the user names; else one with a common name; else None.

    >>> id_by_name(["age", "Node_ID"], NodeColumns())
    'Node_ID'
    """
    if columns.id is not None:
        return columns.id
    return next((name for usual in ID_NAMES for name in names if str(name).lower() == usual), None)


def id_like_names(names: Sequence[str], columns: NodeColumns) -> list[str]:
    """Columns with names like ids, except those that the user wants to fill.

    >>> id_like_names(["age", "customer_id", "userId", "covid"], NodeColumns())
    ['customer_id', 'userId']
    """
    return [name for name in names if name not in columns.filled and re.search(ID_LIKE, str(name))]


def choose_id(
    kinds: Mapping[str, Kind],
    columns: NodeColumns,
    is_unique: Callable[[str], bool],
    *,
    has_index: bool = False,
    could_name_ends: Callable[[str], bool] = lambda _: True,
) -> Any:
    """The id column; None if nodes are identified by the index of the table, or by row number.

    Parameters
    ----------
    kinds : mapping of the name of each column to its kind
    columns : NodeColumns
    is_unique : callable
        Whether all values of a column differ and none is missing.
    has_index : bool
        Whether the table has an index other than 0, 1, 2, ...
    could_name_ends : callable
        Whether a text column could contain the ids that the edges use.
    """
    named = id_by_name(list(kinds), columns)
    if named is not None:
        return named
    candidates = (Kind.INTEGER, Kind.TEXT)
    for name in id_like_names(list(kinds), columns):
        if kinds[name] in candidates and is_unique(name):
            return name
    if has_index:
        return None
    texts = (name for name, kind in kinds.items() if kind is Kind.TEXT and name not in columns.filled)
    return next((name for name in texts if could_name_ends(name) and is_unique(name)), None)


def choose_channels(kinds: Mapping[str, Kind], columns: NodeColumns, id_column: Any) -> list[str]:
    """Columns of numbers to fill, in the order of the table: those that are named, else all but ids and excluded ones.

    >>> choose_channels({"id": Kind.INTEGER, "x": Kind.NUMBER, "y": Kind.NUMBER}, NodeColumns(exclude=["y"]), "id")
    ['x']
    """
    if columns.channels is not None:
        return [name for name in kinds if name in columns.channels and name not in columns.categorical]
    apart = {id_column, *columns.exclude, *columns.categorical}
    return [name for name, kind in kinds.items() if kind.is_number and name not in apart]


def marker_values(markers: Sequence[Any], kind: Kind) -> list[Any]:
    """The missing-value markers that a column of this kind can contain, in its type.

    >>> marker_values(["-999", "?", 1.5], Kind.INTEGER), marker_values([-999, "?"], Kind.TEXT)
    ([-999], ['-999', '?'])
    """
    if kind is Kind.TEXT:
        return [str(marker) for marker in markers]
    numbers = [number for number in map(_number, markers) if number is not None] if kind.is_number else []
    return [int(number) for number in numbers if number.is_integer()] if kind is Kind.INTEGER else numbers


def _number(marker: Any) -> float | None:
    try:
        return float(marker)
    except (TypeError, ValueError):
        return None


def refuse_long_integers(low: Any, high: Any, what: str, remedy: str = "subtract an offset or rescale them") -> None:
    """Raise `FeatureError` if the integers from `low` to `high` are beyond what float64 represents exactly."""
    if max(int(high or 0), -int(low or 0)) > MAX_EXACT_INTEGER:
        raise FeatureError(f"{what} holds integers beyond 2^53, which float64 cannot tell apart", remedy=remedy)


# Edges


def choose_edge_columns(names: Sequence[str], columns: EdgeColumns, what: str) -> ChosenEdgeColumns:
    """Choose the end and weight columns of an edge table.

    The ends are the named columns, or columns with common names, or the first two of two or three columns. The weights
    are the named column, or one with a common name; otherwise every edge has weight 1.

    >>> print(choose_edge_columns(["w", "Dst", "Src", "kind"], EdgeColumns(), "the edge table"))
    'Src' to 'Dst', weights in 'w'
    """
    check_name("source", columns.source, names, what)
    check_name("target", columns.target, names, what)
    source, target = _usual_ends(names) or (None, None)
    source, target = columns.source or source, columns.target or target
    if source is None or target is None:
        raise GraphError(
            f"{what} has the columns {listed(names)}; the nodes come first, then the edges",
            remedy="name the columns with the ends of each edge with {source} and {target}",
        )
    weight = columns.weight
    if weight is None:
        others = {str(name).lower(): name for name in reversed(names) if name not in (source, target)}
        weight = next((others[usual] for usual in WEIGHT_NAMES if usual in others), None)
    elif weight is not False:
        check_name("weight", weight, names, what)
    return ChosenEdgeColumns(source, target, weight or None)


def _usual_ends(names: Sequence[str]) -> tuple[str, str] | None:
    lower = {str(name).lower(): name for name in reversed(names)}
    usual = next((pair for pair in END_NAMES if set(pair) <= set(lower)), None)
    if usual is not None:
        return lower[usual[0]], lower[usual[1]]
    return (names[0], names[1]) if len(names) in (2, 3) else None


def looks_like_data(ends: tuple[str, str], is_id: Callable[[str], bool]) -> bool:
    """Whether the names of both end columns are node ids, so that the header is probably missing.

    >>> looks_like_data(("ann", "bob"), {"ann", "bob", "cyd"}.__contains__)
    True
    """
    is_usual = tuple(str(name).lower() for name in ends) in END_NAMES
    return not is_usual and all(is_id(str(name)) for name in ends)


def headless(what: str, ends: tuple[str, str]) -> GraphError:
    """The error for an edge table without a header."""
    return GraphError(
        f"{what} begins with the edge from {ends[0]!r} to {ends[1]!r}: its first line must name the columns, as in "
        "source,target"
    )


def unused_weight(kinds: Mapping[str, Kind], chosen: ChosenEdgeColumns, columns: EdgeColumns) -> str | None:
    """The only further column of an unweighted edge table, if it is numeric: the user may expect weights."""
    others = [name for name in kinds if name not in chosen.ends]
    if chosen.weight is not None or columns.weight is False or len(others) != 1:
        return None
    return others[0] if kinds[others[0]].is_number else None
