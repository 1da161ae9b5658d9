"""Stage 2: filled channels -> channels that have shared what they know with each other, node by node.

With X-hat the filled features, m its channel means, R the correlation of its channels (diagonal 0, undefined 0) and
xi the confidence, the paper's equations 6-9 are, for all nodes at once,

    X-tilde = X-hat + beta (1 - xi) o ((xi o (X-hat - m)) R)

Known cells have xi = 1 and are never written to. Unreachable cells take no part. Two passes over blocks of rows
suffice: sums for R, then the correction.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.hops import Hops
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
    from pcfi._kernels.sharing import correct, deviations

    if beta == 0 or alpha == 1 or len(active) < 2:
        return
    patterns = hops.patterns[active]
    confidence = hops.confidence_by_code(alpha, values.dtype)
    reachable = np.ones_like(confidence)
    reachable[-1] = 0
    blocks = list(_row_blocks(len(values), len(active) * values.itemsize))
    with progress_bar("share", 2 * len(values), show=progress) as advance:
        means = _channel_means(values, hops, active)
        covariance = np.zeros((len(active), len(active)), dtype=np.float64 if len(blocks) > 1 else values.dtype)
        for rows in blocks:
            part = np.empty((rows.stop - rows.start, len(active)), dtype=values.dtype)
            deviations(values[rows], hops.codes[rows], active, patterns, means, reachable, part)
            covariance += part.T @ part
            advance(len(part))
        mixing = _mixing(covariance, beta, standardize).astype(values.dtype, copy=False)
        for rows in blocks:
            part = np.empty((rows.stop - rows.start, len(active)), dtype=values.dtype)
            deviations(values[rows], hops.codes[rows], active, patterns, means, confidence, part)
            correct(values[rows], hops.codes[rows], active, patterns, confidence, part @ mixing)
            advance(len(part))


def _row_blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    size = max(256, BLOCK_BYTES // row_bytes)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def _channel_means(values: Array, hops: Hops, active: Array) -> Array:
    """Mean of the reachable cells of each active channel (m in the paper)."""
    from pcfi._kernels.sharing import channel_sums

    sums = np.zeros(values.shape[1])
    counts = np.zeros(values.shape[1], dtype=np.int64)
    channel_sums(values, hops.codes, hops.patterns, hops.n_levels, sums, counts)
    means: Array = sums[active] / np.maximum(counts[active], 1)
    return means


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
