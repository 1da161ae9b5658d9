"""The sample of a large table that the value model is fitted to; the same in memory and on disk.

Cells are hidden and rows are fitted at nodes that are spread evenly over those that know something (the core). All
nodes that are as near to them as missing cells usually are to known ones come along, so that what the graph says about
a hidden cell is what it says in the complete graph, or nearly so: a diffused value comes from the nearest known cells.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graph_rows import row_entries
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Problem, known_mask, survey
from pcfi.stages.hops import cells_by_hops, count_hops

MAX_NODES = 1 << 18  # of a sample
MAX_CELLS = 1 << 24  # of a sample
MAX_CORE = 1 << 13  # nodes whose surroundings a sample holds
MAX_NODES_PER_CORE = 64  # more hidden cells are worth more than wider surroundings: benchmarks/sample_size.py
NEAR = 0.9  # of the missing cells, that have a known cell of their channel within the radius of a sample
MAX_NEIGHBOURS = 1 << 12  # of a node whose neighbours come along: those of a hub would be the sample
ENTRIES_AT_A_TIME = 1 << 22  # of the graph


@dataclass(frozen=True, eq=False)
class Sample:
    """A problem that the value model is fitted to.

    Attributes
    ----------
    problem : Problem
    core : ndarray of int or None
        Rows whose cells may be hidden; None: all.
    incomplete : ndarray of bool or None
        Channels that have missing cells in the complete table; None: the problem is the complete table.
    """

    problem: Problem
    core: Array | None = None
    incomplete: Array | None = None


@dataclass(frozen=True, eq=False)
class SampledGraph(Graph):
    """The graph between the nodes of a sample; `full_degree` are their degrees in the complete graph."""

    full_degree: Array | None = None

    @cached_property
    def degree(self) -> Array:
        """Sum of the weights that flow into each node in the complete graph."""
        return np.empty(0) if self.full_degree is None else self.full_degree


def max_sample_nodes(n_channels: int) -> int:
    """Number of nodes up to which the model is fitted to all of them."""
    return min(MAX_NODES, MAX_CELLS // max(n_channels, 1))


def draw_sample(problem: Problem, most: int | None = None) -> Sample:
    """The sample of a problem in memory; the problem itself if it is small or its graph is made from the table.

    It has `most` nodes; None: as many as a model is fitted to.
    """
    n_nodes, n_channels = problem.values.shape
    most = max_sample_nodes(n_channels) if most is None else most
    if n_nodes <= most or problem.build_graph is not None:
        return Sample(problem)
    hops = count_hops(problem)
    levels = cells_by_hops(hops, np.bincount(hops.patterns, minlength=hops.codes.shape[1]))
    known = known_mask(problem)
    informed = np.asarray(known[:, hidden_channels(problem)].any(axis=1))
    nodes, core = sample_nodes(problem.graph, informed, levels, most)
    values, mask = np.ascontiguousarray(problem.values[nodes]), np.ascontiguousarray(known[nodes])
    return sample_of_rows(problem, nodes, core, values, mask)


def sample_of_rows(problem: Problem, nodes: Array, core: Array, values: Array, mask: Array) -> Sample:
    """The sample with these rows of a problem, whose graph and channels are known."""
    part = replace(
        problem,
        values=values,
        mask=mask,
        graph=sampled_graph(problem.graph, nodes),
        channels=survey(values, mask, problem.channel_name),
        counted_nodes=None,
    )
    return Sample(part, core, problem.channels.n_known < len(problem.values))


def hidden_channels(problem: Problem) -> Array:
    """Channels whose known cells may be hidden: those with different known values and missing cells."""
    n_known = problem.channels.n_known
    return np.flatnonzero(~problem.channels.constant & (n_known < len(problem.values)))


def sample_nodes(graph: Graph, informed: Array, levels: Array, most: int) -> tuple[Array, Array]:
    """`most` nodes of a sample in ascending order, and the places of its core among them.

    `informed` are the nodes that know a cell which may be hidden, `levels` the numbers of cells by hops (0: known).
    """
    candidates = _spread(np.flatnonzero(informed))
    missing = np.cumsum(levels[1:])
    radius = 1 + int(np.searchsorted(missing, NEAR * missing[-1])) if len(missing) else 1
    low, high = (min(size, len(candidates)) for size in (-(-most // MAX_NODES_PER_CORE), MAX_CORE))
    while low < high:  # the largest core whose surroundings fit
        middle = (low + high + 1) // 2
        if len(_surroundings(graph, candidates[:middle], radius, most + 1)) <= most:
            low = middle
        else:
            high = middle - 1
    core = np.sort(candidates[:low])
    nodes = np.sort(_surroundings(graph, candidates[:low], graph.n_nodes, most))
    return nodes, np.searchsorted(nodes, core)


def _spread(nodes: Array) -> Array:
    """The nodes in an order whose beginnings are spread evenly: multiples of the golden ratio, modulo 1."""
    return nodes[np.argsort(np.arange(len(nodes)) * 0.6180339887498949 % 1.0, kind="stable")]


def _surroundings(graph: Graph, core: Array, radius: int, most: int) -> Array:
    """The core and the nodes whose values reach it within `radius` hops, nearest first; at most `most` of them."""
    taken = np.zeros(graph.n_nodes, dtype=np.bool_)
    taken[core] = True
    found, frontier, n_found = [core], core, len(core)
    for _ in range(radius):
        reached = []
        degrees = graph.indptr[frontier + 1] - graph.indptr[frontier]
        for part in row_portions(graph, frontier[degrees <= MAX_NEIGHBOURS]):
            near = _neighbours(graph, part)
            near = near[~taken[near]]
            near = near[np.sort(np.unique(near, return_index=True)[1])][: most - n_found]
            taken[near] = True
            reached.append(near)
            n_found += len(near)
            if n_found >= most:
                break
        frontier = np.concatenate(reached) if reached else core[:0]
        found.append(frontier)
        if n_found >= most or not len(frontier):
            break
    return np.concatenate(found)[:most]


def row_portions(graph: Graph, nodes: Array) -> list[Array]:
    """The nodes in portions with a bounded number of neighbours, or of one node."""
    portions = np.cumsum(graph.indptr[nodes + 1] - graph.indptr[nodes]) // ENTRIES_AT_A_TIME
    return np.split(nodes, np.flatnonzero(np.diff(portions)) + 1) if len(nodes) else []


def _neighbours(graph: Graph, nodes: Array) -> Array:
    """Neighbours of some nodes, one after the other."""
    return np.asarray(graph.indices[row_entries(graph, nodes)[0]], dtype=np.int64)


def sampled_graph(graph: Graph, nodes: Array) -> SampledGraph:
    """The graph between some nodes, given in ascending order."""
    place = np.full(graph.n_nodes, -1, dtype=np.int32)
    place[nodes] = np.arange(len(nodes))
    counts, indices, weights = [], [], []
    for part in row_portions(graph, nodes):
        entries = row_entries(graph, part)[0]
        near = place[graph.indices[entries]]
        kept = near >= 0
        row = np.repeat(np.arange(len(part)), graph.indptr[part + 1] - graph.indptr[part])
        counts.append(np.bincount(row[kept], minlength=len(part)))
        indices.append(near[kept])
        if graph.weights is not None:
            weights.append(np.asarray(graph.weights[entries[kept]]))
    return SampledGraph(
        n_nodes=len(nodes),
        indptr=np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(graph.indptr.dtype),
        indices=np.concatenate(indices),
        weights=None if graph.weights is None else np.concatenate(weights),
        directed=graph.directed,
        full_degree=np.asarray(graph.degree[nodes]),
    )
