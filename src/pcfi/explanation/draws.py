"""Completed tables that are plausible together: the estimates plus random errors that covary as real ones do.

The error of a missing cell is its calibrated standard deviation times a standard normal u. Within a row, the u of its
missing columns are correlated as the regressions of the columns on each other say, or the factors, whichever has the
larger weight in the estimates. Between nodes, u is a random field on the graph (`error_fields`), as far as errors of
hidden neighbours proved to be alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.cell_info import CellInfo
from pcfi.errors import ParameterError
from pcfi.estimation.column_regression import ColumnRegression
from pcfi.estimation.result import seed_of
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.explanation.error_fields import ErrorField
from pcfi.explanation.surprise import hidden_residuals, parts_of
from pcfi.inputs import tensors
from pcfi.inputs.problem import survey
from pcfi.pipeline import fill
from pcfi.stages.hops import count_hops

COVERAGE, NORMAL_QUANTILE = 0.9, 1.6448536269514722  # the interval that the spread of draws agrees with
N_FOLDS = 5  # parts of the known cells: a fifth of the pairs of neighbours is hidden together
PRIOR_PAIRS = 20.0  # pairs of neighbours that say "as in all columns" about the errors of one
MIN_EIGENVALUE = 0.05  # of the precision matrix of the columns
MAX_RESIDUAL = 4.0  # times the error to expect: a few wild errors say little about others


def draw_tables(cells: CellInfo, m: int, random_state: Any) -> Iterator[Any]:
    """Completed tables, one at a time, in the caller's container; checks everything before the first."""
    if isinstance(m, bool) or not isinstance(m, Integral) or m < 1:
        raise ParameterError(f"must be a whole number of at least 1, got {m!r}", parameter="m")
    if cells.hops is None or cells.model is None or cells.settings.unreachable != "mean":
        raise ParameterError(
            "draws need the model of values, and this result has none: impute with objective='values', method 'pcfi' "
            "and unreachable='mean'"
        )
    drawing = Drawing(cells, cells.model)
    if not np.isfinite(drawing.deviations).all():
        raise ParameterError("draws need errors learned from hidden cells, and too few cells could be hidden")
    rng = np.random.default_rng(seed_of(random_state))
    return (drawing.table(rng) for _ in range(int(m)))


@dataclass(frozen=True, eq=False)
class Drawing:
    """What all draws of a result share."""

    cells: CellInfo
    model: ValueModel

    @cached_property
    def deviations(self) -> Array:
        """Standard deviation of every cell on the scale of the model; 0 if known."""
        cells, errors = self.cells, self.cells.standardized_errors
        half = self.model.half_spreads(
            np.zeros(cells.filled.shape) if errors is None else errors, cells.host_hops, COVERAGE
        )
        half[:, cells.categorical] = 0.0
        return np.asarray(half / NORMAL_QUANTILE)

    @cached_property
    def centres(self) -> Array:
        """Estimates on the scale of the model, medians where that is logarithmic."""
        scale, hops = self.model.scale, self.cells.host_hops
        values = self._estimates()
        with np.errstate(divide="ignore", invalid="ignore"):
            transformed = np.where(scale.logarithmic, np.log(values), values)
        centres = scale.standardized(transformed)
        for rows in row_blocks(*centres.shape):
            codes = hops.codes[rows][:, hops.patterns]
            variance = self.model.standard_deviations(codes == 0, hops.is_reachable(codes)) ** 2
            centres[rows] -= scale.mean_shift(variance)
        return centres

    def _estimates(self) -> Array:
        """Filled values, without the part of the graph alone if other columns have a part.

        That part makes errors smaller on average, but relations between columns weaker than they are.
        """
        weights = self.model.cells.weights.copy()
        weights[0] = 0.0
        if not weights.any():
            return self.cells.host_values
        model = replace(self.model, cells=replace(self.model.cells, weights=weights / weights.sum()))
        problem = self.cells.problem
        filled = fill(problem, replace(self.cells.settings, progress=False), backend_for(problem), model)
        return np.asarray(filled.values, dtype=np.float64)

    @cached_property
    def shares(self) -> Array:
        """Share of the error of each channel that neighbours have in common, from known cells that are hidden.

        For two hidden neighbours i and j the field has the correlation sqrt(P_ij P_ji), about 1 / sqrt(d_i d_j) with d
        the degree: the share is the slope of products of residuals in it, drawn towards that of all channels.
        """
        cells, graph = self.cells, self.cells.graph
        problem = cells.problem
        parts = parts_of(problem, N_FOLDS)
        if problem.n_missing == 0 or not (parts >= 0).any():
            return np.zeros(parts.shape[1])
        nothing = np.zeros(parts.shape, dtype=np.bool_)
        _, residuals = hidden_residuals(problem, (self.model, cells.settings), parts, nothing)
        residuals = np.clip(residuals, -MAX_RESIDUAL, MAX_RESIDUAL)
        rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.indptr))
        pairs = rows < graph.indices
        one, other = rows[pairs], graph.indices[pairs]
        weights = graph.weights_as(np.float64)
        conductance = weights[pairs] if len(weights) else np.ones(len(one))
        expected = conductance / np.sqrt(np.maximum(graph.degree[one] * graph.degree[other], 1e-300))
        sums = np.zeros((2, parts.shape[1]))
        for channel in np.flatnonzero((parts >= 0).any(axis=0)):
            own, part = residuals[:, channel], parts[:, channel]
            both = (part[one] >= 0) & (part[one] == part[other]) & np.isfinite(own[one] * own[other])
            variance = np.nanmean(own**2)
            if variance > 0:
                sums[0, channel] = (own[one] * own[other] * expected)[both].sum() / variance
                sums[1, channel] = (expected**2)[both].sum()
        common = np.clip(sums[0].sum() / max(sums[1].sum(), 1e-300), 0.0, 1.0) if sums[1].sum() > 0 else 0.0
        prior = PRIOR_PAIRS * float((expected**2).mean()) if len(expected) else 1.0
        return np.asarray(np.clip((sums[0] + prior * common) / (sums[1] + prior), 0.0, 1.0))

    @cached_property
    def _fields(self) -> list[ErrorField]:
        """The field of each pattern."""
        hops = self.cells.host_hops
        return [
            ErrorField(
                graph=self.cells.graph,
                hops=hops.codes[:, pattern],
                reachable=hops.is_reachable(hops.codes[:, pattern]),
                alpha=self.cells.settings.alpha,
            )
            for pattern in range(hops.codes.shape[1])
        ]

    @cached_property
    def _row_field(self) -> ErrorField:
        """The field of the factors: on nodes that miss something."""
        problem = self.cells.problem
        complete = np.asarray(problem.mask.all(axis=1)).reshape(-1, 1)
        values = np.zeros(complete.shape)
        one = replace(problem, values=values, mask=complete, channels=survey(values, complete))
        hops = count_hops(one)
        codes = hops.codes[:, 0]
        alpha = self.cells.settings.alpha
        return ErrorField(graph=problem.graph, hops=codes, reachable=hops.is_reachable(codes), alpha=alpha)

    def errors(self, rng: np.random.Generator) -> Array:
        """Standard normal errors of all cells, related within rows and between nodes."""
        model, problem, hops = self.model.cells, self.cells.problem, self.cells.host_hops
        n_nodes, n_channels = problem.values.shape
        own = np.empty((n_nodes, n_channels))
        for channel in range(n_channels):
            own[:, channel] = self._fields[hops.patterns[channel]].draw(rng, float(self.shares[channel]))
        if model.regression is not None and model.weights[2] > model.weights[1]:
            return _related_by_regression(own, problem.mask, conditional_precision(model.regression))
        return own if model.factors.rank == 0 else self._related_by_factors(own, rng)

    def parameter_errors(self, rng: np.random.Generator) -> Array:
        """What other coefficients of the columns, as likely as the fitted ones, would change in the missing cells.

        The coefficients of column c on the others and a constant have the covariance noise_c (Z'Z)^-1, Z the rows
        that know c: the draw of parameters of proper multiple imputation (Rubin, 1987).
        """
        regression, mask = self.model.cells.regression, self.cells.problem.mask
        out = np.zeros(self.centres.shape)
        if regression is None or not self.model.cells.weights.any():
            return out
        for channel, (root, others) in self._parameter_roots.items():
            coefficients = root @ rng.standard_normal(len(root))
            missing = ~mask[:, channel]
            out[missing, channel] = coefficients[0] + self.centres[np.ix_(missing, others)] @ coefficients[1:]
        return out

    @cached_property
    def _parameter_roots(self) -> dict[int, tuple[Array, Array]]:
        """By channel with missing cells: a root of the covariance of its coefficients, and the other channels."""
        mask, regression, scale = self.cells.problem.mask, self.model.cells.regression, self.model.scale
        numbers = np.setdiff1d(np.flatnonzero(scale.active), np.arange(mask.shape[1])[self.cells.categorical])
        roots = {}
        for channel in numbers[~mask[:, numbers].all(axis=0)]:
            others, known = numbers[numbers != channel], mask[:, channel]
            rows = np.column_stack([np.ones(known.sum()), self.centres[np.ix_(known, others)]])
            precision = rows.T @ rows + np.eye(rows.shape[1])  # a cell's worth of prior: columns may be collinear
            noise = 0.0 if regression is None else float(regression.noise[channel])
            roots[int(channel)] = (np.sqrt(noise) * np.linalg.inv(np.linalg.cholesky(precision)).T, others)
        return roots

    def _related_by_factors(self, own: Array, rng: np.random.Generator) -> Array:
        """What the factors leave open given the known columns of a row is shared by its missing ones."""
        factors, mask = self.model.cells.factors, self.cells.problem.mask
        shared = float(self.shares[self.model.scale.active].mean())
        drawn = np.stack([self._row_field.draw(rng, shared) for _ in range(factors.rank)], axis=1)
        for rows in row_blocks(len(own), own.shape[1] * factors.rank):
            known = mask[rows].astype(np.float64)
            _, covariance = factors.posterior(np.zeros(known.shape), known)
            common = np.einsum("nij,nj->ni", np.linalg.cholesky(covariance), drawn[rows]) @ factors.loadings.T
            spread = ((covariance @ factors.loadings.T) * factors.loadings.T).sum(axis=1)
            own[rows] = (common + np.sqrt(factors.noise) * own[rows]) / np.sqrt(spread + factors.noise)
        return own

    def table(self, rng: np.random.Generator) -> Any:
        """One completed table."""
        cells, scale = self.cells, self.model.scale
        drawn = scale.original(self.centres + self.deviations * self.errors(rng) + self.parameter_errors(rng))
        drawn = np.clip(drawn, scale.least, scale.greatest)
        drawn = np.where(cells.problem.mask | (self.deviations == 0), cells.host_values, drawn)
        self._draw_categories(drawn, rng)
        drawn = drawn.astype(cells.dtype)
        return cells.wrap_values(drawn if isinstance(cells.filled, np.ndarray) else tensors.beside(cells.filled, drawn))

    def _draw_categories(self, drawn: Array, rng: np.random.Generator) -> None:
        """Put one category, by its share, into the missing cells of columns of categories."""
        columns, mask = self.cells.problem.columns, self.cells.problem.mask
        for number in self.cells.names.categories:
            channels = np.flatnonzero(columns == number)
            missing = ~mask[:, channels[0]]
            shares = np.maximum(drawn[np.ix_(missing, channels)], 1e-9)
            reached = rng.random((len(shares), 1)) * shares.sum(axis=1, keepdims=True)
            chosen = (np.cumsum(shares, axis=1) < reached).sum(axis=1).clip(max=len(channels) - 1)
            drawn[np.ix_(missing, channels)] = np.eye(len(channels))[chosen]


def conditional_precision(regression: ColumnRegression) -> Array:
    """Precision matrix of the columns given the graph, with 1 on the diagonal.

    If column c has the coefficients w_cd and the noise s_c in its regression on the others, the precision is 1 / s_c on
    the diagonal and -w_cd / s_c beside it; both estimates of an entry are averaged, and drawn towards 0 as far as
    needed for a covariance.
    """
    slopes = regression.columns / np.sqrt(regression.noise)[:, None] * np.sqrt(regression.noise)
    precision = -(slopes + slopes.T) / 2
    np.fill_diagonal(precision, 1.0)
    least = float(np.linalg.eigvalsh(precision)[0])
    if least < MIN_EIGENVALUE:
        precision *= (1 - MIN_EIGENVALUE) / (1 - least)
        np.fill_diagonal(precision, 1.0)
    return precision


def _related_by_regression(own: Array, mask: Array, precision: Array) -> Array:
    """Errors whose correlation within a row is that of its missing columns given the known ones."""
    diagonal = np.eye(len(precision))
    for rows in row_blocks(len(own), len(precision) ** 2):
        missing = ~mask[rows]
        within = np.where(missing[:, :, None] & missing[:, None, :], precision, diagonal)
        covariance = np.linalg.inv(within)
        spread = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        root = np.linalg.cholesky(covariance / spread[:, :, None] / spread[:, None, :])
        own[rows] = np.einsum("nij,nj->ni", root, own[rows])
    return own
