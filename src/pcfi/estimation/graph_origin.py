"""Whether a graph was probably made from the features it is used for.

Such a graph has seen the cells that are hidden to learn from, so errors and intervals are too optimistic. A graph made
from a table links a node to its most similar rows; other graphs, however alike neighbours are, hardly ever do. The
statistic is the share of a node's neighbours that are among as many most similar rows, beyond what chance gives.
"""

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.knn import squared_distances
from pcfi.inputs.problem import Problem, known_mask

MIN_SHARE = 0.5  # of the neighbours, beyond chance, that are most similar rows: more than homophily brings about
MIN_DEGREE = 3  # on average: on a path, such as time, neighbours of a smooth series are its most similar rows
MAX_NODES = 32  # nodes that are looked at
MAX_CELLS = 2_000_000  # of the columns that rows are compared by


def share_of_similar_rows(problem: Problem) -> float:
    """Share of neighbours that are among the most similar rows, from 0 (chance) to 1 (all); NaN if nobody can tell.

    Rows are compared by the columns that both know, and with the mean in missing cells; the larger share counts.
    """
    graph, n_nodes = problem.graph, len(problem.values)
    degrees = np.diff(graph.indptr)
    known = known_mask(problem)
    nodes = np.flatnonzero((degrees > 0) & (4 * degrees < n_nodes) & known.any(axis=1))
    columns = np.flatnonzero(~problem.channels.constant)
    if not len(nodes) or not len(columns) or degrees[nodes].mean() < MIN_DEGREE:
        return float("nan")
    nodes = nodes[np.unique(np.linspace(0, len(nodes) - 1, MAX_NODES).round().astype(np.int64))]
    n_columns = max(1, min(len(columns), MAX_CELLS // n_nodes))
    columns = columns[np.unique(np.linspace(0, len(columns) - 1, n_columns).round().astype(np.int64))]
    rows = _standardized(problem, known[:, columns], columns)
    neighbours = [graph.indices[graph.indptr[node] : graph.indptr[node + 1]] for node in nodes]
    filled = np.where(known[:, columns], rows, 0)
    squares = np.einsum("ij,ij->i", filled, filled)
    between_filled = squares[nodes, None] + squares - 2 * filled[nodes] @ filled.T
    distances = squared_distances(rows, rows[nodes]), between_filled
    shares = [_share(part, nodes, neighbours) for part in distances]
    chance = float((degrees[nodes] ** 2).sum() / degrees[nodes].sum() / (n_nodes - 1))
    return (max(shares) - chance) / (1 - chance)


def _standardized(problem: Problem, known: Array, columns: Array) -> Array:
    """Some columns with mean 0 and variance 1, in float32; NaN in missing cells."""
    values, mean, magnitude = (
        part.astype(problem.values.dtype, copy=False)
        for part in (problem.values[:, columns], problem.channels.mean[columns], problem.channels.magnitude[columns])
    )
    rows = np.where(known, (values - mean) / magnitude, 0).astype(np.float32)
    deviation = np.sqrt(np.einsum("ij,ij->j", rows, rows) / np.maximum(known.sum(axis=0), 1))
    rows /= np.where(deviation > 0, deviation, 1).astype(np.float32)
    rows[~known] = np.nan
    return rows


def _share(distances: Array, nodes: Array, neighbours: list[Array]) -> float:
    """Share of the neighbours that are nearer than all but as many rows; rows that tie with others do not count."""
    distances[np.arange(len(nodes)), nodes] = np.inf
    n_near = 0
    for row, near in zip(distances, neighbours, strict=True):
        limit = np.partition(row, len(near))[len(near)]
        n_near += int((row[near] < limit).sum())
    return n_near / sum(len(near) for near in neighbours)
