"""Known cells -> a fitted value model: hide some of them, estimate them, and learn from the errors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.blas_threads import single_thread
from pcfi.estimation.category_probabilities import fit_probabilities
from pcfi.estimation.cell_model import CellModel, stacking_weights, weighted
from pcfi.estimation.channel_moments import channel_ranges, moments_of_problem
from pcfi.estimation.channel_scale import ChannelScale, candidate_scales, fit_channel_scale
from pcfi.estimation.conformal_scores import ConformalScores
from pcfi.estimation.error_fitting import ColumnErrors, constant_errors, fit_errors, known_deviations
from pcfi.estimation.error_model import ErrorModel, ErrorRegression
from pcfi.estimation.factor_model import FactorModel
from pcfi.estimation.folds import MAX_HIDDEN, N_PARTS, Fold, make_folds, number_of_parts
from pcfi.estimation.graph_estimates import (
    Candidate,
    HiddenEstimates,
    graph_estimates,
    halves,
    link_of_cells,
    search_alpha,
    with_pairs,
)
from pcfi.estimation.graph_link import GraphLink
from pcfi.estimation.sample import Sample, draw_sample
from pcfi.estimation.training import (
    FoldEstimate,
    FoldFit,
    FoldFits,
    TrainingRows,
    beyond_training,
    final_regression,
    has_regression,
    regression_estimates,
    squared_error,
    training_nodes,
    training_rows,
)
from pcfi.estimation.value_model import ValueModel
from pcfi.inputs.problem import Problem, known_mask
from pcfi.settings import Settings
from pcfi.stages.degree_scaling import DegreeScale, grows_with_degree

MAX_FOLDS = 5
ENOUGH_UNITS = 5_000  # nodes in patterns that folds hide, where a table has them
ENOUGH_HIDDEN = 500_000  # cells that folds of tables without regressions hide: one node is hundreds of them
REGRESSION_UNITS = 50_000  # the same if columns are regressed on each other, which hidden cells are needed for
ENOUGH_CELLS = 2_000  # hidden cells that decide on the number of factors
ENOUGH_OF_BUILT = 10_000  # the same if each fold builds its graph
MIN_UNITS = 5  # hidden cells, or nodes where whole nodes are missing, that something can be learned from
RANKS = (1, 2, 4, 8, 16)  # candidates for the number of factors


@dataclass(frozen=True, eq=False)
class Fitted:
    """A value model, the candidates for alpha (best first), and the errors on hidden cells.

    `error` and `error_of_mean` are root mean squared errors in standard deviations.
    """

    model: ValueModel
    candidates: list[Candidate]
    column_errors: ColumnErrors
    n_hidden: int
    n_folds: int
    error: float
    error_of_mean: float


def fit_value_model(problem: Problem, settings: Settings, seed: int, bounds: Array | None = None) -> Fitted | str:
    """Fit the model to the known cells, of a large table to those of a sample; or say why nothing can be learned."""
    scales = candidate_scales(problem.channels, moments_of_problem(problem), bounds)
    return fit_to_sample(draw_sample(problem), scales, settings, seed, problem)


def fit_to_sample(
    sample: Sample, scales: Sequence[ChannelScale], settings: Settings, seed: int, complete: Problem
) -> Fitted | str:
    """The same from a sample; of the `complete` problem, graph and channels count.

    Of several candidates, the scale is taken with which hidden cells are estimated best: channels that look log-normal
    may also depend on each other as they are, as parts of a sum do.
    """
    if complete.n_missing == 0:
        return "nothing is missing"
    relative = scales[-1].unit / channel_ranges(sample.problem.channels)  # the last scale has no logarithms
    grows = grows_with_degree(sample.problem, relative**2)
    with single_thread():
        fits = [_fit(sample, scale, settings, seed, complete, grows=grows) for scale in scales]
    learned = [one for one in fits if not isinstance(one, str)]
    return min(learned, key=lambda one: float(_relative_errors(one).sum())) if learned else fits[0]


def _relative_errors(fitted: Fitted) -> Array:
    """Squared error on the hidden cells of each channel, relative to that of its mean."""
    errors = fitted.column_errors
    return np.divide(errors.of_model, errors.of_mean, out=np.zeros(len(errors.unit)), where=errors.of_mean > 0)


def _fit(
    sample: Sample, scale: ChannelScale, settings: Settings, seed: int, complete: Problem, *, grows: bool
) -> Fitted | str:
    problem = sample.problem
    transformed = scale.transformed(problem)
    folds = make_folds(transformed, number_of_folds(sample), seed, nodes=sample.core, incomplete=sample.incomplete)
    lacking = _lacking(problem, scale, folds)
    if lacking:
        return lacking
    degree = DegreeScale.of(transformed, scale.logarithmic) if grows else None
    candidates = search_alpha(folds, scale, settings, degree)
    best = candidates[0]
    chosen = replace(settings, alpha=best.alpha, beta=0.0 if settings.beta == "auto" else settings.beta)
    degree = degree if best.by_degree else None
    nodes = training_nodes(transformed, sample.core)
    regresses = has_regression(len(np.unique(problem.columns[scale.active])), int(scale.active.sum()))
    hidden = graph_estimates(folds, scale, chosen, degree, nodes if regresses else None)
    if len(hidden) == 1:
        hidden = halves(hidden[0])
    elif regresses:
        hidden = with_pairs(hidden, scale, chosen, degree)
    training = training_rows(transformed, scale, nodes, hidden)
    cells, estimates, of_graph = _fit_cells(scale, training, hidden, CellShares.of(problem, hidden))
    errors, column_errors = fit_errors(transformed, scale, training, hidden, estimates, of_graph)
    n_estimated = max(sum(len(part.truth) for part in estimates), 1)
    return Fitted(
        model=ValueModel(
            scale=scale,
            cells=cells,
            degree=None if degree is None else DegreeScale.of(complete, scale.logarithmic),
            errors=errors,
            categories=fit_probabilities(problem, scale, hidden, estimates),
        ),
        candidates=candidates,
        column_errors=column_errors,
        n_hidden=sum(len(part.truth) for part in hidden),
        n_folds=len(folds),
        error=float(np.sqrt(squared_error(estimates) / n_estimated)),
        error_of_mean=float(np.sqrt(sum((part.truth**2).sum() for part in estimates) / n_estimated)),
    )


def model_without_evidence(problem: Problem, bounds: Array | None = None) -> ValueModel:
    """The model from the priors alone: half of the graph's estimate is kept, and intervals are infinite."""
    return prior_model(draw_sample(problem), fit_channel_scale(problem, bounds))


def prior_model(sample: Sample, scale: ChannelScale) -> ValueModel:
    """The same from a sample and the scale of the channels."""
    problem = sample.problem
    transformed = scale.transformed(problem)
    training = training_rows(transformed, scale, training_nodes(transformed, sample.core), [])
    n_channels = problem.values.shape[1]
    deviations = known_deviations(training)
    means = np.array([part.mean() if len(part) else 1.0 for part in deviations])
    errors = ErrorModel(
        regression=ErrorRegression.constant(np.log(np.maximum(means, 1e-12))),
        skewness=np.zeros(n_channels),
        usual_spread=np.ones(n_channels),
        edge_weight=1.0,
        max_hops=1,
        scores=ConformalScores.none(),
        interval_scores=ConformalScores.none(),
        distance=scale.distance,
        deviations=[part[:0] for part in deviations],
        of_constants=constant_errors(transformed, scale),
        n_known=scale.n_known,
    )
    return ValueModel(scale=scale, cells=CellModel.without_evidence(n_channels), degree=None, errors=errors)


def number_of_folds(sample: Sample) -> int:
    """As many folds as together hide enough nodes in patterns or cells, of those that may be hidden."""
    channels = sample.problem.channels
    n_known = channels.n_known
    if sample.core is not None:
        n_known = np.count_nonzero(known_mask(sample.problem)[sample.core], axis=0)
    n_units, n_cells = int(n_known[channels.representatives].sum()), int(n_known[~channels.constant].sum())
    if sample.problem.build_graph is not None:
        n_parts = number_of_parts(sample.problem)
        return int(np.clip(-(-ENOUGH_OF_BUILT * n_parts // max(n_units, 1)), 1, n_parts))
    n_columns = len(np.unique(sample.problem.columns[~channels.constant]))
    return folds_of_size(n_units, n_cells, n_columns, int(np.count_nonzero(~channels.constant)))


def folds_of_size(n_units: int, n_cells: int, n_columns: int, n_channels: int) -> int:
    """The same, from the numbers of known nodes in patterns, of known cells, and of what is modelled."""
    regresses = has_regression(n_columns, n_channels)
    by_units = -(-(REGRESSION_UNITS if regresses else ENOUGH_UNITS) * N_PARTS // max(n_units, 1))
    by_cells = MAX_FOLDS if regresses else -(-ENOUGH_HIDDEN // max(min(n_cells // N_PARTS, MAX_HIDDEN), 1))
    return int(np.clip(min(by_units, by_cells), 1, MAX_FOLDS))


def _lacking(problem: Problem, scale: ChannelScale, folds: list[Fold]) -> str:
    """Reason why no model can be fitted; empty if one can."""
    if not scale.active.any():
        return "no channel has two different known values"
    patterns = problem.channels.patterns
    sizes = np.bincount(patterns, weights=scale.active)[patterns]
    n_units = sum(float((1 / sizes[fold.channels[scale.active[fold.channels]]]).sum()) for fold in folds)
    if n_units < MIN_UNITS:
        return f"only {n_units:.0f} known nodes or cells can be hidden, and {MIN_UNITS} are needed"
    return ""


@dataclass(frozen=True, eq=False)
class CellShares:
    """How much each hidden cell of each fold counts: a categorical column has several channels, but counts once."""

    of_folds: list[Array]

    @classmethod
    def of(cls, problem: Problem, hidden: list[HiddenEstimates]) -> "CellShares":
        """The reciprocal of the number of channels that the column of a cell has."""
        widths = np.bincount(problem.columns)[problem.columns]
        return cls([1 / widths[part.channels] for part in hidden])

    def at(self, estimates: list[FoldEstimate]) -> Array:
        """Those of estimated cells, fold after fold."""
        return np.concatenate([share[one.sources] for share, one in zip(self.of_folds, estimates, strict=False)])

    def squared_error(self, estimates: list[FoldEstimate]) -> float:
        """Sum of the squared errors."""
        errors = np.concatenate([one.truth - one.value for one in estimates])
        return float((self.at(estimates) * errors**2).sum())


def _fit_cells(
    scale: ChannelScale, training: TrainingRows, hidden: list[HiddenEstimates], shares: CellShares
) -> tuple[CellModel, list[FoldEstimate], list[FoldEstimate]]:
    """The model of cells, and the estimates of hidden cells by it and by the graph alone."""
    alone, by_factors = _choose_factors(scale, training, hidden, shares)
    rank = by_factors[0].fitted.factors.rank
    with_regression = training.missing_graph is not None and scale.active.sum() > 1
    if not with_regression:
        alone, by_factors = beyond_training([alone, by_factors], hidden, scale)
    parts = [[(fit.estimate.value, fit.estimate.variance) for fit in fits] for fits in (alone, by_factors)]
    if with_regression:
        parts.append(regression_estimates(training, hidden, by_factors))
    weights = _weights(parts, [fit.estimate for fit in alone], rank, shares)
    estimates = [
        _weighted([part[number] for part in parts], weights, fit.estimate) for number, fit in enumerate(by_factors)
    ]
    start = by_factors[0].fitted.factors if rank else None
    fitted = training.fit(training.fit_factors(rank, start))
    cells = CellModel(
        factors=fitted.factors,
        link=fitted.link,
        independent=FactorModel.independent(training.shape[1]),
        plain_link=_link_of_all(training, hidden),
        regression=final_regression(training, fitted) if with_regression else None,
        weights=weights,
    )
    return cells, estimates, [fit.estimate for fit in alone]


def _choose_factors(
    scale: ChannelScale, training: TrainingRows, hidden: list[HiddenEstimates], shares: CellShares
) -> tuple[list[FoldFit], list[FoldFit]]:
    """Fits to the folds without factors, and with the number of factors whose error on hidden cells is smallest.

    As many folds decide as have `ENOUGH_CELLS`.
    """
    folds = FoldFits(training, hidden)
    every = range(len(hidden))
    without = best = folds.fit(0, every)
    if not training.has_partial_rows:
        return without, without
    n_search = 1 + int(np.searchsorted(np.cumsum([len(cells) for cells in training.hidden[:-1]]), ENOUGH_CELLS))
    searched = every if folds.share_factors else every[:n_search]

    def error(fits: list[FoldFit]) -> float:
        return shares.squared_error([fit.estimate for fit in fits[: len(searched)]])

    rank = 0
    for candidate in [rank for rank in RANKS if rank < int(scale.active.sum())]:
        fits = folds.fit(candidate, searched)
        if error(fits) < error(best):
            rank, best = candidate, fits
        elif candidate >= 2 * max(rank, 1):
            break
    return without, best + folds.fit(rank, every[len(best) :])


def _weights(parts: list[list[tuple[Array, Array]]], folds: list[FoldEstimate], rank: int, shares: CellShares) -> Array:
    """Weights of the graph alone, of the factors and of the regression."""
    root = np.sqrt(shares.at(folds))
    truth = root * np.concatenate([fold.truth for fold in folds])
    values = [root * np.concatenate([value for value, _ in part]) for part in parts]
    used = [number for number in range(len(values)) if number != 1 or rank]  # without factors: the graph alone
    weights = np.zeros(3)
    weights[used] = stacking_weights(np.stack([values[number] for number in used], axis=1), truth)
    return weights


def _weighted(parts: list[tuple[Array, Array]], weights: Array, estimate: FoldEstimate) -> FoldEstimate:
    value, variance = weighted(weights, parts, np.ones(len(estimate.truth)))
    return replace(estimate, value=value, variance=variance)


def _link_of_all(training: TrainingRows, hidden: list[HiddenEstimates]) -> GraphLink:
    """The link without factors, from all hidden cells, in training rows or not."""
    truth, graph, nodes, channels = (
        np.concatenate([getattr(part, name) for part in hidden]) for name in ("truth", "graph", "nodes", "channels")
    )
    reached = ~np.isnan(graph)
    return link_of_cells(truth[reached], graph[reached], nodes[reached], channels[reached], training.shape[1])
