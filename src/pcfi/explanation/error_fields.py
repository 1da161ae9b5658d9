"""Random fields of errors on a graph: neighbouring missing cells are wrong together, known cells are never wrong.

Stage 1 is the conditional mean of a Gaussian Markov random field with conductances a_ij alpha^(S_i + S_j); given the
known cells, what is left has the Laplacian of the missing ones as its precision. Scaled to 1 on the diagonal it is

    N = I - [sqrt(P_ij P_ji)]       P the steps of stage 1

A sample has one solve, N x = b with b_i = sum over neighbours j of (+ or -) sqrt(P_ij) n_ij and one normal n_ij per
edge, since b then has the covariance N (Papandreou and Yuille, 2010). Samples are scaled to variance 1; a share of the
variance is noise of each cell alone.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph

MAX_DENSE = 1_500  # missing nodes up to which the covariance is computed
N_PILOTS = 64  # samples that variances are estimated from beyond
SOLVER_RTOL = 1e-4


@dataclass(frozen=True, eq=False, kw_only=True)
class ErrorField:
    """Field on the missing nodes of a pattern.

    Attributes
    ----------
    graph : Graph
    hops : ndarray
    reachable : ndarray of bool
    alpha : float
    """

    graph: Graph
    hops: Array
    reachable: Array
    alpha: float

    @cached_property
    def nodes(self) -> Array:
        """Nodes whose errors are related: missing and reachable."""
        return np.flatnonzero(self.reachable & (self.hops > 0))

    @cached_property
    def _edges(self) -> tuple[Array, Array, Array, Array]:
        """Ends of each edge with a missing end (as places, -1 if known), and roots of the steps along it."""
        from scipy import sparse

        weights = self.graph.weights_as(np.float64)
        data = weights if len(weights) else np.ones(len(self.graph.indices))
        shape = (self.graph.n_nodes, self.graph.n_nodes)
        matrix = sparse.csr_array((data, self.graph.indices, self.graph.indptr), shape=shape)
        matrix = sparse.coo_array(matrix.maximum(matrix.T) if self.graph.directed else matrix)
        (rows, columns), data = matrix.coords, matrix.data
        alpha = 1.0 if self.graph.directed else self.alpha
        kept = self.reachable[rows] & self.reachable[columns]
        rows, columns, data = rows[kept], columns[kept], data[kept]
        levels = self.hops.astype(np.float64)
        steps = data * alpha ** (levels[columns] - levels[rows])
        steps /= np.bincount(rows, weights=steps, minlength=shape[0])[rows]
        place = np.full(shape[0], -1, dtype=np.int64)
        place[self.nodes] = np.arange(len(self.nodes))
        back = np.lexsort((rows, columns))  # the entry (j, i) of each entry (i, j), as entries are sorted by (i, j)
        forth = np.lexsort((columns, rows))
        once = rows[forth] < columns[forth]
        one, other = place[rows[forth]][once], place[columns[forth]][once]
        return one, other, np.sqrt(steps[forth][once]), np.sqrt(steps[back][once])

    @cached_property
    def _precision(self) -> Any:
        from scipy import sparse

        one, other, forth, back = self._edges
        inner = (one >= 0) & (other >= 0)
        places = np.concatenate([one[inner], other[inner]]), np.concatenate([other[inner], one[inner]])
        size = len(self.nodes)
        product = np.tile((forth * back)[inner], 2)
        return sparse.csr_array(sparse.eye_array(size) - sparse.coo_array((product, places), shape=(size, size)))

    @cached_property
    def _factor(self) -> Array | None:
        """Root of the correlation matrix; None if it would be too large."""
        if len(self.nodes) > MAX_DENSE:
            return None
        covariance = np.linalg.inv(self._precision.toarray())
        spread = np.sqrt(np.diagonal(covariance))
        return np.asarray(np.linalg.cholesky(covariance / spread / spread[:, None]))

    @cached_property
    def _spread(self) -> Array:
        """Standard deviations of the samples, from pilot samples that are the same in every call."""
        rng = np.random.default_rng(0)
        squares = sum((self._sample(rng) ** 2 for _ in range(N_PILOTS)), np.zeros(len(self.nodes)))
        return np.sqrt(squares / N_PILOTS)

    def _sample(self, rng: np.random.Generator) -> Array:
        from scipy.sparse.linalg import cg

        one, other, forth, back = self._edges
        noise, size = rng.standard_normal(len(one)), len(self.nodes)
        first, second = one >= 0, other >= 0
        right = np.bincount(one[first], weights=(forth * noise)[first], minlength=size)
        right -= np.bincount(other[second], weights=(back * noise)[second], minlength=size)
        return np.asarray(cg(self._precision, right, rtol=SOLVER_RTOL, maxiter=2_000)[0])

    def draw(self, rng: np.random.Generator, share: float) -> Array:
        """Errors of all nodes with variance 1; `share` of the variance is that of the field."""
        errors = rng.standard_normal(self.graph.n_nodes)
        if share > 0 and len(self.nodes):
            factor = self._factor
            field = (
                self._sample(rng) / np.maximum(self._spread, 1e-12)
                if factor is None
                else factor @ rng.standard_normal(len(self.nodes))
            )
            errors[self.nodes] = np.sqrt(share) * field + np.sqrt(1 - share) * errors[self.nodes]
        return errors
