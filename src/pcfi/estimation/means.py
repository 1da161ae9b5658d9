"""Means of channels that few known values cannot mislead.

The mean of a channel's n known values is multiplied by n / (n + prior). The prior is the number of zeros that, added to
every channel, would have predicted each known value best from the other known values of its channel (leave-one-out, in
units of the channels' ranges): about 20 on sparse word counts, next to none where channels have a clear mean. Scaling a
channel scales its mean and changes no other. A channel whose known values are all equal keeps their value.
"""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import Channels, Problem, known_mask

PRIORS = np.concatenate([[0.0], np.geomspace(0.01, 1000.0, 51)])
ROWS_AT_A_TIME = 2048


@dataclass(frozen=True, eq=False)
class Means:
    """Mean of each channel, shrunk towards 0, and the strength of that: a number of cells that hold 0."""

    values: Array
    prior: float


def ranges(channels: Channels) -> Array:
    """Unit of each channel: the range of its known values, in float64; 1 if they are all equal."""
    spread = channels.high.astype(np.float64) - channels.low.astype(np.float64)
    return np.where((spread > 0) & np.isfinite(spread), spread, 1.0)


def shrunken_means(channels: Channels, squares: Array) -> Means:
    """The means, with the prior that leave-one-out prefers; `squares` as `sums_of_squares` gives them."""
    judged = np.flatnonzero((channels.n_known > 1) & ~channels.constant)
    prior = _best_prior(channels, squares, judged) if len(judged) else 0.0
    share = channels.n_known / np.maximum(channels.n_known + prior, 1.0)
    means = channels.mean.astype(np.float64)
    return Means(np.where(channels.constant, means, means * share), prior)


def sums_of_squares(problem: Problem) -> Array:
    """Sum of the squared known values of each channel, in units of its magnitude."""
    known, unit = known_mask(problem), problem.channels.magnitude
    rows, sums = np.flatnonzero(known.any(axis=1)), np.zeros(len(unit))
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        some = rows[start : start + ROWS_AT_A_TIME]
        part = np.where(known[some], problem.values[some], 0.0) / unit
        sums += np.einsum("ij,ij->j", part, part)
    return sums


def _best_prior(channels: Channels, squares: Array, judged: Array) -> float:
    """The best of `PRIORS`.

    With S and Q the sum and the sum of squares of n known values, in units of the range, the mean without one of them
    is m_i = (S - x_i) / (n - 1), so sum x_i m_i = (S^2 - Q) / (n - 1) and sum m_i^2 = ((n - 2) S^2 + Q) / (n - 1)^2.
    """
    n = channels.n_known[judged].astype(np.float64)
    unit = ranges(channels)[judged]
    total = n * (channels.mean[judged] / unit)
    squared = squares[judged] * (channels.magnitude[judged] / unit) ** 2
    products = (total**2 - squared) / (n - 1)
    means = ((n - 2) * total**2 + squared) / (n - 1) ** 2
    share = (n - 1) / (n - 1 + PRIORS[:, None])
    return float(PRIORS[np.argmin((share**2 * means - 2 * share * products).sum(axis=1))])
