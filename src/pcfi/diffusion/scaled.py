"""Blocks of channels in scaled form: the ordinary route."""

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
    close_block,
    confidence_diagonal,
    degree_diagonal,
    lanes_of,
    make_links,
    open_block,
)
from pcfi._kernels.flooding import flood, scale_rows
from pcfi._kernels.peeling import peel, put_back, take_off
from pcfi._kernels.settling import Work, measure_units, settle
from pcfi._kernels.steps import invert, largest_move, take_steps
from pcfi._kernels.threads import run
from pcfi.diffusion import relative
from pcfi.diffusion.job import Job, Outcome
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
        """Eight uninitialised blocks."""
        try:
            return self._idle.get_nowait()
        except Empty:
            return [aligned_block(self._n_nodes, self._dtype) for _ in range(8)]

    def give_back(self, blocks: list[Array]) -> None:
        """Let another task use the blocks."""
        self._idle.put(blocks)


@dataclass(frozen=True, eq=False)
class Block:
    """A block that is open: its cells in scaled form, and the rows that have a free cell."""

    solution: Array
    scales: Array
    diagonal: Array
    rows: Array
    leaves: Array
    parents: Array
    spare: list[Array]

    def close(self) -> None:
        """Put the hanging trees back."""
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
        largest_move(links, block.rows, result, block.diagonal, block.scales, job.own_weight, largest)
        steps[:] = job.solver.steps
        return result, steps, largest[0]
    residual, direction, image, inverse, unit = block.spare
    flood(links, block.rows, block.diagonal, image, block.solution)
    if job.weighting.degree is None:
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


def diffuse(job: Job, chosen: Array) -> Outcome:
    """Fill the chosen channels of `job.out`, a block at a time on each thread."""
    links, scale = links_of(job), scale_of(job)
    arena = Arena(job.problem.graph.n_nodes, job.dtype)
    lanes = lanes_of(job.dtype)
    stuck: list[Array] = []

    def solve_block(part: Array) -> Callable[[Any], Outcome]:
        def task(stop: Any) -> Outcome:
            blocks = arena.take()
            outcome, failed = _fill_channels(job, links, scale, part, blocks, stop)
            arena.give_back(blocks)
            if len(failed):
                stuck.append(failed)
            job.advance(len(part))
            return outcome

        return task

    parts = [chosen[start : start + lanes] for start in range(0, len(chosen), lanes)]
    outcomes = run([solve_block(part) for part in parts], inline=is_small(job, len(chosen)))
    if stuck:
        outcomes.append(relative.diffuse(job, np.sort(np.concatenate(stuck))))
    return Outcome.worst(outcomes)


def _fill_channels(
    job: Job, links: AnyLinks, scale: Scale, chosen: Array, blocks: list[Array], stop: Any
) -> tuple[Outcome, Array]:
    """One block; returns its outcome and the channels that conjugate gradients could not settle."""
    columns = columns_of(job, chosen)

    def fill(cells: Cells, rows: Array) -> int:
        return int(open_block(job.problem.values, job.hops.codes, columns, scale, cells, rows))

    block = prepare(job, links, blocks, fill, len(chosen))
    unit = columns.factor.astype(np.float64) * job.spread(chosen)  # 1 unless the range is near the smallest number
    rtol = job.solver.rtol if isinstance(job.solver, UntilSettled) else 0.0
    result, steps, moves = solve(job, links, block, rtol * unit.min(), stop)
    block.close()
    close_block(result, block.scales, block.diagonal, columns, bounds_of(job, chosen), job.out)
    relative_moves, steps = moves[: len(chosen)] / unit, steps[: len(chosen)]
    if isinstance(job.solver, FixedSteps):
        return Outcome(job.solver.steps, float(relative_moves.max())), chosen[:0]
    stuck = ~(relative_moves <= rtol) & (steps < job.solver.max_steps)
    worst = float(np.max(relative_moves[~stuck], initial=0.0))
    return Outcome(int(steps.max()), worst), chosen[stuck]
