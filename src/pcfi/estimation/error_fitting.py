"""Errors on hidden cells -> an error model, and sums of errors by channel."""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.channel_scale import ChannelScale
from pcfi.estimation.conformal_scores import ConformalScores
from pcfi.estimation.error_model import (
    ErrorModel,
    ErrorRegression,
    cell_features,
    fit_error_regression,
    log_relative_deviation,
    neighbour_moments,
    shrunken_skewness,
    usual_spreads,
)
from pcfi.estimation.graph_estimates import HiddenEstimates
from pcfi.estimation.training import FoldEstimate, TrainingRows
from pcfi.inputs.problem import Channels, Problem, known_cells, known_mask, places
from pcfi.stages.hops import Hops, count_hops

REPORTED_COVERAGE = 0.9  # of the intervals whose coverage is reported
MAX_REGRESSION_CELLS = 50_000  # hidden cells that expected errors are learned from


@dataclass(frozen=True, eq=False)
class ColumnErrors:
    """Sums over the hidden cells of each channel: their number, and squared errors in units of `unit`.

    `of_mean`, `of_graph`, `of_row` and `of_model` are those of the mean, of the graph alone, of the other columns
    alone, and of the model; `squared_gains` are the squares of the differences between the first and the last.
    """

    n_hidden: Array
    unit: Array
    of_mean: Array
    of_graph: Array
    of_row: Array
    of_model: Array
    covered: Array
    squared_gains: Array


def fit_errors(
    problem: Problem,
    scale: ChannelScale,
    training: TrainingRows,
    hidden: list[HiddenEstimates],
    estimates: list[FoldEstimate],
    of_graph: list[FoldEstimate],
) -> tuple[ErrorModel, ColumnErrors]:
    """Learn from the errors on hidden cells, fold by fold."""
    n_channels, weights = problem.values.shape[1], problem.graph.weights
    edge_weight = 1.0 if weights is None or not len(weights) else float(np.mean(weights))
    cells = [(part.nodes[one.sources], part.channels[one.sources]) for part, one in zip(hidden, estimates, strict=True)]
    channels = np.concatenate([cell[1] for cell in cells])
    moments = [
        neighbour_moments(part.fold.problem.graph, part.fold.hops, problem.values, scale.unit, *cell)
        for part, cell in zip(hidden, cells, strict=True)
    ]
    spread = usual_spreads(np.concatenate(moments), channels, n_channels, edge_weight)
    of_neighbours = np.concatenate(
        [
            cell_features(part.fold.hops, *cell, of_cells, spread, edge_weight * _known_left(part, problem.channels))
            for part, cell, of_cells in zip(hidden, cells, moments, strict=True)
        ]
    )
    of_model = 0.5 * np.log(np.concatenate([one.variance for one in estimates]))
    skewness = shrunken_skewness(training.values, training.channels, n_channels)
    shifts = np.concatenate([part.shift[cell[1]] for part, cell in zip(hidden, cells, strict=True)])
    estimated = np.concatenate([one.value for one in estimates]) + shifts
    of_size = log_relative_deviation(estimated, skewness[channels])
    features = np.column_stack([of_model, of_neighbours, of_size])
    errors = np.concatenate([np.abs(one.truth - one.value) for one in estimates])
    numbers = np.repeat(np.arange(len(cells)), [len(cell[0]) for cell in cells])
    learned = _drawn(len(errors), MAX_REGRESSION_CELLS)
    has_two = ~np.isnan(scale.distance)
    regression = fit_error_regression(errors[learned], features[learned], channels[learned], has_two)
    scores = _cross_fitted_scores(errors, features, channels, numbers, learned, has_two, regression)
    units = [_relative_units(part, scale, problem.channels) for part in hidden]
    scores /= np.concatenate([unit[cell[1]] for unit, cell in zip(units, cells, strict=True)])
    hops = np.concatenate([_hops_of(part.fold.hops, *cell) for part, cell in zip(hidden, cells, strict=True)])
    of_intervals = np.where(np.isnan(scale.distance)[channels], scores, errors / scale.distance[channels])
    interval_scores = ConformalScores.of(of_intervals, channels, hops)
    model = ErrorModel(
        regression=regression,
        skewness=skewness,
        usual_spread=_spread_among_missing(problem, scale.unit, spread, edge_weight),
        edge_weight=edge_weight,
        max_hops=max(int(hops.max(initial=1)), 1),
        scores=ConformalScores.of(scores[learned], channels[learned], hops[learned]),
        interval_scores=interval_scores,
        distance=scale.distance,
        deviations=known_deviations(training),
        of_constants=constant_errors(problem, scale),
        n_known=scale.n_known,
    )
    covered, channels = _are_covered(model), interval_scores.channels
    return model, _column_errors(scale, hidden, estimates, of_graph, n_channels, covered, channels)


def _spread_among_missing(problem: Problem, unit: Array, in_folds: Array, edge_weight: float) -> Array:
    """Variance among the known neighbours of missing cells, by channel, if the graph was built from the table.

    Such a graph links more similar rows if it is built from more cells, so the usual spread is smaller than `in_folds`.
    """
    if problem.build_graph is None:
        return in_folds
    nodes, channels = places(~known_mask(problem))
    chosen = _drawn(len(nodes), MAX_REGRESSION_CELLS)
    nodes, channels = nodes[chosen], channels[chosen]
    moments = neighbour_moments(problem.graph, count_hops(problem), problem.values, unit, nodes, channels)
    return usual_spreads(moments, channels, len(in_folds), edge_weight, in_folds)


def _hops_of(hops: Hops, nodes: Array, channels: Array) -> Array:
    """Hops of cells; 0 if no source reaches them."""
    codes = hops.codes_at(nodes, channels)
    return np.where(hops.is_reachable(codes), codes, 0).astype(np.int64)


def _are_covered(model: ErrorModel) -> Array:
    """Whether the error of each hidden cell is within its interval."""
    scores, quantiles = model.interval_scores, model.quantiles(REPORTED_COVERAGE)
    factors = model.hop_factors(quantiles, REPORTED_COVERAGE)
    return np.asarray(scores.values <= quantiles[scores.channels] * factors[scores.hops])


def _known_left(part: HiddenEstimates, channels: Channels) -> Array:
    """Share of the known cells of each channel that a fold leaves known.

    A node has fewer known neighbours in a fold, which is no sign of larger errors; they count for as many as before.
    """
    return np.asarray(np.maximum(part.fold.problem.channels.n_known, 1) / np.maximum(channels.n_known, 1))


def constant_errors(problem: Problem, scale: ChannelScale) -> Array:
    """Expected error of channels with one known value, NaN for others: how often others occur, times their distance.

    How often: by the rule of succession, or as often as known values differ from the most frequent one in all channels
    that have such a one, if that is less. The distance is the value itself; if that is 0, as in such channels. The
    problem may be a sample of the table that the scale was fitted to.
    """
    channels, n_known = problem.channels, scale.n_known
    constant = ~scale.active & (n_known > 0)
    with_mode = scale.has_mode & scale.active & ~scale.logarithmic
    n_cells, n_others = int(channels.n_known[with_mode | constant].sum()), 0
    for _, at, values in known_cells(problem) if constant.any() and with_mode.any() else ():
        n_others += int((with_mode[at] & (values != scale.mode[at])).sum())
    share = np.minimum((n_others + 1) / (n_cells + 2), 1 / (n_known + 2))
    next_to_zero = np.abs(scale.next_to_mode[with_mode & (scale.mode == 0)])
    size = np.abs(scale.location)
    size = np.where(size > 0, size, float(np.median(next_to_zero)) if len(next_to_zero) else 1.0)
    return np.where(constant, share * size, np.nan)


def _drawn(n_cells: int, most: int) -> "Array | slice":
    """At most so many cells, drawn at random: they are in the order of rows, so every n-th would be of few channels."""
    if n_cells <= most:
        return slice(None)
    return np.sort(np.random.default_rng(0).choice(n_cells, most, replace=False))


def _cross_fitted_scores(
    errors: Array,
    features: Array,
    channels: Array,
    fold: Array,
    learned: "Array | slice",
    has_two: Array,
    start: ErrorRegression,
) -> Array:
    """Errors over what the `learned` cells of other folds let expect, or those of the other half of a single fold.

    `start` is the regression on all of them.
    """
    scores = np.empty(len(errors))
    if not fold.any():
        fold = np.random.default_rng(0).permutation(len(errors)) % 2
    takes_part = np.zeros(len(errors), dtype=np.bool_)
    takes_part[learned] = True
    for number in np.unique(fold):
        own = fold == number
        others = takes_part & ~own if (takes_part & ~own).any() else own
        fitted = fit_error_regression(errors[others], features[others], channels[others], has_two, start)
        scores[own] = errors[own] / fitted.expected(features[own], channels[own])
    return scores


def _filled(part: HiddenEstimates, value: Array, variance: Array, channels: Array, scale: ChannelScale) -> Array:
    """Estimates of hidden cells as they would be filled in: the mean of a logarithmic channel, within bounds."""
    above_median = np.where(scale.logarithmic[channels], scale.unit[channels] * variance / 2, 0.0)
    filled = scale.original_at(value + part.shift[channels] + above_median, channels)
    return np.clip(filled, scale.low[channels], scale.high[channels])


def _relative_units(part: HiddenEstimates, scale: ChannelScale, channels: Channels) -> Array:
    """Standard deviation of the values that a fold leaves known in each channel, relative to that of all known values.

    An interval is a multiple of the standard deviation of the known values; where these are few, that is itself
    uncertain, so scores are taken in units of what the fold knows. One cell more has the variance of all.
    """
    hidden = part.truth + part.shift[part.channels]  # standardised, as all known values
    mean = scale.standardized(channels.mean.astype(np.float64))
    n_left = channels.n_known - np.bincount(part.channels, minlength=len(mean))
    total = channels.n_known * mean - np.bincount(part.channels, weights=hidden, minlength=len(mean))
    squares = channels.n_known * (1 + mean**2) - np.bincount(part.channels, weights=hidden**2, minlength=len(mean))
    scatter = np.maximum(squares - total**2 / np.maximum(n_left, 1), 0.0)
    return np.asarray(np.sqrt((scatter + 1) / (np.maximum(n_left, 0) + 1)))


def known_deviations(training: TrainingRows) -> list[Array]:
    """Distances of known values from the mean of the others of their channel, sorted."""
    counts = np.bincount(training.channels, minlength=training.shape[1])
    deviations = np.abs(training.values)
    order = np.argsort(deviations)
    channels = training.channels[order].astype(np.min_scalar_type(len(counts)))  # few bits are sorted faster
    parts = np.split(deviations[order[np.argsort(channels, kind="stable")]], np.cumsum(counts)[:-1])
    return [part * (len(part) / max(len(part) - 1, 1)) for part in parts]


def _column_errors(
    scale: ChannelScale,
    hidden: list[HiddenEstimates],
    estimates: list[FoldEstimate],
    of_graph: list[FoldEstimate],
    n_channels: int,
    covered: Array,
    score_channels: Array,
) -> ColumnErrors:
    at = [part.channels[one.sources] for part, one in zip(hidden, estimates, strict=True)]
    channels = np.concatenate(at)
    shifts = np.concatenate([part.shift[cells] for part, cells in zip(hidden, at, strict=True)])

    def original(name: str, parts: list[FoldEstimate]) -> Array:
        each = zip(hidden, parts, at, strict=True)
        return np.concatenate(
            [_filled(part, getattr(one, name), one.variance, cells, scale) for part, one, cells in each]
        )

    truth = scale.original_at(np.concatenate([one.truth for one in estimates]) + shifts, channels)
    mean = scale.original_at(shifts, channels)
    counts = np.maximum(np.bincount(channels, minlength=n_channels), 1)
    of_truth = np.bincount(channels, weights=truth, minlength=n_channels) / counts
    mean = np.where(scale.logarithmic[channels], of_truth[channels], mean)

    unit = np.zeros(n_channels)  # so that squares stay within the numbers
    np.maximum.at(unit, channels, np.abs(truth))
    unit[unit == 0] = 1.0

    def squares(predicted: Array) -> Array:
        return np.asarray(((truth - predicted) / unit[channels]) ** 2)

    def total(predicted: Array) -> Array:
        return np.bincount(channels, weights=squares(predicted), minlength=n_channels)

    filled = original("value", estimates)
    gains = squares(mean) - squares(filled)
    n_scores = np.maximum(np.bincount(score_channels, minlength=n_channels), 1)
    return ColumnErrors(
        n_hidden=np.bincount(channels, minlength=n_channels),
        unit=unit,
        of_mean=total(mean),
        of_graph=total(original("value", of_graph)),
        of_row=total(original("from_row", estimates)),
        of_model=total(filled),
        covered=np.bincount(score_channels, weights=covered, minlength=n_channels) / n_scores,
        squared_gains=np.bincount(channels, weights=gains**2, minlength=n_channels),
    )
