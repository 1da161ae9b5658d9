"""Ids of nodes -> row numbers: a column or an index of the node table, and the edge table that names them."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, GraphError, ParameterError, UnsupportedTypeError, counted
from pcfi.optional import load

FRAMES = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
UNKNOWN_IDS = ("error", "drop")
PAIRS = (
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
WEIGHTS = ("weight", "weights", "w")
SHOWN = 5  # ids that an error names
ALIKE: dict[str, Callable[[str], str]] = {
    "spaces around them do": str.strip,
    "upper and lower case do": str.lower,
    "leading zeros do": lambda name: name.lstrip("0"),
}


def usual_ends(names: Sequence[str]) -> tuple[str, str] | None:
    """The columns where edges begin and end: by their usual names, or the first two of two or three; else None.

    >>> usual_ends(["weight", "Dst", "Src", "kind"])
    ('Src', 'Dst')
    """
    lower = {name.lower(): name for name in reversed(names)}
    usual = next((pair for pair in PAIRS if set(pair) <= set(lower)), None)
    if usual is not None:
        return lower[usual[0]], lower[usual[1]]
    return (names[0], names[1]) if len(names) in (2, 3) else None


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
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise FeatureError(f"{what} has several columns named {twice[0]!r}: rename them")
    return narwhals().from_native(frame, eager_only=True)


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
    """

    series: Any
    column: str | None
    words: str
    doubt: str = ""

    @staticmethod
    def of(frame: Any, column: Any = None) -> "Ids":
        """The ids of a table: the named column; else a column called "id"; else the index of pandas."""
        index = getattr(frame.to_native(), "index", None)
        if column is None and "id" in frame.columns:
            column = "id"
        if column is not None and column in frame.columns:
            return Ids(frame.get_column(column), column, f"the column {column!r}")._certain()
        if column is not None and (index is None or column not in index.names):
            raise ParameterError(f"id must be a column of the nodes, got {column!r}: it has {_listed(frame.columns)}")
        if index is not None:
            if index.nlevels > 1:
                text = "the nodes have an index of several levels: name the column of ids with id="
                return Ids(None, None, "the index", text)
            found = Ids(narwhals().from_native(index.to_series(), series_only=True), None, "the index")
            return replace(found, doubt=found._doubt())
        return Ids.of_rows()

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

    def rows(self, named: Any, what: str) -> Array:
        """Row of each id in the series `named`, -1 where there is none."""
        if self.doubt:
            raise FeatureError(self.doubt)
        if self.series is None:
            return _row_numbers(named, what, self.words)
        return locate(self.series, named, f"the ids in {self.words}", what)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "no columns"


def _row_numbers(named: Any, what: str, words: str) -> Array:
    if not named.dtype.is_integer():
        raise GraphError(
            f"{what} holds {_kind(named)}, but the nodes are named by {words}",
            remedy="name the column of the nodes that holds ids with {id}",
        )
    return np.asarray(named.cast(narwhals().Int64).fill_null(-1).to_numpy())


def narwhals() -> Any:
    """The library that speaks to all libraries of tables."""
    return load("narwhals", "a table", "frames")


def _kind(series: Any) -> str:
    """What a column holds, in words: two columns can be matched if they hold the same."""
    nw = narwhals()
    if series.dtype.is_integer():
        return "whole numbers"
    if series.dtype in (nw.String, nw.Categorical, nw.Enum):
        return "strings"
    return "objects" if series.dtype == nw.Object else str(series.dtype)


def locate(keys: Any, wanted: Any, keys_are: str, wanted_are: str) -> Array:
    """Position of each element of `wanted` in `keys` (narwhals series without duplicates), -1 where it is not.

    By a hash table of the library that holds `keys`; no Python loop.
    """
    nw = narwhals()
    if wanted.implementation != keys.implementation:
        wanted = nw.new_series("wanted", wanted.to_numpy(), backend=keys.implementation)
    if len(wanted) == 0:
        return np.empty(0, dtype=np.int64)
    kinds = _kind(keys), _kind(wanted)
    if kinds[0] != kinds[1]:
        raise GraphError(f"{keys_are} are {kinds[0]}, but {wanted_are} holds {kinds[1]}: convert one to the other")
    if kinds[0] == "strings":
        keys, wanted = keys.cast(nw.String), wanted.cast(nw.String)
    elif keys.dtype != wanted.dtype:
        keys, wanted = keys.cast(nw.Int64), wanted.cast(nw.Int64)
    return _LOCATE[str(keys.implementation)](keys.to_native(), wanted.to_native())


def _locate_pandas(keys: Any, wanted: Any) -> Array:
    import pandas as pd

    return np.asarray(pd.Index(keys).get_indexer(pd.Index(wanted)), dtype=np.int64)


def _locate_polars(keys: Any, wanted: Any) -> Array:
    import polars as pl

    table = pl.DataFrame({"key": keys}).with_row_index("row")
    found = pl.DataFrame({"key": wanted}).join(table, on="key", how="left", maintain_order="left")
    return np.asarray(found["row"].cast(pl.Int64).fill_null(-1).to_numpy())


def _locate_pyarrow(keys: Any, wanted: Any) -> Array:
    from pyarrow import compute

    positions = compute.index_in(wanted, value_set=keys.combine_chunks())
    return np.asarray(compute.fill_null(positions, -1).to_numpy(), dtype=np.int64)


_LOCATE = {"pandas": _locate_pandas, "polars": _locate_polars, "pyarrow": _locate_pyarrow}


def read_edges(
    edges: Any,
    ids: Ids,
    *,
    source: str = "source",
    target: str = "target",
    weight: str | None = "weight",
    unknown_ids: str = "error",
) -> tuple[Array, Array | None]:
    """An edge table that names nodes by id -> (edge index, weights)."""
    if unknown_ids not in UNKNOWN_IDS:
        raise ParameterError(f"unknown_ids must be one of {_listed(UNKNOWN_IDS)}, got {unknown_ids!r}")
    frame = open_frame(edges, "the edge table")
    for name, column in (("source", source), ("target", target)):
        if column not in frame.columns:
            raise GraphError(
                f"the edge table has no column {column!r}, only {_listed(frame.columns)}",
                remedy=f"name the one that holds the {name} of an edge with {{{name}}}",
            )
    ends = np.stack([ids.rows(frame.get_column(name), f"the edge column {name!r}") for name in (source, target)])
    known: Array = np.logical_and(ends[0] >= 0, ends[1] >= 0)
    if not known.all() and (unknown_ids == "error" or not known.any()):
        _refuse_unknown(frame, (source, target), ends, ids)
    return ends[:, known], _read_weights(frame, weight, known)


def _refuse_unknown(frame: Any, columns: tuple[str, str], ends: Array, ids: Ids) -> None:
    edges = np.flatnonzero((ends < 0).any(axis=0))
    several = edges[: 2 * SHOWN].tolist()
    try:
        pairs = list(zip(*(frame.get_column(name)[several].to_list() for name in columns), strict=True))
        held = [] if ids.series is None else ids.series.to_list()
    except UnicodeDecodeError as error:
        raise GraphError(f"the ids of {columns[0]!r} and {columns[1]!r} are no text in UTF-8: {error}") from None
    names = [
        name
        for edge, pair in zip(several, pairs, strict=True)
        for name, row in zip(pair, ends[:, edge], strict=True)
        if row < 0
    ]
    there = f" (such as {_few(held)})" if held else ""
    advice = (
        "name another column of ids with {id}"
        if len(edges) == ends.shape[1]
        else "leave these edges out with {unknown_ids='drop'}"
    )
    raise GraphError(
        f"edge {edges[0]} names {names[0]!r}, which is not in {ids.words} of the nodes{there}; "
        f"{counted(len(edges), 'edge')} of {ends.shape[1]:,} do so (such as {_few(names)}){_near(held, names)}",
        remedy=f"add the rows, or {advice}",
    )


def _few(names: list[Any]) -> str:
    different = list(dict.fromkeys(names[: 4 * SHOWN]))
    return ", ".join(map(repr, different[:SHOWN]))


def _near(held: list[Any], names: list[Any]) -> str:
    """Why ids that look alike do not match, as far as that can be told."""
    texts = [name for name in names if isinstance(name, str)]
    if not texts or not all(isinstance(name, str) for name in held):
        return ""
    for words, change in ALIKE.items():
        if {change(name) for name in texts} & {change(name) for name in held}:
            return f"; ids match if {words} not count"
    return ""


def _read_weights(frame: Any, weight: str | None, known: Array) -> Array | None:
    if weight is None or (weight == "weight" and weight not in frame.columns):
        return None
    if weight not in frame.columns:
        raise GraphError(f"the edge table has no column {weight!r}, only {_listed(frame.columns)}: name one, or None")
    dtype = frame.get_column(weight).dtype
    if not (dtype.is_numeric() or dtype == narwhals().Boolean):
        raise GraphError(
            f"edge weights must be real numbers, but the column {weight!r} holds {dtype}"
            f"{_first_text(frame.get_column(weight))}"
        )
    return np.asarray(frame.get_column(weight).cast(narwhals().Float64).to_numpy())[known]


def _first_text(series: Any) -> str:
    """The first value of a column of text that is no number, in words."""
    if _kind(series) != "strings":
        return ""
    for edge, value in enumerate(series.to_list()):
        try:
            float(value or 0)
        except ValueError:
            return f", first {value!r} in edge {edge}"
    return ": convert it"
