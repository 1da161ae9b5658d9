"""Sums over the known values of each channel that its scale follows from; those of parts of the rows add up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import Channels, Problem, known_cells


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
    cells = ((channels, values) for _, channels, values in known_cells(problem))
    return ChannelMoments.joined([_moments_of_cells(*part, problem.channels) for part in cells])


def moments_of_rows(values: Array, mask: Array, channels: Channels) -> ChannelMoments:
    """The moments of some rows; `mask` as in `Problem`, `channels` are the facts about all rows."""
    rows, at = np.nonzero(mask if len(mask) else ~np.isnan(values))
    return _moments_of_cells(at, values[rows, at], channels)


def _moments_of_cells(at: Array, values: Array, channels: Channels) -> ChannelMoments:
    """The moments of known cells, given by their channels and values: where most cells are missing, they are few."""
    low, high, n_channels = channels.low, channels.high, len(channels.low)
    values = values.astype(np.float64)  # as the arrays below: ufunc.at is slow between different types

    def total(weights: Array | None = None, cells: Array = at) -> Array:
        return np.bincount(cells, weights=weights, minlength=n_channels)

    deviations = (values - channels.mean.astype(np.float64)[at]) / channel_ranges(channels)[at]
    is_least, is_greatest = values == low[at], values == high[at]
    positive = ((low > 0) & ~channels.constant)[at]
    chosen = at[positive]
    logarithms = np.log(values[positive] / high[chosen].astype(np.float64))
    above, below = high.astype(np.float64), low.astype(np.float64)
    np.minimum.at(above, at[~is_least], values[~is_least])
    np.maximum.at(below, at[~is_greatest], values[~is_greatest])
    return ChannelMoments(
        n_least=total(cells=at[is_least]),
        n_greatest=total(cells=at[is_greatest]),
        squares=total(deviations**2),
        logs=total(logarithms, chosen),
        log_squares=total(logarithms**2, chosen),
        above=above,
        below=below,
    )
