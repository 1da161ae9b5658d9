"""How far the values of a channel spread, from known values that may be few: what errors are measured in.

Two known values may happen to be close, and one has no spread at all. So the variance of a channel is drawn towards
that of all channels, taken relative to their largest absolute value, as if one more value had been known; but no
further than to a few times its own, because years differ less than their size says. And where little is known more may
come: the spread is widened by 1 + 1 / n, much as a quantile of Student's t exceeds that of the normal distribution.
Scaling a channel scales its spread and changes no other; only channels of zeros, which have no unit of their own, take
the median of the others.
"""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import Channels

MOST_DRAWN = 8.0  # times its own variance


@dataclass(frozen=True)
class Typical:
    """What all channels together say about one: variance over squared magnitude, and the median spread."""

    variance: float
    spread: float

    @classmethod
    def of(cls, channels: Channels, squares: Array) -> "Typical":
        """Look at the channels of the whole problem; `squares` as `sums_of_squares` gives them."""
        heard = ~channels.silent
        if not heard.any():
            return cls(1.0, 1.0)
        scatter, gaps = _scatter(channels, squares)[heard], channels.n_known[heard] - 1
        variance = float(scatter.sum() / max(gaps.sum(), 1))
        return cls(variance, float(np.median(spreads(channels, squares, cls(variance, 1.0))[heard])))


def spreads(channels: Channels, squares: Array, typical: Typical) -> Array:
    """Spread of each channel, in its own unit."""
    n_known = np.maximum(channels.n_known, 1)
    scatter = _scatter(channels, squares)
    most = np.where(channels.constant, np.inf, MOST_DRAWN * scatter / np.maximum(n_known - 1, 1))
    variance = (scatter + np.minimum(typical.variance, most)) / n_known
    return np.where(channels.silent, typical.spread, channels.magnitude * np.sqrt(variance) * (1 + 1 / n_known))


def _scatter(channels: Channels, squares: Array) -> Array:
    """Sum of squared deviations from the mean, in units of the magnitude; within what the range allows."""
    magnitude = channels.magnitude
    mean = channels.mean.astype(np.float64) / magnitude
    widest = (channels.high / magnitude - channels.low / magnitude) ** 2
    return np.clip(squares - channels.n_known * mean**2, widest / 2, channels.n_known * widest / 4)
