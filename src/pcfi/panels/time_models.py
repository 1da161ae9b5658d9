"""A series with gaps in time -> its smoothed mean and variance at all times, by a Kalman smoother."""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array

DIFFUSE = 1e8  # variance of an unknown initial state, in innovations of a typical step


@dataclass(frozen=True)
class TimeModel:
    """Memory length of a node, and noise of its readings.

    Attributes
    ----------
    length : float
        Typical steps after which a deviation has fallen to 1/e; infinite for a random walk.
    noise : float
        Variance of a reading's noise, in units of the variance that a random walk gains in a typical step.
    """

    length: float
    noise: float

    @property
    def variance(self) -> float:
        """Variance of the state without any reading."""
        return DIFFUSE if np.isinf(self.length) else self.length / 2

    def smooth(self, series: Array, known: Array, steps: Array) -> tuple[Array, Array]:
        """Means of shape (series, node, time) and variances (node, time); `steps` are times in typical steps.

        With an infinite length and no noise the means are linear interpolation, and the nearest reading at both ends.
        """
        from pcfi._kernels.threads import run_rows
        from pcfi._kernels.time_smoothing import smooth_series

        apart = np.diff(steps, prepend=steps[:1])
        survival = np.exp(-apart / self.length)
        added = apart if np.isinf(self.length) else self.variance * -np.expm1(-2 * apart / self.length)
        smoothed, variance = np.empty(series.shape), np.empty(known.shape)

        def rows(first: int, last: int) -> None:
            part = slice(first, last)
            smooth_series(
                series[:, part],
                known[part],
                survival,
                added,
                self.noise,
                self.variance,
                smoothed[:, part],
                variance[part],
            )

        run_rows(known.shape[0], rows, inline=known.size < 1 << 14)
        return smoothed, variance


LINEAR = TimeModel(np.inf, 0.0)
CANDIDATES = tuple(TimeModel(length, noise) for length in (2, 8, 32, 128, 512, np.inf) for noise in (0.0, 0.5, 4.0))
FEW_CANDIDATES = tuple(one for one in CANDIDATES if one.length in (8, 128, np.inf) and one.noise < 4)
