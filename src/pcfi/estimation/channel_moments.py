"""Sums over the known values of each channel that its scale follows from; those of parts of the rows add up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import Channels, Problem

MAX_ROWS = 4096  # rows at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class ChannelMoments:
    """Sums over the known values of each channel.

    Attributes
    ----------
    n_least, n_greatest : ndarray
        How many equal the least, and how many the greatest value.
    squares : ndarray
        Squared deviations from the mean, in units of the range, so that squares stay within the numbers.
    logs, log_squares : ndarray
        Logarithms of the values over the greatest one, and their squares; 0 if a value is not positive.
    above, below : ndarray
        The value next to the least one, and the value next to the greatest one.
    """

    n_least: Array
    n_greatest: Array
    squares: Array
    logs: Array
    log_squares: Array
    above: Array
    below: Array

    @classmethod
    def joined(cls, parts: Sequence["ChannelMoments"]) -> "ChannelMoments":
        """The moments of all rows, from those of parts of them."""
        ways = dict.fromkeys(vars(parts[0]), np.sum) | {"above": np.min, "below": np.max}
        return cls(**{name: join([getattr(part, name) for part in parts], axis=0) for name, join in ways.items()})


def channel_ranges(channels: Channels) -> Array:
    """Range of each channel's known values, 1 if there is none."""
    return np.where(channels.constant, 1.0, channels.high.astype(np.float64) - channels.low.astype(np.float64))


def moments_of_problem(problem: Problem) -> ChannelMoments:
    """The moments of a problem in memory."""
    starts = range(0, len(problem.values), MAX_ROWS)
    rows = (slice(start, start + MAX_ROWS) for start in starts)
    return ChannelMoments.joined(
        [moments_of_rows(problem.values[part], problem.mask[part], problem.channels) for part in rows]
    )


def moments_of_rows(values: Array, mask: Array, channels: Channels) -> ChannelMoments:
    """The moments of some rows; `mask` as in `Problem`, `channels` are the facts about all rows."""
    known = mask if len(mask) else ~np.isnan(values)
    low, high = channels.low, channels.high
    deviations = np.where(known, (values - channels.mean) / channel_ranges(channels), 0.0)
    positive = np.flatnonzero((low > 0) & ~channels.constant)
    logs = np.zeros((2, values.shape[1]))
    greatest = high[positive].astype(np.float64)
    logarithms = np.log(np.where(known[:, positive], values[:, positive], greatest) / greatest)
    logs[:, positive] = logarithms.sum(axis=0), np.einsum("ij,ij->j", logarithms, logarithms)
    return ChannelMoments(
        n_least=(known & (values == low)).sum(axis=0),
        n_greatest=(known & (values == high)).sum(axis=0),
        squares=np.einsum("ij,ij->j", deviations, deviations),
        logs=logs[0],
        log_squares=logs[1],
        above=np.where(known & (values > low), values, high).min(axis=0).astype(np.float64),
        below=np.where(known & (values < high), values, low).max(axis=0).astype(np.float64),
    )
