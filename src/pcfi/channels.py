"""Stage 2: filled channels -> channels that have shared what they know with each other, node by node.

With X-hat the filled features, m its channel means, R the correlation of its channels (diagonal 0, undefined 0) and
xi the confidence, the paper's equations 6-9 are, for all nodes at once,

    X-tilde = X-hat + beta (1 - xi) o ((xi o (X-hat - m)) R)

Known cells have xi = 1 and are never written to. Unreachable cells take no part. Two passes over blocks of rows
suffice: sums for R, then the correction.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.hops import Hops
from pcfi.problem import SMALL
from pcfi.progress import progress_bar

Array = npt.NDArray[Any]

BLOCK_BYTES = 1 << 25


def share(
    values: Array,
    hops: Hops,
    active: Array,
    *,
    alpha: float,
    beta: float,
    standardize: bool = False,
    progress: bool = False,
) -> None:
    """Refine the missing reachable cells of `values`, in place.

    `active` lists the channels that vary; the others have no correlation with any. With `standardize`, channels are
    divided by their standard deviation first and scaled back after, so that units do not matter.
    """
    if beta == 0 or alpha == 1 or len(active) < 2:
        return
    stage = _Stage.prepare(values, hops, active, alpha)
    blocks = list(_row_blocks(len(values), len(active) * values.itemsize))
    with progress_bar("share", 2 * len(values), show=progress) as advance:
        covariance = np.zeros((len(active), len(active)), dtype=np.float64 if len(blocks) > 1 else values.dtype)
        for rows in blocks:
            part = stage.deviations(rows, stage.reachable)
            covariance += part.T @ part
            advance(len(part))
        mixing = _mixing(covariance, beta, standardize).astype(values.dtype, copy=False)
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


def _mixing(covariance: Array, beta: float, standardize: bool) -> Array:
    """Beta R (eq. 6), with each column in its own channel's unit if `standardize`; overwrites `covariance`."""
    spread = np.sqrt(np.diagonal(covariance)).copy()
    inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    np.fill_diagonal(covariance, 0.0)
    covariance *= inverse[:, None]
    covariance *= inverse[None, :]
    np.clip(covariance, -1.0, 1.0, out=covariance)
    if standardize:
        covariance *= inverse[:, None]
        covariance *= spread[None, :]
    covariance *= beta
    return covariance
