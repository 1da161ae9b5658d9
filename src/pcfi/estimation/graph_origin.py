"""Detect a graph that was probably built from the features.

Such a graph has seen the cells that are hidden to learn from, so errors and intervals are too optimistic. A graph made
from a table links a node to its most similar rows; other graphs, however alike neighbours are, hardly ever do. The
statistic is the share of a node's neighbours that are among as many most similar rows, beyond what chance gives. Rows
are compared by incomplete columns of numbers: a graph may be made from complete ones (coordinates), which are not
estimated, and rows of one category (a region) are all alike.
"""

from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import Problem, known_mask, places

MIN_SHARE = 0.5  # of the neighbours, beyond chance, that are most similar rows: more than homophily brings about
MIN_DEGREE = 3  # on average: on a path, such as time, neighbours of a smooth series are its most similar rows
MAX_NODES = 32  # nodes that are looked at
MAX_CELLS = 2_000_000  # of the columns that rows are compared by
MIN_DENSE_SHARE = 0.1  # of cells that are known, from which on products with dense matrices are faster


def share_of_similar_rows(problem: Problem) -> float:
    """Share of neighbours that are among the most similar rows, from 0 (chance) to 1 (all); NaN if unknown.

    Rows are compared by the columns that both know, and with the mean in missing cells; the larger share counts.
    """
    graph, n_nodes = problem.graph, len(problem.values)
    degrees = np.diff(graph.indptr)
    known = known_mask(problem)
    nodes = np.flatnonzero((degrees > 0) & (4 * degrees < n_nodes) & known.any(axis=1))
    is_compared = ~problem.channels.constant & (problem.channels.n_known < n_nodes)
    is_compared[problem.categorical] = False
    columns = np.flatnonzero(is_compared)
    if not len(nodes) or not len(columns) or degrees[nodes].mean() < MIN_DEGREE:
        return float("nan")
    nodes = nodes[np.unique(np.linspace(0, len(nodes) - 1, MAX_NODES).round().astype(np.int64))]
    n_columns = max(1, min(len(columns), MAX_CELLS // n_nodes))
    columns = columns[np.unique(np.linspace(0, len(columns) - 1, n_columns).round().astype(np.int64))]
    neighbours = [graph.indices[graph.indptr[node] : graph.indptr[node + 1]] for node in nodes]
    distances = _distances(problem, known[:, columns], columns, nodes)
    shares = [_share(part, nodes, neighbours) for part in distances]
    chance = float((degrees[nodes] ** 2).sum() / degrees[nodes].sum() / (n_nodes - 1))
    return (max(shares) - chance) / (1 - chance)


def _distances(problem: Problem, known: Array, columns: Array, nodes: Array) -> tuple[Array, Array]:
    """Squared distances of some nodes from all: by the columns that both know, and with the mean in missing cells."""
    from scipy import sparse

    rows, at = places(known)
    ends = np.searchsorted(rows, np.arange(len(known) + 1))
    channels, place = problem.channels, columns[at]
    values = (problem.values[rows, place] - channels.mean[place]) / channels.magnitude[place]
    counts = np.maximum(np.bincount(at, minlength=len(columns)), 1)
    deviation = np.sqrt(np.bincount(at, weights=values**2, minlength=len(columns)) / counts)
    values = values / np.where(deviation > 0, deviation, 1.0)[at]

    def matrix(cells: Array) -> Any:
        found = sparse.csr_array((cells, at, ends), shape=known.shape)
        return found if len(cells) < MIN_DENSE_SHARE * known.size else found.toarray()

    z, squares, ones = matrix(values), matrix(values**2), matrix(np.ones(len(values)))
    known_to_query = known[nodes].astype(np.float64)
    query = np.zeros(known_to_query.shape)
    query[known[nodes]] = np.concatenate([values[ends[node] : ends[node + 1]] for node in nodes])
    products, common = z @ query.T, ones @ known_to_query.T
    between = ones @ (query**2).T + squares @ known_to_query.T - 2 * products
    between = np.where(common > 0, between / np.maximum(common, 1), np.inf)
    filled = (query**2).sum(axis=1) + np.asarray(squares.sum(axis=1)).reshape(-1, 1) - 2 * products
    return between.T, filled.T


def _share(distances: Array, nodes: Array, neighbours: list[Array]) -> float:
    """Share of the neighbours that are nearer than all but as many rows; rows that tie with others do not count."""
    distances[np.arange(len(nodes)), nodes] = np.inf
    n_near = 0
    for row, near in zip(distances, neighbours, strict=True):
        limit = np.partition(row, len(near))[len(near)]
        n_near += int((row[near] < limit).sum())
    return n_near / sum(len(near) for near in neighbours)
