"""With which weight each known cell enters what stage 1 fills into some cells: one transposed solve per cell.

A step of stage 1 replaces a missing cell by a weighted mean, x_i = sum over j of P_ij x_j with P_ij proportional to
a_ij alpha^(S_j - S_i). With f the missing and k the known nodes, the steady state is x_f = (I - P_ff)^-1 P_fk x_k. The
row of cell i in that matrix, the weights of its sources, is P_fk' v with

    v = e_i + P_ff' v       expected visits of a walk that starts at i, steps by P, and ends at a known node

Only nodes that the walk can visit matter: those that are connected with i through missing cells. If v leaves a residual
r, the weights are wrong by at most the sum of |r|, because the walk ends at a known node with probability 1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graph_rows import row_entries
from pcfi.inputs.graphs import Graph
from pcfi.stages.solvers import FixedSteps, Solver

MAX_DIRECT = 2_000  # nodes up to which a direct solve is fast whatever the graph
TOLERANCE = 1e-10  # sum of the absolute errors of all weights of a cell
MAX_STEPS = 20_000  # plain steps after conjugate gradients
MAX_ITERATIONS = 5_000  # of conjugate gradients


@dataclass(frozen=True, eq=False)
class SourceWeights:
    """Known nodes that a cell comes from, with their weights, their distances in hops, and the way to each.

    `before` is, for each node, the one before it on the way from the cell; -1 for the cell's own node.
    """

    nodes: Array
    weights: Array
    hops: Array
    before: Array

    def path(self, source: int) -> list[int]:
        """Nodes from the cell to a source, both included."""
        path = [int(source)]
        while self.before[path[-1]] >= 0:
            path.append(int(self.before[path[-1]]))
        return path[::-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class PatternWalk:
    """Walks through the missing cells of one pattern.

    Attributes
    ----------
    graph : Graph
    hops : ndarray
        Hops of every node in this pattern.
    reachable : ndarray of bool
    alpha : float
    solver : FixedSteps or UntilSettled
    self_weight : float
        Weight of a self-loop; counts with `FixedSteps` only.
    """

    graph: Graph
    hops: Array
    reachable: Array
    alpha: float
    solver: Solver
    self_weight: float = 1.0

    def _rows(self, nodes: Array) -> Any:
        """The rows of some nodes as a sparse matrix; the graph may be a mapped file."""
        from scipy import sparse

        entries, indptr = row_entries(self.graph, nodes)
        indices, weights = np.asarray(self.graph.indices[entries]), self.graph.weights
        data = np.ones(len(entries)) if weights is None else np.asarray(weights[entries], dtype=np.float64)
        return sparse.csr_array((data, indices, indptr), shape=(len(nodes), self.graph.n_nodes))

    def weights_of(self, node: int) -> SourceWeights:
        """Weights of the sources of a missing, reachable cell."""
        region, rows, depth, before = self._region(node)
        steps, own = self._steps(region, rows)
        place = np.full(self.graph.n_nodes, -1, dtype=np.int64)
        place[region] = np.arange(len(region))
        columns, of_rows = steps.indices, np.repeat(np.arange(len(region)), np.diff(steps.indptr))
        inside = place[columns] >= 0
        start = np.zeros(len(region))
        start[place[node]] = 1.0
        within = (steps.data[inside], (of_rows[inside], place[columns[inside]]))
        visits = self._visits(within, own, start, region)
        mass = np.bincount(columns[~inside], weights=(steps.data * visits[of_rows])[~inside], minlength=len(place))
        sources = np.unique(columns[~inside])
        sources = sources[self.reachable[sources]]
        return SourceWeights(sources, mass[sources], depth[sources], before)

    def _region(self, node: int) -> tuple[Array, Any, Array, Array]:
        """Missing nodes around a cell, their rows of the graph, the distance of every node seen, and the ways."""
        depth, before = np.full((2, self.graph.n_nodes), -1, dtype=np.int32)
        depth[node], level = 0, 0
        front, parts = np.array([node]), [np.array([node])]
        while len(front):
            level += 1
            rows = self._rows(front)
            columns, parents = rows.indices, np.repeat(front, np.diff(rows.indptr))
            fresh = (depth[columns] < 0) & self.reachable[columns]
            found, first = np.unique(columns[fresh], return_index=True)
            depth[found], before[found] = level, parents[fresh][first]
            front = found[self.hops[found] > 0]
            parts.append(front)
        region = np.concatenate(parts)
        return region, self._rows(region), depth, before

    def _steps(self, region: Array, rows: Any) -> tuple[Any, Array]:
        """Probabilities of the steps from each node of the region, and of staying there."""
        distances = self.hops.astype(np.float64)
        of_rows = np.repeat(np.arange(len(region)), np.diff(rows.indptr))
        relative = np.where(
            self.reachable[rows.indices], self.alpha ** (distances[rows.indices] - distances[region][of_rows]), 0.0
        )
        weighted = rows.data * relative
        own = np.full(len(region), self.self_weight if isinstance(self.solver, FixedSteps) else 0.0)
        totals = np.bincount(of_rows, weights=weighted, minlength=len(region)) + own
        rows = rows.copy()
        rows.data = weighted / totals[of_rows]
        return rows, own / totals

    def _visits(self, within: Any, own: Array, start: Array, region: Array) -> Array:
        """Expected visits of each node of the region."""
        from scipy import sparse
        from scipy.sparse.linalg import spsolve

        forward = sparse.csr_array(within, shape=(len(region), len(region)))
        backward = sparse.csr_array(forward.T)
        if isinstance(self.solver, FixedSteps):
            return _visits_of_steps(backward, own, start, self.solver.steps)
        if len(region) <= MAX_DIRECT:
            system = sparse.csc_array(sparse.eye_array(len(region)) - backward)
            return np.atleast_1d(np.asarray(spsolve(system, start)))
        return _polished(backward, start, self._first_guess(forward, start, region))

    def _first_guess(self, forward: Any, start: Array, region: Array) -> Array:
        """Visits by an iterative solver, of the symmetric form of the system if the graph has one."""
        from scipy import sparse
        from scipy.sparse.linalg import bicgstab, cg

        if self.graph.directed:
            system = sparse.csr_array(sparse.eye_array(len(region)) - forward.T)
            return np.asarray(bicgstab(system, start, rtol=TOLERANCE, maxiter=MAX_ITERATIONS)[0])
        # P_ij = a_ij alpha^(S_j - S_i) / s_i, so the geometric mean of P_ij and P_ji is a_ij / sqrt(s_i s_j)
        symmetric = forward.copy()
        symmetric.data = np.sqrt(forward.data * sparse.csr_array(forward.T).data)
        levels = self.hops[region].astype(np.float64) - self.hops[region][np.argmax(start)]
        totals = self._relative_degree(region)
        origin = start / np.sqrt(totals)
        system = sparse.csr_array(sparse.eye_array(len(region)) - symmetric)
        solved = np.asarray(cg(system, origin, rtol=1e-3 * TOLERANCE, maxiter=MAX_ITERATIONS)[0])
        return np.asarray(self.alpha**levels * np.sqrt(totals) * solved)

    def _relative_degree(self, region: Array) -> Array:
        """s_i: the sum over neighbours j of a_ij alpha^(S_j - S_i)."""
        rows, distances = self._rows(region), self.hops.astype(np.float64)
        of_rows = np.repeat(np.arange(len(region)), np.diff(rows.indptr))
        relative = self.alpha ** (distances[rows.indices] - distances[region][of_rows])
        return np.bincount(of_rows, weights=rows.data * relative, minlength=len(region))


def _visits_of_steps(backward: Any, own: Array, start: Array, steps: int) -> Array:
    """Visits of a walk of a fixed number of steps."""
    now, total = start.copy(), np.zeros_like(start)
    for _ in range(steps):
        total += now
        now = backward @ now + own * now
        if not now.any():
            break
    return total


def _polished(backward: Any, start: Array, visits: Array) -> Array:
    """Plain steps until the visits are right to the tolerance: they reach what norms of the system are blind to."""
    visits = np.where(np.isfinite(visits), visits, 0.0)
    for _ in range(MAX_STEPS):
        following = start + backward @ visits
        if np.abs(following - visits).sum() <= TOLERANCE:
            return np.asarray(following)
        visits = following
    return visits
