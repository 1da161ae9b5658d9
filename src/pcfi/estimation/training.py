"""Rows that the value model is fitted to, and its estimates of cells that were hidden from the fit."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.channel_scale import ChannelScale
from pcfi.estimation.column_regression import (
    MAX_CHANNELS,
    MAX_COLUMNS,
    ColumnRegression,
    CompletedRows,
    fit_column_regression,
)
from pcfi.estimation.factor_model import FactorModel, fit_factor_model
from pcfi.estimation.graph_estimates import HiddenEstimates
from pcfi.estimation.graph_link import CellEstimate, GraphLink, combine_cells, fit_graph_link
from pcfi.estimation.rows_left import RowsLeft
from pcfi.inputs.problem import Problem, known_mask

MAX_TRAINING_CELLS = 300_000  # known cells of the training rows
MAX_TRAINING_ROWS = 20_000
MAX_SCORED_CELLS = 4_000_000  # cells of the rows whose hidden cells are estimated
MAX_SCORES = 250_000  # hidden cells that intervals are learned from: of hundreds of columns, each needs hundreds
BLOCK_CELLS = 20_000  # hidden cells that are estimated together
MIN_DENSE_SHARE = 0.3  # of cells that are known, from which on products with dense matrices are faster


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows that factors, links and errors are fitted to, as lists of their known cells.

    Attributes
    ----------
    shape : tuple of int
        Number of rows and channels.
    rows, channels : ndarray of int
        Place of each known cell.
    values : ndarray
        Its standardised value.
    graph : ndarray
        The graph's estimate of it from a fold that hid it; NaN if there is none.
    fold_graphs : list of ndarray, one per fold
        The same, for a model that is tried on the fold (`HiddenEstimates.of_others`).
    hidden : list of ndarray of int, one per fold
        Cells that the fold hides.
    joint : ndarray of bool, one per row
        Rows whose cells a fold hides all at once.
    patterns : list of ndarray of int
        Channels that are missing together, of those that folds hide.
    sources : list of ndarray of int, one per fold
        Their places among the hidden cells of the fold.
    has_partial_rows : bool
        Whether some node of the table misses one channel and knows another.
    missing_graph : ndarray of `shape` or None
        The graph's estimates of missing cells; None if there are too many channels for a regression.
    """

    shape: tuple[int, int]
    rows: Array
    channels: Array
    values: Array
    graph: Array
    fold_graphs: list[Array]
    hidden: list[Array]
    joint: Array
    patterns: list[Array]
    sources: list[Array]
    has_partial_rows: bool
    missing_graph: Array | None

    def dense(self, cells: Array, fill: "float | Array" = 0.0) -> Array:
        """An array with a number for every known cell, and `fill` elsewhere."""
        matrix = np.broadcast_to(np.asarray(fill, dtype=np.float64), self.shape).copy()
        matrix[self.rows, self.channels] = cells
        return matrix

    def matrix(self, cells: Array) -> Any:
        """A matrix with a number for every known cell and 0 elsewhere, sparse if few cells are known."""
        from scipy import sparse

        if len(cells) > MIN_DENSE_SHARE * self.shape[0] * self.shape[1]:
            return self.dense(cells)
        ends = np.searchsorted(self.rows, np.arange(self.shape[0] + 1))  # cells are in the order of rows
        return sparse.csr_array((cells, self.channels, ends), shape=self.shape)

    def without(self, number: int, shift: Array) -> "TrainingRows":
        """The rows as a fold leaves them: without its cells, values counted from `shift`."""
        return replace(self.without_cells(self.hidden[number], shift), graph=self.fold_graphs[number])

    def seen(self, number: int, shift: Array) -> "TrainingRows":
        """The same with the cells of rows that the fold does not hide as a whole: what missing cells see of a row."""
        cells = self.hidden[number]
        left = self.without_cells(cells[self.joint[self.rows[cells]]], shift)
        return replace(left, graph=self.fold_graphs[number])

    def without_cells(self, cells: Array, shift: Array) -> "TrainingRows":
        """The rows without some cells, values counted from `shift`."""
        values = self.values - shift[self.channels]
        values[cells] = np.nan
        return replace(self, values=values)

    def rows_left(self, factors: FactorModel, link: GraphLink) -> RowsLeft:
        """The rows without each of the patterns."""
        return RowsLeft(self.dense(self.values, np.nan), self.patterns, factors, link)

    @property
    def known(self) -> Array:
        """Which of the cells are known: not those that a fold hides."""
        return ~np.isnan(self.values)

    @cached_property
    def matrices(self) -> tuple[Any, Any]:
        """Values of known cells, 0 elsewhere, and which cells are known (0 or 1)."""
        return self.matrix(np.nan_to_num(self.values)), self.matrix(self.known.astype(np.float64))

    def fit_factors(self, rank: int, start: FactorModel | None = None) -> FactorModel:
        """Fit factors to the known cells."""
        return fit_factor_model(*self.matrices, rank, start) if rank else FactorModel.independent(self.shape[1])

    def fit(self, factors: FactorModel) -> "FittedRows":
        """Fit the link to the known cells, given the factors."""
        posterior = factors.posterior(*self.matrices) if factors.rank else None
        hidden = np.flatnonzero(~np.isnan(self.graph) & self.known)
        cells = self.rows[hidden], self.channels[hidden], self.values[hidden], self.graph[hidden]
        return FittedRows(factors, fit_graph_link(cells, posterior, factors), posterior)


@dataclass(frozen=True, eq=False)
class FittedRows:
    """Factors and links, and the posterior of the factors of the training rows."""

    factors: FactorModel
    link: GraphLink
    posterior: tuple[Array, Array] | None


@dataclass(frozen=True, eq=False)
class FoldEstimate:
    """Estimates of the hidden cells of a fold that are in the training rows.

    Attributes
    ----------
    sources : ndarray of int
        Places of the cells among the hidden cells of the fold.
    truth, value, variance, from_row : ndarray
        Truth, estimate, its variance, and the part of it that comes from the other columns.
    """

    sources: Array
    truth: Array
    value: Array
    variance: Array
    from_row: Array


def training_nodes(problem: Problem, core: Array | None = None) -> Array:
    """All nodes of the core, or as many evenly spaced ones as have `MAX_TRAINING_CELLS` known cells."""
    core = np.arange(len(problem.values)) if core is None else core
    per_row = max(float(problem.channels.n_known.sum()) / len(problem.values), 1e-9)
    n_rows = int(min(len(core), MAX_TRAINING_ROWS, max(64, MAX_TRAINING_CELLS / per_row)))
    return np.asarray(core[np.linspace(0, len(core) - 1, n_rows).round().astype(np.int64)])


def training_rows(problem: Problem, scale: ChannelScale, nodes: Array, hidden: list[HiddenEstimates]) -> TrainingRows:
    """The rows of some nodes, and what the folds say about them."""
    n_rows, n_channels = len(nodes), problem.values.shape[1]
    rows, channels = np.nonzero(known_mask(problem)[nodes] & scale.active)
    values = scale.standardized(problem.values[nodes[rows], channels], channels)
    number = np.full((n_rows, n_channels), -1, dtype=np.int32)
    number[rows, channels] = np.arange(len(rows))
    place = np.full(len(problem.values), -1, dtype=np.int64)
    place[nodes] = np.arange(n_rows)
    cells, sources = [], []
    for part in hidden:
        row = place[part.nodes]
        cell = np.where(row >= 0, number[row, part.channels], -1)
        source = np.flatnonzero(cell >= 0)
        cells.append(cell[source].astype(np.int64))
        sources.append(source)

    def of_cells(estimates: list[Array]) -> Array:
        graph = np.full(len(rows), np.nan)
        for cell, source, estimate in zip(cells, sources, estimates, strict=True):
            graph[cell] = estimate[source]
        return graph

    graph = of_cells([part.graph for part in hidden])
    return TrainingRows(
        shape=(n_rows, n_channels),
        rows=rows,
        channels=channels,
        values=values,
        graph=graph,
        fold_graphs=[of_cells(part.of_others) if part.of_others else graph for part in hidden],
        hidden=cells,
        joint=hidden[0].fold.joint[nodes] if hidden else np.zeros(n_rows, dtype=np.bool_),
        patterns=_hidden_patterns(problem, scale, hidden),
        sources=sources,
        has_partial_rows=_has_partial_rows(problem, scale),
        missing_graph=_mean_over_folds(hidden),
    )


def _hidden_patterns(problem: Problem, scale: ChannelScale, hidden: list[HiddenEstimates]) -> list[Array]:
    """Channels of each pattern that has hidden cells."""
    patterns = problem.channels.patterns
    chosen = np.unique(np.concatenate([patterns[part.channels] for part in hidden])) if hidden else patterns[:0]
    parts = [np.flatnonzero((patterns == pattern) & scale.active) for pattern in chosen]
    return [part for part in parts if len(part)]


def _has_partial_rows(problem: Problem, scale: ChannelScale) -> bool:
    """Whether some node misses one channel and knows another."""
    if scale.active.sum() < 2:
        return False
    known = known_mask(problem)[:, np.flatnonzero(scale.active)]
    return bool((known.any(axis=1) & ~known.all(axis=1)).any())


def _mean_over_folds(hidden: list[HiddenEstimates]) -> Array | None:
    """What the folds say on average about all cells of the training rows; NaN where none says anything."""
    parts = [part.row_graph + part.shift for part in hidden if part.row_graph is not None]
    if not parts:
        return None
    n_said = sum((~np.isnan(part)).astype(np.float64) for part in parts)
    total = sum(np.nan_to_num(part) for part in parts)
    return np.asarray(np.divide(total, n_said, out=np.full(parts[0].shape, np.nan), where=n_said > 0))


def has_regression(n_columns: int, n_channels: int) -> bool:
    """Whether columns are regressed on each other; a categorical column has several channels."""
    return 1 < n_channels <= MAX_CHANNELS and n_columns <= MAX_COLUMNS


@dataclass(frozen=True, eq=False)
class FoldFit:
    """Factors and links fitted without the hidden cells of a fold, and their estimates of these cells."""

    fitted: FittedRows
    estimate: FoldEstimate


class FoldFits:
    """Fits to the folds of the training rows, each without the hidden cells of its fold."""

    def __init__(self, training: TrainingRows, hidden: list[HiddenEstimates]) -> None:
        self._training, self.hidden = training, hidden
        self._left = [training.without(number, part.shift) for number, part in enumerate(hidden)]
        self._of_factors = self._left
        if len({id(part.fold.problem) for part in hidden}) < len(hidden):  # parts of one fold: factors see none of them
            both = training.without_cells(np.concatenate(training.hidden), hidden[0].shift)
            self._of_factors = [both] * len(hidden)

    @property
    def share_factors(self) -> bool:
        """Whether all fits have the same factors."""
        return self._of_factors is not self._left

    def fit(self, rank: int, numbers: Iterable[int]) -> list["FoldFit"]:
        """Estimate the hidden cells of some folds with `rank` factors and a link that were fitted without them."""
        factors: dict[int, FactorModel] = {}
        fits = []
        for number in numbers:
            rows = self._of_factors[number]
            if id(rows) not in factors:
                factors[id(rows)] = rows.fit_factors(rank)
            fits.append(self._fit_fold(number, factors[id(rows)]))
        return fits

    def _fit_fold(self, number: int, factors: FactorModel) -> "FoldFit":
        left, part = self._left[number], self.hidden[number]
        cells, sources = left.hidden[number], left.sources[number]
        fitted = left.fit(factors)
        rows, channels, graph = left.rows[cells], left.channels[cells], part.graph[sources]
        if factors.rank and left.missing_graph is not None:
            rows_left = self._training.seen(number, part.shift).rows_left(factors, fitted.link)
            estimate = _estimates_by_pattern(rows_left, rows, channels, graph)
        else:
            estimate = combine_cells(graph, rows, channels, fitted.posterior, factors, fitted.link)
        of_cells = FoldEstimate(sources, part.truth[sources], estimate.value, estimate.variance, estimate.from_row)
        return FoldFit(fitted, of_cells)


def _estimates_by_pattern(rows_left: RowsLeft, rows: Array, channels: Array, graph: Array) -> CellEstimate:
    """Estimates of cells from what their rows hold besides the cells of their pattern."""
    out = np.empty((3, len(rows)))
    for columns, moments in rows_left.moments():
        own = np.flatnonzero(np.isin(channels, columns))
        estimate = moments.at(rows[own], channels[own]).updated(graph[own])
        out[:, own] = estimate.value, estimate.variance, estimate.from_row
    return CellEstimate(*out)


def beyond_training(
    fits: list[list[FoldFit]], hidden: list[HiddenEstimates], scale: ChannelScale
) -> list[list[FoldFit]]:
    """Fits of the folds with estimates of hidden cells of other rows, too, if the training rows are a part of all.

    Rows that nothing is fitted to cost little, and intervals of hundreds of columns take many errors.
    """
    sources = [_scored_cells(part, scale, MAX_SCORES // len(hidden)) for part in hidden]
    if sum(map(len, sources)) <= sum(len(fit.estimate.truth) for fit in fits[0]):
        return fits
    return [
        [
            replace(fit, estimate=_estimate_of(fit.fitted, part, cells, scale))
            for fit, part, cells in zip(of_rank, hidden, sources, strict=True)
        ]
        for of_rank in fits
    ]


def _scored_cells(part: HiddenEstimates, scale: ChannelScale, most: int) -> Array:
    """Hidden cells of as many nodes as have `MAX_SCORED_CELLS`; at most `most` of them, drawn at random."""
    nodes = np.unique(part.nodes)
    rng, n_nodes = np.random.default_rng(0), MAX_SCORED_CELLS // len(scale.active)
    if len(nodes) > n_nodes:
        nodes = rng.permutation(nodes)[:n_nodes]
    cells = np.flatnonzero(scale.active[part.channels] & np.isin(part.nodes, nodes))
    return cells if len(cells) <= most else np.sort(rng.choice(cells, most, replace=False))


def _estimate_of(fitted: FittedRows, part: HiddenEstimates, sources: Array, scale: ChannelScale) -> FoldEstimate:
    """Estimates of some hidden cells of a fold, whose rows are as the fold leaves them."""
    nodes, rows = np.unique(part.nodes[sources], return_inverse=True)
    channels, graph = part.channels[sources], part.graph[sources]
    posterior = None
    if fitted.factors.rank:
        problem = part.fold.problem
        known = known_mask(problem)[nodes] & scale.active
        values = np.where(known, scale.standardized(problem.values[nodes]) - part.shift, 0.0)
        posterior = fitted.factors.posterior(values, known.astype(np.float64))
    blocks = [
        combine_cells(graph[block], rows[block], channels[block], posterior, fitted.factors, fitted.link)
        for block in np.split(np.arange(len(sources)), range(BLOCK_CELLS, len(sources), BLOCK_CELLS))
    ]
    value, variance, from_row = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("value", "variance", "from_row")
    )
    return FoldEstimate(sources, part.truth[sources], value, variance, from_row)


def regression_estimates(
    training: TrainingRows, hidden: list[HiddenEstimates], fits: list[FoldFit]
) -> list[tuple[Array, Array]]:
    """Estimates of the hidden cells of each fold by regressions that were fitted without them, and their variances."""
    estimates = []
    for number, (part, fit) in enumerate(zip(hidden, fits, strict=True)):
        cells = training.hidden[number]
        left = training.without(number, part.shift)
        seen = training.seen(number, part.shift)
        rows, channels = training.rows[cells], training.channels[cells]
        predicted, variance = np.zeros(len(cells)), np.ones(len(cells))
        graph = left.dense(left.graph, np.nan if part.row_graph is None else part.row_graph)
        for completed, regression in _regressions(left, seen, fit.fitted, graph):
            targets = completed.targets
            own = np.flatnonzero(np.isin(channels, targets))
            at = rows[own], np.searchsorted(targets, channels[own])
            predicted[own] = regression.predict(completed.values, graph[:, targets])[at]
            variance[own] = regression.variance(completed.variance)[at]
        unreached = np.isnan(part.graph[training.sources[number]])
        estimates.append((np.where(unreached, fit.estimate.value, predicted), variance))
    return estimates


def final_regression(training: TrainingRows, fitted: FittedRows) -> ColumnRegression:
    """The regression of every column on all known cells."""
    n_columns = training.shape[1]
    all_columns = ColumnRegression.without_evidence(n_columns, n_columns)
    graph = training.dense(training.graph, np.nan if training.missing_graph is None else training.missing_graph)
    for completed, regression in _regressions(training, training, fitted, graph):
        for name, coefficients in vars(regression).items():
            getattr(all_columns, name)[completed.targets] = coefficients
    return all_columns


def _regressions(
    left: TrainingRows, seen: TrainingRows, fitted: FittedRows, graph: Array
) -> Iterator[tuple[CompletedRows, ColumnRegression]]:
    """Rows as the columns of each pattern see them, and their regressions: where they are `left`, on what is `seen`."""
    completed = seen.rows_left(fitted.factors, fitted.link).completed(graph)
    return fit_column_regression(left.dense(left.values, np.nan), completed, graph)


def squared_error(estimates: list[FoldEstimate]) -> float:
    """Sum of the squared errors."""
    return float(sum(((part.truth - part.value) ** 2).sum() for part in estimates))
