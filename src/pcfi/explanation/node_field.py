"""A Gaussian field on the nodes: how much the measurement of one node says about another, given what is known.

Every column is modelled as z = mu + f + noise with an unknown mean mu and

    f ~ N(0, s C),   C the correlations of (I - PERSISTENCE B)^-1,   B = D^-1/2 A D^-1/2,   noise ~ N(0, 1 - s)

so that neighbours are alike, and likeness fades with every step: the random field whose conditional mean diffusion
computes, if PERSISTENCE were 1. s is the one with which known cells one and two steps
apart are as alike as they are, on average over the columns. Given the known cells, and the mean, f has the precision

    C^-1 / s + diag(k_i / (1 - s)),       k_i the share of the columns that are known at node i

The inverse, plus a a' / t for the unknown mean, is P: with h what the known cells would say about f if all of them were
1, a = 1 - h and t = sum of a_i k_i / (1 - s) (universal kriging: Matheron, 1969). The variance of a cell of node i is
P_ii + 1 - s, and measuring node v takes P_iv^2 / (P_vv + 1 - s) off it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.pooling import pooled_means
from pcfi.inputs.graphs import Graph

PERSISTENCE = 0.95  # of the field per step; benchmarks/suggestions.py finds little difference from 0.9 to 0.98
N_PROBES = 64  # random vectors that variances are estimated from
N_TRACE_PROBES = 16  # of them, for sums over all nodes
MIN_SIGNAL, MAX_SIGNAL = 0.02, 0.98  # bounds of s: columns are neither all noise nor without any
PRIOR_SIGNAL, PRIOR_PAIRS = 0.5, 2.0  # s before anything is known, and how many neighbours say so
MAX_BLOCK_CELLS = 1 << 24  # cells of the table that are compared at a time: 128 MB
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
        Standard deviation of each node under (I - PERSISTENCE step)^-1.
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
        away, total = self._unknown_mean
        return np.asarray(self._given_mean(right) + np.outer(away, away @ right) / total)

    @cached_property
    def variances(self) -> Array:
        """Diagonal of P, estimated from random vectors."""
        signs = random_signs(len(self.known))
        away, total = self._unknown_mean
        given_mean = (signs * self._given_mean(signs)).mean(axis=1)
        return np.asarray(np.clip(given_mean, 0.0, self.signal) + away**2 / total)

    @cached_property
    def _unknown_mean(self) -> tuple[Array, float]:
        """Return a and t; a mean that no cell says anything about has the variance of a cell."""
        evidence = self.known / self.noise
        away = 1.0 - self._given_mean(evidence[:, None])[:, 0]
        return away, max(float(away @ evidence), 1.0)

    def _given_mean(self, right: Array) -> Array:
        spread, diagonal = self.spread[:, None], (self.known / self.noise)[:, None]

        def apply(block: Array) -> Array:
            rough = _roughness(self.step, spread * block)
            return np.asarray(spread * rough / self.signal + diagonal * block)

        return solve(apply, right)


def _roughness(step: Any, block: Array) -> Array:
    return np.asarray(block - PERSISTENCE * (step @ block))


def random_signs(n_nodes: int, n_probes: int = N_PROBES) -> Array:
    """Random vectors of 1 and -1, the same in every call."""
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(n_nodes, n_probes))


def fit_node_field(graph: Graph, values: Array, mask: Array, weights: Array) -> tuple[NodeField, Array]:
    """The field of a table of standardised values, of which `mask` tells the known cells, and s of every channel.

    The field has the mean of the channels, by their weights.
    """
    step, signs = normalized_adjacency(graph), random_signs(len(values))
    known = (mask @ weights) / max(float(weights.sum()), 1e-300)
    spread = np.sqrt(np.maximum((signs * solve(lambda block: _roughness(step, block), signs)).mean(axis=1), 1.0))
    signals = _signals(step, spread, values, mask, weights)
    signal = float(np.average(signals, weights=weights)) if weights.any() else PRIOR_SIGNAL
    return NodeField(step=step, spread=spread, signal=signal, known=known), signals


def _signals(step: Any, spread: Array, values: Array, mask: Array, weights: Array) -> Array:
    """Return s of every channel: likeness of known cells one and two steps apart, over what it would be if s were 1.

    Channels are drawn towards their mean as far as their evidence is thin: the variance of the likeness is that of
    independent pairs.
    """
    few = random_signs(len(values), N_TRACE_PROBES) / spread[:, None]
    smooth = solve(lambda block: _roughness(step, block), few) / spread[:, None]
    everywhere = np.ones((len(values), 1))
    full = _pair_sums(step, few * spread[:, None], smooth).sum(axis=1) / N_TRACE_PROBES
    full = full / np.maximum(_pair_sums(step, everywhere, everywhere)[:, 0], 1e-300)
    likeness, pairs = _likeness(step, values, mask)
    pair = float(step.sum()) / max(step.nnz, 1)
    largest, prior = full @ pairs, PRIOR_PAIRS * pair * full[0]
    common = (weights @ likeness + prior * PRIOR_SIGNAL) / max(float(weights @ largest + prior), 1e-300)
    own = np.divide(likeness, largest, out=np.full(len(largest), common), where=largest > 0)
    precision = np.where(weights > 0, largest**2 / np.maximum(2 * pair * pairs.sum(axis=0), 1e-300), 0.0)
    return np.clip(pooled_means(own, precision, float(common)), MIN_SIGNAL, MAX_SIGNAL)


def _likeness(step: Any, values: Array, mask: Array) -> tuple[Array, Array]:
    """By channel, sums over pairs of known cells: of products (both lags together), and of 1 for each lag."""
    likeness, pairs = [], []
    size = max(MAX_BLOCK_CELLS // max(len(values), 1), 1)
    for start in range(0, values.shape[1], size):
        is_known = mask[:, start : start + size].astype(np.float64)
        block = np.where(is_known > 0, values[:, start : start + size], 0.0)
        likeness.append(_pair_sums(step, block, block).sum(axis=0))
        pairs.append(_pair_sums(step, is_known, is_known))
    return np.concatenate(likeness), np.concatenate(pairs, axis=1)


def _pair_sums(step: Any, left: Array, right: Array) -> Array:
    """By column, sums over pairs of different nodes of B_ij left_i right_j, and of (B^2)_ij left_i right_j."""
    forth, back = step @ left, step @ right
    returns = np.asarray((step * step).sum(axis=1)).reshape(-1, 1)
    return np.stack([(left * back).sum(axis=0), (forth * back - returns * left * right).sum(axis=0)])


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
