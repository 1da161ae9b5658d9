"""How large the error of an estimate probably is, cell by cell, and intervals that cover what they say.

The expected absolute error of a cell, in standard deviations of its channel c, is

    log E|error| = b_c + theta . features,      features = log of
        the standard deviation that the value model gives (how much of the row is known, how far the graph helps),
        the spread among the known neighbours, relative to what is usual in the channel,
        the number of hops to the nearest source,
        1 + the weight of the known neighbours

a gamma regression on hidden cells. theta is common to all channels and drawn towards (1, 0, 0, 0), which is the value
model's own opinion; b_c is drawn towards the common level. The errors of hidden cells over what the other folds would
have expected are the scores of conformal prediction: an interval is the expected error times a quantile of the scores,
of the channel's own and of all channels' together, with the latter counting as the more cells the less channels differ.

A cell that no source reaches has the spread of its channel's known values. Where all n known values of a channel are
equal, a missing one differs with probability 1 / (n + 2) at most (the rule of succession); its interval is that value
if n are enough for the coverage, else it has no end.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.pooling import pooled_means
from pcfi.inputs.graphs import Graph
from pcfi.stages.hops import Hops

N_FEATURES = 4
SLOPE_RIDGE = 10.0  # cells that say theta = (1, 0, 0, 0)
SPREAD_PRIOR_CELLS = 10.0  # cells that say "as in all channels" about the usual spread among neighbours in one
MIN_POOLED_SCORES = 50.0  # scores that those of all channels count as, at least
MIN_SPREAD = 1e-6  # variance among neighbours, in variances of the channel: below it is rounding
MAX_ITERATIONS = 30
MAX_STEP = 0.5  # of theta in an iteration
MIN_ERROR = 1e-12  # in standard deviations: no estimate is exact


@dataclass(frozen=True, eq=False, kw_only=True)
class ErrorModel:
    """Expected errors and scores, in standard deviations of each channel.

    Attributes
    ----------
    level : ndarray, one per channel
        b, at the `reference` features.
    slopes, reference : ndarray of length N_FEATURES
    usual_spread : ndarray, one per channel
        Variance among the known neighbours of a cell.
    edge_weight : float
        Mean weight of an edge.
    max_hops : int
        Most hops of a hidden cell; beyond, errors grow with the root of the number of hops.
    scores, score_channels, score_hops : ndarray
        Error over expected error of hidden cells, sorted, their channels and hops (0 if no source reaches them).
    deviations : list of ndarray, one per channel
        Distances of some known values from the location, sorted: the errors of cells that nothing is known about.
    of_constants : ndarray, one per channel
        Expected error of a channel with one known value; NaN for others.
    n_known : ndarray of int, one per channel
    """

    level: Array
    slopes: Array
    reference: Array
    usual_spread: Array
    edge_weight: float
    max_hops: int
    scores: Array
    score_channels: Array
    score_hops: Array
    deviations: list[Array]
    of_constants: Array
    n_known: Array

    def expected(self, features: Array, channels: Array, hops: Array) -> Array:
        """Expected absolute error of cells that a source reaches."""
        return self.expected_of_rows(features[:, 0], self.neighbour_part(features[:, 1:]), hops, channels)

    def neighbour_part(self, features: Array) -> Array:
        """What the features of cells but the first, which the value model gives, add to log E|error|."""
        return np.asarray((features - self.reference[1:]) @ self.slopes[1:])

    def neighbour_part_of_rows(
        self, graph: Any, hops: Hops, known: Array, rows: slice, channels: Any = slice(None)
    ) -> Array:
        """The same for the missing cells of complete rows, and anything for other cells.

        `graph` is a `counting_graph`, `known` are standardised values of its nodes, NaN where one is missing, in the
        columns `channels`.
        """
        from pcfi._kernels.neighbor_spread import add_neighbour_terms

        levels = np.clip(np.arange(hops.n_levels + 2), 1, max(hops.n_levels, 1))
        by_code = self.slopes[2] * np.log(levels) - self.reference[1:] @ self.slopes[1:]
        out = replace(hops, codes=hops.codes[rows]).look_up(by_code)
        slopes, usual_spread = self.slopes[[1, 3]], self.usual_spread[channels]
        add_neighbour_terms(graph, known, rows.start, usual_spread, slopes, out)
        return out

    def expected_of_rows(
        self, log_deviation: Array, neighbour_part: Array, hops: Array, channels: Any = slice(None)
    ) -> Array:
        """Expected absolute error of cells, given both parts of their features; by default of complete rows."""
        own = self.level[channels] + (log_deviation - self.reference[0]) * self.slopes[0]
        beyond = np.sqrt(np.maximum(hops, 1) / max(self.max_hops, 1))
        return np.asarray(np.exp(np.minimum(own + neighbour_part, 50.0)) * np.maximum(beyond, 1.0))

    def counting_graph(self, graph: Graph) -> Any:
        """The graph for kernels, with weights in numbers of neighbours."""
        from pcfi._kernels.blocks import CsrGraph

        return CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64) / self.edge_weight)

    def expected_deviation(self) -> Array:
        """Mean distance of the known values of each channel from its location."""
        return np.array([part.mean() if len(part) else np.inf for part in self.deviations])

    def quantiles(self, coverage: float) -> Array:
        """Quantile of the scores that intervals of each channel go by; inf where there are too few.

        It is the least score q with (number of own scores up to q) + weight * (share of all up to q) >= coverage *
        (number of own scores + weight + 1), found by bisection in the scores of all channels.
        """
        n_scores, n_channels = len(self.scores), len(self.level)
        of_constants = np.where(coverage * (self.n_known + 1) <= self.n_known, 0.0, np.inf)
        is_constant = ~np.isnan(self.of_constants)
        if n_scores == 0:
            return np.where(is_constant, of_constants, np.inf)
        counts = np.bincount(self.score_channels, minlength=n_channels)
        weight = min(self._pooled_scores(counts, coverage), float(n_scores))
        needed = coverage * (counts + weight + 1)
        # places of the scores of each channel, after those of the channels before it
        places = np.sort(self.score_channels * n_scores + np.arange(n_scores))
        start, first = np.arange(n_channels) * n_scores, np.cumsum(counts) - counts
        low, high = np.zeros(n_channels, dtype=np.int64), np.full(n_channels, n_scores - 1)
        while (low < high).any():
            middle = (low + high) // 2
            own = np.searchsorted(places, start + middle, side="right") - first
            reached = own + weight * (middle + 1) / n_scores >= needed
            low, high = np.where(reached, low, np.minimum(middle + 1, high)), np.where(reached, middle, high)
        found = np.where(needed > counts + weight, np.inf, self.scores[low])
        return np.where(is_constant, of_constants, found)

    def hop_factors(self, quantiles: Array, coverage: float) -> Array:
        """What intervals are wider by, at each number of hops up to the most: at least 1, and never less farther away.

        Cells at some number of hops may have another distribution of errors, not only larger ones, so their scores over
        the quantiles of their channels have a quantile of their own; that of all cells counts as `MIN_POOLED_SCORES`.
        """
        factors = np.ones(self.max_hops + 1)
        limits = quantiles[self.score_channels]
        ratios = np.where(np.isfinite(limits), self.scores / np.where(limits > 0, limits, 1.0), 0.0)
        for hops in np.unique(self.score_hops[self.score_hops > 1]):
            own = ratios[self.score_hops == hops]
            share = MIN_POOLED_SCORES / (MIN_POOLED_SCORES + len(own))
            factors[hops] = (1 - share) * np.quantile(own, min(coverage * (1 + 1 / len(own)), 1.0)) + share
        return np.maximum.accumulate(factors)

    def _pooled_scores(self, counts: Array, coverage: float) -> float:
        """Number of scores that those of all channels count as: the more, the less channels differ.

        The share of a channel's scores beyond the common quantile has a beta distribution about 1 - coverage; its
        precision follows from how much more the shares of channels differ than binomial ones would (Kleinman, 1973).
        """
        n_scores, has_scores = len(self.scores), counts > 0
        n_free = n_scores - np.count_nonzero(has_scores)
        is_beyond = self.scores > self.scores[min(int(np.ceil(coverage * n_scores)), n_scores) - 1]
        share = float(is_beyond.mean())
        if n_free == 0 or share in (0.0, 1.0):
            return MIN_POOLED_SCORES
        beyond = np.bincount(self.score_channels, weights=is_beyond, minlength=len(counts))
        excess = ((beyond - share * counts)[has_scores] ** 2 / counts[has_scores]).sum() / (share * (1 - share))
        correlation = (excess - np.count_nonzero(has_scores)) / n_free
        return float(max(MIN_POOLED_SCORES, 1 / max(correlation, 1e-9) - 1))

    def interval_factors(self, coverage: float) -> "IntervalFactors":
        """What expected errors are multiplied by for intervals; computed once for each coverage."""
        if coverage not in self._factors:
            quantile, mean = self.quantiles(coverage), self.expected_deviation()
            of_unreached = self.deviation_quantiles(coverage) / np.where((mean > 0) & np.isfinite(mean), mean, 1.0)
            of_unreached = np.where(np.isnan(self.of_constants), of_unreached, quantile)
            self._factors[coverage] = IntervalFactors(quantile, self.hop_factors(quantile, coverage), of_unreached)
        return self._factors[coverage]

    @cached_property
    def _factors(self) -> "dict[float, IntervalFactors]":
        return {}

    def deviation_quantiles(self, coverage: float) -> Array:
        """Quantile of the distances of known values from the location of each channel; inf where there are too few."""
        quantiles = np.full(len(self.level), np.inf)
        for channel, part in enumerate(self.deviations):
            place = int(np.ceil((len(part) + 1) * coverage)) - 1
            if 0 <= place < len(part):
                quantiles[channel] = part[place]
        return quantiles


@dataclass(frozen=True, eq=False)
class IntervalFactors:
    """Half the width of an interval over the expected error, by channel: where a source reaches a cell, or none does.

    `by_hops` is what the former is multiplied by at each number of hops, up to the most of a hidden cell.
    """

    reached: Array
    by_hops: Array
    unreached: Array

    def half_widths(self, expected: Array, codes: Array, reachable: Array) -> Array:
        """Half the width of the interval of every cell, in the unit of the expected errors."""
        factors = self.reached * self.by_hops[np.minimum(codes, len(self.by_hops) - 1)]
        with np.errstate(invalid="ignore"):
            half = expected * np.where(reachable, factors, self.unreached)
        half[expected == 0] = 0.0
        return np.asarray(half)


def cell_features(
    graph: Graph,
    hops: Hops,
    values: Array,
    nodes: Array,
    channels: Array,
    usual_spread: Array,
    edge_weight: float | Array,
) -> Array:
    """The features of cells but the first, which the value model gives: spread, hops, weight, in this order.

    `values` are standardised; those of known cells count. `edge_weight` is that of one neighbour, for all cells or for
    each of them.
    """
    weight, _, scatter = neighbour_moments(graph, hops, values, nodes, channels).T
    count = weight / edge_weight
    variance = (scatter / edge_weight + usual_spread[channels]) / (np.maximum(count - 1, 0.0) + 1)
    levels = np.clip(hops.codes_at(nodes, channels).astype(np.float64), 1.0, max(hops.n_levels, 1))
    return np.stack([0.5 * np.log(variance / usual_spread[channels]), np.log(levels), np.log1p(count)], axis=1)


def neighbour_moments(graph: Graph, hops: Hops, values: Array, nodes: Array, channels: Array) -> Array:
    """Weight, mean and sum of squared deviations of the known neighbours of each cell."""
    from pcfi._kernels.blocks import CsrGraph
    from pcfi._kernels.neighbor_spread import neighbour_spread

    out = np.empty((len(nodes), 3))
    csr_graph = CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64))
    neighbour_spread(csr_graph, values, hops.codes, hops.patterns, nodes, channels, out)
    np.maximum(out[:, 2], 0.0, out=out[:, 2])  # rounding
    return out


def usual_spreads(moments: Array, channels: Array, n_channels: int, edge_weight: float) -> Array:
    """Variance among the known neighbours of a cell, by channel, drawn towards that of all channels."""
    degrees = np.maximum(moments[:, 0] / edge_weight - 1, 0.0)
    scatter = np.bincount(channels, weights=moments[:, 2] / edge_weight, minlength=n_channels)
    count = np.bincount(channels, weights=degrees, minlength=n_channels)
    pooled = max(scatter.sum() / count.sum(), MIN_SPREAD) if count.sum() > 0 else 1.0
    return np.asarray((scatter + SPREAD_PRIOR_CELLS * pooled) / (count + SPREAD_PRIOR_CELLS))


def fit_gamma_regression(
    errors: Array, features: Array, channels: Array, n_channels: int
) -> tuple[Array, Array, Array]:
    """Level of each channel, slopes and reference features of log E|error|."""
    prior = np.eye(N_FEATURES)[0]
    slopes, reference = prior.copy(), features.mean(axis=0)
    centred, errors = features - reference, np.maximum(errors, MIN_ERROR)
    counts = np.bincount(channels, minlength=n_channels)
    information = centred.T @ centred + SLOPE_RIDGE * np.eye(N_FEATURES)
    for _ in range(MAX_ITERATIONS):
        relative = errors / np.exp(np.clip(centred @ slopes, -50.0, 50.0))
        sums = np.bincount(channels, weights=relative, minlength=n_channels)
        own = np.log(np.divide(sums, counts, out=np.ones_like(sums), where=counts > 0))
        level = pooled_means(own, counts.astype(np.float64), float(np.log(relative.mean())))
        excess = relative / np.exp(level)[channels] - 1
        step = np.linalg.solve(information, centred.T @ excess - SLOPE_RIDGE * (slopes - prior))
        slopes = slopes + np.clip(step, -MAX_STEP, MAX_STEP)
        slopes[2] = max(slopes[2], 0.0)  # no estimate is better for being farther from what is known
        if np.abs(step).max() < 1e-4:
            break
    return level, slopes, reference
