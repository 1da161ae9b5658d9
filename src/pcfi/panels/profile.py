"""The expected value of each node (mean and seasons), and the size of its deviations.

    x(i, t) = mean_i + season_i(t) + unit_i y(i, t)

Means are those of a two-way table, mean_i + common(t), so that a node that reported only in hot weeks does not get too
high a mean. Season tables are means by phase of all nodes, plus deviations of each node, shrunk by the ratio of the
variances within and between nodes. A node that never reported gets its mean and unit from `pcfi.impute` on the graph
and on the means of other columns, and its seasons from its neighbours.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.imputation import impute
from pcfi.inputs.graphs import Graph

SWEEPS = 6  # of the alternating fit of a two-way table
PRIOR_READINGS = 10  # weight of the common unit, in readings
SPREAD_STEPS = 3  # hops over which season tables are passed to nodes that never reported


@dataclass(frozen=True, eq=False)
class Profile:
    """Mean and unit of each node, and season tables as pairs (phase of each time, table of nodes by phases)."""

    mean: Array
    unit: Array
    seasons: tuple[tuple[Array, Array], ...]

    def expected(self) -> Array:
        """Expected value at each node and time."""
        usual = np.repeat(self.mean[:, None], len(self.seasons[0][0]) if self.seasons else 1, axis=1)
        for phases, table in self.seasons:
            usual += table[:, phases]
        return usual


def fit_profile(
    values: Array, known: Array, phases: tuple[Array, ...], graph: Graph, other_means: Array | None = None
) -> Profile:
    """Fit to the known cells; `values` are 0 elsewhere, `other_means` means of other columns (NaN: never reported)."""
    counts = known.sum(axis=1)
    reporting = counts > 0
    mean = _two_way_means(values, known, counts)
    usual = np.where(known, values - mean[:, None], 0.0)
    seasons = []
    for phase in phases:
        table = _season(usual, known, phase, reporting, graph)
        seasons.append((phase, table))
        usual -= np.where(known, table[:, phase], 0.0)
    squares = np.einsum("it,it->i", usual, usual)
    common = squares.sum() / max(1, counts.sum())
    unit = np.sqrt((squares + PRIOR_READINGS * common) / (counts + PRIOR_READINGS))
    unit[unit == 0] = 1.0
    if not reporting.all():
        mean, unit = _from_graph(mean, unit, reporting, graph, other_means)
    return Profile(mean, unit, tuple(seasons))


def _two_way_means(values: Array, known: Array, counts: Array) -> Array:
    mask = known.astype(np.float64)
    by_node, by_time, at_time = values.sum(axis=1), values.sum(axis=0), mask.sum(axis=0)
    common = np.zeros(values.shape[1])
    mean = by_node / np.maximum(counts, 1)
    for _ in range(SWEEPS):
        common = (by_time - mean @ mask) / (at_time + 1)
        mean = (by_node - mask @ common) / np.maximum(counts, 1)
    mean += common[at_time > 0].mean() if (at_time > 0).any() else 0.0
    return np.asarray(mean)


def _season(usual: Array, known: Array, phase: Array, reporting: Array, graph: Graph) -> Array:
    """Table of nodes by phases: the means of all nodes, plus the shrunken deviation of each node."""
    from scipy import sparse

    n_phases = int(phase.max()) + 1
    places = sparse.csr_array((np.ones(len(phase)), (phase, np.arange(len(phase)))), shape=(n_phases, len(phase)))
    total, count = (places @ usual.T).T, (places @ known.T.astype(np.float64)).T
    pooled = total.sum(axis=0) / np.maximum(count.sum(axis=0), 1)
    within = (usual**2).sum() / max(1, known.sum()) - (count.sum(axis=0) * pooled**2).sum() / max(1, known.sum())
    raw = np.divide(total - count * pooled, count, out=np.zeros_like(total), where=count > 0)
    seen = count > 0
    between = max(float((raw[seen] ** 2).mean() - within * (1 / count[seen]).mean()), 1e-3 * within + 1e-300)
    own = raw * count / (count + within / between)
    if not reporting.all():
        own = _spread(own, reporting, graph)
    return np.asarray(pooled + own)


def _spread(table: Array, reporting: Array, graph: Graph) -> Array:
    """Fill the rows of nodes that never reported with the means of their neighbours' rows."""
    matrix, filled = graph.matrix(), reporting.astype(np.float64)
    table = np.where(reporting[:, None], table, 0.0)
    for _ in range(SPREAD_STEPS):
        weight = matrix @ filled
        means = (matrix @ table) / np.maximum(weight, 1e-300)[:, None]
        reached = ~reporting & (weight > 0)
        table[reached], filled[reached] = means[reached], 1.0
    return table


def _from_graph(
    mean: Array, unit: Array, reporting: Array, graph: Graph, other_means: Array | None
) -> tuple[Array, Array]:
    if not reporting.any():
        return mean, unit
    facts: Any = np.where(reporting[:, None], np.stack([mean, np.log(unit)], axis=1), np.nan)
    if other_means is not None:
        facts = np.hstack([facts, other_means[:, ~np.isnan(other_means).all(axis=0)]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about few or unreachable nodes: the panel has its own messages
        filled = impute(facts, graph).values
    return filled[:, 0], np.exp(filled[:, 1])
