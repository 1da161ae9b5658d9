"""Each column regressed on the graph's estimate of it and on the other columns of its node.

    z_c = b_c + rho_c g_c + sum_d w_cd y_d + noise,      y_d the value of column d, or an estimate where it is missing

by ridge regression whose penalty maximises the evidence (MacKay, 1992). A few common factors (`factor_model`) describe
rows of which little is known; this regression describes rows that are nearly complete, whatever depends on what.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array

MAX_COLUMNS = 64  # beyond, factors alone describe a row: the cost grows with the fourth power of the number of columns
MAX_CHANNELS = 192  # of these columns, some of which are categorical
MIN_CELLS = 3  # known cells that a regression is fitted to
MAX_ITERATIONS = 300
TOLERANCE = 1e-7  # change of the logarithms of both precisions at which iterations stop
MIN_OWN_NOISE = 0.1  # of the variance of the residuals: estimates of predictors do not explain all of it
TINY = 1e-6  # in variances of a column: keeps precisions finite if a column is explained entirely, or not at all


@dataclass(frozen=True, eq=False)
class ColumnRegression:
    """Coefficients of some columns: intercept b, weight rho of the graph, weights w (of all columns), noise."""

    intercept: Array
    graph: Array
    columns: Array
    noise: Array

    @classmethod
    def without_evidence(cls, n_targets: int, n_columns: int) -> "ColumnRegression":
        """The mean of each of some columns."""
        return cls(np.zeros(n_targets), np.zeros(n_targets), np.zeros((n_targets, n_columns)), np.ones(n_targets))

    def variance(self, of_completed: Array) -> Array:
        """Variance of the estimates, from the variances of the estimates in completed rows, 0 where a cell is known."""
        return np.asarray(self.noise + of_completed @ (self.columns**2).T)

    def predict(self, completed: Array, graph: Array) -> Array:
        """Estimate the cells of some rows, from rows without missing cells and the graph's estimates (NaN: none)."""
        return np.asarray(self.intercept + self.graph * np.nan_to_num(graph) + completed @ self.columns.T)


@dataclass(frozen=True, eq=False)
class CompletedRows:
    """Rows as cells of some columns see them: with estimates where columns are missing or taken for missing.

    `variance` is that of the estimates, 0 where a cell is known.
    """

    targets: Array
    values: Array
    variance: Array


def fit_column_regression(
    values: Array, completed: Iterable[CompletedRows], graph: Array
) -> Iterator[tuple[CompletedRows, ColumnRegression]]:
    """Fit the regression of each column to the rows that know it and have an estimate of the graph.

    `values` are standardised rows (NaN: missing), `completed` the same rows as some columns see them, `graph` the
    graph's estimates (NaN: none). Of the variance of the residuals, what estimated predictors bring is not noise.
    """
    known = ~np.isnan(values)
    usable = known & ~np.isnan(graph)
    informative = np.flatnonzero(known.any(axis=0))  # not those that are constant or empty, which are not modelled
    for seen in completed:
        fitted = ColumnRegression.without_evidence(len(seen.targets), values.shape[1])
        for place, column in enumerate(seen.targets):
            rows = usable[:, column]
            if rows.sum() < MIN_CELLS:
                continue
            others = informative[informative != column]
            predictors = np.column_stack([graph[rows, column], seen.values[rows][:, others]])
            coefficients, fitted.intercept[place], residual = _ridge(predictors, values[rows, column])
            fitted.graph[place], fitted.columns[place, others] = coefficients[0], coefficients[1:]
            of_estimates = float(seen.variance[rows].mean(axis=0) @ fitted.columns[place] ** 2)
            fitted.noise[place] = max(residual - of_estimates, MIN_OWN_NOISE * residual)
        yield seen, fitted


def _ridge(predictors: Array, target: Array) -> tuple[Array, float, float]:
    """Coefficients, intercept and noise variance; penalty and noise maximise the evidence."""
    n_rows = len(target)
    centre, mean = predictors.mean(axis=0), float(target.mean())
    predictors, target = predictors - centre, target - mean
    total = float(target @ target)
    eigenvalues, vectors = np.linalg.eigh(predictors.T @ predictors)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    projected = vectors.T @ (predictors.T @ target)
    precision, penalty = 1 / max(total / n_rows, TINY), 1.0
    for _ in range(MAX_ITERATIONS):
        weights = precision * projected / (precision * eigenvalues + penalty)
        n_effective = float((precision * eigenvalues / (precision * eigenvalues + penalty)).sum())
        residual = max(total - 2 * float(weights @ projected) + float(weights**2 @ eigenvalues), 0.0)
        before = precision, penalty
        penalty = (n_effective + TINY) / (float(weights @ weights) + TINY)
        precision = (max(n_rows - n_effective, TINY) + TINY) / (residual + TINY)
        if abs(np.log(precision / before[0])) + abs(np.log(penalty / before[1])) < TOLERANCE:
            break
    coefficients = vectors @ weights
    return coefficients, mean - float(centre @ coefficients), 1 / precision
