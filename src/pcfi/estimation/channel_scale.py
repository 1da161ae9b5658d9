"""The scale on which a channel is modelled: centred, in standard deviations, on a log scale where that fits better.

Location. The mean of the known values. A channel most of whose known values are one and the same, as zeros in word
counts, has a mean that few values mislead: it is drawn towards that value, by as many cells as predict the known values
of all such channels best (leave-one-out).

Log scale. A positive channel may be modelled by its logarithm if a normal distribution fits that better (Box and Cox,
1964, with the two exponents 0 and 1); hidden cells decide.

Bounds. A filled value stays within half a range of the known values, and within what is possible: not below 0 if no
known value is, within 0 and 1 if all known values are, between the two of a channel with two values; or within the
bounds that the caller gives. What an estimate beyond half a range is cut to is the nearest plausible value, but not a
good guess: the interval of such a cell is open to that side, and its error is expected to be half a range at least.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.channel_moments import ChannelMoments, channel_ranges, moments_of_problem
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Channels, Problem, known_mask, survey

PRIOR_CELLS = np.concatenate([[0.0], np.geomspace(0.01, 1000.0, 51)])  # candidates
MIN_KNOWN_FOR_BOUNDS = 5  # known values that a greatest possible value is learned from
MIN_KNOWN_FOR_LOG = 5  # known values that the choice of a log scale takes
MIN_LOG_EVIDENCE = 2.0  # difference of the log-likelihoods: Akaike's penalty of one more parameter, twice
MARGIN = 0.5  # of the range of the known values, by which a filled value may leave it
CUT_TOLERANCE = 1e-6  # of the range of filled values: the bounds may be rounded to float32


@dataclass(frozen=True, eq=False, kw_only=True)
class ChannelScale:
    """Location, unit and bounds of each channel.

    Attributes
    ----------
    active : ndarray of bool
        Channels that are modelled: those whose known values differ.
    n_known : ndarray of int
    logarithmic : ndarray of bool
    location, unit : ndarray
        z = (x - location) / unit, x a value or its logarithm.
    typical : ndarray
        What a cell holds that nothing is known about: the location, or the mean of a channel on a log scale.
    mode, prior_cells : ndarray
        Value that the mean is drawn towards, and by how many cells; on the scale of the model.
    has_mode : ndarray of bool
        Whether most known values are equal to the mode.
    next_to_mode, mean_of_others : ndarray
        If there is a mode, the known value next to it, and the mean of all known values that differ from it.
    distance : ndarray
        Distance of the known values of a channel that has two, in standard deviations; NaN for others.
    low, high : ndarray
        Bounds of filled values.
    margin : ndarray
        Half the range of the known values, above them, in standard deviations.
    least, greatest : ndarray
        Bounds of what is possible, -inf and inf where anything is.
    """

    active: Array
    n_known: Array
    logarithmic: Array
    location: Array
    unit: Array
    typical: Array
    mode: Array
    prior_cells: Array
    has_mode: Array
    next_to_mode: Array
    mean_of_others: Array
    distance: Array
    low: Array
    high: Array
    margin: Array
    least: Array
    greatest: Array

    def transformed(self, problem: Problem) -> Problem:
        """The problem with the logarithms of some channels; the same one if there are none."""
        if not self.logarithmic.any():
            return problem
        values = self.transformed_rows(problem.values)
        mask, build = known_mask(problem), problem.build_graph

        def build_graph(features: Array) -> Graph:
            return cast(Callable[[Array], Graph], build)(np.where(self.logarithmic, np.exp(features), features))

        return replace(
            problem,
            values=values,
            mask=mask,
            channels=survey(values, mask, problem.channel_name),
            build_graph=None if build is None else build_graph,
        )

    def transformed_rows(self, values: Array) -> Array:
        """The values of some rows, with the logarithms of some channels; the same array if there are none."""
        if not self.logarithmic.any():
            return values
        values = values.copy()
        with np.errstate(divide="ignore", invalid="ignore"):  # of what stands in missing cells
            values[:, self.logarithmic] = np.log(values[:, self.logarithmic])
        return values

    def standardized(self, values: Array, channels: Any = slice(None)) -> Array:
        """Transformed values in standard deviations from the location."""
        return np.asarray((values - self.location[channels]) / self.unit[channels], dtype=np.float64)

    def original(self, standardized: Array) -> Array:
        """The inverse of `standardized` and of the logarithm."""
        values = self.location + self.unit * standardized
        if not self.logarithmic.any():
            return np.asarray(values)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(values, out=values, where=np.broadcast_to(self.logarithmic, values.shape)))

    def original_at(self, standardized: Array, channels: Array) -> Array:
        """The same for a list of cells."""
        values = self.location[channels] + self.unit[channels] * standardized
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(values, out=values, where=self.logarithmic[channels]))

    def mean_shift(self, variance: Array) -> Array:
        """What the mean of a log-normal cell is above its median, on the scale of the model; 0 without a logarithm."""
        if not self.logarithmic.any():
            return np.zeros(np.broadcast_shapes(variance.shape, self.unit.shape))
        return np.where(self.logarithmic, self.unit * variance / 2, 0.0)

    def plausible(self, values: Array) -> Array:
        """Filled values within their bounds."""
        return np.clip(values, self.low, self.high)

    def is_cut(self, values: Array) -> tuple[Array, Array]:
        """Filled values that were cut off below, and above, at bounds that are not those of what is possible."""
        rounding = CUT_TOLERANCE * (self.high - self.low)
        with np.errstate(invalid="ignore"):  # without bounds nothing is cut
            below = (self.low > self.least) & (values <= self.low + rounding)
            return below, (self.high < self.greatest) & (values >= self.high - rounding)

    def reach_mode(self, values: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """Extend intervals to include the mode where it is more probable than all other values together.

        That is where the estimate is nearer to the mode than to the mean of the others. The errors of most hidden cells
        are the distance of the estimate from the mode, so their scores hardly differ, and whether an interval includes
        it would be decided by rounding.
        """
        mode = np.exp(self.mode, out=self.mode.copy(), where=self.logarithmic)
        is_next = self.has_mode & (np.abs(values - mode) <= np.abs(values - self.mean_of_others))
        return np.where(is_next, np.minimum(low, mode), low), np.where(is_next, np.maximum(high, mode), high)

    def shifted_location(self, channels: Channels) -> Array:
        """The location from the known values that a fold leaves, in standard deviations from that of all."""
        n_known = channels.n_known
        share = n_known / np.maximum(n_known + self.prior_cells, 1e-9)
        location = self.mode + share * (channels.mean.astype(np.float64) - self.mode)
        return np.where(self.active & (n_known > 0), (location - self.location) / self.unit, 0.0)


def fit_channel_scale(problem: Problem, bounds: Array | None = None) -> ChannelScale:
    """Choose the scale of every channel from its known values; `bounds` (2, n_channels) override the natural ones."""
    return scale_of_moments(problem.channels, moments_of_problem(problem), bounds)


def candidate_scales(channels: Channels, moments: ChannelMoments, bounds: Array | None = None) -> list[ChannelScale]:
    """That scale and, if it has logarithms, the one without."""
    scale = scale_of_moments(channels, moments, bounds)
    if not scale.logarithmic.any():
        return [scale]
    return [scale, scale_of_moments(channels, moments, bounds, logarithms=False)]


def scale_of_moments(
    channels: Channels, moments: ChannelMoments, bounds: Array | None = None, *, logarithms: bool = True
) -> ChannelScale:
    """The same from the sums over the known values of each channel."""
    active = ~channels.constant
    natural = _natural_bounds(channels, moments)
    if bounds is not None:
        natural = np.where(np.isnan(bounds), natural, bounds)
    n_known = np.maximum(channels.n_known, 1)
    log_mean, log_variance = moments.logs / n_known, moments.log_squares / n_known - (moments.logs / n_known) ** 2
    logarithmic = active & _log_fits_better(channels, moments, log_variance) & logarithms
    ends = _on_log_scale(channels, logarithmic, log_mean)
    log_ranges = np.where(logarithmic, channel_ranges(ends), 1.0)  # others may be beyond what squares can be
    variances = np.where(logarithmic, log_variance / log_ranges**2, moments.squares / n_known)
    at_least, at_greatest = 2 * moments.n_least > channels.n_known, 2 * moments.n_greatest > channels.n_known
    mode = np.where(at_greatest, ends.high, np.where(at_least, ends.low, np.nan)).astype(np.float64)
    prior_cells = np.where(np.isnan(mode), 0.0, _best_prior(ends, variances, mode))
    mean, has_mode = ends.mean.astype(np.float64), ~np.isnan(mode)
    mode = np.where(np.isnan(mode), mean, mode)
    share = channels.n_known / np.maximum(channels.n_known + prior_cells, 1e-9)
    low, high = channels.low.astype(np.float64), channels.high.astype(np.float64)
    plausible = _plausible_bounds(low, high, natural, bounds)
    location = np.where(active, mode + share * (mean - mode), mean)
    n_mode = np.where(at_greatest, moments.n_greatest, moments.n_least)
    of_others = channels.n_known * channels.mean.astype(np.float64) - n_mode * np.where(at_greatest, high, low)
    unit = np.where(active & (variances > 0), channel_ranges(ends) * np.sqrt(np.maximum(variances, 0.0)), 1.0)
    return ChannelScale(
        active=active,
        n_known=channels.n_known,
        logarithmic=logarithmic,
        location=location,
        unit=unit,
        typical=np.where(logarithmic, channels.mean, location),
        mode=mode,
        prior_cells=prior_cells,
        has_mode=has_mode,
        next_to_mode=np.where(
            has_mode, np.where(at_least, moments.above, moments.below), np.where(at_least, high, low)
        ),
        mean_of_others=of_others / np.maximum(channels.n_known - n_mode, 1),
        distance=np.where(_has_two_values(channels, moments), channel_ranges(ends) / unit, np.nan),
        low=plausible[0],
        high=plausible[1],
        margin=_on_scale(MARGIN * (high - low), high, logarithmic) / unit,
        least=natural[0],
        greatest=natural[1],
    )


def _on_scale(distance: Array, end: Array, logarithmic: Array) -> Array:
    """Distances above an end on the scale of the model."""
    return np.where(logarithmic, np.log1p(distance / np.where(logarithmic, end, 1.0)), distance)


def _plausible_bounds(low: Array, high: Array, natural: Array, bounds: Array | None) -> Array:
    """Half a range beyond the known values, as far as that is possible; or those that the caller gives."""
    margin = MARGIN * (high - low)
    plausible = np.stack([np.maximum(low - margin, natural[0]), np.minimum(high + margin, natural[1])])
    return plausible if bounds is None else np.where(np.isnan(bounds), plausible, bounds)


def _on_log_scale(channels: Channels, logarithmic: Array, log_mean: Array) -> Channels:
    """Facts about the channels, of the logarithms of some; `log_mean` is counted from that of the greatest value."""
    low, high = (np.log(end, out=end.astype(np.float64), where=logarithmic) for end in (channels.low, channels.high))
    return replace(channels, low=low, high=high, mean=np.where(logarithmic, high + log_mean, channels.mean))


def _natural_bounds(channels: Channels, moments: ChannelMoments) -> Array:
    """Natural bounds: at least 0, at most 1, or between two values, if all known values are."""
    low, high = channels.low.astype(np.float64), channels.high.astype(np.float64)
    least = np.where((low >= 0) & (channels.n_known > 0), 0.0, -np.inf)
    several = channels.n_known >= MIN_KNOWN_FOR_BOUNDS
    greatest = np.where(several & (low >= 0) & (high <= 1), 1.0, np.inf)
    two = _has_two_values(channels, moments)
    return np.where(two, np.stack([low, high]), np.stack([least, greatest]))


def _has_two_values(channels: Channels, moments: ChannelMoments) -> Array:
    several = channels.n_known >= MIN_KNOWN_FOR_BOUNDS
    return np.asarray(several & (moments.n_least + moments.n_greatest == channels.n_known) & ~channels.constant)


def _log_fits_better(channels: Channels, moments: ChannelMoments, log_variance: Array) -> Array:
    """Channels of positive numbers that are closer to a normal distribution on a log scale."""
    eligible = (channels.low > 0) & ~channels.constant & (channels.n_known >= MIN_KNOWN_FOR_LOG)
    n_known = np.where(eligible, channels.n_known, 1)
    ranges = np.where(eligible, channel_ranges(channels) / np.where(eligible, channels.high, 1), 1.0)
    variance = np.where(eligible, moments.squares / n_known * ranges**2, 1.0)
    with np.errstate(divide="ignore"):
        gain = n_known / 2 * np.log(variance / np.maximum(log_variance, 1e-300))
    return np.asarray(eligible & (gain - moments.logs > MIN_LOG_EVIDENCE))


def _best_prior(channels: Channels, variances: Array, mode: Array) -> float:
    """Cells at the mode that, added to every channel with one, predict each known value best from the others.

    With S and Q the sum and the sum of squares of n known values less the mode, in units of the range, the mean without
    one of them is m_i = (S - x_i) / (n - 1), so sum x_i m_i = (S^2 - Q) / (n - 1) and
    sum m_i^2 = ((n - 2) S^2 + Q) / (n - 1)^2.
    """
    chosen = np.flatnonzero(~np.isnan(mode) & (channels.n_known > 1) & ~channels.constant)
    if not len(chosen):
        return 0.0
    n = channels.n_known[chosen].astype(np.float64)
    mean = (channels.mean[chosen] - mode[chosen]) / channel_ranges(channels)[chosen]
    total, squared = n * mean, n * (variances[chosen] + mean**2)
    products = (total**2 - squared) / (n - 1)
    means = ((n - 2) * total**2 + squared) / (n - 1) ** 2
    share = (n - 1) / (n - 1 + PRIOR_CELLS[:, None])
    return float(PRIOR_CELLS[np.argmin((share**2 * means - 2 * share * products).sum(axis=1))])
