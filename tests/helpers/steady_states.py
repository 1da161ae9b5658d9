"""Graphs with long tails or great depth, and their steady states by a direct solve or in fractions."""

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spsolve


def citation_like(n_nodes: int, rng: np.random.Generator) -> sparse.csr_array:
    """A connected sparse graph with hubs and a long tail: each node links to an earlier one, plus extra edges."""
    parent = (rng.random(n_nodes - 1) ** 1.5 * np.arange(1, n_nodes)).astype(int)
    extra = rng.integers(0, n_nodes, size=(2, n_nodes))
    rows = np.concatenate([np.arange(1, n_nodes), extra[0]])
    columns = np.concatenate([parent, extra[1]])
    graph = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(n_nodes, n_nodes)).tocsr()
    graph = graph.maximum(graph.T)
    graph.setdiag(0)
    graph.eliminate_zeros()
    graph.data[:] = 1
    return graph


def caterpillar(length: int) -> sparse.csr_array:
    """A deep graph: a path of `length` nodes with a triangle hanging from every third."""
    path = np.stack([np.arange(length - 1), np.arange(1, length)])
    feet = np.arange(0, length, 3)
    extra = length + np.arange(len(feet))
    edges = np.concatenate([path, [feet, extra], [np.minimum(feet + 1, length - 1), extra]], axis=1)
    size = length + len(feet)
    graph = sparse.coo_array((np.ones(edges.shape[1]), tuple(edges)), shape=(size, size)).tocsr()
    return graph.maximum(graph.T)


def direct_solve(graph: sparse.csr_array, hops: np.ndarray, known: np.ndarray, x: np.ndarray, alpha: float):
    entries = graph.tocoo()
    row, column = entries.row, entries.col
    relative = entries.data * alpha ** (hops[column] - hops[row]).astype(float)
    weights = sparse.csr_array((relative, (row, column)), shape=graph.shape)
    laplacian = (sparse.diags_array(weights.sum(axis=1)) - weights).tocsr()
    result = x.copy()
    inner = laplacian[~known][:, ~known].tocsc()
    result[~known] = spsolve(inner, -(laplacian[~known][:, known] @ x[known]))
    return result


def exact_path_between(length: int, alpha: float, first: float, last: float) -> np.ndarray:
    """Steady state on a path with known ends, in fractions: a chain of conductances alpha^(hops + hops)."""
    from fractions import Fraction

    a = Fraction(alpha).limit_denominator(1000)
    hops = [min(i, length - 1 - i) for i in range(length)]
    # resistances relative to the largest confidence; the potential falls in proportion to the resistance
    resistance = [1 / a ** (hops[i] + hops[i + 1]) for i in range(length - 1)]
    total = sum(resistance)
    position, passed = [0.0], Fraction(0)
    for step in resistance:
        passed += step
        position.append(float(passed / total))
    return first + (last - first) * np.array(position)
