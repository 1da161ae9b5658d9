"""An edge table of pandas, polars or pyarrow, and the ids of the nodes -> an edge index with weights."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import GraphError
from pcfi.inputs.columns import EdgeColumns, Kind, choose_edge_columns, unused_weight
from pcfi.inputs.ids import ROWS_IN_SAMPLE, Ids, is_unique, kind_of, kinds_of, locate, match_kind, narwhals, open_frame

MAX_IDS_SHOWN = 5  # ids in an error
MANY_EDGES = 100_000  # from here on, edges are looked up on several threads
NEARLY_EQUAL: dict[str, Callable[[str], str]] = {
    "surrounding spaces": str.strip,
    "upper and lower case": str.lower,
    "leading zeros": lambda name: name.lstrip("0"),
}


def open_edges(edges: Any, columns: EdgeColumns) -> tuple[Any, Any]:
    """The edge table as a narwhals DataFrame, and its end and weight columns."""
    frame = open_frame(edges, "the edge table")
    return frame, choose_edge_columns(frame.columns, columns, "the edge table")


def kind_of_ends(edges: Any, columns: EdgeColumns) -> Kind:
    """Kind of the ends of the edges: integers if both columns are, else text."""
    frame, chosen = open_edges(edges, columns)
    kinds = {kind_of(frame.get_column(name).dtype) for name in chosen.ends}
    return kinds.pop() if len(kinds) == 1 and kinds <= {Kind.INTEGER, Kind.TEXT} else Kind.TEXT


def unused_weight_column(edges: Any, columns: EdgeColumns) -> str | None:
    """An unused numeric column that the user may expect to be the weights."""
    frame, chosen = open_edges(edges, columns)
    return unused_weight(kinds_of(frame), chosen, columns)


def read_edges(
    edges: Any, ids: Ids, columns: EdgeColumns | None = None, *, nodes: Any = None
) -> tuple[Array, Array | None]:
    """An edge table with node ids -> (edge index, weights). `nodes` is the node table, for errors."""
    columns = columns or EdgeColumns()
    frame, chosen = open_edges(edges, columns)
    try:
        ends = _rows_of_ends(frame, chosen.ends, ids, nodes)
        known: Array | None = None  # all of them
        if ends.size and ends.min() < 0:
            known = np.logical_and(ends[0] >= 0, ends[1] >= 0)
        if known is not None and (columns.unknown_ids == "error" or not known.any()):
            _refuse_unknown(frame, chosen.ends, ends, ids)
    except GraphError as error:
        if nodes is not None:
            others = (name for name in nodes.columns if name != ids.column)
            match = column_of_ends(nodes, others, frame, chosen.ends)
            if match is not None:
                text = f"{error.message}; the node column {match!r} contains all ids that the edges use"
                raise GraphError(text, remedy="name it with {id}") from None
        raise
    weights = _read_weights(frame, chosen.weight)
    if known is None:
        return ends, weights
    return ends[:, known], None if weights is None else weights[known]


def _rows_of_ends(frame: Any, names: tuple[str, str], ids: Ids, nodes: Any) -> Array:
    """Rows of the nodes at both ends of every edge, -1 if unknown; in parallel for a large table."""

    def rows(name: str, _: Any = None) -> Array:
        return ids.rows(frame.get_column(name), f"the edge column {name!r}", nodes)

    if len(frame) < MANY_EDGES:
        return np.stack([rows(name) for name in names])
    together = _one_column(frame, names)
    if together is not None:
        return ids.rows(together, f"the edge column {names[0]!r}", nodes).reshape(2, -1)
    from pcfi._kernels.threads import run_tasks

    return np.stack(run_tasks([partial(rows, name) for name in names]))


def _one_column(frame: Any, names: tuple[str, str]) -> Any:
    """Both columns below each other, without a copy; None if they differ in type, or the library would copy them."""
    source, target = (frame.get_column(name).to_native() for name in names)
    if not frame.implementation.is_pyarrow() or source.type != target.type:
        return None
    import pyarrow as pa

    column = pa.chunked_array([*source.chunks, *target.chunks], type=source.type)
    return narwhals().from_native(column, series_only=True)


def column_of_ends(nodes: Any, names: Iterable[str], edges: Any, ends: tuple[str, str]) -> str | None:
    """The first of these node columns that is unique and contains every id that the ends use."""
    series = [edges.get_column(name) for name in ends]
    for name in names:
        column = nodes.get_column(name)
        if kind_of(column.dtype) not in (Kind.INTEGER, Kind.TEXT) or {match_kind(column)} != set(
            map(match_kind, series)
        ):
            continue
        if is_unique(column) and all(
            _holds(column, end.head(ROWS_IN_SAMPLE)) and _holds(column, end) for end in series
        ):
            return name
    return None


def _holds(column: Any, values: Any) -> bool:
    return bool((locate(column, values, "ids", "the edges") >= 0).all())


def _refuse_unknown(frame: Any, columns: tuple[str, str], ends: Array, ids: Ids) -> None:
    edges = np.flatnonzero((ends < 0).any(axis=0))
    several = edges[: 2 * MAX_IDS_SHOWN].tolist()
    try:
        pairs = list(zip(*(frame.get_column(name)[several].to_list() for name in columns), strict=True))
        held = [] if ids.series is None else ids.series.to_list()
    except UnicodeDecodeError as error:
        raise GraphError(f"the ids of {columns[0]!r} and {columns[1]!r} are not valid UTF-8: {error}") from None
    names = [
        name
        for edge, pair in zip(several, pairs, strict=True)
        for name, row in zip(pair, ends[:, edge], strict=True)
        if row < 0
    ]
    there = f" (such as {_few(held)})" if held else ""
    advice = (
        "name another id column with {id}"
        if len(edges) == ends.shape[1]
        else "drop these edges with {unknown_ids='drop'}"
    )
    raise GraphError(
        f"edge {edges[0]} refers to {names[0]!r}, which is not in {ids.words} of the nodes{there}; "
        f"{len(edges):,} of {ends.shape[1]:,} edges have unknown ids (such as {_few(names)}){_near(held, names)}",
        remedy=f"add the rows, or {advice}",
    )


def _few(names: list[Any]) -> str:
    unique = list(dict.fromkeys(names[: 4 * MAX_IDS_SHOWN]))
    return ", ".join(map(repr, unique[:MAX_IDS_SHOWN]))


def _near(held: list[Any], names: list[Any]) -> str:
    """Explain why similar ids do not match: spaces, case or leading zeros."""
    texts = [name for name in names if isinstance(name, str)]
    if not texts or not all(isinstance(name, str) for name in held):
        return ""
    for words, change in NEARLY_EQUAL.items():
        if {change(name) for name in texts} & {change(name) for name in held}:
            return f"; ids match if {words} are ignored"
    return ""


def _read_weights(frame: Any, weight: str | None) -> Array | None:
    if weight is None:
        return None
    dtype = frame.get_column(weight).dtype
    if not kind_of(dtype).is_number:
        raise GraphError(
            f"edge weights must be real numbers, but the column {weight!r} holds {dtype}"
            f"{_first_text(frame.get_column(weight))}"
        )
    return np.asarray(frame.get_column(weight).cast(narwhals().Float64).to_numpy())


def _first_text(series: Any) -> str:
    """The first value of a text column that is not a number, as text."""
    if match_kind(series) != "strings":
        return ""
    for edge, value in enumerate(series.to_list()):
        try:
            float(value or 0)
        except ValueError:
            return f", first {value!r} in edge {edge}"
    return ": convert it"
