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
of the channel's own and of all channels' together, with the latter counting as a fixed number of cells.

A cell that no source reaches has the spread of its channel's known values.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.pooling import pooled_means
from pcfi.inputs.graphs import Graph
from pcfi.stages.hops import Hops

N_FEATURES = 4
SLOPE_RIDGE = 10.0  # cells that say theta = (1, 0, 0, 0)
SPREAD_PRIOR_CELLS = 10.0  # cells that say "as in all channels" about the usual spread among neighbours in one
POOLED_SCORES = 50.0  # scores of its own that outweigh those of all channels
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
    scores, score_channels : ndarray
        Error over expected error of hidden cells, sorted, and their channels.
    deviations : list of ndarray, one per channel
        Distances of some known values from the location, sorted: the errors of cells that nothing is known about.
    """

    level: Array
    slopes: Array
    reference: Array
    usual_spread: Array
    edge_weight: float
    max_hops: int
    scores: Array
    score_channels: Array
    deviations: list[Array]

    def expected(self, features: Array, channels: Array, hops: Array) -> Array:
        """Expected absolute error of cells that a source reaches."""
        return self.expected_of_rows(features[:, 0], self.neighbour_part(features[:, 1:]), hops, channels)

    def neighbour_part(self, features: Array) -> Array:
        """What the features of cells but the first, which the value model gives, add to log E|error|."""
        return np.asarray((features - self.reference[1:]) @ self.slopes[1:])

    def expected_of_rows(
        self, log_deviation: Array, neighbour_part: Array, hops: Array, channels: Any = slice(None)
    ) -> Array:
        """Expected absolute error of cells, given both parts of their features; by default of complete rows."""
        own = self.level[channels] + (log_deviation - self.reference[0]) * self.slopes[0]
        beyond = np.sqrt(np.maximum(hops, 1) / max(self.max_hops, 1))
        return np.asarray(np.exp(np.minimum(own + neighbour_part, 50.0)) * np.maximum(beyond, 1.0))

    def expected_deviation(self) -> Array:
        """Mean distance of the known values of each channel from its location."""
        return np.array([part.mean() if len(part) else np.inf for part in self.deviations])

    def quantiles(self, coverage: float) -> Array:
        """Quantile of the scores that intervals of each channel go by; inf where there are too few."""
        pooled_weight = min(POOLED_SCORES, float(len(self.scores)))
        quantiles = np.full(len(self.level), np.inf)
        order = np.argsort(self.score_channels, kind="stable")  # scores stay sorted within each channel
        counts = np.bincount(self.score_channels, minlength=len(quantiles))
        for channel, own in enumerate(np.split(self.scores[order], np.cumsum(counts)[:-1])):
            quantiles[channel] = _mixed_quantile(own, self.scores, pooled_weight, coverage)
        return quantiles

    def deviation_quantiles(self, coverage: float) -> Array:
        """Quantile of the distances of known values from the location of each channel; inf where there are too few."""
        quantiles = np.full(len(self.level), np.inf)
        for channel, part in enumerate(self.deviations):
            place = int(np.ceil((len(part) + 1) * coverage)) - 1
            if 0 <= place < len(part):
                quantiles[channel] = part[place]
        return quantiles


def _mixed_quantile(own: Array, pooled: Array, pooled_weight: float, coverage: float) -> float:
    """Least score q with (number of own scores up to q) + weight * (share of all up to q) >= coverage * (total + 1)."""
    needed = coverage * (len(own) + pooled_weight + 1)
    if needed > len(own) + pooled_weight or not len(pooled):
        return np.inf
    low, high = 0, len(pooled) - 1
    while low < high:  # both lists are sorted, and every own score is among the pooled ones
        middle = (low + high) // 2
        reached = np.searchsorted(own, pooled[middle], side="right") + pooled_weight * (middle + 1) / len(pooled)
        low, high = (low, middle) if reached >= needed else (middle + 1, high)
    return float(pooled[low])


def cell_features(
    graph: Graph, hops: Hops, values: Array, nodes: Array, channels: Array, usual_spread: Array, edge_weight: float
) -> Array:
    """The features of cells but the first, which the value model gives: spread, hops, weight, in this order.

    `values` are standardised; those of known cells count.
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
