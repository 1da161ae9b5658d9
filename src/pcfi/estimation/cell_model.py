"""The value model on its scale: three estimates of a cell and their weights.

    graph alone      the graph's estimate, drawn towards the mean (`graph_link` without factors)
    factors          what a few common factors of the row say, corrected by the graph (`factor_model`, `graph_link`)
    regression       the column regressed on the graph's estimate and on all other columns (`column_regression`)

Their weights are at least 0, add up to 1 at most, the rest being the weight of the mean, and are those that estimate
hidden cells best (stacking: Wolpert, 1992; Breiman, 1996).
"""

from dataclasses import dataclass
from typing import Any

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

    @property
    def uses_rows(self) -> bool:
        """Whether an estimate depends on the other columns of the row."""
        return bool(self.factors.rank) or self.regression is not None

    def estimate(self, values: Array, known: Array, graph: Array) -> CellEstimate:
        """Estimate all cells of some rows from their known values and the graph's estimates (NaN: there is none).

        A cell without an estimate of the graph is estimated by the factors alone.
        """
        alone, by_factors = self._without_regression(values, known, graph)
        parts = [(alone.value, alone.variance), (by_factors.value, by_factors.variance)]
        if self.regression is not None:
            completed = np.where(known, values, by_factors.value)
            of_completed = np.where(known, 0.0, by_factors.variance)
            parts.append((self.regression.predict(completed, graph), self.regression.variance(of_completed)))
        value, variance = weighted(self.weights, parts, self.marginal_variance)
        reached = ~np.isnan(graph)
        return CellEstimate(
            np.where(reached, value, by_factors.value * self.weights.any()),
            np.where(reached, variance, by_factors.variance),
            by_factors.from_row,
        )

    def variance(self, known: Array, reached: Array) -> Array:
        """Variance of the estimates: it depends on which cells of the rows are known, and which the graph reaches."""
        graph = np.where(reached, 0.0, np.nan)
        alone, by_factors = self._without_regression(np.zeros(known.shape), known, graph)
        parts = [(0.0, alone.variance), (0.0, by_factors.variance)]
        if self.regression is not None:
            parts.append((0.0, self.regression.variance(np.where(known, 0.0, by_factors.variance))))
        variance = weighted(self.weights, parts, self.marginal_variance)[1]
        return np.asarray(np.where(reached, variance, by_factors.variance))

    def _without_regression(self, values: Array, known: Array, graph: Array) -> tuple[CellEstimate, CellEstimate]:
        """The estimates by the graph alone and by the factors."""
        alone = combine(graph, None, self.independent, self.plain_link)
        if not self.factors.rank:
            return alone, alone
        posterior = self.factors.posterior(np.where(known, values, 0.0), known.astype(np.float64))
        return alone, combine(graph, posterior, self.factors, self.link)


def weighted(weights: Array, parts: "list[tuple[Any, Any]]", marginal: Array) -> tuple[Array, Array]:
    """Weighted mean of some estimates and of 0, the mean of the column, and of their variances."""
    value = sum(weight * part for weight, (part, _) in zip(weights, parts, strict=False))
    variance = sum(weight * part for weight, (_, part) in zip(weights, parts, strict=False))
    return np.asarray(value), np.asarray(variance + max(1 - weights.sum(), 0.0) * marginal)


def stacking_weights(estimates: Array, truth: Array) -> Array:
    """Weights >= 0 with a sum <= 1 that estimate the truth best, from one column per estimate; the graph's is first."""
    from scipy.optimize import nnls

    n_estimates = estimates.shape[1]
    least = float(((estimates - truth[:, None]) ** 2).mean(axis=0).min()) if len(truth) else 1.0
    prior = np.sqrt(PRIOR_CELLS * max(least, 1e-12))
    sum_to_one = 1e3 * np.sqrt(len(truth) + PRIOR_CELLS)
    of_mean = np.zeros((len(truth) + n_estimates, 1))
    system = np.hstack([np.vstack([estimates, prior * np.eye(n_estimates)]), of_mean])
    system = np.vstack([system, np.full((1, n_estimates + 1), sum_to_one)])
    right = np.concatenate([truth, prior * np.eye(n_estimates)[0], [sum_to_one]])
    # the same least squares in few rows
    triangular = np.asarray(np.linalg.qr(np.column_stack([system, right]), mode="r"))
    weights = nnls(triangular[:, :-1], triangular[:, -1])[0]
    weights = weights[:-1] / max(weights.sum(), 1e-12)
    better = float(((estimates @ weights - truth) ** 2).sum()) < float((truth**2).sum())
    return np.asarray(weights if better else np.zeros(n_estimates))  # never worse than the mean
