"""Three estimates of a cell and their weights: what the model of values is, on the scale of the model.

    graph alone      the graph's estimate, drawn towards the mean (`graph_link` without factors)
    factors          what a few common factors of the row say, corrected by the graph (`factor_model`, `graph_link`)
    regression       the column regressed on the graph's estimate and on all other columns (`column_regression`)

Their weights are at least 0, add up to 1 and are those that estimate hidden cells best (stacking: Wolpert, 1992;
Breiman, 1996). All weights are 0 if the mean is better than any of them.
"""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.column_regression import ColumnRegression
from pcfi.estimation.factor_model import FactorModel
from pcfi.estimation.graph_link import CellEstimate, GraphLink, combine, prior_link

PRIOR_CELLS = 5.0  # cells that say the graph alone is right: other columns have to prove themselves


@dataclass(frozen=True, eq=False, kw_only=True)
class CellModel:
    """What is fitted to the rows, and the weights of the three estimates (graph alone, factors, regression).

    Attributes
    ----------
    factors : FactorModel
    link : GraphLink
        Given the factors.
    independent : FactorModel
        The same columns without factors.
    plain_link : GraphLink
        Without factors.
    regression : ColumnRegression or None
    weights : ndarray of length 3
    """

    factors: FactorModel
    link: GraphLink
    independent: FactorModel
    plain_link: GraphLink
    regression: ColumnRegression | None
    weights: Array

    @classmethod
    def without_evidence(cls, n_channels: int) -> "CellModel":
        """Half of the graph's estimate."""
        independent, link = FactorModel.independent(n_channels), prior_link(n_channels)
        return cls(
            factors=independent,
            link=link,
            independent=independent,
            plain_link=link,
            regression=None,
            weights=np.array([1.0, 0.0, 0.0]),
        )

    @property
    def marginal_variance(self) -> Array:
        """Variance of each column if nothing else of the row is known."""
        return self.independent.noise

    def estimate(self, values: Array, known: Array, graph: Array) -> CellEstimate:
        """Estimate all cells of some rows from their known values and the graph's estimates (NaN: there is none).

        A cell without an estimate of the graph is estimated by the factors alone.
        """
        alone = by_factors = combine(graph, None, self.independent, self.plain_link)
        if self.factors.rank:
            posterior = self.factors.posterior(np.where(known, values, 0.0), known.astype(np.float64))
            by_factors = combine(graph, posterior, self.factors, self.link)
        parts = [(alone.value, alone.variance), (by_factors.value, by_factors.variance)]
        if self.regression is not None:
            completed = np.where(known, values, by_factors.value)
            parts.append((self.regression.predict(completed, graph), self.regression.noise))
        value = sum(weight * part for weight, (part, _) in zip(self.weights, parts, strict=False))
        variance = sum(weight * part for weight, (_, part) in zip(self.weights, parts, strict=False))
        if not self.weights.any():
            value, variance = np.zeros(graph.shape), self.marginal_variance
        reached = ~np.isnan(graph)
        return CellEstimate(
            np.where(reached, value, by_factors.value * self.weights.any()),
            np.where(reached, variance, by_factors.variance),
            by_factors.from_row,
        )


def stacking_weights(estimates: Array, truth: Array) -> Array:
    """Weights >= 0 that add up to 1 and estimate the truth best, from one column per estimate; the graph's is first."""
    from scipy.optimize import nnls

    n_estimates = estimates.shape[1]
    least = float(((estimates - truth[:, None]) ** 2).mean(axis=0).min()) if len(truth) else 1.0
    prior = np.sqrt(PRIOR_CELLS * max(least, 1e-12))
    sum_to_one = 1e3 * np.sqrt(len(truth) + PRIOR_CELLS)
    system = np.vstack([estimates, prior * np.eye(n_estimates), np.full((1, n_estimates), sum_to_one)])
    weights = nnls(system, np.concatenate([truth, prior * np.eye(n_estimates)[0], [sum_to_one]]))[0]
    return np.asarray(weights / max(weights.sum(), 1e-12))
