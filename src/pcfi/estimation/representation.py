"""Alpha, beta and centring for a representation, the input of a graph neural network."""

import numpy as np

from pcfi.estimation.channel_moments import ChannelMoments, channel_ranges
from pcfi.estimation.result import Tuning
from pcfi.inputs.problem import Channels
from pcfi.settings import Settings

ALPHA_SPARSE = 0.9
ALPHA_DENSE = 0.2
LARGE_MEAN = 0.25  # of the channels' means, squared and summed, against their variances


def choose_representation(channels: Channels, moments: ChannelMoments, settings: Settings) -> Tuning:
    """The rule, where the settings leave something open."""
    large = constant_part(channels, moments) > LARGE_MEAN
    alpha = (ALPHA_DENSE if large else ALPHA_SPARSE) if settings.alpha == "auto" else settings.alpha
    beta = 0.0 if settings.beta == "auto" else settings.beta
    decided = isinstance(settings.center, bool)
    return Tuning(
        objective="representation",
        alpha=float(alpha),
        beta=float(beta),
        center=settings.center if decided else large,
    )


def constant_part(channels: Channels, moments: ChannelMoments) -> float:
    """Sum of the squared means of the channels over the sum of their variances, from the known cells.

    A mean of n known values is off by a variance / n on average, which is taken off its square again.
    """
    unit = float(channels.magnitude.max(initial=0.0)) or 1.0  # so that squares stay within the numbers
    mean = channels.mean.astype(np.float64) / unit
    variance = moments.squares * (channel_ranges(channels) / unit) ** 2 / np.maximum(channels.n_known - 1, 1)
    squares = mean**2 - variance / np.maximum(channels.n_known, 1)
    return float(squares.sum() / variance.sum()) if variance.sum() > 0 else 0.0
