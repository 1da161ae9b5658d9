"""Features, known mask and graph -> `Problem`: checked once, here, and never again downstream."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pcfi.errors import DivergenceError, FeatureError, UnsupportedTypeError, counted
from pcfi.graphs import Graph, GraphLike, read_graph
from pcfi.ids import is_frame
from pcfi.tables import Table, read_table

Array = npt.NDArray[Any]

CHANNELS_AT_A_TIME = 512
SMALL = 100_000  # cells below which a thread costs more than it saves


@dataclass(frozen=True, eq=False)
class Channels:
    """Facts about each channel, from its known cells, and how channels group into patterns.

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
        """Largest absolute known value of each channel, in float64; 1 if that is 0."""
        largest = np.maximum(np.abs(self.low), np.abs(self.high)).astype(np.float64)
        return np.where(largest > 0, largest, 1.0)

    @property
    def silent(self) -> Array:
        """Channels whose known values are all zero (or that have none)."""
        return np.asarray((self.low == 0) & (self.high == 0))


@dataclass(frozen=True, eq=False)
class Problem:
    """A feature matrix with missing cells on a graph. Nothing in it is ever written to.

    Attributes
    ----------
    values : ndarray of shape (n_nodes, n_channels), float32 or float64
        The features; what stands in missing cells has no meaning.
    mask : ndarray of bool
        True = known. Without rows if NaN decides.
    graph : Graph
    channels : Channels
    restore : callable
        Turns a filled array into what the caller gets.
    place : callable
        Puts an array of one number per cell into the caller's kind of container.
    """

    values: Array
    mask: Array
    graph: Graph
    channels: Channels
    restore: Callable[[Array], Any]
    place: Callable[[Array], Any]

    @property
    def n_missing(self) -> int:
        """Number of missing cells."""
        return int(self.values.size - self.channels.n_known.sum())


def read_problem(features: Any, graph: GraphLike, known: Any = None, *, directed: bool = False) -> Problem:
    """Check `features`, `known` and `graph`, and put them into a `Problem`."""
    reading = _open(features, known)
    values, restore = _read_features(reading.features, reading.known)
    mask = _read_known(reading.known, values.shape)
    numbered = reading.number(graph)
    prepared = read_graph(numbered, len(values), f"features has {len(values)} rows", directed=directed)
    return Problem(
        values, mask, prepared, _survey(values, mask), lambda filled: reading.restore(restore(filled)), reading.place
    )


def _as_it_is(given: Any) -> Any:
    return given


class Reading(NamedTuple):
    """A container of features, opened.

    Attributes
    ----------
    features, known : array-like
        The features, and the known mask or None.
    restore : callable
        Turns the filled array into the caller's container.
    place : callable
        Puts an array of one number per cell into such a container.
    number : callable
        Turns a graph that names nodes as the container does into one that names rows.
    """

    features: Any
    known: Any
    restore: Callable[[Array], Any] = _as_it_is
    place: Callable[[Array], Any] = _as_it_is
    number: Callable[[GraphLike], GraphLike] = _as_it_is


def _open(features: Any, known: Any) -> Reading:
    for recognises, read in _READERS:
        if recognises(features):
            return read(features, known)
    return Reading(features, known)


def _is_table(features: object) -> bool:
    return is_frame(features) or isinstance(features, Table)


def _read_table(features: Any, known: Any) -> Reading:
    table = features if isinstance(features, Table) else read_table(features)
    mask = table.known(known)
    return Reading(table.values(), mask, partial(table.restore, known=mask), table.place, table.number)


_READERS: list[tuple[Callable[[Any], bool], Callable[[Any, Any], Reading]]] = [(_is_table, _read_table)]


def _read_features(features: Any, known: Any) -> tuple[Array, Callable[[Array], Any]]:
    values = _to_array(features, known)
    if values.ndim != 2:
        raise FeatureError(
            f"features must be 2-D (nodes x channels), got shape {values.shape}"
            + (": for one channel pass features[:, None]" if values.ndim == 1 else "")
        )
    if values.shape[0] == 0:
        raise FeatureError("features has no rows: one row per node is needed")
    if values.shape[1] == 0:
        raise FeatureError("features has no channels: there is nothing to fill in")
    dtype = _working_dtype(values.dtype)
    is_half = values.dtype.kind == "f" and values.dtype.itemsize == 2
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        _refuse_long_integers(values)
    return np.ascontiguousarray(values, dtype=dtype), _to_half if is_half else _as_it_is


def _to_half(filled: Array) -> Array:
    if np.nanmax(np.abs(filled), initial=0.0) > np.finfo(np.float16).max:
        raise DivergenceError("a filled value is beyond what float16 holds: pass the features as float32")
    return filled.astype(np.float16)


def _refuse_long_integers(values: Array) -> None:
    if int(values.max()) > 2**53 or int(values.min()) < -(2**53):
        raise FeatureError(
            "features holds integers beyond 2^53, which float64 cannot tell apart: subtract an offset or rescale them"
        )


def _to_array(features: Any, known: Any) -> Array:
    if isinstance(features, np.ma.MaskedArray):
        raise UnsupportedTypeError(
            "features is a masked array: pass features.data with known=~np.ma.getmaskarray(features)"
        )
    if hasattr(features, "toarray") and hasattr(features, "nnz"):
        if known is None:
            raise FeatureError(
                "features is sparse, which cannot tell missing from zero: pass known= (True = known) as well"
            )
        return np.asarray(features.toarray())
    if not isinstance(features, np.ndarray | list | tuple):
        name = f"{type(features).__module__}.{type(features).__qualname__}"
        raise UnsupportedTypeError(
            f"features is a {name}, which pcfi does not know: pass a numpy array, nested lists, a table of pandas, "
            "polars or pyarrow, or a scipy sparse matrix together with known="
        )
    try:
        return np.asarray(features)
    except ValueError as error:
        raise FeatureError(
            f"features has rows of different lengths ({error}): every node needs every channel"
        ) from None


def _working_dtype(dtype: np.dtype[Any]) -> npt.DTypeLike:
    if dtype.kind in "iub":
        return np.float64
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return np.float64 if dtype.itemsize == 8 else np.float32
    raise FeatureError(f"features must be real numbers of at most 64 bits, got dtype {dtype}: convert it to float64")


def _read_known(known: Any, shape: tuple[int, ...]) -> Array:
    if known is None:
        return np.empty((0, 1), dtype=np.bool_)
    if isinstance(known, np.ma.MaskedArray):
        raise UnsupportedTypeError("known is a masked array: pass a plain boolean array, True = known")
    try:
        mask = np.asarray(known.toarray() if hasattr(known, "toarray") else known)
    except ValueError:
        raise FeatureError("known has rows of different lengths: it must have the shape of features") from None
    if mask.dtype != np.bool_:
        raise FeatureError(
            f"known must be a boolean mask (True = known), got dtype {mask.dtype}: use np.asarray(known, dtype=bool)"
        )
    if mask.shape != shape:
        per_node = mask.shape == shape[:1]
        advice = (
            "for whole nodes pass np.broadcast_to(known[:, None], features.shape)" if per_node else "both must agree"
        )
        raise FeatureError(f"known has shape {mask.shape}, but features has shape {shape}: {advice}")
    return np.ascontiguousarray(mask)


def _survey(values: Array, mask: Array) -> Channels:
    n_known, low, high, total, keys = _facts(values, mask)
    empty = n_known == 0
    low[empty] = high[empty] = 0
    # a sum that is not finite comes from a NaN said to be known, from infinity, or from huge but finite values
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(total).all()):
        _refuse_non_finite(values, mask)
    mean = np.clip(_means(values, mask, n_known, total), low, high)
    patterns, representatives = _group(keys)
    return Channels(n_known, low, high, mean, patterns, representatives)


def _means(values: Array, mask: Array, n_known: Array, total: Array) -> Array:
    means = total / np.maximum(n_known, 1)
    for channel in np.flatnonzero(~np.isfinite(total)):  # the sum is beyond the largest number, the mean is not
        column = values[:, channel]
        known = mask[:, channel] if len(mask) else ~np.isnan(column)
        means[channel] = (column[known].astype(np.float64) / n_known[channel]).sum()
    return means


def _facts(values: Array, mask: Array) -> tuple[Array, ...]:
    from pcfi._kernels.survey import Facts, survey
    from pcfi._kernels.threads import run

    n_channels = values.shape[1]
    facts = Facts(
        n_known=np.zeros(n_channels, dtype=np.int64),
        low=np.full(n_channels, np.inf, dtype=values.dtype),
        high=np.full(n_channels, -np.inf, dtype=values.dtype),
        total=np.zeros(n_channels),
        key=np.zeros(n_channels, dtype=np.uint64),
    )

    def look_at(start: int) -> Callable[[Any], None]:
        return lambda _: survey(values, mask, start, min(start + CHANNELS_AT_A_TIME, n_channels), facts)

    starts = range(0, n_channels, CHANNELS_AT_A_TIME)
    run([look_at(start) for start in starts], inline=values.size < SMALL)
    return tuple(facts)


def _group(keys: Array) -> tuple[Array, Array]:
    """Pattern of each channel, and the first channel of each pattern, in the order of first appearance."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[inverse.ravel()], first[order]


def _refuse_non_finite(values: Array, mask: Array) -> None:
    wrong = (mask & ~np.isfinite(values)) if len(mask) else np.isinf(values)
    if not wrong.any():
        return
    node, channel = np.argwhere(wrong)[0]
    value = values[node, channel]
    if np.isnan(value):
        problem, advice = "NaN, but known says it is known", "set known to False there or give it a value"
    else:
        problem, advice = str(value), "known values must be finite; use NaN if it is missing"
    raise FeatureError(f"features[{node}, {channel}] is {problem}: {advice} ({counted(int(wrong.sum()), 'such cell')})")
