"""Rows that the value model is fitted to, and its estimates of cells that were hidden from the fit."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.channel_scale import ChannelScale
from pcfi.estimation.factor_model import FactorModel, fit_factor_model
from pcfi.estimation.graph_estimates import HiddenEstimates
from pcfi.estimation.graph_link import GraphLink, combine_cells, fit_graph_link
from pcfi.inputs.problem import Problem, known_mask

MAX_TRAINING_CELLS = 300_000  # known cells of the training rows
MAX_TRAINING_ROWS = 20_000


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
    hidden : list of ndarray of int, one per fold
        Cells that the fold hides.
    sources : list of ndarray of int, one per fold
        Their places among the hidden cells of the fold.
    """

    shape: tuple[int, int]
    rows: Array
    channels: Array
    values: Array
    graph: Array
    hidden: list[Array]
    sources: list[Array]

    def matrix(self, cells: Array) -> Any:
        """A sparse matrix with a number for every known cell."""
        from scipy import sparse

        return sparse.csr_array((cells, (self.rows, self.channels)), shape=self.shape)

    def fit(self, rank: int, without: Array | None = None, shift: Array | None = None) -> "FittedRows":
        """Fit factors and links to all cells but some, whose values are counted from `shift`."""
        known = np.ones(len(self.values))
        if without is not None:
            known[without] = 0.0
        values = (self.values if shift is None else self.values - shift[self.channels]) * known
        values_matrix, known_matrix = self.matrix(values), self.matrix(known)
        factors = fit_factor_model(values_matrix, known_matrix, rank)
        posterior = factors.posterior(values_matrix, known_matrix) if rank else None
        hidden = np.flatnonzero(~np.isnan(self.graph) & (known > 0))
        cells = self.rows[hidden], self.channels[hidden], values[hidden], self.graph[hidden]
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


def training_rows(problem: Problem, scale: ChannelScale, hidden: list[HiddenEstimates]) -> TrainingRows:
    """All rows, or as many evenly spaced ones as have `MAX_TRAINING_CELLS` known cells."""
    n_nodes, n_channels = problem.values.shape
    per_row = max(float(problem.channels.n_known.sum()) / n_nodes, 1e-9)
    n_rows = int(min(n_nodes, MAX_TRAINING_ROWS, max(64, MAX_TRAINING_CELLS / per_row)))
    nodes = np.linspace(0, n_nodes - 1, n_rows).round().astype(np.int64)
    rows, channels = np.nonzero(known_mask(problem)[nodes] & scale.active)
    values = scale.standardized(problem.values[nodes[rows], channels], channels)
    number = np.full((n_rows, n_channels), -1, dtype=np.int32)
    number[rows, channels] = np.arange(len(rows))
    place = np.full(n_nodes, -1, dtype=np.int64)
    place[nodes] = np.arange(n_rows)
    graph, cells, sources = np.full(len(rows), np.nan), [], []
    for part in hidden:
        row = place[part.nodes]
        cell = np.where(row >= 0, number[row, part.channels], -1)
        source = np.flatnonzero(cell >= 0)
        cells.append(cell[source].astype(np.int64))
        sources.append(source)
        graph[cells[-1]] = part.graph[source]
    return TrainingRows((n_rows, n_channels), rows, channels, values, graph, cells, sources)


def fold_estimates(training: TrainingRows, hidden: list[HiddenEstimates], rank: int) -> list[FoldEstimate]:
    """Estimate the hidden cells of each fold with factors and a link that were fitted without them."""
    return [_fold_estimate(training, number, part, rank) for number, part in enumerate(hidden)]


def _fold_estimate(training: TrainingRows, number: int, part: HiddenEstimates, rank: int) -> FoldEstimate:
    cells, sources = training.hidden[number], training.sources[number]
    fitted = training.fit(rank, cells, part.shift)
    rows, channels = training.rows[cells], training.channels[cells]
    graph = part.graph[sources]
    estimate = combine_cells(graph, rows, channels, fitted.posterior, fitted.factors, fitted.link)
    return FoldEstimate(sources, part.truth[sources], estimate.value, estimate.variance, estimate.from_row)


def squared_error(estimates: list[FoldEstimate]) -> float:
    """Sum of the squared errors."""
    return float(sum(((part.truth - part.value) ** 2).sum() for part in estimates))


def is_better(rival: list[FoldEstimate], best: list[FoldEstimate]) -> bool:
    """Whether the errors of a rival on the same cells are smaller by more than the standard error of the difference."""
    gain = np.concatenate(
        [(old.truth - old.value) ** 2 - (new.truth - new.value) ** 2 for new, old in zip(rival, best, strict=True)]
    )
    return bool(gain.mean() > gain.std() / np.sqrt(max(len(gain), 1)))


def mean_estimate(estimate: FoldEstimate) -> FoldEstimate:
    """The same cells, estimated by the mean of their channel."""
    nothing = np.zeros(len(estimate.truth))
    return FoldEstimate(estimate.sources, estimate.truth, nothing, np.ones_like(nothing), nothing)
