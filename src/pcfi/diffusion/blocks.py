"""Blocks of channels in scaled form: opening them, solving them, and the memory they work in."""

from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._kernels.blocks import (
    AnyLinks,
    Cells,
    Columns,
    Scale,
    aligned_block,
    confidence_diagonal,
    degree_diagonal,
    make_links,
)
from pcfi._kernels.flooding import flood, scale_rows
from pcfi._kernels.peeling import peel, put_back, take_off
from pcfi._kernels.settling import Work, measure_units, settle
from pcfi._kernels.steps import invert, largest_move, take_steps
from pcfi.diffusion.job import Job
from pcfi.solvers import FixedSteps, UntilSettled

Array = npt.NDArray[Any]

SMALL = 200_000  # edges times channels below which a thread costs more than it saves
SHORT = 500_000_000  # edges times channels times steps: some tenths of a second, which an interrupt can wait for


class Arena:
    """Working blocks, handed from one task to the next, so that memory grows with threads and not with channels."""

    def __init__(self, n_nodes: int, dtype: npt.DTypeLike) -> None:
        self._n_nodes = n_nodes
        self._dtype = dtype
        self._idle: SimpleQueue[list[Array]] = SimpleQueue()

    def take(self) -> list[Array]:
        """Blocks for one task, uninitialised: three for its cells and five to work in."""
        try:
            return self._idle.get_nowait()
        except Empty:
            return [aligned_block(self._n_nodes, self._dtype) for _ in range(8)]

    def give_back(self, blocks: list[Array]) -> None:
        """Let another task use the blocks."""
        self._idle.put(blocks)


@dataclass(frozen=True, eq=False)
class Block:
    """A block that is open: its cells in scaled form, and the rows that have a free cell and are to be solved.

    `diagonal` is the flag of free cells, overwritten by the diagonal of the system at the rows to be solved: > 0 at
    free cells either way. `leaves` hang from `parents` and come back with `put_trees_back`.
    """

    solution: Array
    scales: Array
    diagonal: Array
    rows: Array
    leaves: Array
    parents: Array
    spare: list[Array]

    def put_trees_back(self) -> None:
        """Give the nodes that were taken off the value of the node they hang from."""
        put_back(self.leaves, self.parents, self.solution, self.scales)


def links_of(job: Job) -> AnyLinks:
    """The graph as the kernels take it."""
    graph = job.problem.graph
    return make_links(graph.indptr, graph.indices, graph.weights_as(job.dtype))


def scale_of(job: Job) -> Scale:
    """The method's scale as the kernels take it."""
    return Scale(job.weighting.by_hops.astype(job.dtype), job.weighting.by_node.astype(job.dtype))


def prepare(job: Job, links: AnyLinks, blocks: list[Array], fill: Callable[[Cells, Array], int], n_lanes: int) -> Block:
    """Open a block with `fill(cells, rows)`, take off its hanging trees and work out its diagonal."""
    solution, scales, diagonal, *spare = blocks
    rows = np.empty(len(solution), dtype=np.int32)
    rows = rows[: fill(Cells(solution, scales, diagonal), rows)]
    leaves, parents = np.empty((2, len(solution)), dtype=np.int32)
    n_leaves = peel(links, diagonal, n_lanes, leaves, parents) if job.centred else 0
    leaves, parents = leaves[:n_leaves], parents[:n_leaves]
    if n_leaves:
        rows = rows[: take_off(leaves, rows, scales)]
    if job.weighting.degree is None:
        confidence_diagonal(links, rows, scales, diagonal)
    else:
        degree_diagonal(rows, job.weighting.degree, diagonal)
    return Block(solution, scales, diagonal, rows, leaves, parents, spare)


def solve(job: Job, links: AnyLinks, block: Block, rtol: float, stop: Any) -> tuple[Array, Array, Array]:
    """Diffuse the block; returns the block with the result, the steps and the largest move of each lane."""
    largest = np.zeros((1, block.solution.shape[1]), dtype=job.dtype)
    steps = np.zeros(block.solution.shape[1], dtype=np.int64)
    if isinstance(job.solver, FixedSteps):
        other, inverse, *_ = block.spare
        other[:] = block.solution
        invert(block.rows, block.diagonal, job.self_weight, inverse)
        take_steps(links, block.rows, block.solution, other, inverse, job.self_weight, job.solver.steps, stop)
        result = block.solution if job.solver.steps % 2 == 0 else other
        largest_move(links, block.rows, result, block.diagonal, block.scales, job.judged_self_weight, largest)
        steps[:] = job.solver.steps
        return result, steps, largest[0]
    residual, direction, image, inverse, unit = block.spare
    flood(links, block.rows, block.diagonal, image, block.solution)
    if job.weighting.keeps_constants:
        # the flood made means of values; where scaled values are means of their neighbours it is done
        scale_rows(block.rows, block.diagonal, block.scales, block.solution)
    direction[:] = 0
    work = Work(block.solution, residual, direction, image, block.diagonal, inverse, unit)
    measure_units(block.rows, work, block.scales)
    settle(links, block.rows, work, rtol, job.solver.max_steps, stop, steps, largest)
    return block.solution, steps, largest[0]


def columns_of(job: Job, chosen: Array) -> Columns:
    """The chosen channels, with the shift and the factor that bring their known values to the order of 1."""
    channels = job.problem.channels
    shift = channels.mean[chosen] if job.centred else np.zeros(len(chosen))
    with np.errstate(over="ignore", divide="ignore"):
        factor = 1.0 / job.spread(chosen)
        if not job.settles:
            # a power of two: the steps stay those of the paper to the last bit
            factor = np.ldexp(1.0, np.frexp(factor)[1])
    factor = np.minimum(factor, np.finfo(job.dtype).max / 1e6)
    return Columns(chosen, job.hops.patterns[chosen], shift.astype(job.dtype), factor.astype(job.dtype))


def bounds_of(job: Job, chosen: Array) -> Array:
    """Lowest and highest value that a missing cell of the chosen channels may take."""
    if job.centred:
        return np.stack([job.problem.channels.low[chosen], job.problem.channels.high[chosen]])
    limit = np.full(len(chosen), np.inf, dtype=job.out.dtype)
    return np.stack([-limit, limit])


def is_small(job: Job, n_channels: int) -> bool:
    """Whether the work is done before a thread has started."""
    size = (len(job.problem.graph.indices) + job.problem.graph.n_nodes) * n_channels
    limit = job.solver.max_steps if isinstance(job.solver, UntilSettled) else job.solver.steps
    return size < SMALL and size * limit < SHORT
