"""Expected error of each estimate, and calibrated intervals.

The expected absolute error of a cell, in standard deviations of its channel c, is

    log E|error| = b_c + theta . features,      features = log of
        the standard deviation that the value model gives (how much of the row is known, how far the graph helps),
        the spread among the known neighbours, relative to what is usual in the channel,
        the number of hops to the nearest source,
        1 + the weight of the known neighbours,
        the standard deviation that values of the size of the estimate have, relative to what is usual in the channel

a regression on hidden cells: of the roots of errors for theta (a gamma quasi-likelihood), of errors for b. Large counts
and amounts vary more than small ones. In a natural exponential family the variance V grows with the mean as
V' = skewness * sqrt(V) (Morris, 1982): with z the standardised estimate, the last feature is log(1 + skewness * z) / 2.
theta is common to all channels with two values, and to all others, and drawn towards (1, 0, 0, 0, 0), which is the
value model's own opinion; b_c is drawn towards the common level.

The errors of hidden cells over what the other folds would have expected are the scores of conformal prediction
(`conformal_scores`): an interval is the expected error times a quantile of the scores. An interval of a channel with
two values says which of them are possible. The score of a value is then its distance from the estimate alone, which is
the probability of the other one (Sadinle, Lei and Wasserman, 2019): divided by the expected error, a value of
probability 0.2 would be left out as easily as one of 0.05.

A cell that no source reaches has the spread of its channel's known values. Where all n known values of a channel are
equal, a missing one differs with probability 1 / (n + 2) at most (the rule of succession); its interval is that value
if n are enough for the coverage, else it has no end.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.conformal_scores import ConformalScores
from pcfi.estimation.pooling import pooled_means
from pcfi.inputs.graphs import Graph
from pcfi.stages.hops import Hops

N_FEATURES = 5
SLOPE_RIDGE = 10.0  # cells that say theta = (1, 0, 0, 0, 0)
SPREAD_PRIOR_CELLS = 10.0  # cells that say "as in all channels" about the usual spread among neighbours in one
MIN_SPREAD = 1e-6  # variance among neighbours, in variances of the channel: below it is rounding
MIN_RELATIVE_VARIANCE = 0.1  # of small values, relative to that of the channel
ERROR_POWER = 0.5  # of errors, that theta is learned from: roots, so that a few large errors do not decide alone
MAX_ITERATIONS = 30
MAX_STEP = 0.5  # of theta in an iteration
MIN_ERROR = 1e-12  # in standard deviations: no estimate is exact
MIN_CELLS_OF_THREADS = 10_000  # with fewer cells, a thread costs more than it saves


@dataclass(frozen=True, eq=False, kw_only=True)
class ErrorModel:
    """Expected errors and scores, in standard deviations of each channel.

    Attributes
    ----------
    regression : ErrorRegression
    skewness : ndarray, one per channel
        Of the known values.
    usual_spread : ndarray, one per channel
        Variance among the known neighbours of a cell.
    edge_weight : float
        Mean weight of an edge.
    max_hops : int
        Most hops of a hidden cell; beyond, errors grow with the root of the number of hops.
    scores : ConformalScores
        Errors over expected errors of hidden cells.
    interval_scores : ConformalScores
        How wide their intervals have to be to include them: the same, or the distance from the truth over that of both
        values if a channel has two.
    distance : ndarray, one per channel
        Distance of the values of a channel with two, in standard deviations; NaN for others.
    deviations : list of ndarray, one per channel
        Distances of some known values from the location, sorted: the errors of cells that nothing is known about.
    of_constants : ndarray, one per channel
        Expected error of a channel with one known value; NaN for others.
    n_known : ndarray of int, one per channel
    """

    regression: "ErrorRegression"
    skewness: Array
    usual_spread: Array
    edge_weight: float
    max_hops: int
    scores: ConformalScores
    interval_scores: ConformalScores
    distance: Array
    deviations: list[Array]
    of_constants: Array
    n_known: Array

    def neighbour_part_of_rows(
        self, graph: Any, hops: Hops, known: Array, rows: slice, channels: Any = slice(None)
    ) -> Array:
        """What features about neighbours add to log E|error| of missing cells of complete rows; other cells: anything.

        `graph` is a `counting_graph`, `known` are standardised values of its nodes, NaN where one is missing, in the
        columns `channels`.
        """
        from pcfi._kernels.neighbor_spread import add_neighbour_terms

        levels = np.clip(np.arange(hops.n_levels + 2), 1, max(hops.n_levels, 1))
        slopes, reference = self.regression.slopes[channels], self.regression.reference[channels]
        out = replace(hops, codes=hops.codes[rows]).look_up(np.log(levels))
        out *= slopes[:, 2]
        out -= (reference[:, 1:4] * slopes[:, 1:4]).sum(axis=1)
        of_neighbours = np.ascontiguousarray(slopes[:, [1, 3]].T)
        add_neighbour_terms(graph, known, rows.start, self.usual_spread[channels], of_neighbours, out)
        return out

    def expected_of_rows(self, log_deviation: Array, neighbour_part: Array, standardized: Array, hops: Array) -> Array:
        """Expected absolute error of cells of complete rows, given the parts of their features and their estimates."""
        slopes, reference = self.regression.slopes.T, self.regression.reference.T
        own = self.regression.level + (log_deviation - reference[0]) * slopes[0]
        of_size = (log_relative_deviation(standardized, self.skewness) - reference[4]) * slopes[4]
        beyond = np.sqrt(np.maximum(hops, 1) / max(self.max_hops, 1))
        return np.asarray(np.exp(np.minimum(own + neighbour_part + of_size, 50.0)) * np.maximum(beyond, 1.0))

    def counting_graph(self, graph: Graph) -> Any:
        """The graph for kernels, with weights in numbers of neighbours."""
        from pcfi._kernels.csr_graph import CsrGraph

        return CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64) / self.edge_weight)

    def expected_deviation(self) -> Array:
        """Mean distance of the known values of each channel from its location."""
        return np.array([part.mean() if len(part) else np.inf for part in self.deviations])

    def quantiles(self, coverage: float) -> Array:
        """Quantile of the interval scores that intervals of each channel go by; inf where there are too few.

        Channels with two values and others are pooled among themselves: their scores have different units.
        """
        found = np.full(len(self.distance), np.inf)
        has_two = ~np.isnan(self.distance)
        for kind in (has_two, ~has_two):
            pooled = self.interval_scores.of_channels(kind).quantiles(coverage, len(kind))
            found = np.where(kind, pooled, found)
        of_constants = np.where(coverage * (self.n_known + 1) <= self.n_known, 0.0, np.inf)
        return np.where(np.isnan(self.of_constants), found, of_constants)

    def hop_factors(self, quantiles: Array, coverage: float) -> Array:
        """What intervals are wider by, at each number of hops up to the most."""
        return self.interval_scores.hop_factors(quantiles, coverage, self.max_hops)

    def interval_factors(self, coverage: float) -> "IntervalFactors":
        """What expected errors are multiplied by for intervals; computed once for each coverage."""
        if coverage not in self._factors:
            quantiles = self.quantiles(coverage)
            self._factors[coverage] = self._interval_factors(coverage, self.interval_scores, quantiles, self.distance)
        return self._factors[coverage]

    def spread_factors(self, coverage: float) -> "IntervalFactors":
        """The same for errors as a continuous distribution has them, in channels with two values, too."""
        quantiles = self.scores.quantiles(coverage, len(self.distance))
        quantiles = np.where(np.isnan(self.of_constants), quantiles, self.quantiles(coverage))
        return self._interval_factors(coverage, self.scores, quantiles, np.full(len(quantiles), np.nan))

    def _interval_factors(
        self, coverage: float, scores: ConformalScores, quantiles: Array, distance: Array
    ) -> "IntervalFactors":
        mean = self.expected_deviation()
        of_unreached = self.deviation_quantiles(coverage) / np.where((mean > 0) & np.isfinite(mean), mean, 1.0)
        of_unreached = np.where(np.isnan(self.of_constants), of_unreached, quantiles)
        by_hops = scores.hop_factors(quantiles, coverage, self.max_hops)
        return IntervalFactors(quantiles, by_hops, of_unreached, distance)

    @cached_property
    def _factors(self) -> "dict[float, IntervalFactors]":
        return {}

    def deviation_quantiles(self, coverage: float) -> Array:
        """Quantile of the distances of known values from the location of each channel; inf where there are too few."""
        quantiles = np.full(len(self.deviations), np.inf)
        for channel, part in enumerate(self.deviations):
            place = int(np.ceil((len(part) + 1) * coverage)) - 1
            if 0 <= place < len(part):
                quantiles[channel] = part[place]
        return quantiles


@dataclass(frozen=True, eq=False)
class IntervalFactors:
    """Half the width of an interval over the expected error, by channel: where a source reaches a cell, or none does.

    `by_hops` is what the former is multiplied by at each number of hops, up to the most of a hidden cell. Where
    `distance` is not NaN, the former is over that.
    """

    reached: Array
    by_hops: Array
    unreached: Array
    distance: Array

    def half_widths(self, expected: Array, codes: Array, reachable: Array) -> Array:
        """Half the width of the interval of every cell, in the unit of the expected errors."""
        factors = self.reached * self.by_hops[np.minimum(codes, len(self.by_hops) - 1)]
        with np.errstate(invalid="ignore"):
            unit = np.where(np.isnan(self.distance), expected, self.distance)
            half = np.where(reachable, factors * unit, self.unreached * expected)
        half[expected == 0] = 0.0
        return np.asarray(half)


def log_relative_deviation(standardized: Array, skewness: Array) -> Array:
    """Logarithm of the standard deviation of values that have some mean, relative to that of the channel."""
    return np.asarray(0.5 * np.log(np.maximum(1 + skewness * standardized, MIN_RELATIVE_VARIANCE)))


def shrunken_skewness(values: Array, channels: Array, n_channels: int) -> Array:
    """Skewness of the values of each channel, drawn towards 0 by its variance, which is 6 / n if there is none."""

    def mean(part: Array) -> Array:
        return np.bincount(channels, weights=part, minlength=n_channels) / counts

    counts = np.maximum(np.bincount(channels, minlength=n_channels), 1)
    centred = values - mean(values)[channels]
    variance = np.maximum(mean(centred**2), np.finfo(np.float64).tiny)
    relative = centred / np.sqrt(variance)[channels]
    own = mean(relative * relative * relative)  # much faster than a power
    return np.asarray(own * np.maximum(1 - 6 / counts / np.maximum(own**2, 1e-300), 0.0))


def cell_features(
    hops: Hops, nodes: Array, channels: Array, moments: Array, usual_spread: Array, edge_weight: Array
) -> Array:
    """The features of cells that are about neighbours: spread, hops, weight, in this order.

    `moments` are those of `neighbour_moments`, `edge_weight` is that of one neighbour in each channel.
    """
    weight, _, scatter = moments.T
    unit, usual = edge_weight[channels], usual_spread[channels]
    count = weight / unit
    variance = (scatter / unit + usual) / (np.maximum(count - 1, 0.0) + 1)
    levels = np.clip(hops.codes_at(nodes, channels).astype(np.float64), 1.0, max(hops.n_levels, 1))
    return np.stack([0.5 * np.log(variance / usual), np.log(levels), np.log1p(count)], axis=1)


def neighbour_moments(graph: Graph, hops: Hops, values: Array, unit: Array, nodes: Array, channels: Array) -> Array:
    """Weight, mean and sum of squared deviations of the known neighbours of each cell, in units of the channels."""
    from pcfi._kernels.csr_graph import CsrGraph
    from pcfi._kernels.neighbor_spread import neighbour_spread
    from pcfi._kernels.threads import run_rows

    out = np.empty((len(nodes), 3))
    csr_graph = CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64))

    def look_at(first: int, last: int) -> None:
        cells = slice(first, last)
        neighbour_spread(csr_graph, values, unit, hops.codes, hops.patterns, nodes[cells], channels[cells], out[cells])

    run_rows(len(nodes), look_at, inline=len(nodes) < MIN_CELLS_OF_THREADS)
    np.maximum(out[:, 2], 0.0, out=out[:, 2])  # rounding
    return out


def usual_spreads(
    moments: Array, channels: Array, n_channels: int, edge_weight: float, prior: Array | None = None
) -> Array:
    """Variance among the known neighbours of a cell, by channel, drawn towards `prior` or that of all channels."""
    degrees = np.maximum(moments[:, 0] / edge_weight - 1, 0.0)
    scatter = np.bincount(channels, weights=moments[:, 2] / edge_weight, minlength=n_channels)
    count = np.bincount(channels, weights=degrees, minlength=n_channels)
    pooled = max(scatter.sum() / count.sum(), MIN_SPREAD) if count.sum() > 0 else 1.0
    prior = np.full(n_channels, pooled) if prior is None else prior
    return np.asarray((scatter + SPREAD_PRIOR_CELLS * prior) / (count + SPREAD_PRIOR_CELLS))


@dataclass(frozen=True, eq=False)
class ErrorRegression:
    """log E|error| of the cells of each channel: level b at the `reference` features, and slopes theta.

    `level` has one entry per channel, `slopes` and `reference` have one row of `N_FEATURES`.
    """

    level: Array
    slopes: Array
    reference: Array

    @classmethod
    def constant(cls, level: Array) -> "ErrorRegression":
        """The same expected error for all cells of a channel."""
        return cls(level, np.zeros((len(level), N_FEATURES)), np.zeros((len(level), N_FEATURES)))

    def expected(self, features: Array, channels: Array) -> Array:
        """E|error| of cells."""
        part = np.einsum("ij,ij->i", features - self.reference[channels], self.slopes[channels])
        return np.asarray(np.exp(np.clip(self.level[channels] + part, -50.0, 50.0)))


def fit_error_regression(
    errors: Array, features: Array, channels: Array, has_two: Array, start: ErrorRegression | None = None
) -> ErrorRegression:
    """Fit the regression; iterations begin at the slopes of `start`.

    Channels with two values (`has_two`), of which a categorical column has several, and others share theta among
    themselves only: the error of a probability says nothing about that of an amount.
    """
    of_two = has_two[channels]
    if of_two.all() or not of_two.any():
        kinds: list[tuple[Array, Any]] = [(np.ones(len(has_two), dtype=np.bool_), slice(None))]
    else:
        kinds = [(has_two, of_two), (~has_two, ~of_two)]
    fitted = ErrorRegression.constant(np.zeros(len(has_two)))
    for kind, cells in kinds:
        first = None if start is None else start.slopes[kind][0]
        level, slopes, reference = _fit_kind(errors[cells], features[cells], channels[cells], len(has_two), first)
        fitted.level[kind], fitted.slopes[kind], fitted.reference[kind] = level[kind], slopes, reference
    return fitted


def _fit_kind(
    errors: Array, features: Array, channels: Array, n_channels: int, start: Array | None
) -> tuple[Array, Array, Array]:
    """Level of each channel, common slopes and reference features."""
    prior = np.eye(N_FEATURES)[0]
    slopes, reference = prior if start is None else start, features.mean(axis=0)
    centred, errors = features - reference, np.maximum(errors, MIN_ERROR)
    information = centred.T @ centred + SLOPE_RIDGE * np.eye(N_FEATURES)
    for _ in range(MAX_ITERATIONS):
        relative = (errors / np.exp(np.clip(centred @ slopes, -50.0, 50.0))) ** ERROR_POWER
        level = _levels(relative, channels, n_channels)
        excess = (relative / np.exp(level)[channels] - 1) / ERROR_POWER
        step = np.linalg.solve(information, centred.T @ excess - SLOPE_RIDGE * (slopes - prior))
        before, slopes = slopes, slopes + np.clip(step, -MAX_STEP, MAX_STEP)
        slopes[2] = max(slopes[2], 0.0)  # no estimate is better for being farther from what is known
        if np.abs(slopes - before).max() < 1e-4:
            break
    relative = errors / np.exp(np.clip(centred @ slopes, -50.0, 50.0))
    return _levels(relative, channels, n_channels), slopes, reference


def _levels(relative: Array, channels: Array, n_channels: int) -> Array:
    """Logarithm of the mean of each channel, drawn towards that of all channels."""
    counts = np.bincount(channels, minlength=n_channels)
    sums = np.bincount(channels, weights=relative, minlength=n_channels)
    own = np.log(np.divide(sums, counts, out=np.ones_like(sums), where=counts > 0))
    return pooled_means(own, counts.astype(np.float64), float(np.log(relative.mean())))
