"""Stage 2: filled channels -> channels that have shared what they know with each other, node by node.

With X-hat the filled features, m its channel means, R the correlation of its channels (diagonal 0, undefined 0) and
xi the confidence, the paper's equations 6-9 are, for all nodes at once,

    X-tilde = X-hat + beta (1 - xi) o ((xi o (X-hat - m)) R)

Known cells have xi = 1 and are never written to. Unreachable cells take no part. Two passes over blocks of rows
suffice: sums for R, then the correction.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import DivergenceError
from pcfi.inputs.problem import SMALL
from pcfi.progress import progress_bar
from pcfi.stages.diffusion import Factors
from pcfi.stages.hops import Hops

BLOCK_BYTES = 1 << 23  # of one of the two arrays that a block of rows needs


@dataclass(frozen=True)
class Sharing:
    """Parameters of the second stage; `standardize` shares in units of each channel's standard deviation."""

    alpha: float
    beta: float
    standardize: bool = False


def share(
    values: Array,
    hops: Hops,
    active: Array,
    units: Array,
    sharing: Sharing,
    nodes: Array | None = None,
    *,
    progress: bool = False,
) -> None:
    """Refine the missing reachable cells of `values`, or only those of the given nodes, in place.

    `active` lists the channels that vary; the others have no correlation with any. `units` is a number of the size of
    the known values of each active channel, so that sums of squares stay within the numbers.
    """
    exchange = Exchange.prepare(values, hops, active, units, sharing.alpha)
    some = exchange if nodes is None else replace(exchange, values=values[nodes], codes=hops.codes[nodes])
    blocks = list(_row_blocks(len(values), len(active) * values.itemsize))
    with progress_bar("share", len(values) + len(some.values), show=progress) as advance:
        scatter = np.zeros((len(active), len(active)), dtype=np.float64 if len(blocks) > 1 else values.dtype)
        for rows in blocks:
            part = exchange.deviations(rows, exchange.reachable, 1 / units)
            scatter += part.T @ part
            advance(len(part))
        finite = True
        with np.errstate(over="ignore", invalid="ignore"):
            mixing = mixing_of(scatter, units / np.sqrt(np.maximum(exchange.counts, 1)), sharing)
            mixing = mixing.astype(values.dtype, copy=False)
            for rows in _row_blocks(len(some.values), len(active) * values.itemsize):
                part = some.deviations(rows, some.confidence, np.ones_like(units))
                finite = some.correct(rows, part @ mixing) and finite
                advance(len(part))
    refuse_non_finite(finite)
    if nodes is not None:
        values[nodes] = some.values


def refuse_non_finite(finite: bool) -> None:
    """Raise if a refined value is not finite."""
    if not finite:
        raise DivergenceError(
            "values overflowed in the exchange between channels: beta is too large, or the channels differ too much in "
            "scale",
            remedy="try a smaller {beta}, or {standardize=True}",
        )


@dataclass(frozen=True, eq=False)
class Exchange:
    """Filled features that share with each other, all nodes or some, and what every block of rows needs to know."""

    values: Array
    codes: Array
    sharers: Any
    counts: Array  # reachable cells of each channel
    confidence: Array  # by hops; the last entry is for unreachable cells
    reachable: Array  # likewise, 1 or 0

    @classmethod
    def prepare(cls, values: Array, hops: Hops, active: Array, units: Array, alpha: float) -> "Exchange":
        """An exchange between all nodes; adds up their reachable cells."""
        from pcfi._kernels.channel_propagation import ChannelMeans, channel_sums

        sums, counts = np.zeros(len(active)), np.zeros(len(active), dtype=np.int64)
        sharers = ChannelMeans(active, hops.patterns[active], sums)
        channel_sums(values, hops.codes, sharers, hops.n_levels, units, sums, counts)
        return cls.of_sums(values, hops, active, units, alpha, sums, counts)

    @classmethod
    def of_sums(
        cls, values: Array, hops: Hops, active: Array, units: Array, alpha: float, sums: Array, counts: Array
    ) -> "Exchange":
        """An exchange whose sums over the reachable cells of all nodes, in units, are known."""
        from pcfi._kernels.channel_propagation import ChannelMeans

        means = sums * (units / np.maximum(counts, 1))
        sharers = ChannelMeans(active, hops.patterns[active], means.astype(values.dtype))
        confidence = hops.confidence_by_code(alpha, values.dtype)
        reachable = np.append(np.ones(len(confidence) - 1), 0).astype(values.dtype)
        return cls(values, hops.codes, sharers, counts, confidence, reachable)

    def deviations(self, rows: slice, by_hops: Array, factors: Array) -> Array:
        """Deviations from the channel means in a block of rows, times `factors` and what `by_hops` says."""
        from pcfi._kernels.channel_propagation import deviations
        from pcfi._kernels.threads import run_rows

        values, codes = self.values[rows], self.codes[rows]
        out = np.empty((len(values), len(factors)), dtype=self.values.dtype)
        factors = factors.astype(out.dtype)
        run_rows(
            len(out),
            lambda first, last: deviations(values, codes, self.sharers, factors, by_hops, first, last, out),
            inline=out.size < SMALL,
        )
        return out

    def correct(self, rows: slice, received: Array) -> bool:
        """Add what was received to the missing cells, as far as they are not confident; whether all stays finite."""
        from pcfi._kernels.channel_propagation import correct
        from pcfi._kernels.threads import run_rows

        values, codes = self.values[rows], self.codes[rows]
        finite = run_rows(
            len(received),
            lambda first, last: correct(values, codes, self.sharers, self.confidence, first, last, received),
            inline=received.size < SMALL,
        )
        return all(finite)


def _row_blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    size = max(256, BLOCK_BYTES // row_bytes)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def mixing_of(scatter: Array, units: Array, sharing: Sharing) -> Array:
    """Beta R (eq. 6), with each column in its own channel's unit if `standardize`; overwrites `scatter`.

    `units` turns the root of a channel's scatter into its standard deviation.
    """
    spread, inverse = _spread(np.diagonal(scatter).copy(), scatter.dtype)
    np.fill_diagonal(scatter, 0.0)
    scatter *= inverse[:, None]
    scatter *= inverse[None, :]
    np.clip(scatter, -1.0, 1.0, out=scatter)
    mixing = scatter.astype(np.float64, copy=False) if sharing.standardize else scatter
    if sharing.standardize:
        deviation = spread * units
        mixing *= np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)[:, None]
        mixing *= deviation[None, :]
    mixing *= sharing.beta
    return mixing


def _spread(squares: Array, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """Root of sums of squared deviations of values of order 1, and its inverse; 0 and 0 where it is only rounding."""
    spread = np.sqrt(np.maximum(squares, 0.0))
    spread[spread <= 16 * np.finfo(dtype).eps] = 0.0
    return spread, np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)


def share_factored(
    out: Array, hops: Hops, factors: Factors, units: Array, sharing: Sharing, nodes: Array | None = None
) -> None:
    """Both stages at once for channels that are a product of an influence matrix H and known values Z.

    Fills all missing reachable cells of `out`, or only those of the given nodes.

    With C = H - mean(H) over the reachable nodes and G = C^T C, the channels have the scatter S^2 = diag(Z^T G Z) and
    the correlation R = S^-1 Z^T G Z S^-1 - I. As X-hat - m = C Z, what the channels send each other is

        (X-hat - m) R = C Q,      Q = Z S^-1 Z^T G Z S^-1 - Z

    and with one confidence per node a cell at h hops is shift + H Z + w C Q, w = beta (1 - alpha^h) alpha^h: one
    product per number of hops, and no channels x channels matrix.
    """
    codes = hops.codes[:, factors.pattern]
    mean, received = received_by_influence(factors, codes <= hops.n_levels, units, sharing)
    refine_factored(out, codes, hops.n_levels, factors, mean, received, sharing, nodes)


def received_by_influence(factors: Factors, is_reachable: Array, units: Array, sharing: Sharing) -> tuple[Array, Array]:
    """The mean of H over the reachable nodes, and Q."""
    influence = factors.influence
    reachable = influence if is_reachable.all() else influence[is_reachable]
    mean = reachable.mean(axis=0, dtype=np.float64)
    centred = reachable - mean.astype(influence.dtype)
    gram = (centred.T @ centred).astype(np.float64)
    return mean, _received(factors.known.astype(np.float64), gram, units, sharing, influence.dtype)


def refine_factored(
    out: Array,
    codes: Array,
    n_levels: int,
    factors: Factors,
    mean: Array,
    received: Array,
    sharing: Sharing,
    nodes: Array | None = None,
) -> None:
    """Fill the missing reachable cells of all rows, or of the given ones, of `out`, `codes` and `factors.influence`."""
    from pcfi.stages.diffusion.influence_matrix import place

    known, dtype = factors.known.astype(np.float64), factors.influence.dtype
    unbounded = replace(factors, bounds=np.full_like(factors.bounds, np.inf) * [[-1], [1]])
    chosen = np.arange(len(codes)) if nodes is None else nodes
    rows = chosen[np.argsort(codes[chosen], kind="stable")].astype(np.int32)
    ends = np.searchsorted(codes[rows], np.arange(n_levels + 1), side="right")
    for level in range(1, n_levels + 1):
        confidence = sharing.alpha**level
        weight = sharing.beta * (1 - confidence) * confidence
        with np.errstate(over="ignore", invalid="ignore"):
            values = (known + weight * received).astype(dtype)
            shift = (factors.shift - weight * (mean @ received)).astype(dtype)
        refuse_non_finite(bool(np.isfinite(values).all() and np.isfinite(shift).all()))
        place(unbounded, rows[ends[level - 1] : ends[level]], values, shift, out)


def _received(known: Array, gram: Array, units: Array, sharing: Sharing, dtype: npt.DTypeLike) -> Array:
    """Q of `share_factored`: what a unit of influence receives in each channel from all others."""
    scaled = known / units
    product = gram @ scaled
    # rounding of the influence matrix, not of this product, decides what is noise
    spread, inverse = _spread((scaled * product).sum(axis=0), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        if sharing.standardize:
            sent = (scaled * inverse**2) @ scaled.T @ product * units
        else:
            sent = (scaled * inverse * units) @ scaled.T @ (product * inverse)
        return np.asarray(sent - known * (spread > 0))
