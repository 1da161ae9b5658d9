"""Alpha, beta and centring for a representation: what a graph neural network learns from, not what a person reads."""

import numpy as np

from pcfi.estimation.result import Tuning
from pcfi.inputs.problem import Problem, known_mask
from pcfi.settings import Settings

ALPHA_SPARSE = 0.9
ALPHA_DENSE = 0.2
ROWS_AT_A_TIME = 2048
LARGE_MEAN = 0.25  # of the channels' means, squared and summed, against their variances


def choose_representation(problem: Problem, settings: Settings) -> Tuning:
    """The rule, where the settings leave something open."""
    large = constant_part(problem) > LARGE_MEAN
    alpha = (ALPHA_DENSE if large else ALPHA_SPARSE) if settings.alpha == "auto" else settings.alpha
    beta = 0.0 if settings.beta == "auto" else settings.beta
    decided = isinstance(settings.center, bool)
    return Tuning(
        objective="representation",
        alpha=float(alpha),
        beta=float(beta),
        center=settings.center if decided else large,
    )


def constant_part(problem: Problem) -> float:
    """Sum of the squared means of the channels over the sum of their variances, from the known cells.

    A mean of n known values is off by a variance / n on average, which is taken off its square again.
    """
    known, channels = known_mask(problem), problem.channels
    unit = float(channels.magnitude.max(initial=0.0)) or 1.0  # so that squares stay within the numbers
    mean = channels.mean.astype(np.float64) / unit
    scatter = np.zeros(len(mean))
    for start in range(0, len(known), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        deviation = np.where(known[rows], problem.values[rows] / unit - mean, 0.0)
        scatter += np.einsum("ij,ij->j", deviation, deviation)
    variance = scatter / np.maximum(channels.n_known - 1, 1)
    squares = mean**2 - variance / np.maximum(channels.n_known, 1)
    return float(squares.sum() / variance.sum()) if variance.sum() > 0 else 0.0
