"""Features, known mask and graph -> `Problem`. Input is checked here and nowhere else."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pcfi._typing import Array, ArrayOrTensor
from pcfi.errors import DivergenceError, FeatureError, UnsupportedTypeError, counted
from pcfi.inputs import tensors
from pcfi.inputs.containers import Container, ContainerLayout, Wrap, default_channel_name, open_container
from pcfi.inputs.graphs import Graph, GraphLike, is_graph, read_graph
from pcfi.inputs.knn import knn_graph
from pcfi.system_memory import refuse_allocation

MAX_LISTED_CELLS = 1 << 20  # cells per block of rows in `known_cells`
CHANNELS_AT_A_TIME = 512
SMALL = 100_000  # with fewer cells, a thread costs more than it saves


@dataclass(frozen=True, eq=False, kw_only=True)
class Channels:
    """Statistics of the known cells of each channel, and the grouping of channels into patterns.

    Attributes
    ----------
    n_known : ndarray of int, one per channel
    low, high, mean : ndarray
        Range and mean of the known values; 0 for a channel without any.
    patterns : ndarray of int, one per channel
        Pattern of each channel: channels with the same known nodes share one.
    representatives : ndarray of int, one per pattern
        A channel of each pattern.
    """

    n_known: Array
    low: Array
    high: Array
    mean: Array
    patterns: Array
    representatives: Array

    @property
    def constant(self) -> Array:
        """Channels whose known values are all equal (or that have none)."""
        return np.asarray(self.low == self.high)

    @property
    def magnitude(self) -> Array:
        """Largest absolute known value of each channel, in float64; 1 if that is 0.

        At least the smallest normal number of the dtype, so that dividing by it is safe.
        """
        largest = np.maximum(np.abs(self.low), np.abs(self.high)).astype(np.float64)
        is_float = self.low.dtype.kind == "f"
        least = float(np.finfo(self.low.dtype).tiny) if is_float else 1.0
        return np.where(largest > 0, np.maximum(largest, least), 1.0)

    @property
    def silent(self) -> Array:
        """Channels whose known values are all zero (or that have none)."""
        return np.asarray((self.low == 0) & (self.high == 0))


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem(ContainerLayout):
    """A feature matrix with missing cells on a graph. It is never modified.

    Attributes
    ----------
    values : ndarray of shape (n_nodes, n_channels), float32 or float64
        The features; the content of missing cells is arbitrary. A tensor if they are on a device that the compiled
        kernels cannot reach.
    mask : ndarray of bool, or a tensor on the device of the features
        True = known. Has no rows if NaN marks missing cells.
    graph : Graph
    channels : Channels
    counted_nodes : ndarray of int or None
        Nodes whose cells are counted and reported; None: all. The other nodes only link these, and have no known cells.
    build_graph : callable or None
        Builds the graph from features (NaN where missing), if it depends on them.
    """

    values: ArrayOrTensor
    mask: ArrayOrTensor
    graph: Graph
    channels: Channels
    counted_nodes: Array | None = None
    build_graph: Callable[[Array], Graph] | None = None

    @property
    def on_device(self) -> bool:
        """Whether the features are a tensor on a device that the compiled kernels cannot reach."""
        return not isinstance(self.values, np.ndarray)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values, as a numpy dtype."""
        return self.channels.low.dtype

    @property
    def columns(self) -> Array:
        """Number of the column that each channel belongs to; a categorical column has several channels."""
        n_channels = self.values.shape[1]
        starts = np.zeros(n_channels, dtype=np.int64)
        starts[self.first_channels] = 1
        return np.cumsum(starts) - 1

    @property
    def n_missing(self) -> int:
        """Number of missing cells."""
        n_known = self.channels.n_known[self.first_channels]
        return int(self.n_counted * len(n_known) - n_known.sum())

    @property
    def n_counted(self) -> int:
        """Number of nodes whose cells are counted."""
        return self.values.shape[0] if self.counted_nodes is None else len(self.counted_nodes)


def read_problem(
    features: Any,
    graph: GraphLike,
    known: Any = None,
    *,
    directed: bool = False,
    categorical: Sequence[str] | None = None,
) -> Problem:
    """Check `features`, `known` and `graph`, and put them into a `Problem`."""
    build = graph_function(graph)
    tensors.check_devices(features, known, None if build else graph)
    container = open_container(features, known, graph, categorical)
    values, wrap_values = _read_features(container)
    mask = _read_known(container.known, tuple(values.shape))
    if not isinstance(values, np.ndarray):
        mask = tensors.beside(values, mask)
    channels = survey(values, mask, container.channel_name)

    def prepare(graph: GraphLike) -> Graph:
        return read_graph(graph, len(values), f"features has {len(values)} rows", directed=directed)

    build_graph = None if build is None else lambda features: prepare(build(features))
    return Problem(
        values=values,
        mask=mask,
        graph=prepare(container.number_nodes(graph)) if build_graph is None else build_graph(_known(values, mask)),
        build_graph=build_graph,
        channels=channels,
        **container.layout() | {"wrap_values": wrap_values},
    )


def graph_function(graph: GraphLike) -> Callable[[Array], GraphLike] | None:
    """The function that builds the graph from the features, if the caller passed one or "knn"; else None."""
    if isinstance(graph, str) and graph == "knn":
        return knn_graph
    return graph if callable(graph) and not is_graph(graph) else None


def _read_features(container: Container) -> tuple[Array, Wrap]:
    """Values in the dtype of the computation, and the function that wraps filled values."""
    values = container.array
    _check_shape(tuple(values.shape))
    if not isinstance(values, np.ndarray):
        return values, container.wrap_values
    dtype = working_dtype(values.dtype)
    is_half = values.dtype.kind == "f" and values.dtype.itemsize == 2
    wrap_values = partial(_wrap_half, container.wrap_values) if is_half else container.wrap_values
    if not values.flags.c_contiguous or values.dtype != dtype:
        refuse_allocation(values.size * dtype.itemsize, f"a contiguous copy of the features as {dtype}")
    return np.ascontiguousarray(values, dtype=dtype), wrap_values


def _wrap_half(wrap_values: Wrap, filled: Array) -> Any:
    return wrap_values(to_half(filled))


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise FeatureError(
            f"features must be 2-D (nodes x channels), got shape {shape}"
            + (": for one channel pass features[:, None]" if len(shape) == 1 else "")
        )
    if shape[0] == 0:
        raise FeatureError("features has no rows: one row per node is needed")
    if shape[1] == 0:
        raise FeatureError("features has no channels: at least one column is needed")


def to_half(filled: Array) -> Array:
    """Filled values as float16; an error if they overflow."""
    if np.nanmax(np.abs(filled), initial=0.0) > np.finfo(np.float16).max:
        raise DivergenceError("a filled value overflows float16: pass the features as float32")
    return filled.astype(np.float16)


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that features of `dtype` are filled in."""
    if dtype.kind in "iub":
        return np.dtype(np.float64)
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)
    raise FeatureError(f"features must be real numbers of at most 64 bits, got dtype {dtype}: convert it to float64")


def _read_known(known: Any, shape: tuple[int, ...]) -> Array:
    if known is None:
        return np.empty((0, 1), dtype=np.bool_)
    if isinstance(known, np.ma.MaskedArray):
        raise UnsupportedTypeError("known is a masked array: pass a plain boolean array, True = known")
    if tensors.is_tensor(known) and not tensors.stays_on_device(known):
        known = tensors.to_array(known, "known")
    try:
        mask = (
            known if tensors.is_tensor(known) else np.asarray(known.toarray() if hasattr(known, "toarray") else known)
        )
    except ValueError:
        raise FeatureError("known has rows of different lengths: it must have the shape of features") from None
    if str(mask.dtype) not in ("bool", "torch.bool"):
        raise FeatureError(
            f"known must be a boolean mask (True = known), got dtype {mask.dtype}: use np.asarray(known, dtype=bool)"
        )
    if tuple(mask.shape) != shape:
        per_node = tuple(mask.shape) == shape[:1]
        advice = (
            "for whole nodes pass np.broadcast_to(known[:, None], features.shape)" if per_node else "both must agree"
        )
        raise FeatureError(f"known has shape {tuple(mask.shape)}, but features has shape {shape}: {advice}")
    return mask if tensors.is_tensor(mask) else np.ascontiguousarray(mask)


def hide_cells(problem: Problem, known: Array) -> Problem:
    """The problem with fewer known cells; a graph that is built from the features is rebuilt without them."""
    hidden = replace(problem, mask=known, channels=survey(problem.values, known))
    if problem.build_graph is None:
        return hidden
    return replace(hidden, graph=problem.build_graph(_known(problem.values, known)))


def _known(values: ArrayOrTensor, mask: ArrayOrTensor) -> Array:
    """A copy of the values with NaN where they are missing."""
    array = np.array(values if isinstance(values, np.ndarray) else tensors.to_array(values, "features"))
    if len(mask):
        array[~(mask if isinstance(mask, np.ndarray) else tensors.to_array(mask, "known"))] = np.nan
    return array


def known_mask(problem: Problem) -> Array:
    """Mask of the known cells, in the shape of the features. Do not modify it."""
    return problem.mask if len(problem.mask) else ~np.isnan(problem.values)


def places(mask: Array) -> tuple[Array, Array]:
    """Rows and columns where the mask is true, as by np.nonzero, which is much slower for two dimensions."""
    rows = np.repeat(np.arange(len(mask)), np.count_nonzero(mask, axis=1))
    return rows, np.flatnonzero(mask) - rows * mask.shape[1]


def known_cells(problem: Problem) -> Iterator[tuple[Array, Array, Array]]:
    """Rows, channels and values of the known cells, in blocks of rows; efficient if most cells are missing."""
    n_nodes, n_channels = problem.values.shape
    size = max(1, MAX_LISTED_CELLS // max(n_channels, 1))
    for start in range(0, n_nodes, size):
        values = problem.values[start : start + size]
        known = problem.mask[start : start + size] if len(problem.mask) else ~np.isnan(values)
        rows, channels = places(known)
        yield rows + start, channels, values[rows, channels]


def survey(values: Array, mask: Array, channel_name: Callable[[int], str] = default_channel_name) -> Channels:
    """Statistics of each channel; `mask` and `channel_name` as in `Problem`."""
    look = _facts if isinstance(values, np.ndarray) else tensors.survey
    n_known, low, high, mean, keys = look(values, mask)
    empty = n_known == 0
    low[empty] = high[empty] = 0
    # a mean that is not finite comes from a NaN that is marked as known, or from infinity
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(mean).all()):
        if not isinstance(values, np.ndarray):
            values, mask = tensors.to_array(values, "features"), tensors.to_array(mask, "known")
        refuse_non_finite(values, mask, channel_name)
    patterns, representatives = group_by_key(keys)
    return Channels(
        n_known=n_known,
        low=low,
        high=high,
        mean=np.clip(mean, low, high),
        patterns=patterns,
        representatives=representatives,
    )


def _means(values: Array, mask: Array, n_known: Array, total: Array) -> Array:
    means = total / np.maximum(n_known, 1)
    for channel in np.flatnonzero(~np.isfinite(total)):  # the sum overflows, the mean does not
        column = values[:, channel]
        known = mask[:, channel] if len(mask) else ~np.isnan(column)
        with np.errstate(invalid="ignore"):
            means[channel] = (column[known].astype(np.float64) / n_known[channel]).sum()
    return means


def _facts(values: Array, mask: Array) -> tuple[Array, ...]:
    """Known count, range, mean and a key of the known nodes of each channel."""
    from pcfi._kernels.channel_stats import ChannelStats, add_channel_stats
    from pcfi._kernels.threads import run_tasks

    n_channels = values.shape[1]
    facts = ChannelStats(
        n_known=np.zeros(n_channels, dtype=np.int64),
        low=np.full(n_channels, np.inf, dtype=values.dtype),
        high=np.full(n_channels, -np.inf, dtype=values.dtype),
        total=np.zeros(n_channels),
        key=np.zeros(n_channels, dtype=np.uint64),
    )

    def look_at(start: int) -> Callable[[Any], None]:
        return lambda _: add_channel_stats(values, mask, start, min(start + CHANNELS_AT_A_TIME, n_channels), facts)

    starts = range(0, n_channels, CHANNELS_AT_A_TIME)
    run_tasks([look_at(start) for start in starts], inline=values.size < SMALL)
    return facts.n_known, facts.low, facts.high, _means(values, mask, facts.n_known, facts.total), facts.key


def group_by_key(keys: Array) -> tuple[Array, Array]:
    """Pattern of each channel, and the first channel of each pattern, in the order of first appearance."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse.ravel()], first[order]


def refuse_non_finite(values: Array, mask: Array, channel_name: Callable[[int], str], first_row: int = 0) -> None:
    """Raise an error that names the first known cell that is not finite; `first_row` is the number of the first row."""
    wrong = (mask & ~np.isfinite(values)) if len(mask) else np.isinf(values)
    if not wrong.any():
        return
    row, channel = np.argwhere(wrong)[0]
    value, node = values[row, channel], first_row + row
    if np.isnan(value):
        problem, advice = "NaN, but known is True there", "set known to False or give the cell a value"
    else:
        problem, advice = str(value), "known values must be finite; use NaN if it is missing"
    cell = (
        f"features[{node}, {channel}]"
        if channel_name is default_channel_name
        else f"{channel_name(channel)} in row {node}"
    )
    raise FeatureError(f"{cell} is {problem}: {advice} ({counted(int(wrong.sum()), 'such cell')})")
