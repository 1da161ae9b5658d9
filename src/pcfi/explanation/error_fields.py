"""Random error fields on a graph: errors of neighbouring missing cells are correlated, known cells have none.

Stage 1 is the conditional mean of a Gaussian Markov random field with conductances a_ij alpha^(S_i + S_j); given the
known cells, what is left has the Laplacian of the missing ones as its precision. Scaled to 1 on the diagonal it is

    N = I - R A R       R diagonal, 1 / R_ii^2 = sum over j of a_ij alpha^(S_j - S_i), 0 where a cell is known

A sample is N^(-1/2) z with z standard normal. The power is a Chebyshev polynomial of N, so that a sample takes some
passes over the graph and a block of memory, whatever the graph is (Chow and Saad, 2014). Samples are scaled to variance
1; a share of the variance is noise of each cell alone.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.value_model import row_blocks
from pcfi.inputs.graphs import Graph
from pcfi.stages.diffusion.definition import needs_float64
from pcfi.stages.solvers import FixedSteps

MIN_EIGENVALUE = 0.01  # of N, down to which the polynomial is right: errors are alike over some ten hops at most
DEGREE = 24  # of the polynomial: right to 2 %
MIN_PILOTS, MAX_PILOTS = 16, 1_024  # samples that variances are estimated from; exact if no more nodes are missing
PILOT_EDGES = 1 << 27  # that all pilots of a pattern go over, in each of the passes: about a second
NOISE, FIELD, COEFFICIENTS, CATEGORIES = range(4)  # what random numbers are for, in the seeds of their streams


@dataclass(frozen=True, eq=False)
class FieldScale:
    """The field of a pattern.

    Attributes
    ----------
    inverse : ndarray
        R_ii^2 of every node; 0 where errors are not related: known and unreachable.
    spread : ndarray
        Standard deviation of a sample before it is scaled.
    """

    inverse: Array
    spread: Array


class FieldSampler:
    """Samples fields on a graph, as many at a time as a block has lanes."""

    def __init__(self, graph: Graph) -> None:
        from pcfi._kernels.blocks import lane_count
        from pcfi._kernels.csr_graph import make_csr_graph

        self.graph = graph
        self.dtype = np.dtype(np.float64 if needs_float64(graph.weight_range, FixedSteps()) else np.float32)
        self.lanes = lane_count(self.dtype)
        self._csr = make_csr_graph(graph.indptr, graph.indices, graph.weights_as(self.dtype))

    def scale(self, codes: Array, n_levels: int, alpha: float) -> FieldScale:
        """The field of a pattern, given the hops of all nodes."""
        inverse = self._inverse(codes, n_levels, alpha)
        nodes = np.flatnonzero(inverse)
        n_pilots = int(np.clip(PILOT_EDGES // max(len(self.graph.indices), 1), MIN_PILOTS, MAX_PILOTS))
        n_pilots -= n_pilots % self.lanes
        exact, squares = len(nodes) <= n_pilots, np.zeros(len(codes))
        lanes = [FieldScale(inverse, squares)] * self.lanes
        rng, block = np.random.default_rng(0), self._block()
        for first in range(0, len(nodes) if exact else n_pilots, self.lanes):
            if exact:  # rows of the polynomial, whose squares add up to the variances
                block[:] = 0
                part = nodes[first : first + self.lanes]
                block[part, np.arange(len(part))] = 1
            else:
                for rows in row_blocks(*block.shape):
                    block[rows] = rng.integers(2, size=block[rows].shape, dtype=np.int8) * 2 - 1
            block = self._filtered(lanes, block)
            for rows in row_blocks(*block.shape):
                squares[rows] += np.square(block[rows], dtype=np.float64).sum(axis=1)
        return FieldScale(inverse, np.sqrt(squares / (1 if exact else n_pilots)).astype(self.dtype))

    def draw(self, scales: list[FieldScale], shares: Array, streams: list[list[int]]) -> Array:
        """Errors of all nodes with variance 1, one column for each scale, up to `lanes`.

        `shares` of the variances are those of the fields. `streams` are the seeds of the columns.
        """
        out = np.empty((self.graph.n_nodes, len(scales)), dtype=np.float32)
        for lane, stream in enumerate(streams):
            out[:, lane] = np.random.default_rng([*stream, NOISE]).standard_normal(len(out), dtype=np.float32)
        if not np.any(shares):
            return out
        block = self._block()
        block[:, len(scales) :] = 0
        for lane, stream in enumerate(streams):
            block[:, lane] = np.random.default_rng([*stream, FIELD]).standard_normal(len(out), dtype=np.float32)
        block = self._filtered(scales, block)
        for lane, (one, share) in enumerate(zip(scales, shares, strict=True)):
            nodes = np.flatnonzero(one.inverse)
            field = block[nodes, lane] / one.spread[nodes]
            out[nodes, lane] = np.sqrt(share) * field + np.sqrt(1 - share) * out[nodes, lane]
        return out

    def _block(self) -> Array:
        from pcfi._kernels.blocks import aligned_block

        return aligned_block(self.graph.n_nodes, self.dtype)

    def _inverse(self, codes: Array, n_levels: int, alpha: float) -> Array:
        from pcfi._kernels.error_fields import add_step_weights
        from pcfi._kernels.threads import run_rows

        weights, directed = np.zeros(len(codes)), self.graph.directed
        powers = np.empty(0) if directed else max(alpha, 1e-30) ** np.array([-1.0, 0.0, 1.0])
        codes = np.ascontiguousarray(codes)
        run_rows(
            len(codes),
            lambda first, last: add_step_weights(self._csr, codes, n_levels, powers, first, last, weights),
            inline=directed or len(self.graph.indices) < 200_000,
        )
        related = (codes > 0) & (codes <= n_levels) & (weights > 0)
        return np.divide(1.0, weights, out=np.zeros(len(codes)), where=related).astype(self.dtype)

    def _filtered(self, scales: list[FieldScale], block: Array) -> Array:
        """The polynomial applied to the lanes of `block`, which is overwritten; 0 where nothing is related.

        The recurrence is that of R x, which takes one multiplication less.
        """
        inverse, total, previous = self._block(), self._block(), self._block()
        inverse[:, len(scales) :] = previous[:] = 0
        for lane, scale in enumerate(scales):
            inverse[:, lane] = scale.inverse
        rows = np.flatnonzero(inverse.any(axis=1)).astype(np.int32)
        first, *others = _coefficients().tolist()
        for part in row_blocks(*block.shape):
            block[part] *= np.sqrt(inverse[part])
            np.multiply(block[part], first, out=total[part])
        added, current = np.zeros_like(inverse) if self.graph.directed else inverse[:0], block
        own, through = -MIN_EIGENVALUE / (2 - MIN_EIGENVALUE), 2 / (2 - MIN_EIGENVALUE)
        for degree, coefficient in enumerate(others):
            factors = np.array([own, through, coefficient]) * ([1, 1, 1] if degree == 0 else [2, 2, 1])
            self._step(rows, current, previous, inverse, added, factors, total)
            current, previous = previous, current
        for part in row_blocks(*block.shape):
            root = np.sqrt(inverse[part])
            np.divide(total[part], root, out=total[part], where=root > 0)
        return total

    def _step(self, rows: Array, current: Array, previous: Array, *others: Any) -> None:
        from pcfi._kernels.error_fields import add_outgoing_sums, take_chebyshev_step
        from pcfi._kernels.threads import run_rows

        added = others[1]
        if len(added):
            added[:] = 0
            add_outgoing_sums(self._csr, rows, current, added)

        def work(first: int, last: int) -> None:
            take_chebyshev_step(self._csr, rows[first:last], current, previous, *others)

        run_rows(len(rows), work, inline=len(self.graph.indices) < 20_000)


@cache
def _coefficients() -> Array:
    """Of the Chebyshev polynomial that is the power -1/2 of the eigenvalues of N."""
    from numpy.polynomial.chebyshev import chebfit, chebpts1

    places = chebpts1(DEGREE + 1)
    eigenvalues = 1 + MIN_EIGENVALUE / 2 + (1 - MIN_EIGENVALUE / 2) * places
    return np.asarray(chebfit(places, eigenvalues**-0.5, DEGREE))
