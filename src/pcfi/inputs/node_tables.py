"""Node tables <-> arrays: columns -> channels, and filled channels -> the same table, in the library it came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import FeatureError, GraphError, ParameterError, counted
from pcfi.inputs.graphs import is_networkx, networkx_adjacency
from pcfi.inputs.ids import Ids, is_frame, locate, narwhals, open_frame, read_edges

MOST_CATEGORIES = 1000  # each becomes a channel; more of them are names, not categories


@dataclass(frozen=True, eq=False)
class NodeColumn:
    """A column that becomes one channel, or several: one per category.

    Attributes
    ----------
    name : str
    missing : ndarray of bool
        Null or NaN.
    codes : ndarray of int or None
        Of a categorical column: the category of each row, -1 if missing.
    samples : ndarray of int
        Of a categorical column: a row of each category.
    """

    name: str
    missing: Array
    codes: Array | None = None
    samples: Array | None = None

    @property
    def width(self) -> int:
        """Number of channels."""
        return 1 if self.samples is None else len(self.samples)


@dataclass(frozen=True, eq=False)
class NodeTable:
    """A table of nodes, and which of its columns are channels.

    Attributes
    ----------
    native : DataFrame of pandas or polars, or Table of pyarrow
    columns : tuple of NodeColumn
        What becomes channels, in this order; all other columns pass through.
    ids : Ids
    rounds : bool
        Whether integers and booleans come back as such.
    """

    native: Any
    columns: tuple[NodeColumn, ...]
    ids: Ids
    rounds: bool = False

    def values(self) -> Array:
        """The channels as one array, NaN where missing."""
        frame = narwhals().from_native(self.native, eager_only=True)
        dtypes = [frame.get_column(column.name).dtype for column in self.columns]
        single = all(dtype == narwhals().Float32 for dtype in dtypes)
        parts = [self._channels(frame, column, np.float32 if single else np.float64) for column in self.columns]
        return np.concatenate(parts, axis=1)

    @staticmethod
    def _channels(frame: Any, column: NodeColumn, dtype: npt.DTypeLike) -> Array:
        if column.codes is not None:
            shares = np.eye(column.width + 1, column.width, dtype=dtype)[column.codes]
            shares[column.missing] = np.nan
            return shares
        series = frame.get_column(column.name)
        if series.dtype.is_integer():
            _refuse_long_integers(series)
        if series.dtype == narwhals().Decimal:
            series = series.cast(narwhals().String)  # from text to float rounds rightly, from decimal it may not
        kind = narwhals().Float32 if dtype == np.float32 else narwhals().Float64
        return np.asarray(series.cast(kind).to_numpy(), dtype=dtype)[:, None]

    def first_channels(self) -> Array:
        """First channel of every column: its cells are those that the table has."""
        widths = np.array([column.width for column in self.columns])
        return np.asarray(np.cumsum(widths) - widths)

    def categorical(self) -> Array:
        """The channels that are a category of a column."""
        return np.flatnonzero(
            np.repeat([one.codes is not None for one in self.columns], [one.width for one in self.columns])
        )

    def channel_name(self, channel: int) -> str:
        """The column that a channel belongs to, in words."""
        ends = np.cumsum([column.width for column in self.columns])
        return f"the column {self.columns[int(np.searchsorted(ends, channel, side='right'))].name!r}"

    def known(self, known: Any) -> Any:
        """The caller's mask of known cells as an array; a table is read by the names of the columns."""
        if known is None:
            return None
        if any(column.codes is not None for column in self.columns):
            raise ParameterError("known= and categorical= do not go together: put null into the missing cells")
        if not is_frame(known):
            return known.toarray() if hasattr(known, "toarray") else known
        frame, rows = open_frame(known, "known"), getattr(self.native, "index", None)
        if rows is not None and not rows.equals(getattr(known, "index", rows)):
            raise FeatureError("known has another index than the nodes: pass known.loc[nodes.index]")
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise FeatureError(f"known has no column {absent[0]!r}: it must have the channels of the nodes")
        return np.stack([frame.get_column(column.name).to_numpy() for column in self.columns], axis=1)

    def number_nodes(self, graph: Any) -> Any:
        """The graph with nodes named by their rows, if it is a table of edges or a networkx graph; else as it is."""
        if is_frame(graph):
            return read_edges(graph, self.ids)
        if is_networkx(graph) and (self.ids.series is not None or self.ids.doubt):
            return self._number_networkx(graph)
        return graph

    def _number_networkx(self, graph: Any) -> Any:
        names = list(graph)
        backend = narwhals().from_native(self.native, eager_only=True).implementation
        series = narwhals().new_series("node", names, backend=backend)
        rows = self.ids.rows(series, "the networkx graph")
        if (rows < 0).any():
            name = names[int(np.argmax(rows < 0))]
            raise GraphError(
                f"the networkx graph has a node {name!r}, which is not in {self.ids.words} of the nodes "
                f"({counted(int((rows < 0).sum()), 'such node')}): add the rows, or remove the nodes from the graph"
            )
        edges = networkx_adjacency(graph, None)
        return np.stack([rows[end] for end in edges.coords]), edges.data

    def wrap_values(self, filled: Array, known: Any = None) -> Any:
        """The table with its channels filled; a column without missing cells is left as it is."""
        frame = narwhals().from_native(self.native, eager_only=True)
        first, replaced = 0, []
        for column in self.columns:
            part = filled[:, first : first + column.width]
            missing = column.missing if known is None else ~np.asarray(known)[:, first]
            if missing.any():
                replaced.append(self._filled(frame, column, part))
            first += column.width
        return frame.with_columns(*replaced).to_native()

    def _filled(self, frame: Any, column: NodeColumn, part: Array) -> Any:
        series = frame.get_column(column.name)
        if column.samples is not None:
            rows = np.arange(len(part))
            chosen = column.missing & np.isfinite(part).all(axis=1)
            rows[chosen] = column.samples[part[chosen].argmax(axis=1)]
            return series[rows.tolist()].alias(column.name)
        nw, values = narwhals(), part[:, 0]
        if series.dtype.is_float():
            return self._new(frame, column.name, values).cast(series.dtype)
        if self.rounds and np.isfinite(values).all():
            if series.dtype == nw.Boolean:
                return self._new(frame, column.name, values > 0.5)
            if series.dtype.is_integer():
                return self._new(frame, column.name, _whole(values, series)).cast(series.dtype)
        return self._new(frame, column.name, values.astype(np.float64))

    def wrap_cells(self, cells: Array) -> Any:
        """A table like this one, with an array of one number per cell in place of the channels.

        A cell of a column of categories gets the number of its channels where these agree, as hops do, else NaN.
        """
        frame = narwhals().from_native(self.native, eager_only=True)
        starts = np.cumsum([0, *(column.width for column in self.columns)])[:-1]
        placed = []
        for column, start in zip(self.columns, starts, strict=True):
            part = cells[:, start : start + column.width]
            agree = (part == part[:, :1]).all(axis=1)
            placed.append(
                self._new(frame, column.name, part[:, 0] if agree.all() else np.where(agree, part[:, 0], np.nan))
            )
        return frame.with_columns(*placed).to_native()

    @staticmethod
    def _new(frame: Any, name: str, values: Array) -> Any:
        return narwhals().new_series(name, np.ascontiguousarray(values), backend=frame.implementation)


def _whole(values: Array, series: Any) -> Array:
    """Rounded values, within the integers that the column can hold."""
    if series.dtype in (narwhals().Int128, narwhals().UInt128):
        low, high = (-(2.0**53) if series.dtype == narwhals().Int128 else 0.0), 2.0**53
    else:
        limits = np.iinfo(str(series.dtype).lower())
        low, high = max(limits.min, -(2.0**53)), min(limits.max, 2.0**53)
    return np.clip(np.rint(values), low, high).astype(np.int64)


def _refuse_long_integers(series: Any) -> None:
    if max(int(series.max() or 0), -int(series.min() or 0)) > 2**53:
        raise FeatureError(
            f"the column {series.name!r} holds integers beyond 2^53, which float64 cannot tell apart",
            remedy="leave it out with {channels}, or name it with {id} if it holds the ids",
        )


def is_number(kind: Any) -> bool:
    """Whether a column of this type of pyarrow can be a channel; one that is null everywhere can."""
    from pyarrow import types

    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)
    )


def read_table(
    nodes: Any,
    *,
    id: Any = None,  # noqa: A002  the word of the domain
    channels: Sequence[str] | None = None,
    categorical: Sequence[str] | None = (),
    round: bool = False,  # noqa: A002  what it does
) -> NodeTable:
    """Decide which columns of `nodes` are channels, and check them."""
    frame = open_frame(nodes, "the node table")
    if len(frame) == 0:
        raise FeatureError("the node table has no rows: one row per node is needed")
    if not isinstance(round, bool | np.bool_):
        raise ParameterError(f"round must be True or False, got {round!r}")
    ids = Ids.of(frame, id)
    categorical = _names(frame, () if categorical is None else categorical, "categorical")
    if ids.column in categorical:
        raise ParameterError(
            f"names {ids.column!r}, which holds the ids",
            parameter="categorical",
            remedy="leave it out, or name another column with {id}",
        )
    numbers = _numbers(frame, ids, categorical) if channels is None else _named(frame, ids, channels, categorical)
    if not numbers and not categorical:
        raise FeatureError(
            "the node table has no column of numbers to fill", remedy="name columns of categories with {categorical}"
        )
    chosen = [name for name in frame.columns if name in {*numbers, *categorical}]
    columns = [
        _category(frame.get_column(name)) if name in categorical else NodeColumn(name, _missing(frame.get_column(name)))
        for name in chosen
    ]
    return NodeTable(nodes, tuple(columns), ids, bool(round))


def _names(frame: Any, names: Sequence[str], what: str) -> list[str]:
    if isinstance(names, str):
        raise ParameterError(f"{what} must be a list of columns, got {names!r}: use [{names!r}]")
    names = list(names)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise ParameterError(f"{what} names {absent[0]!r}, but the node table has no such column")
    return names


def _is_number(dtype: Any) -> bool:
    return bool(dtype.is_numeric() or dtype == narwhals().Boolean)


def _numbers(frame: Any, ids: Ids, categorical: list[str]) -> list[str]:
    """All columns of numbers but the ids."""
    others = [name for name in frame.columns if name != ids.column and name not in categorical]
    for name in others:
        _refuse_numbers_as_objects(frame.get_column(name))
        _refuse_sparse(frame.get_column(name))
    return [name for name in others if _is_number(frame.get_column(name).dtype)]


def _named(frame: Any, ids: Ids, channels: Sequence[str], categorical: list[str]) -> list[str]:
    names = _names(frame, channels, "channels")
    for name in names:
        _refuse_numbers_as_objects(frame.get_column(name))
        _refuse_sparse(frame.get_column(name))
        if name == ids.column:
            raise ParameterError(
                f"names {name!r}, which holds the ids",
                parameter="channels",
                remedy="leave it out, or name another column with {id}",
            )
        if name not in categorical and not _is_number(frame.get_column(name).dtype):
            raise FeatureError(
                f"the column {name!r} holds {frame.get_column(name).dtype}, not numbers",
                remedy="name it in {categorical} as well, or convert it",
            )
    return names


def _refuse_numbers_as_objects(series: Any) -> None:
    if series.dtype != narwhals().Object:
        return
    from pandas.api.types import infer_dtype

    held = infer_dtype(series.to_native(), skipna=True)
    if held in ("integer", "floating", "mixed-integer-float", "mixed-integer", "decimal", "boolean"):
        raise FeatureError(
            f"the column {series.name!r} holds {held} values as Python objects",
            remedy="convert it with pandas.to_numeric, or leave it out with {channels}",
        )


def _refuse_sparse(series: Any) -> None:
    if type(getattr(series.to_native(), "dtype", None)).__name__ == "SparseDtype":
        raise FeatureError(f"the column {series.name!r} is sparse: convert it with .sparse.to_dense()")


def _missing(series: Any) -> Array:
    missing = np.asarray(series.is_null().to_numpy())
    if series.dtype.is_float():
        missing = missing | np.isnan(np.asarray(series.to_numpy(), dtype=np.float64))
    return missing


def _category(series: Any) -> NodeColumn:
    nw = narwhals()
    missing = _missing(series)
    labels = series if series.dtype == nw.String else series.cast(nw.String)
    categories = labels.filter((~missing).tolist()).unique().sort()
    if len(categories) == 0:
        raise FeatureError(f"the column {series.name!r} has no known category", remedy="leave it out of {categorical}")
    if len(categories) > MOST_CATEGORIES:
        raise FeatureError(
            f"the column {series.name!r} has {counted(len(categories), 'different value')}, and each would become a "
            f"channel: at most {MOST_CATEGORIES:,} are allowed; is it an id?"
        )
    codes = locate(categories, labels, "categories", "itself")
    codes = np.where(missing, -1, codes)
    used, rows = np.unique(codes, return_index=True)
    return NodeColumn(series.name, missing, codes, rows[used >= 0])


def number_nodes(features: Any, graph: Any) -> Any:
    """The graph with nodes named by their rows, if `features` is a table and `graph` names its ids; else as it is."""
    if graph is None or not is_frame(features):
        return graph
    return NodeTable(features, (), Ids.of(open_frame(features, "the node table"))).number_nodes(graph)
