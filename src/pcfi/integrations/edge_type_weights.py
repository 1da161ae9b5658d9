"""Learn weights of edge types without labels, by the errors on hidden known cells."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.evaluation import standard_deviations
from pcfi.imputation import complete
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Problem, known_mask, survey
from pcfi.integrations.typed_graph import EdgeType, TypedGraph
from pcfi.settings import Settings
from pcfi.stages.solvers import UntilSettled

FACTORS = (0.0, 0.25, 4.0)  # candidates for changing the weight of a relation
MAX_PASSES = 3  # over all relations
N_FOLDS = 3
MIN_STANDARD_ERRORS = 2.0  # by which the errors of hidden nodes must fall
LOOSE_RTOL = 1e-2  # tolerance of the solver in folds
MIN_HIDDEN = 5  # nodes in a fold; with fewer, nothing is learned

Weights = dict[EdgeType, float]


def learn_weights(typed: TypedGraph, problem: Problem, settings: Settings) -> Weights:
    """Learn the weight of each edge type for filling `problem`, whose nodes are those of the typed graph.

    All weights start at 1. The weight of one relation at a time (an edge type together with its reverse) is multiplied
    by 0, 1/4 or 4, and the change is kept if it lowers the errors of hidden nodes by two standard errors. Relations
    with the same information therefore keep equal weights.
    """
    relations = typed.relations
    weights = {kind: 1.0 for relation in relations for kind in relation}
    folds = _folds(problem)
    if len(relations) < 2 or not folds:
        return weights
    settings = replace(settings, solver=UntilSettled(rtol=LOOSE_RTOL), unreachable="mean", position=0, center=False)

    def errors_with(tried: Weights) -> Array:
        graph = typed.graph(tried, directed=settings.directed)
        return np.concatenate([fold.errors(graph, settings) for fold in folds])

    errors = errors_with(weights)
    for _ in range(MAX_PASSES):
        before = dict(weights)
        for relation in relations:
            weights, errors = _best(weights, errors, relation, errors_with)
        if weights == before:
            break
    return weights


def _best(
    weights: Weights, errors: Array, relation: tuple[EdgeType, ...], errors_with: Callable[[Weights], Array]
) -> tuple[Weights, Array]:
    """The weights with the best factor for one relation, and their errors."""
    best = weights, errors
    for factor in FACTORS:
        tried = weights | {kind: weights[kind] * factor for kind in relation}
        if tried == weights or not any(tried.values()):
            continue
        found = errors_with(tried)
        if _is_lower(found, errors) and found.mean() < best[1].mean():
            best = tried, found
    return best


def _is_lower(errors: Array, before: Array) -> bool:
    gain = before - errors
    return bool(gain.mean() > MIN_STANDARD_ERRORS * gain.std(ddof=1) / np.sqrt(len(gain)))


@dataclass(frozen=True, eq=False)
class _HiddenNodes:
    """A problem with some nodes hidden, and the true values of these nodes."""

    problem: Problem
    nodes: Array
    truth: Array
    known: Array
    unit: Array

    def errors(self, graph: Graph, settings: Settings) -> Array:
        """Mean squared error of each hidden node, in variances of the channels."""
        result, _ = complete(replace(self.problem, graph=graph), settings)
        deviation = np.where(self.known, (np.asarray(result.values)[self.nodes] - self.truth) / self.unit, 0.0)
        return np.asarray(np.square(deviation).sum(axis=1) / self.known.sum(axis=1))


def _folds(problem: Problem) -> list[_HiddenNodes]:
    """Folds, each of which hides all known cells of some nodes; deterministic."""
    known = np.array(known_mask(problem))
    sources = np.flatnonzero(known.any(axis=1))
    if len(sources) < MIN_HIDDEN * N_FOLDS:
        return []
    unit = standard_deviations(problem)
    parts = np.array_split(np.random.default_rng(0).permutation(sources), N_FOLDS + 2)[:N_FOLDS]
    return [_hide(problem, known, np.sort(part), unit) for part in parts]


def _hide(problem: Problem, known: Array, nodes: Array, unit: Array) -> _HiddenNodes:
    mask = known.copy()
    mask[nodes] = False
    values = problem.values
    hidden = replace(problem, mask=mask, channels=survey(values, mask), wrap_values=np.asarray, wrap_cells=np.asarray)
    return _HiddenNodes(hidden, nodes, np.where(known[nodes], values[nodes], 0.0), known[nodes], unit)
