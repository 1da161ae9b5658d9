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

from pcfi.diffusion import Factors
from pcfi.hops import Hops
from pcfi.problem import SMALL
from pcfi.progress import progress_bar

Array = npt.NDArray[Any]

BLOCK_BYTES = 1 << 25


@dataclass(frozen=True)
class Sharing:
    """Parameters of the second stage; `standardize` shares in units of each channel's standard deviation."""

    alpha: float
    beta: float
    standardize: bool = False


def share(values: Array, hops: Hops, active: Array, sharing: Sharing, *, progress: bool = False) -> None:
    """Refine the missing reachable cells of `values`, in place.

    `active` lists the channels that vary; the others have no correlation with any.
    """
    stage = _Stage.prepare(values, hops, active, sharing.alpha)
    blocks = list(_row_blocks(len(values), len(active) * values.itemsize))
    with progress_bar("share", 2 * len(values), show=progress) as advance:
        covariance = np.zeros((len(active), len(active)), dtype=np.float64 if len(blocks) > 1 else values.dtype)
        for rows in blocks:
            part = stage.deviations(rows, stage.reachable)
            covariance += part.T @ part
            advance(len(part))
        mixing = _mixing(covariance, sharing).astype(values.dtype, copy=False)
        for rows in blocks:
            part = stage.deviations(rows, stage.confidence)
            stage.correct(rows, part @ mixing)
            advance(len(part))


@dataclass(frozen=True, eq=False)
class _Stage:
    """The features being refined, and what every block of rows needs to know."""

    values: Array
    codes: Array
    sharers: Any
    means: Array
    confidence: Array  # by hops; the last entry is for unreachable cells
    reachable: Array  # likewise, 1 or 0

    @classmethod
    def prepare(cls, values: Array, hops: Hops, active: Array, alpha: float) -> "_Stage":
        from pcfi._kernels.sharing import Sharers, channel_sums

        sharers = Sharers(active, hops.patterns[active])
        sums, counts = np.zeros(len(active)), np.zeros(len(active), dtype=np.int64)
        channel_sums(values, hops.codes, sharers, hops.n_levels, sums, counts)
        confidence = hops.confidence_by_code(alpha, values.dtype)
        reachable = np.append(np.ones(len(confidence) - 1), 0).astype(values.dtype)
        return cls(values, hops.codes, sharers, sums / np.maximum(counts, 1), confidence, reachable)

    def deviations(self, rows: slice, by_hops: Array) -> Array:
        """Deviations from the channel means in a block of rows, multiplied by what `by_hops` says."""
        from pcfi._kernels.sharing import deviations
        from pcfi._kernels.threads import run_rows

        values, codes = self.values[rows], self.codes[rows]
        out = np.empty((len(values), len(self.sharers.channels)), dtype=self.values.dtype)
        run_rows(
            len(out),
            lambda first, last: deviations(values, codes, self.sharers, self.means, by_hops, first, last, out),
            inline=out.size < SMALL,
        )
        return out

    def correct(self, rows: slice, received: Array) -> None:
        """Add to the missing cells of a block of rows what they received, as far as they are not confident."""
        from pcfi._kernels.sharing import correct
        from pcfi._kernels.threads import run_rows

        values, codes = self.values[rows], self.codes[rows]
        run_rows(
            len(received),
            lambda first, last: correct(values, codes, self.sharers, self.confidence, first, last, received),
            inline=received.size < SMALL,
        )


def _row_blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    size = max(256, BLOCK_BYTES // row_bytes)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def _mixing(covariance: Array, sharing: Sharing) -> Array:
    """Beta R (eq. 6), with each column in its own channel's unit if `standardize`; overwrites `covariance`."""
    spread = np.sqrt(np.diagonal(covariance)).copy()
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    np.fill_diagonal(covariance, 0.0)
    covariance *= inverse[:, None]
    covariance *= inverse[None, :]
    np.clip(covariance, -1.0, 1.0, out=covariance)
    if sharing.standardize:
        covariance *= inverse[:, None]
        covariance *= spread[None, :]
    covariance *= sharing.beta
    return covariance


def share_factored(out: Array, hops: Hops, factors: Factors, sharing: Sharing) -> None:
    """Both stages at once for channels that are a product of an influence matrix H and known values Z.

    With C = H - mean(H) over the reachable nodes and G = C^T C, the channels have the scatter S^2 = diag(Z^T G Z) and
    the correlation R = S^-1 Z^T G Z S^-1 - I. As X-hat - m = C Z, what the channels send each other is

        (X-hat - m) R = C Q,      Q = Z S^-1 Z^T G Z S^-1 - Z

    and with one confidence per node a cell at h hops is shift + H Z + w C Q, w = beta (1 - alpha^h) alpha^h: one
    product per number of hops, and no channels x channels matrix.
    """
    from pcfi.diffusion.influence import place

    code = hops.codes[:, factors.pattern]
    influence = factors.influence
    reachable = influence if hops.n_unreachable[factors.pattern] == 0 else influence[code <= hops.n_levels]
    mean = reachable.mean(axis=0, dtype=np.float64)
    centred = reachable - mean.astype(influence.dtype)
    received = _received(factors.known.astype(np.float64), (centred.T @ centred).astype(np.float64), sharing)
    unbounded = replace(factors, bounds=np.full_like(factors.bounds, np.inf) * [[-1], [1]])
    for level in range(1, hops.n_levels + 1):
        confidence = sharing.alpha**level
        weight = sharing.beta * (1 - confidence) * confidence
        known = factors.known + weight * received
        shift = factors.shift - weight * (mean @ received)
        rows = np.flatnonzero(code == level).astype(np.int32)
        place(unbounded, rows, known.astype(influence.dtype), shift.astype(influence.dtype), out)


def _received(known: Array, gram: Array, sharing: Sharing) -> Array:
    """Q of `share_factored`: what a unit of influence receives in each channel from all others."""
    product = gram @ known
    spread = np.sqrt(np.maximum((known * product).sum(axis=0), 0.0))
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    if sharing.standardize:
        return np.asarray((known * inverse**2) @ known.T @ product - known * (spread > 0))
    return np.asarray((known * inverse) @ known.T @ (product * inverse) - known * (spread > 0))
