"""A Gaussian field on the nodes: how much the measurement of one node says about another, given what is known.

Every column is modelled as z = f + noise with

    f ~ N(0, s C),   C the correlations of (I - PERSISTENCE D^-1/2 A D^-1/2)^-2,   noise ~ N(0, 1 - s)

so that neighbours are alike, and likeness fades with every step. Given the known cells, f has the precision

    C^-1 / s + diag(k_i / (1 - s)),       k_i the share of the columns that are known at node i

whose inverse is P: measuring node v takes P_iv^2 / (P_vv + 1 - s) off the variance at node i. s is the one with which
the known cells explain as much of the missing ones, on average, as the graph explains of hidden cells.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph

PERSISTENCE = 0.8  # of the field per step; benchmarks/suggestions.py compares others
N_PROBES = 64  # random vectors that variances are estimated from
N_TRACE_PROBES = 8  # of them, for their mean over all nodes
N_BISECTIONS = 6  # until s is exact to a hundredth
MIN_SIGNAL, MAX_SIGNAL = 0.02, 0.98  # bounds of s: columns are neither all noise nor without any
RTOL = 1e-2  # of the solver: gains are compared, not reported to many digits
MAX_ITERATIONS = 500


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeField:
    """The field, given which share of its columns each node knows.

    Attributes
    ----------
    step : sparse matrix
        D^-1/2 A D^-1/2.
    spread : ndarray
        Standard deviation of each node under (I - PERSISTENCE step)^-2.
    signal : float
        s.
    known : ndarray
        k, between 0 and 1.
    """

    step: Any
    spread: Array
    signal: float
    known: Array

    @property
    def noise(self) -> float:
        """Variance of what a cell has alone."""
        return 1.0 - self.signal

    def covariance(self, right: Array) -> Array:
        """P times some columns."""
        spread, diagonal = self.spread[:, None], (self.known / self.noise)[:, None]

        def apply(block: Array) -> Array:
            rough = _roughness(self.step, _roughness(self.step, spread * block))
            return np.asarray(spread * rough / self.signal + diagonal * block)

        return solve(apply, right)


def _roughness(step: Any, block: Array) -> Array:
    return np.asarray(block - PERSISTENCE * (step @ block))


def fit_node_field(graph: Graph, known: Array, explained: float) -> NodeField:
    """The field with which the known cells explain the given share of the variance of the missing ones."""
    step = normalized_adjacency(graph)
    missing = (1.0 - known) / max(float((1.0 - known).sum()), 1e-12)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(known), N_PROBES))
    smooth = solve(lambda block: _roughness(step, block), signs)
    spread = np.sqrt((smooth**2).mean(axis=1))
    low, high, few = MIN_SIGNAL, MAX_SIGNAL, signs[:, :N_TRACE_PROBES]
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        field = NodeField(step=step, spread=spread, signal=middle, known=known)
        left = float(missing @ (few * field.covariance(few)).mean(axis=1))
        low, high = (middle, high) if middle - left < explained else (low, middle)
    return NodeField(step=step, spread=spread, signal=(low + high) / 2, known=known)


def normalized_adjacency(graph: Graph) -> Any:
    """D^-1/2 A D^-1/2; an edge of a directed graph counts in both directions."""
    from scipy import sparse

    matrix = sparse.csr_array(graph.matrix(), dtype=np.float64)
    matrix = sparse.csr_array(matrix.maximum(matrix.T)) if graph.directed else matrix
    degree = np.asarray(matrix.sum(axis=1)).ravel()
    root = np.divide(1.0, np.sqrt(degree), out=np.zeros(len(degree)), where=degree > 0)
    return sparse.csr_array(sparse.diags_array(root) @ matrix @ sparse.diags_array(root))


def solve(apply: Any, right: Array) -> Array:
    """Conjugate gradients for several right-hand sides at once: x with apply(x) = right."""
    solution, residual = np.zeros_like(right), right.copy()
    direction, squared = residual.copy(), (residual**2).sum(axis=0)
    goal = RTOL**2 * squared
    for _ in range(MAX_ITERATIONS):
        if (squared <= goal).all():
            break
        image = apply(direction)
        curvature = (direction * image).sum(axis=0)
        length = np.divide(squared, curvature, out=np.zeros_like(squared), where=curvature > 0)
        solution += length * direction
        residual -= length * image
        before, squared = squared, (residual**2).sum(axis=0)
        direction = residual + np.divide(squared, before, out=np.zeros_like(squared), where=before > 0) * direction
    return solution
