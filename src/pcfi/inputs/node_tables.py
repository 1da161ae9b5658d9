"""Node tables <-> arrays: columns -> channels, and filled channels -> the same kind of table."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import ColumnWarning, FeatureError, GraphError, ParameterError, counted
from pcfi.inputs.category_columns import find_categories, holds_objects
from pcfi.inputs.columns import (
    MAX_EXACT_INTEGER,
    EdgeColumns,
    Kind,
    NodeColumns,
    choose_channels,
    refuse_long_integers,
)
from pcfi.inputs.edge_frames import column_of_ends, kind_of_ends, open_edges, read_edges, unused_weight_column
from pcfi.inputs.graphs import is_networkx, networkx_adjacency
from pcfi.inputs.ids import ROWS_IN_SAMPLE, Ids, is_frame, kind_of, kinds_of, narwhals, open_frame
from pcfi.inputs.node_columns import (
    LINE_BYTES,
    NodeColumn,
    category_column,
    contiguous_columns,
    copy_columns,
    missing_cells,
)
from pcfi.inputs.spatial_weights import ends_in_rows, is_spatial_weights, names_of_nodes, names_rows


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeTable:
    """A node table and its channels.

    Attributes
    ----------
    native : DataFrame of pandas or polars, or Table of pyarrow
    columns : tuple of NodeColumn
        The columns to fill, in this order; all other columns are left unchanged.
    ids : Ids
    rounds : bool
        Whether filled integer columns stay integers; boolean columns always stay boolean.
    has_markers : bool
        Whether missing cells may hold a marker, such as -999, instead of null or NaN.
    """

    native: Any
    columns: tuple[NodeColumn, ...]
    ids: Ids
    rounds: bool = False
    has_markers: bool = False

    def values(self) -> Array:
        """The channels as one array, NaN where missing."""
        frame = self._frame()
        dtypes = [frame.get_column(column.name).dtype for column in self.columns]
        single = all(dtype == narwhals().Float32 for dtype in dtypes)
        dtype = np.float32 if single else np.float64
        values = np.empty((len(frame), sum(column.width for column in self.columns)), dtype=dtype)
        size = LINE_BYTES // np.dtype(dtype).itemsize
        for first in range(0, len(self.columns), size):
            group = self.columns[first : first + size]
            parts = [self._channels(frame, column, dtype) for column in group]
            start = sum(column.width for column in self.columns[:first])
            copy_columns(parts, values[:, start : start + sum(column.width for column in group)])
        if self.has_markers:
            for column, place in zip(self.columns, self.first_channels(), strict=True):
                values[column.missing, place : place + column.width] = np.nan
        return values

    @staticmethod
    def _channels(frame: Any, column: NodeColumn, dtype: npt.DTypeLike) -> Array:
        if column.codes is not None:
            shares = np.eye(column.width + 1, column.width, dtype=dtype)[column.codes]
            shares[column.missing] = np.nan
            return shares
        series = frame.get_column(column.name)
        if column.missing.all():
            return np.full((len(series), 1), np.nan, dtype=dtype)
        if series.dtype.is_integer():
            remedy = "leave it out with {channels}, or name it with {id} if it holds the ids"
            refuse_long_integers(series.min(), series.max(), f"the column {series.name!r}", remedy)
        if series.dtype == narwhals().Decimal:
            series = series.cast(narwhals().String)  # text to float rounds correctly, decimal to float may not
        kind = narwhals().Float32 if dtype == np.float32 else narwhals().Float64
        return np.asarray(series.cast(kind).to_numpy(), dtype=dtype)[:, None]

    def first_channels(self) -> Array:
        """First channel of every column."""
        widths = np.array([column.width for column in self.columns])
        return np.asarray(np.cumsum(widths) - widths)

    def categorical(self) -> Array:
        """Channels that represent a category."""
        return np.flatnonzero(
            np.repeat([one.codes is not None for one in self.columns], [one.width for one in self.columns])
        )

    def channel_name(self, channel: int) -> str:
        """The column that a channel belongs to, as text."""
        ends = np.cumsum([column.width for column in self.columns])
        return f"the column {self.columns[int(np.searchsorted(ends, channel, side='right'))].name!r}"

    def known(self, known: Any) -> Any:
        """The caller's mask of known cells as an array; a table is read by the names of the columns."""
        if known is None:
            return None
        if any(column.codes is not None for column in self.columns):
            raise ParameterError("known= and categorical= cannot be combined: put null into the missing cells")
        if not is_frame(known):
            return known.toarray() if hasattr(known, "toarray") else known
        frame, rows = open_frame(known, "known"), getattr(self.native, "index", None)
        if rows is not None and not rows.equals(getattr(known, "index", rows)):
            raise FeatureError("known and the nodes have different indexes: pass known.loc[nodes.index]")
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise FeatureError(f"known has no column {absent[0]!r}: it must have the channels of the nodes")
        return np.stack([frame.get_column(column.name).to_numpy() for column in self.columns], axis=1)

    def number_nodes(self, graph: Any, columns: EdgeColumns | None = None) -> Any:
        """The graph with row numbers instead of ids; a graph that uses row numbers is returned unchanged."""
        if is_frame(graph):
            columns = columns or EdgeColumns()
            numbered = self.read_edges(graph, columns)
            self._warn_of_columns(graph, columns)
            return numbered
        if is_networkx(graph) and (self.ids.series is not None or self.ids.problem):
            rows = self._rows_of(list(graph), "the networkx graph")
            edges = networkx_adjacency(graph, None)
            return np.stack([rows[end] for end in edges.coords]), edges.data
        if is_spatial_weights(graph) and not names_rows(graph, getattr(self.native, "index", None)):
            return ends_in_rows(graph, self._rows_of(names_of_nodes(graph), "the spatial weights"))
        return graph

    def read_edges(self, edges: Any, columns: EdgeColumns) -> tuple[Array, Array | None]:
        """An edge table as an edge index of row numbers, and weights."""
        return read_edges(edges, self.ids, columns, nodes=self._frame())

    def id_like_channel(self, edges: Any, columns: EdgeColumns) -> str | None:
        """A channel of unique integers that contains every id that the edges use: perhaps the ids."""
        frame, chosen = open_edges(edges, columns)
        nodes = self._frame()
        names = (column.name for column in self.columns if column.codes is None)
        numbers = [name for name in names if kind_of(nodes.get_column(name).dtype) is Kind.INTEGER]
        return column_of_ends(nodes, numbers, frame, chosen.ends) if len(frame) and len(nodes) > 1 else None

    def _warn_of_columns(self, edges: Any, columns: EdgeColumns) -> None:
        name = None if self.ids.named_by_user else self.id_like_channel(edges, columns)
        if name is not None:
            text = f"nodes are identified by {self.ids.words}, and {name!r} is filled like any numeric column, but it "
            text += f"contains all ids that the edges use: if it holds the ids, pass id={name!r} to pcfi.frames.impute"
            warnings.warn(text, ColumnWarning, stacklevel=4)
        weight = unused_weight_column(edges, columns)
        if weight is not None:
            text = f"the edges are unweighted, although their column {weight!r} holds numbers: if these are weights, "
            text += f"pass weight={weight!r} to pcfi.frames.impute, otherwise weight=None"
            warnings.warn(text, ColumnWarning, stacklevel=4)

    def _frame(self) -> Any:
        return narwhals().from_native(self.native, eager_only=True)

    def _rows_of(self, names: list[Any], what: str) -> Array:
        """Row of each node of a graph: by the pandas index if it contains all names, else by the ids."""
        index = getattr(self.native, "index", None)
        if index is not None and index.is_unique and (index.get_indexer(names) >= 0).all():
            return np.asarray(index.get_indexer(names))
        nodes = self._frame()
        rows = self.ids.rows(narwhals().new_series("node", names, backend=nodes.implementation), what, nodes)
        if (rows < 0).any():
            name = names[int(np.argmax(rows < 0))]
            raise GraphError(
                f"{what} has a node {name!r}, which is not in {self.ids.words} of the nodes "
                f"({counted(int((rows < 0).sum()), 'such node')}): add the rows, or remove the nodes from the graph"
            )
        return rows

    def wrap_values(self, filled: Array, known: Any = None) -> Any:
        """The table with its channels filled; columns without missing cells are left unchanged."""
        frame = self._frame()
        firsts = self.first_channels().tolist()
        masks = [
            column.missing if known is None else ~np.asarray(known)[:, first]
            for column, first in zip(self.columns, firsts, strict=True)
        ]
        incomplete = [place for place, missing in enumerate(masks) if missing.any()]
        channels = [firsts[place] for place in incomplete if self.columns[place].samples is None]
        contiguous = dict(zip(channels, contiguous_columns(filled, channels), strict=True))
        replaced = []
        for place in incomplete:
            column, first = self.columns[place], firsts[place]
            part = contiguous[first][:, None] if first in contiguous else filled[:, first : first + column.width]
            replaced.append(self._filled(frame, column, part, masks[place]))
        return self._with_columns(frame, replaced)

    def _filled(self, frame: Any, column: NodeColumn, part: Array, missing: Array) -> Any:
        series = frame.get_column(column.name)
        if column.samples is not None:
            rows = np.arange(len(part))
            chosen = column.missing & np.isfinite(part).all(axis=1)
            rows[chosen] = column.samples[part[chosen].argmax(axis=1)]
            return series[rows.tolist()].alias(column.name)
        nw, values = narwhals(), part[:, 0]
        if series.dtype.is_float():
            return self._new(frame, column.name, values).cast(series.dtype)
        if series.dtype == nw.Boolean:
            chosen = missing & np.isfinite(values)
            return self._new(frame, column.name, values > 0.5).zip_with(self._new(frame, column.name, chosen), series)
        if self.rounds and np.isfinite(values).all() and series.dtype.is_integer():
            return self._new(frame, column.name, whole_numbers(values, str(series.dtype))).cast(series.dtype)
        return self._new(frame, column.name, values.astype(np.float64))

    def wrap_cells(self, cells: Array) -> Any:
        """A table of the ids and the channels, whose cells hold the numbers of an array.

        A cell of a categorical column gets the number of its channels if they are equal, as hops are, else NaN.
        """
        frame = self._frame()
        starts = np.cumsum([0, *(column.width for column in self.columns)])[:-1]
        placed = []
        for column, start in zip(self.columns, starts, strict=True):
            part = cells[:, start : start + column.width]
            agree = (part == part[:, :1]).all(axis=1)
            placed.append(
                self._new(frame, column.name, part[:, 0] if agree.all() else np.where(agree, part[:, 0], np.nan))
            )
        geometry = getattr(self.native, "_geometry_column_name", None)  # of a GeoDataFrame
        kept = {self.ids.column, geometry, *(column.name for column in self.columns)}
        table, names = self._with_columns(frame, placed), [name for name in frame.columns if name in kept]
        return table[names] if hasattr(table, "iloc") else table.select(names)

    def _with_columns(self, frame: Any, columns: list[Any]) -> Any:
        """The table with some columns replaced; the class of the DataFrame, such as GeoDataFrame, is kept."""
        replaced = frame.with_columns(*columns).to_native()
        if type(replaced) is type(self.native):
            return replaced
        return self.native.assign(**{column.name: replaced[column.name] for column in columns})

    def wrap_categories(self, column: int, cells: Array) -> Any:
        """A table with the same rows and a numeric column for each category of a column."""
        frame, chosen = self._frame(), self.columns[column]
        series = frame.get_column(chosen.name)
        labels = [str(series[row]) for row in np.asarray(chosen.samples).tolist()]
        shares = [self._new(frame, label, part) for label, part in zip(labels, cells.T, strict=True)]
        table = frame.select(chosen.name).with_columns(*shares)
        return table.select(*labels).to_native()

    @staticmethod
    def _new(frame: Any, name: str, values: Array) -> Any:
        return narwhals().new_series(name, np.ascontiguousarray(values), backend=frame.implementation)


def whole_numbers(values: Array, kind: str) -> Array:
    """Values rounded to integers, within the range of an integer type such as "int8"."""
    low, high = (0 if kind.lower() == "uint128" else -MAX_EXACT_INTEGER), MAX_EXACT_INTEGER
    if not kind.endswith("128"):
        limits = np.iinfo(kind.lower())
        low, high = max(limits.min, low), min(limits.max, high)
    return np.clip(np.rint(values), float(low), float(high)).astype(np.int64)


def kind_of_arrow(kind: Any) -> Kind:
    """Kind of a column of this pyarrow type; a column of nulls can be a channel."""
    from pyarrow import types

    if types.is_integer(kind):
        return Kind.INTEGER
    if types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind) or types.is_null(kind):
        return Kind.NUMBER
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)
    return Kind.TEXT if is_text else Kind.OTHER


def read_table(
    nodes: Any,
    columns: NodeColumns | None = None,
    *,
    graph: Any = None,
    edge_columns: EdgeColumns | None = None,
    round: bool = False,  # noqa: A002  what it does
) -> NodeTable:
    """Choose and check the id and channel columns of `nodes`; `graph` determines the kind of ids."""
    columns = columns or NodeColumns()
    frame = open_frame(nodes, "the node table")
    if len(frame) == 0:
        raise FeatureError("the node table has no rows: one row per node is needed")
    if not isinstance(round, bool | np.bool_):
        raise ParameterError(f"must be True or False, got {round!r}", parameter="round")
    columns.check(frame.columns, "the node table")
    ids = Ids.of(frame, columns, _kind_of_names(graph, edge_columns or EdgeColumns()))
    columns = with_categories(columns, frame, ids.column)
    kinds = kinds_of(frame)
    for name in (
        columns.channels
        if columns.channels is not None
        else [one for one in frame.columns if one not in {ids.column, *columns.filled}]
    ):
        _refuse_unusable(frame.get_column(name), is_channel=columns.channels is not None, columns=columns)
    chosen = {*choose_channels(kinds, columns, ids.column), *columns.categorical}
    if not chosen:
        raise FeatureError(
            "the node table has no numeric or categorical column to fill", remedy="name columns with {categorical}"
        )
    read = [
        category_column(frame.get_column(name), columns.missing_values)
        if name in columns.categorical
        else NodeColumn(name=name, missing=missing_cells(frame.get_column(name), columns.missing_values))
        for name in frame.columns
        if name in chosen
    ]
    has_markers = len(columns.missing_values) > 0
    return NodeTable(native=nodes, columns=tuple(read), ids=ids, rounds=bool(round), has_markers=has_markers)


def with_categories(columns: NodeColumns, frame: Any, id_column: Any, markers: Sequence[Any] = ()) -> NodeColumns:
    """The choices with the categorical columns that are found, if they are to be found."""
    if not columns.finds_categories or columns.channels is not None:
        return replace(columns, finds_categories=False)
    apart = {id_column, *columns.exclude, *columns.categorical}
    found = find_categories(frame, apart, [*columns.missing_values, *markers])
    return replace(columns, categorical=[*columns.categorical, *found], finds_categories=False)


def _kind_of_names(graph: Any, columns: EdgeColumns) -> Kind | None:
    """Kind of ids that a graph uses: integers or text; None for row numbers."""
    if is_frame(graph):
        return kind_of_ends(graph, columns)
    if is_networkx(graph) or is_spatial_weights(graph):
        names = list(islice(graph if is_networkx(graph) else names_of_nodes(graph), ROWS_IN_SAMPLE))
        return Kind.TEXT if names and all(isinstance(name, str) for name in names) else Kind.INTEGER
    return None


def _refuse_unusable(series: Any, *, is_channel: bool, columns: NodeColumns) -> None:
    _refuse_numbers_as_objects(series)
    if type(getattr(series.to_native(), "dtype", None)).__name__ == "SparseDtype":
        raise FeatureError(f"the column {series.name!r} is sparse: convert it with .sparse.to_dense()")
    if is_channel and series.name not in columns.categorical and not kind_of(series.dtype).is_number:
        raise FeatureError(
            f"the column {series.name!r} holds {series.dtype}, not numbers",
            remedy="name it in {categorical} as well, or convert it",
        )


def _refuse_numbers_as_objects(series: Any) -> None:
    kinds = ("integer", "floating", "mixed-integer-float", "mixed-integer", "decimal", "boolean")
    held = next((kind for kind in kinds if holds_objects(series, kind)), None)
    if held is not None:
        raise FeatureError(
            f"the column {series.name!r} holds {held} values as Python objects",
            remedy='convert it with pandas.to_numeric, or with astype("boolean"), or name it in {categorical}',
        )


def number_nodes(features: Any, graph: Any) -> Any:
    """The graph with row numbers, if `features` is a table and `graph` uses its ids; otherwise unchanged."""
    if graph is None or not is_frame(features):
        return graph
    ids = Ids.of(open_frame(features, "the node table"), NodeColumns(), _kind_of_names(graph, EdgeColumns()))
    return NodeTable(native=features, columns=(), ids=ids).number_nodes(graph)
