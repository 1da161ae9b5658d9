"""Long or wide tables of readings and a graph <-> arrays of nodes by times."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, GraphError, ParameterError, PcfiWarning, counted
from pcfi.inputs.columns import EdgeColumns, check_name, shortened
from pcfi.inputs.graphs import Graph, is_networkx, prepare_graph
from pcfi.inputs.ids import Ids, is_frame, kind_of, narwhals, open_frame
from pcfi.inputs.node_tables import NodeTable
from pcfi.inputs.spatial_weights import is_spatial_weights
from pcfi.integrations.panel_forms import names_in, refuse_other_forms, refuse_transposed_array
from pcfi.integrations.panel_times import distinct_times, read_times
from pcfi.system_memory import refuse_allocation

MAX_READING = 1e100  # squares of much larger numbers overflow
COPIES = 12  # arrays of the size of the panel in memory at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class PanelTable:
    """Readings of a table.

    Attributes
    ----------
    native : DataFrame, Table or array
    names : list of str
        Columns of readings; [""] for a wide table.
    node, time : ndarray of int
        Node and time of each row (long table), or node of each column and time of each row (wide table).
    times : ndarray
        Distinct times in order.
    clock : ndarray or None
        The same in local time, if times are dates.
    graph : Graph
        Its nodes are numbered as in `node`; nodes that are not in the table come last.
    wide : tuple of str or None
        The columns of a wide table that are nodes.
    missing_values : tuple of float
        Readings that mean missing.
    """

    native: Any
    names: list[str]
    node: Array
    time: Array
    times: Array
    clock: Array | None
    graph: Graph
    wide: tuple[str, ...] | None = None
    missing_values: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and times."""
        return self.graph.n_nodes, len(self.times)

    def readings(self, name: str) -> tuple[Array, Array, Array]:
        """Values by node and time, mask of the known ones, and mask of the missing cells of the table."""
        values, there = np.full(self.shape, np.nan), np.zeros(self.shape, dtype=bool)
        if self.wide is None:
            values[self.node, self.time] = self._column(name)
            there[self.node, self.time] = True
        else:
            values[np.ix_(self.node, self.time)] = self._matrix().T
            there[np.ix_(self.node, self.time)] = True
        if self.missing_values:
            values[np.isin(values, self.missing_values)] = np.nan
        if np.nanmax(np.abs(values), initial=0.0) > MAX_READING:
            what = f"the column {name!r}" if name else "the table"
            raise FeatureError(f"{what} holds an infinite value, or one beyond {MAX_READING:g}: replace or rescale it")
        known = ~np.isnan(values)
        return values, known, there & ~known

    def _column(self, name: str) -> Array:
        series = narwhals().from_native(self.native, eager_only=True).get_column(name)
        return np.asarray(series.cast(narwhals().Float64).to_numpy(), dtype=np.float64)

    def _matrix(self) -> Array:
        if isinstance(self.native, np.ndarray):
            return self.native.astype(np.float64)
        return np.stack([self._column(name) for name in self.wide or ()], axis=1)

    def wrap(self, filled: dict[str, Array], others: Any) -> Any:
        """The table with the given entries in missing cells; other cells keep their value, or get `others`."""
        placed: dict[str, Array | None] = {}
        for name, cells in filled.items():
            missing = self.readings(name)[2]
            sheet = np.empty(self.shape, dtype=object if cells.dtype.kind == "U" else np.float64)
            sheet[missing] = cells
            if self.wide is None:
                rows = self.node, self.time
                placed[name] = self._cells(name, sheet[rows], missing[rows], others)
                continue
            place = np.ix_(self.node, self.time)
            matrix, gone = sheet[place].T, missing[place].T
            if isinstance(self.native, np.ndarray):
                return np.where(gone, matrix, self.native if others is None else others)
            columns = enumerate(self.wide)
            placed |= {one: self._cells(one, matrix[:, k], gone[:, k], others) for k, one in columns}
        return self._with_columns({name: cells for name, cells in placed.items() if cells is not None})

    def _cells(self, name: str, cells: Array, missing: Array, others: Any) -> Array | None:
        """Entries of a column; None if it does not change."""
        if others is None and not missing.any():
            return None
        return np.where(missing, cells, self._column(name) if others is None else others)

    def _with_columns(self, columns: dict[str, Array]) -> Any:
        frame = narwhals().from_native(self.native, eager_only=True)
        series = []
        for name, cells in columns.items():
            values = cells.tolist() if cells.dtype == object else np.ascontiguousarray(cells)
            new = narwhals().new_series(name, values, backend=frame.implementation)
            before = frame.get_column(name).dtype
            series.append(new.cast(before) if before.is_float() and cells.dtype != object else new)
        replaced = frame.with_columns(*series).to_native()
        if type(replaced) is type(self.native):
            return replaced
        return self.native.assign(**{one.name: replaced[one.name] for one in series})


def read_panel(
    table: Any, graph: Any, node: str | None, time: str | None, columns: Sequence[str] | None, nodes: Any
) -> PanelTable:
    """Read a long table, if `node` names a column, or a wide table, and the graph with the same node numbers."""
    if node is not None:
        return _read_long(table, graph, node, time, columns, nodes)
    if columns is not None:
        raise ParameterError("columns= is for long tables: leave it out, or name the node column with node=")
    return _read_wide(table, graph, time, nodes)


def _read_long(
    table: Any, graph: Any, node: str, time: str | None, columns: Sequence[str] | None, nodes: Any
) -> PanelTable:
    frame = open_frame(table, "the table")
    check_name("node", node, frame.columns, "the table")
    if time is None:
        raise ParameterError("a long table needs a time column: name it with time")
    check_name("time", time, frame.columns, "the table")
    if len(frame) == 0:
        raise FeatureError("the table has no rows: one row per reading is needed")
    names = _value_columns(frame, (node, time), columns)
    times, clock = read_times(frame.get_column(time), f"the time column {time!r}")
    different, place = distinct_times(times)
    series = frame.get_column(node)
    if series.is_null().any():
        row = int(np.argmax(series.is_null().to_numpy()))
        raise FeatureError(f"the column {node!r} is missing in row {row}: every row needs a node")
    different_nodes = series.unique(maintain_order=True)
    if different_nodes.dtype != narwhals().Object:  # the order of the rows must not affect which readings are hidden
        different_nodes = different_nodes.sort()
    axis = _NodeAxis.of(different_nodes, graph, nodes)
    rows = axis.places(series)
    _refuse_twice(frame, node, time, rows, place, len(different))
    _check_size(axis.graph.n_nodes, len(different))
    return PanelTable(
        native=table,
        names=names,
        node=rows,
        time=place,
        times=different,
        clock=_at_distinct(clock, place, len(different)),
        graph=axis.graph,
    )


def _at_distinct(clock: Array | None, place: Array, count: int) -> Array | None:
    if clock is None:
        return None
    local = np.empty(count)
    local[place] = clock
    return local


def _value_columns(frame: Any, keys: tuple[str, str], columns: Sequence[str] | None) -> list[str]:
    if isinstance(columns, str):
        raise ParameterError(f"must be a list of columns, got {columns!r}: use [{columns!r}]", parameter="columns")
    for name in columns or ():
        check_name("columns", name, frame.columns, "the table")
        if not kind_of(frame.get_column(name).dtype).is_number:
            raise FeatureError(f"the column {name!r} holds {frame.get_column(name).dtype}, not numbers")
    numbers = [name for name, dtype in frame.schema.items() if kind_of(dtype).is_number]
    kept = [name for name in (numbers if columns is None else columns) if name not in keys]
    if not kept:
        raise FeatureError(f"the table has no numeric column besides {keys[0]!r} and {keys[1]!r}")
    return kept


def _refuse_twice(frame: Any, node: str, time: str, rows: Array, place: Array, n_times: int) -> None:
    codes, first, counts = np.unique(rows * np.int64(n_times) + place, return_index=True, return_counts=True)
    if len(codes) < len(rows):
        row = int(first[np.argmax(counts > 1)])
        pair = frame.get_column(node)[row], frame.get_column(time)[row]
        raise FeatureError(
            f"the node {pair[0]!r} has {int(counts[counts > 1][0])} rows at the time {pair[1]!s} "
            f"({counted(int((counts > 1).sum()), 'such pair')}): keep one row per node and time, such as their mean"
        )


def _check_size(n_nodes: int, n_times: int) -> None:
    what = f"filling {counted(n_nodes, 'node')} x {counted(n_times, 'distinct time')}"
    refuse_allocation(COPIES * 8 * n_nodes * n_times, what, "round the times, or fill parts of the table separately")


def _read_wide(table: Any, graph: Any, time: str | None, nodes: Any) -> PanelTable:
    if isinstance(table, np.ndarray):
        if table.ndim != 2 or table.dtype.kind not in "fiu":
            raise FeatureError(f"an array of readings has one row per time and one column per node, got {table.shape}")
        refuse_transposed_array(table, graph, nodes)
        names: list[Any] = list(range(table.shape[1])) if nodes is None else list(nodes)
        times, clock = np.arange(float(len(table))), None
        wide = tuple(map(str, names))
    else:
        frame = open_frame(table, "the table")
        if time is not None:
            check_name("time", time, frame.columns, "the table")
        names = [name for name in frame.columns if name != time and kind_of(frame.get_column(name).dtype).is_number]
        refuse_other_forms(table, frame, names, graph, time, nodes)
        if not names:
            raise FeatureError("the table has no numeric column: a wide table has one for each node")
        times, clock = read_times(_wide_times(frame, table, time), "the time")
        wide = tuple(names)
    if len(times) == 0:
        raise FeatureError("the table has no rows: one row per time is needed")
    different, place = distinct_times(times)
    if len(different) < len(times):
        n_twice = counted(len(times) - len(different), "row")
        raise FeatureError(f"{n_twice} of the wide table have the same time as another row: keep one row per time")
    axis = _NodeAxis.of(narwhals().new_series("node", names, backend="pandas"), graph, nodes)
    _check_size(axis.graph.n_nodes, len(different))
    return PanelTable(
        native=table,
        names=[""],
        node=axis.places(narwhals().new_series("node", names, backend="pandas")),
        time=place,
        times=different,
        clock=_at_distinct(clock, place, len(different)),
        graph=axis.graph,
        wide=wide,
    )


def _wide_times(frame: Any, table: Any, time: str | None) -> Any:
    if time is not None:
        return frame.get_column(time)
    index = getattr(table, "index", None)
    if index is None:
        raise ParameterError("the table has no index of times: name the time column with time")
    dates = [name for name in frame.columns if frame.get_column(name).dtype.is_temporal()]
    if dates and type(index).__name__ == "RangeIndex":
        raise ParameterError(f"the column {dates[0]!r} holds dates: name the time column with time={dates[0]!r}")
    return narwhals().from_native(index.to_series(), series_only=True)


@dataclass(frozen=True, eq=False)
class _NodeAxis:
    """Names of the nodes in the order of their numbers, and the graph between them."""

    ids: Ids
    graph: Graph

    def places(self, series: Any) -> Array:
        """Number of each node."""
        return self.ids.rows(series, "the column of nodes")

    @staticmethod
    def of(names: Any, graph: Any, nodes: Any) -> "_NodeAxis":
        """Nodes of the table (a series of unique names), and nodes that are only in the graph."""
        held = names.to_list()
        in_graph = list(nodes) if nodes is not None else names_in(graph)
        if in_graph is None:
            return _numbered(names, graph)
        known = set(held)
        extra = [name for name in dict.fromkeys(in_graph) if name not in known]
        if len(extra) == len(set(in_graph)) and in_graph:
            alike = set(map(str, held)) & set(map(str, in_graph))
            why = "one has numbers and the other text: convert one of them" if alike else "none of them match"
            raise GraphError(
                f"the graph has the nodes {shortened([repr(one) for one in in_graph[:6]], 4)}, and the table "
                f"{shortened([repr(one) for one in held[:6]], 4)}: {why}"
            )
        _warn_of_nodes(extra, [] if graph is None else [name for name in held if name not in set(in_graph)])
        both = narwhals().new_series("node", [*held, *extra], backend=names.implementation)
        frame = both.to_frame().to_native()
        table = NodeTable(native=frame, columns=(), ids=Ids(both, "node", "the nodes of the table"))
        if nodes is not None and not (is_frame(graph) or is_networkx(graph) or is_spatial_weights(graph)):
            ends = prepare_graph(graph, len(in_graph)).matrix().tocoo()
            place = table.ids.rows(narwhals().new_series("node", in_graph, backend=names.implementation), "nodes")
            numbered: Any = (np.stack([place[end] for end in ends.coords]), ends.data)
        else:
            numbered = table.number_nodes(graph, EdgeColumns()) if graph is not None else np.empty((2, 0), int)
        return _NodeAxis(table.ids, prepare_graph(numbered, len(both)))


def _numbered(names: Any, graph: Any) -> _NodeAxis:
    """Nodes of a graph with numbered nodes: the table must use these numbers."""
    prepared = prepare_graph(graph)
    held = names.to_list()
    if not all(isinstance(name, int | np.integer) for name in held):
        raise GraphError(
            f"the {counted(prepared.n_nodes, 'node')} of the graph are numbered, but the table has names, such as "
            f"{held[0]!r}: pass the names in the order of the graph with nodes="
        )
    if min(held) < 0:
        raise GraphError(f"the table has the node {min(held)}, but the nodes of the graph are numbered from 0")
    if max(held) >= prepared.n_nodes:  # an edge index does not contain nodes without edges
        prepared = prepare_graph(graph, int(max(held)) + 1)
    _warn_of_nodes([number for number in range(prepared.n_nodes) if number not in set(held)], [])
    return _NodeAxis(Ids.of_rows(), prepared)


def _warn_of_nodes(only_graph: list[Any], only_table: list[Any]) -> None:
    for names, text in (
        (only_graph, "of the graph {are} not in the table and {get} no rows: complete=True adds {them}"),
        (only_table, "of the table {are} not in the graph, and {are} filled without neighbours"),
    ):
        if names:
            words = {"are": "is", "get": "gets", "them": "it"} if len(names) == 1 else {}
            text = text.format(**{"are": "are", "get": "get", "them": "them", **words})
            some = shortened([repr(name) for name in names[:6]], 4)
            warnings.warn(f"{counted(len(names), 'node')} ({some}) {text}", PcfiWarning, stacklevel=6)
