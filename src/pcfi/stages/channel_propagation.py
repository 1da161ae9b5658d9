"""Stage 2, channel propagation: filled channels -> channels corrected by their correlation with the others.

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
from pcfi.stages.diffusion import InfluenceProduct
from pcfi.stages.hops import Hops

MAX_BLOCK_BYTES = 1 << 23  # of one of the two arrays that a block of rows needs, so that both stay in the cache
MIN_BLOCK_ROWS = 256  # so that a matrix product is worth its call
NOISE_IN_EPS = 1024  # below, rounding (in machine epsilons) would change correlations by more than about 0.001


@dataclass(frozen=True)
class PropagationParameters:
    """Parameters of stage 2; `standardize` works in units of each channel's standard deviation."""

    alpha: float
    beta: float
    standardize: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class ChannelPropagation:
    """What stage 2 needs to know about all nodes, to be applied to any block of their rows.

    Attributes
    ----------
    columns : NamedTuple
        The channels, their patterns and their means, as the kernels take them.
    units : ndarray, float64
        A number of the size of the known values of each channel, so that sums of squares stay within the numbers.
    counts : ndarray of int
        Reachable cells of each channel.
    confidence, reachable : ndarray
        Confidence, and 1 or 0, by hops code; the last entry is for unreachable cells.
    """

    columns: Any
    units: Array
    counts: Array
    confidence: Array
    reachable: Array

    @classmethod
    def of(cls, values: Array, hops: Hops, channels: Array, units: Array, alpha: float) -> "ChannelPropagation":
        """Add up the reachable cells of all nodes."""
        sums, counts = reachable_sums(values, hops, channels, units)
        return cls.from_sums(hops, channels, units, alpha, sums, counts, values.dtype)

    @classmethod
    def from_sums(
        cls, hops: Hops, channels: Array, units: Array, alpha: float, sums: Array, counts: Array, dtype: npt.DTypeLike
    ) -> "ChannelPropagation":
        """Sums over the reachable cells of all nodes, in units, and their number -> what stage 2 needs to know."""
        from pcfi._kernels.channel_propagation import ChannelMeans

        means = sums * (units / np.maximum(counts, 1))
        confidence = hops.confidence_by_code(alpha, dtype)
        reachable = np.append(np.ones(len(confidence) - 1), 0).astype(dtype)
        columns = ChannelMeans(channels, hops.patterns[channels], means.astype(dtype))
        return cls(columns=columns, units=units, counts=counts, confidence=confidence, reachable=reachable)

    def for_hops(self, hops: Hops, alpha: float) -> "ChannelPropagation":
        """The same channels and means, for rows of other nodes."""
        channels, dtype = self.columns.channels, self.confidence.dtype
        columns = self.columns._replace(patterns=hops.patterns[channels])
        return replace(self, columns=columns, confidence=hops.confidence_by_code(alpha, dtype))

    def scatter(self, values: Array, codes: Array) -> Array:
        """The part that some rows have in the scatter matrix of the channels, in their units."""
        part = self._deviations(values, codes, self.reachable, 1 / self.units)
        return np.asarray(part.T @ part)

    def matrix(self, scatter: Array, parameters: PropagationParameters) -> Array:
        """The propagation matrix, in the dtype of the values; overwrites `scatter`."""
        units, dtype = self.units / np.sqrt(np.maximum(self.counts, 1)), self.confidence.dtype
        with np.errstate(over="ignore", invalid="ignore"):
            return propagation_matrix(scatter, units, parameters, dtype).astype(dtype, copy=False)

    def refine(self, values: Array, codes: Array, matrix: Array) -> None:
        """Correct the missing reachable cells of some rows in place."""
        from pcfi._kernels.channel_propagation import correct
        from pcfi._kernels.threads import run_rows

        with np.errstate(over="ignore", invalid="ignore"):
            received = self._deviations(values, codes, self.confidence, np.ones_like(self.units)) @ matrix
        finite = run_rows(
            len(received),
            lambda first, last: correct(values, codes, self.columns, self.confidence, first, last, received),
            inline=received.size < SMALL,
        )
        refuse_non_finite(all(finite))

    def _deviations(self, values: Array, codes: Array, by_code: Array, factors: Array) -> Array:
        """Deviations of some rows from the channel means, times `factors` and what `by_code` says."""
        from pcfi._kernels.channel_propagation import deviations
        from pcfi._kernels.threads import run_rows

        out = np.empty((len(values), len(factors)), dtype=values.dtype)
        factors = factors.astype(out.dtype)
        run_rows(
            len(out),
            lambda first, last: deviations(values, codes, self.columns, factors, by_code, first, last, out),
            inline=out.size < SMALL,
        )
        return out


def propagate(
    out: Array,
    hops: Hops,
    channels: Array,
    units: Array,
    parameters: PropagationParameters,
    nodes: Array | None = None,
    *,
    progress: bool = False,
) -> None:
    """Refine the missing reachable cells of `out`, or only those of the given nodes.

    `channels` lists the channels that vary; the others have no correlation with any. `units` as in
    `ChannelPropagation`.
    """
    stage = ChannelPropagation.of(out, hops, channels, units, parameters.alpha)
    blocks = list(row_blocks(len(out), len(channels) * out.itemsize))
    rows, codes = (out, hops.codes) if nodes is None else (out[nodes], hops.codes[nodes])
    with progress_bar("channels", len(out) + len(rows), show=progress) as advance:
        scatter = np.zeros((len(channels), len(channels)), dtype=np.float64 if len(blocks) > 1 else out.dtype)
        for block in blocks:
            scatter += stage.scatter(out[block], hops.codes[block])
            advance(block.stop - block.start)
        matrix = stage.matrix(scatter, parameters)
        for block in row_blocks(len(rows), len(channels) * out.itemsize):
            stage.refine(rows[block], codes[block], matrix)
            advance(block.stop - block.start)
    if nodes is not None:
        out[nodes] = rows


def reachable_sums(values: Array, hops: Hops, channels: Array, units: Array) -> tuple[Array, Array]:
    """Sum over the reachable cells of each channel, in its unit, and their number."""
    from pcfi._kernels.channel_propagation import ChannelMeans, channel_sums

    sums, counts = np.zeros(len(channels)), np.zeros(len(channels), dtype=np.int64)
    columns = ChannelMeans(channels, hops.patterns[channels], sums)
    channel_sums(values, hops.codes, columns, hops.n_levels, units, sums, counts)
    return sums, counts


def refuse_non_finite(finite: bool) -> None:
    """Raise if a refined value is not finite."""
    if not finite:
        raise DivergenceError(
            "values overflowed in channel propagation: beta is too large, or the channels differ too much in scale",
            remedy="try a smaller {beta}, or {standardize=True}, or rescale channels of tiny or huge values",
        )


def row_blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Blocks of rows that stay in the cache."""
    size = max(MIN_BLOCK_ROWS, MAX_BLOCK_BYTES // row_bytes)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def propagation_matrix(scatter: Array, units: Array, parameters: PropagationParameters, dtype: npt.DTypeLike) -> Array:
    """Beta R (eq. 6), with each column in its own channel's unit if `standardize`; overwrites `scatter`.

    `units` turns the root of a channel's scatter into its standard deviation; `dtype` is that of the values.
    """
    spread, inverse = _spread(np.diagonal(scatter).copy(), dtype)
    np.fill_diagonal(scatter, 0.0)
    scatter *= inverse[:, None]
    scatter *= inverse[None, :]
    np.clip(scatter, -1.0, 1.0, out=scatter)
    matrix = scatter.astype(np.float64, copy=False) if parameters.standardize else scatter
    if parameters.standardize:
        deviation = spread * units
        matrix *= np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)[:, None]
        matrix *= deviation[None, :]
    matrix *= parameters.beta
    return matrix


def _spread(squares: Array, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """Root of sums of squared deviations of values of order 1, and its inverse; 0 and 0 where it is only rounding."""
    spread = np.sqrt(np.maximum(squares, 0.0))
    spread[spread <= NOISE_IN_EPS * np.finfo(dtype).eps] = 0.0
    return spread, np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)


@dataclass(frozen=True, eq=False)
class ProductPropagation:
    """Both stages at once for channels that are a product of an influence matrix H and known values Z.

    With C = H - mean(H) over the reachable nodes and G = C^T C, the channels have the scatter S^2 = diag(Z^T G Z) and
    the correlation R = S^-1 Z^T G Z S^-1 - I. As X-hat - m = C Z, what the channels send each other is

        (X-hat - m) R = C Q,      Q = Z S^-1 Z^T G Z S^-1 - Z

    and with one confidence per node a cell at h hops is shift + H Z + w C Q, w = beta (1 - alpha^h) alpha^h: one
    product per number of hops, and no channels x channels matrix.

    Attributes
    ----------
    mean : ndarray
        Mean of H over the reachable nodes.
    received : ndarray of shape (n_sources, n_channels)
        Q.
    """

    mean: Array
    received: Array

    @classmethod
    def of(
        cls, product: InfluenceProduct, is_reachable: Array, units: Array, parameters: PropagationParameters
    ) -> "ProductPropagation":
        """The mean of H, and Q."""
        influence = product.influence
        reachable = influence if is_reachable.all() else influence[is_reachable]
        mean = reachable.mean(axis=0, dtype=np.float64)
        centred = reachable - mean.astype(influence.dtype)
        gram = (centred.T @ centred).astype(np.float64)
        known, scaled = product.known.astype(np.float64), product.known.astype(np.float64) / units
        sent = gram @ scaled
        # rounding of the influence matrix, not of this product, decides what is noise
        spread, inverse = _spread((scaled * sent).sum(axis=0), influence.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            if parameters.standardize:
                received = (scaled * inverse**2) @ scaled.T @ sent * units
            else:
                received = (scaled * inverse * units) @ scaled.T @ (sent * inverse)
            return cls(mean, np.asarray(received - known * (spread > 0)))

    def fill(
        self,
        product: InfluenceProduct,
        codes: Array,
        n_levels: int,
        parameters: PropagationParameters,
        out: Array,
        nodes: Array | None = None,
    ) -> None:
        """Fill the missing reachable cells of all rows, or of the given ones; `codes` are those of the pattern."""
        from pcfi.stages.diffusion.influence_matrix import place

        known, dtype = product.known.astype(np.float64), product.influence.dtype
        unbounded = replace(product, bounds=np.full_like(product.bounds, np.inf) * [[-1], [1]])
        chosen = np.arange(len(codes)) if nodes is None else nodes
        rows = chosen[np.argsort(codes[chosen], kind="stable")].astype(np.int32)
        ends = np.searchsorted(codes[rows], np.arange(n_levels + 1), side="right")
        for level in range(1, n_levels + 1):
            confidence = parameters.alpha**level
            weight = parameters.beta * (1 - confidence) * confidence
            with np.errstate(over="ignore", invalid="ignore"):
                values = (known + weight * self.received).astype(dtype)
                shift = (product.shift - weight * (self.mean @ self.received)).astype(dtype)
            refuse_non_finite(bool(np.isfinite(values).all() and np.isfinite(shift).all()))
            place(unbounded, rows[ends[level - 1] : ends[level]], values, shift, out)


def propagate_product(
    out: Array,
    hops: Hops,
    product: InfluenceProduct,
    units: Array,
    parameters: PropagationParameters,
    nodes: Array | None = None,
) -> None:
    """Fill all missing reachable cells of `out`, or only those of the given nodes, by both stages at once."""
    codes = hops.codes[:, product.pattern]
    stage = ProductPropagation.of(product, hops.is_reachable(codes), units, parameters)
    stage.fill(product, codes, hops.n_levels, parameters, out, nodes)
