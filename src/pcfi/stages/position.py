"""Position: a graph -> channels that are alike for nodes that lie close together, by a lazy walk of random columns.

With A the adjacency, D its degrees and R random (one row per node), the start is D^-1/2 R and a step is
x <- (x + D^-1 A x) / 2, so that t steps give

    x = ((I + D^-1 A) / 2)^t D^-1/2 R = D^-1/2 ((I + S) / 2)^t R,     S = D^-1/2 A D^-1/2

which is about exp(-t (1 - lambda) / 2) along the eigenvector of each eigenvalue lambda of S. That of eigenvalue 1,
where x is constant, is removed in every connected component. x_i x_j is on average an entry of the kernel
D^-1/2 ((I + S) / 2)^2t D^-1/2: what many random columns say together does not depend on the start, and, unlike
eigenvectors, columns neither flip nor rotate when the graph changes a little.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph
from pcfi.progress import progress_bar
from pcfi.stages.diffusion.definition import needs_float64
from pcfi.stages.solvers import FixedSteps

STEPS = 60  # one choice for all data sets, by validation accuracy: benchmarks/position.py
MIN_SIZE = 1e-10  # root mean square after the walk, from 1 before; below, only rounding errors are left


def walk_positions(graph: Graph, n_channels: int, seed: int, *, progress: bool = False) -> Array:
    """Position channels in float32, scaled together to a root mean square of 1; nodes without edges have 0.

    The graph must be undirected. Blocks of channels are drawn from seeds of their own, a row at a time: further
    channels (by blocks) and further nodes do not change the start of those that are there.
    """
    from pcfi._kernels.blocks import LargeCsrGraph, lane_count, make_csr_graph
    from pcfi._kernels.thread_team import SerialExecutor, TeamExecutor
    from pcfi._kernels.threads import run_tasks

    dtype = np.dtype(np.float64 if needs_float64(graph.weight_range, FixedSteps()) else np.float32)
    out = np.empty((graph.n_nodes, n_channels), dtype=np.float32)
    walk = _Walk(graph, dtype)
    csr_graph = make_csr_graph(graph.indptr, graph.indices, graph.weights_as(dtype))
    starts = range(0, n_channels, lane_count(dtype))
    with progress_bar("position", n_channels, show=progress) as advance:

        def task(start: int) -> Callable[[Any], float]:
            def run(stop: Any) -> float:
                executor = TeamExecutor() if isinstance(csr_graph, LargeCsrGraph) else SerialExecutor(stop)
                part = out[:, start : start + lane_count(dtype)]
                squares = walk.fill(csr_graph, np.random.default_rng([seed, start]), executor, part)
                advance(part.shape[1])
                return squares

            return run

        tasks = [task(start) for start in starts]
        inline = isinstance(csr_graph, LargeCsrGraph)  # there all threads share one block
        squares = sum(run_tasks(tasks, inline=inline))
    size = np.sqrt(squares / max(1, out.size))
    if size < MIN_SIZE:
        out[:] = 0
    else:
        out *= np.float32(1 / size)
    return out


class _Walk:
    """What the blocks of channels have in common: degrees, rows with edges, connected components."""

    def __init__(self, graph: Graph, dtype: Any) -> None:
        from scipy.sparse.csgraph import connected_components

        self.rows = np.flatnonzero(np.diff(graph.indptr)).astype(np.int32)
        self.degree = graph.degree
        inverse = np.divide(0.5, self.degree, out=np.zeros_like(self.degree), where=self.degree > 0)
        self.half_inverse = inverse.astype(dtype)
        # in units of the largest, so that a sum of degrees is finite
        self.share = self.degree / max(float(self.degree.max(initial=0.0)), np.finfo(np.float64).tiny)
        root = np.sqrt(self.share)
        self.inverse_root = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        self.n_components, self.component = connected_components(graph.matrix(), directed=False)
        self.size = np.bincount(self.component, weights=self.share, minlength=self.n_components)

    def fill(self, csr_graph: Any, rng: np.random.Generator, executor: Any, out: Array) -> float:
        """Walk one block of channels into `out`; returns the sum of its squares."""
        from pcfi._kernels.blocks import aligned_block
        from pcfi._kernels.steps import take_lazy_steps

        block, other = (aligned_block(len(out), self.half_inverse.dtype) for _ in range(2))
        rng.standard_normal(out=block, dtype=block.dtype)
        for lane in range(out.shape[1]):  # constants off first: what is left may become small against them
            block[:, lane] = self._without_constant(block[:, lane] * self.inverse_root)
        other[:] = block
        if len(self.rows):

            def member(team: Any) -> None:
                first, last = team.share(csr_graph.indptr, self.rows)
                take_lazy_steps(csr_graph, self.rows[first:last], block, other, self.half_inverse, STEPS, team)

            executor.run_team(member)
        result = block if STEPS % 2 == 0 else other
        for lane in range(out.shape[1]):
            out[:, lane] = self._without_constant(result[:, lane].astype(np.float64))
        return float(np.square(out, dtype=np.float64).sum())

    def _without_constant(self, column: Array) -> Array:
        """The column less its mean over its connected component, weighted by degree."""
        total = np.bincount(self.component, weights=self.share * column, minlength=self.n_components)
        mean = np.divide(total, self.size, out=np.zeros_like(total), where=self.size > 0)
        return np.asarray(column - mean[self.component])
