"""How errors go together, learned from the sample that the model was fitted to: between neighbours, and by parameters.

The sample is the same in memory and from disk, and so are draws. In large tables a part of it says enough.
"""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.estimation.sample import SampledGraph, draw_sample, row_portions
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.explanation.surprise import hidden_residuals, parts_of
from pcfi.inputs.graph_rows import row_entries
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Problem
from pcfi.pipeline import fill
from pcfi.settings import Settings
from pcfi.stages.hops import Hops

MAX_CELLS = 1 << 22  # of the part of the sample
N_FOLDS = 5  # parts of the known cells: a fifth of the pairs of neighbours is hidden together
PRIOR_PAIRS = 20.0  # pairs of neighbours that say "as in all columns" about the errors of one
MAX_RESIDUAL = 4.0  # times the error to expect: a few wild errors say little about others


@dataclass(frozen=True, eq=False)
class ErrorRelations:
    """How errors go together.

    Attributes
    ----------
    shares : ndarray
        Share of the error of each channel that neighbours have in common.
    roots : ndarray
        For each channel of numbers, a root of the covariance of its constant and its coefficients on the others of
        them; empty without a regression.
    """

    shares: Array
    roots: Array


def fit_relations(problem: Problem, model: ValueModel, settings: Settings) -> ErrorRelations:
    """Learn how errors go together from a part of the sample that the model of the complete table is fitted to."""
    problem = draw_sample(problem, MAX_CELLS // problem.values.shape[1]).problem
    if not isinstance(problem.graph, SampledGraph) and problem.n_missing == 0:
        return ErrorRelations(np.zeros(problem.values.shape[1]), np.empty((0, 0, 0)))
    if isinstance(problem.graph, SampledGraph) and model.degree is not None:
        model = replace(model, degree=model.degree.of_new(problem.graph.degree))
    settings = replace(settings, progress=False)
    return ErrorRelations(_shares(problem, model, settings), _coefficient_roots(problem, model, settings))


def centre_model(model: ValueModel) -> ValueModel:
    """The model without the part of the graph alone, if other columns have a part.

    That part makes errors smaller on average, but relations between columns weaker than they are.
    """
    weights = model.cells.weights.copy()
    weights[0] = 0.0
    if not weights.any():
        return model
    return replace(model, cells=replace(model.cells, weights=weights / weights.sum()))


def centre_rows(model: ValueModel, estimates: Array, hops: Hops) -> Array:
    """Estimates of some rows, made by `model`, on its scale; medians where that is logarithmic."""
    centres = np.empty(estimates.shape)
    for rows in row_blocks(*estimates.shape):
        with np.errstate(divide="ignore", invalid="ignore"):
            transformed = np.where(model.scale.logarithmic, np.log(estimates[rows]), estimates[rows])
        codes = hops.codes[rows][:, hops.patterns]
        variance = model.standard_deviations(codes == 0, hops.is_reachable(codes)) ** 2
        centres[rows] = model.scale.standardized(transformed) - model.scale.mean_shift(variance)
    return centres


def number_channels(model: ValueModel, categorical: Array) -> Array:
    """Channels of numbers that the model describes."""
    active = model.scale.active.copy()
    active[categorical] = False
    return np.flatnonzero(active)


def _shares(problem: Problem, model: ValueModel, settings: Settings) -> Array:
    """Share of the error of each channel that neighbours have in common, from known cells that are hidden.

    For two hidden neighbours i and j the field has the correlation sqrt(P_ij P_ji), about 1 / sqrt(d_i d_j) with d
    the degree: the share is the slope of products of residuals in it, drawn towards that of all channels.
    """
    parts = parts_of(problem, N_FOLDS)
    if not (parts >= 0).any():
        return np.zeros(parts.shape[1])
    nothing = np.zeros(parts.shape, dtype=np.bool_)
    _, residuals = hidden_residuals(problem, (model, settings), parts, nothing)
    sums, square = _pair_sums(problem.graph, np.clip(residuals, -MAX_RESIDUAL, MAX_RESIDUAL), parts)
    common = np.clip(sums[0].sum() / sums[1].sum(), 0.0, 1.0) if sums[1].sum() > 0 else 0.0
    prior = PRIOR_PAIRS * square
    return np.asarray(np.clip((sums[0] + prior * common) / (sums[1] + prior), 0.0, 1.0))


def _pair_sums(graph: Graph, residuals: Array, parts: Array) -> tuple[Array, float]:
    """Products of the residuals of hidden neighbours times the expected correlation, its squares, and their mean.

    Both sums are by channel, in variances of its residuals.
    """
    sums, n_pairs, square = np.zeros((2, parts.shape[1])), 0, 0.0
    channels = np.flatnonzero((parts >= 0).any(axis=0))
    variances = np.array([np.nanmean(residuals[:, channel] ** 2) for channel in channels])
    for nodes in row_portions(graph, np.arange(graph.n_nodes)):
        entries, _ = row_entries(graph, nodes)
        rows = np.repeat(nodes, graph.indptr[nodes + 1] - graph.indptr[nodes])
        pairs = rows < graph.indices[entries]
        one, other = rows[pairs], graph.indices[entries[pairs]]
        weights = np.ones(len(one)) if graph.weights is None else graph.weights[entries[pairs]].astype(np.float64)
        expected = weights / np.sqrt(np.maximum(graph.degree[one] * graph.degree[other], 1e-300))
        n_pairs, square = n_pairs + len(one), square + float((expected**2).sum())
        for channel, variance in zip(channels.tolist(), variances.tolist(), strict=True):
            own, part = residuals[:, channel], parts[:, channel]
            products = own[one] * own[other]
            both = (part[one] >= 0) & (part[one] == part[other]) & np.isfinite(products)
            if variance > 0:
                sums[0, channel] += (products * expected)[both].sum() / variance
                sums[1, channel] += (expected**2)[both].sum()
    return sums, square / n_pairs if n_pairs else 1.0


def _coefficient_roots(problem: Problem, model: ValueModel, settings: Settings) -> Array:
    """Roots of the covariances of the coefficients of each column on the others and a constant.

    These are noise_c (Z'Z)^-1, Z the rows that know column c: the draw of parameters of proper multiple imputation
    (Rubin, 1987).
    """
    regression = model.cells.regression
    if regression is None or not model.cells.weights.any():
        return np.empty((0, 0, 0))
    numbers, centres = number_channels(model, problem.categorical), _sample_centres(problem, model, settings)
    roots = np.empty((len(numbers),) * 3)
    for place, channel in enumerate(numbers):
        rows = problem.mask[:, channel]
        others = np.column_stack([np.ones(int(rows.sum())), centres[rows][:, numbers[numbers != channel]]])
        precision = others.T @ others + np.eye(len(numbers))  # a cell's worth of prior: columns may be collinear
        roots[place] = np.sqrt(regression.noise[channel]) * np.linalg.inv(np.linalg.cholesky(precision)).T
    return roots


def _sample_centres(problem: Problem, model: ValueModel, settings: Settings) -> Array:
    model = centre_model(model)
    filled = fill(problem, settings, backend_for(problem), model)
    hops = Hops.of_known(*problem.values.shape) if filled.hops is None else filled.hops
    return centre_rows(model, filled.values, hops)
