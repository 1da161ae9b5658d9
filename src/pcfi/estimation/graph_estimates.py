"""The graph's estimates of hidden cells, which the value model is fitted to, and the alpha that makes the best ones."""

from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from pcfi._typing import Array
from pcfi.backends.cpu import CpuBackend
from pcfi.estimation.channel_scale import ChannelScale
from pcfi.estimation.factor_model import FactorModel
from pcfi.estimation.folds import Fold, both_hidden
from pcfi.estimation.graph_link import GraphLink, combine, fit_graph_link
from pcfi.inputs.problem import Problem, survey
from pcfi.pipeline import run_stages
from pcfi.settings import Settings
from pcfi.stages.degree_scaling import DegreeScale
from pcfi.stages.diffusion import Diffused, Diffusion
from pcfi.stages.hops import Hops, count_hops
from pcfi.stages.solvers import FixedSteps, Solver, UntilSettled

ALPHAS = (0.1, 0.3, 0.6, 0.9, 1.0)  # candidates
MAX_SEARCH_CHANNELS = 16  # channels that alpha is chosen on: one block of the solver
SCORE_PRIOR = 0.01  # of a cell with the mean squared error, that is added to each channel: none is estimated exactly
MAX_EXACT_CELLS = 200_000  # cells of a table whose folds settle as far as its values do, and are hidden in pairs too
MAX_JOINED_CELLS = 4_000_000  # cells of folds that are estimated together, as channels of one problem
MIN_FOLD_RTOL = 1e-2  # settled enough to compare parameters, in units of a channel's range


@dataclass(frozen=True, eq=False)
class HiddenEstimates:
    """Hidden cells of a fold, standardised.

    Attributes
    ----------
    fold : Fold
    shift : ndarray, one per channel
        Location of the values that the fold leaves known; truth and graph estimates are counted from there.
    truth, graph : ndarray
        Value of each hidden cell and the graph's estimate of it, NaN where no source reaches it.
    row_graph : ndarray of shape (n_rows, n_channels) or None
        The graph's estimates of all cells of the rows that were asked for.
    of_others : list of ndarray, or empty
        The graph's estimates of the hidden cells of every fold, from sources that neither that fold nor this one hides:
        what a model is fitted to that is tried on this fold. Otherwise the neighbours of a cell would have estimates
        that depend on it, and errors would come out too large. Empty where cells are too many for that to matter.
    """

    fold: Fold
    shift: Array
    truth: Array
    graph: Array
    row_graph: Array | None = None
    of_others: list[Array] = field(default_factory=list)

    @property
    def nodes(self) -> Array:
        """Node of each cell."""
        return self.fold.nodes

    @property
    def channels(self) -> Array:
        """Channel of each cell."""
        return self.fold.channels


@dataclass(frozen=True)
class Candidate:
    """An alpha, whether features were divided by powers of the degree, and the error on the hidden cells.

    `score` is the negative log-likelihood of the hidden cells per cell, `error` the root mean squared error in standard
    deviations.
    """

    alpha: float
    by_degree: bool
    score: float
    error: float


def graph_estimates(
    folds: list[Fold],
    scale: ChannelScale,
    settings: Settings,
    degree: DegreeScale | None = None,
    rows: Array | None = None,
) -> list[HiddenEstimates]:
    """Run the stages on every fold with the settings' alpha; keep the hidden cells, and all cells of some `rows`."""
    if not folds:
        return []
    first = folds[0].problem
    loose = replace(settings, solver=_fold_solver(first, settings.solver), unreachable="mean", progress=False)
    same_graph = all(fold.problem.graph is first.graph for fold in folds)
    by_channel = settings.beta == 0 or settings.alpha == 1  # stage 2 would mix the channels of folds
    if not same_graph or not by_channel or len(folds) * first.values.size > MAX_JOINED_CELLS:
        return [_estimates(fold, scale, loose, degree, rows) for fold in folds]
    channels = np.tile(np.arange(first.values.shape[1]), len(folds))
    repeated = None if degree is None else degree.of_channels(channels)
    together = _estimates(_joined(folds), scale_of_channels(scale, channels), loose, repeated, rows)
    return _separated(together, folds)


def _joined(folds: list[Fold]) -> Fold:
    """Folds of one problem as one: the channels of the first, of the second, and so on."""
    first, n_channels = folds[0].problem, folds[0].problem.values.shape[1]
    values = np.tile(first.values, (1, len(folds)))
    mask = np.concatenate([fold.problem.mask for fold in folds], axis=1)
    problem = with_channels(first, values, mask)
    channels = np.concatenate([fold.channels + number * n_channels for number, fold in enumerate(folds)])
    nodes, truth = (np.concatenate([getattr(fold, name) for fold in folds]) for name in ("nodes", "truth"))
    return Fold(problem, count_hops(problem), nodes, channels, truth, folds[0].joint)


def _separated(together: HiddenEstimates, folds: list[Fold]) -> list[HiddenEstimates]:
    """The estimates of each of the folds that were joined."""
    cells = np.cumsum([len(fold.truth) for fold in folds])[:-1]
    rows = together.row_graph
    return [
        HiddenEstimates(*part)
        for part in zip(
            folds,
            np.split(together.shift, len(folds)),
            np.split(together.truth, cells),
            np.split(together.graph, cells),
            [None] * len(folds) if rows is None else np.split(rows, len(folds), axis=1),
            strict=True,
        )
    ]


def halves(hidden: HiddenEstimates) -> list[HiddenEstimates]:
    """The hidden cells of one fold as two parts, by node, so that what one part teaches can be tried on the other."""
    nodes, place = np.unique(hidden.nodes, return_inverse=True)
    is_first = (np.random.default_rng(0).permutation(len(nodes)) % 2 == 0)[place]

    def part(cells: Array) -> HiddenEstimates:
        fold = replace(
            hidden.fold, **{name: getattr(hidden.fold, name)[cells] for name in ("nodes", "channels", "truth")}
        )
        return replace(hidden, fold=fold, truth=hidden.truth[cells], graph=hidden.graph[cells])

    return [part(is_first), part(~is_first)]


def with_pairs(
    hidden: list[HiddenEstimates], scale: ChannelScale, settings: Settings, degree: DegreeScale | None
) -> list[HiddenEstimates]:
    """The same with `of_others`, from runs that hide two folds each, if the table is small."""
    if hidden[0].fold.problem.values.size > MAX_EXACT_CELLS:
        return hidden
    of_others = [[part.graph for part in hidden] for _ in hidden]
    if hidden[0].fold.problem.build_graph is None:
        pairs = list(combinations(range(len(hidden)), 2))
        folds = [both_hidden(hidden[first].fold, hidden[second].fold) for first, second in pairs]
        for (first, second), pair in zip(pairs, graph_estimates(folds, scale, settings, degree), strict=True):
            of_others[second][first], of_others[first][second] = np.split(pair.graph, [len(hidden[first].truth)])
        return [replace(part, of_others=others) for part, others in zip(hidden, of_others, strict=True)]
    for first, part in enumerate(hidden):  # each in its own graph
        others = [number for number in range(len(hidden)) if number != first]
        folds = [both_hidden(part.fold, hidden[number].fold) for number in others]
        for second, pair in zip(others, graph_estimates(folds, scale, settings, degree), strict=True):
            of_others[second][first] = pair.graph[: len(part.truth)]
    return [replace(part, of_others=others) for part, others in zip(hidden, of_others, strict=True)]


def _estimates(
    fold: Fold, scale: ChannelScale, settings: Settings, degree: DegreeScale | None, rows: Array | None
) -> HiddenEstimates:
    backend = HiddenCellsBackend(fold, rows)
    problem = fold.problem if degree is None else degree.divide(fold.problem)
    filled = run_stages(problem, settings, backend)
    diffused = settings.beta == 0 or settings.alpha == 1
    graph = backend.diffused if diffused else fold.at(filled.values)
    if degree is not None:
        graph = degree.multiplied_at(graph, fold.nodes, fold.channels)
    shift = scale.shifted_location(fold.problem.channels)
    at = fold.channels
    codes = fold.hops.codes_at(fold.nodes, at)
    graph = np.where(fold.hops.is_reachable(codes), scale.standardized(graph, at) - shift[at], np.nan)
    row_graph = None
    if rows is not None:
        row_graph = backend.diffused_rows if diffused else np.asarray(filled.values[rows], dtype=np.float64)
        row_graph = row_graph if degree is None else degree.multiplied(row_graph, rows)
        reachable = fold.hops.is_reachable(fold.hops.codes[rows][:, fold.hops.patterns])
        row_graph = np.where(reachable, scale.standardized(row_graph) - shift, np.nan)
    return HiddenEstimates(fold, shift, scale.standardized(fold.truth, at) - shift[at], graph, row_graph)


class HiddenCellsBackend(CpuBackend):
    """The stages on a fold whose hops are known; keeps what stage 1 fills into the hidden cells and into some rows."""

    def __init__(self, fold: Fold, rows: Array | None = None) -> None:
        self._fold, self._rows = fold, rows
        self.diffused = self.diffused_rows = np.empty(0)

    def count_hops(self, problem: Problem, *, progress: bool) -> Hops:  # noqa: ARG002
        """Those of the fold."""
        return self._fold.hops

    def diffuse(self, diffusion: Diffusion, out: Array, *, keep_product: bool) -> Diffused:  # noqa: ARG002
        """Stage 1; a product is evaluated at the hidden nodes and the rows only."""
        result = super().diffuse(diffusion, out, keep_product=True)

        def at(nodes: Array) -> Array:
            values = np.array(out[nodes], dtype=np.float64)
            if result.product is not None:
                values[:, result.product.channels] = result.product.rows(nodes)
            return values

        nodes, places = np.unique(self._fold.nodes, return_inverse=True)
        self.diffused = self._fold.at(out) if result.product is None else at(nodes)[places, self._fold.channels]
        if self._rows is not None:
            self.diffused_rows = at(self._rows)
        return result


def _fold_solver(problem: Problem, solver: Solver) -> Solver:
    """The solver of folds: that of the call, but for large tables only as far settled as comparisons need."""
    if isinstance(solver, FixedSteps) or problem.values.size <= MAX_EXACT_CELLS:
        return solver
    return UntilSettled(max(MIN_FOLD_RTOL, solver.rtol), solver.max_steps)


def search_alpha(
    folds: list[Fold], scale: ChannelScale, settings: Settings, degree: DegreeScale | None
) -> list[Candidate]:
    """The candidates, best first: on a sample of the channels, by the likelihood of hidden cells, each channel alone.

    With `degree`, the best alpha is tried once more for features divided by powers of the degree.
    """
    chosen = _search_channels(folds[0].problem, scale)
    settings = replace(settings, solver=_fold_solver(folds[0].problem, settings.solver))  # by all channels of the table
    sample = [_restricted(fold, chosen) for fold in folds]
    part = scale_of_channels(scale, chosen)
    alphas = ALPHAS if settings.alpha == "auto" else (settings.alpha,)
    candidates = [_candidate(sample, part, replace(settings, alpha=alpha, beta=0.0), None) for alpha in alphas]
    candidates.sort(key=lambda one: one.score)
    if degree is not None:
        again = replace(settings, alpha=candidates[0].alpha, beta=0.0)
        candidates.append(_candidate(sample, part, again, degree.of_channels(chosen)))
        candidates.sort(key=lambda one: one.score)
    return candidates


def _search_channels(problem: Problem, scale: ChannelScale) -> Array:
    """Channels with missing cells to choose alpha on: spread over the range of the number of known cells."""
    n_known = problem.channels.n_known
    chosen = np.flatnonzero(scale.active & (n_known > 1) & (n_known < len(problem.values)))
    if len(chosen) <= MAX_SEARCH_CHANNELS:
        return chosen
    ranked = chosen[np.lexsort((scale.unit[chosen], n_known[chosen]))]
    places = np.linspace(0, len(ranked) - 1, MAX_SEARCH_CHANNELS).round().astype(np.int64)
    return np.sort(ranked[places])


def with_channels(problem: Problem, values: Array, mask: Array) -> Problem:
    """The problem with other channels on the same graph."""
    return replace(
        problem,
        values=values,
        mask=mask,
        channels=survey(values, mask),
        first_channels=slice(None),
        categorical=slice(0),
    )


def _restricted(fold: Fold, chosen: Array) -> Fold:
    """The fold with some of its channels only."""
    problem = fold.problem
    if len(chosen) == problem.values.shape[1]:
        return fold
    values, mask = np.ascontiguousarray(problem.values[:, chosen]), np.ascontiguousarray(problem.mask[:, chosen])
    place = np.full(problem.values.shape[1], -1)
    place[chosen] = np.arange(len(chosen))
    kept = place[fold.channels] >= 0
    part = with_channels(problem, values, mask)
    patterns = fold.hops.patterns[chosen[part.channels.representatives]]
    codes = np.ascontiguousarray(fold.hops.codes[:, patterns])
    hops = Hops(codes, fold.hops.n_levels, fold.hops.n_unreachable[patterns], part.channels.patterns)
    return Fold(part, hops, fold.nodes[kept], place[fold.channels[kept]], fold.truth[kept], fold.joint)


def scale_of_channels(scale: ChannelScale, chosen: Array) -> ChannelScale:
    """The scale of some of the channels."""
    return ChannelScale(**{name: array[chosen] for name, array in vars(scale).items()})


def _candidate(folds: list[Fold], scale: ChannelScale, settings: Settings, degree: DegreeScale | None) -> Candidate:
    errors = link_errors(graph_estimates(folds, scale, settings, degree), len(scale.unit))
    return Candidate(float(settings.alpha), degree is not None, errors.score, errors.error)


@dataclass(frozen=True, eq=False)
class LinkErrors:
    """How well the graph alone predicts hidden cells: a score per cell, and the error in standard deviations."""

    score: float
    error: float


def link_errors(hidden: list[HiddenEstimates], n_channels: int) -> LinkErrors:
    """Errors of the graph's estimates, drawn towards the mean by the link of each channel."""
    truth, graph, nodes, channels = (
        np.concatenate([getattr(part, name) for part in hidden]) for name in ("truth", "graph", "nodes", "channels")
    )
    if not len(truth):
        return LinkErrors(score=0.0, error=1.0)  # as if nothing were explained
    reached = ~np.isnan(graph)
    predicted = np.zeros(len(truth))
    if reached.any():
        gain = own_gain(truth[reached], graph[reached], nodes[reached], channels[reached], n_channels)
        predicted[reached] = gain[channels[reached]] * graph[reached]
    squared = (truth - predicted) ** 2
    counts, errors, values = (
        np.bincount(channels, weights=part, minlength=n_channels) for part in (np.ones(len(truth)), squared, truth**2)
    )
    # variance that the hidden cells of a channel happen not to show counts as unexplained
    unseen = np.maximum(1 - values / np.maximum(counts, 1), 0.0)
    variances = (errors + SCORE_PRIOR * squared.mean()) / (counts + 1) + unseen
    score = float((counts * np.log(np.maximum(variances, 1e-300))).sum() / len(truth))
    return LinkErrors(score, float(np.sqrt(squared.mean())))


def own_gain(truth: Array, graph: Array, nodes: Array, channels: Array, n_channels: int) -> Array:
    """Part of the graph's estimate that is kept in each channel, if nothing else is known about a cell."""
    link = link_of_cells(truth, graph, nodes, channels, n_channels)
    independent = FactorModel.independent(n_channels)
    return np.asarray(combine(np.ones((1, n_channels)), None, independent, link).value[0])


def link_of_cells(truth: Array, graph: Array, nodes: Array, channels: Array, n_channels: int) -> GraphLink:
    """The link without factors."""
    independent = FactorModel.independent(n_channels)
    return fit_graph_link((nodes, channels, truth, graph), None, independent)
