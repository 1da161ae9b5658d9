"""Blocks of channels in scaled form: opening them, solving them, and the memory they work in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np

from pcfi._kernels.blocks import (
    AnyLinks,
    Cells,
    Columns,
    FarLinks,
    Scale,
    aligned_block,
    confidence_diagonal,
    degree_diagonal,
    fill_scales,
    make_links,
)
from pcfi._kernels.conjugate_gradients import Goal, Work, make_sums, settle
from pcfi._kernels.initial_guess import flood, scale_rows
from pcfi._kernels.leaf_elimination import peel, put_back, take_off
from pcfi._kernels.steps import invert, largest_move, take_steps
from pcfi._kernels.thread_team import Crew, Solo, Team, Workers, part_of
from pcfi._kernels.threads import run, thread_count
from pcfi._typing import Array
from pcfi.stages.diffusion.job import Job
from pcfi.stages.solvers import FixedSteps, UntilSettled

SMALL = 200_000  # edges times channels below which a thread costs more than it saves
SHORT = 500_000_000  # edges times channels times steps: some tenths of a second, which an interrupt can wait for


BLOCKS_TO_STEP = 3  # that a task needs: values, values of the next step, normalisation
BLOCKS_TO_SETTLE = 6  # values, residual, direction, its image, diagonal, scales

Result = TypeVar("Result")
Task = Callable[[Workers, list[Array]], Result]


def run_blocks(job: Job, links: AnyLinks, tasks: Sequence[Task[Result]], *, inline: bool) -> list[Result]:
    """Results of `task(workers, blocks)`: each thread has a block, or, beyond the cache, all threads share one.

    Working blocks are handed from one task to the next, so that memory does not grow with channels.
    """
    n_blocks = BLOCKS_TO_SETTLE if job.settles else BLOCKS_TO_STEP
    idle: SimpleQueue[list[Array]] = SimpleQueue()

    def with_blocks(task: Task[Result], workers: Workers) -> Result:
        try:
            blocks = idle.get_nowait()
        except Empty:
            blocks = [aligned_block(job.problem.graph.n_nodes, job.dtype) for _ in range(n_blocks)]
        result = task(workers, blocks)
        idle.put(blocks)
        return result

    if isinstance(links, FarLinks):
        return [with_blocks(task, Crew()) for task in tasks]

    def alone(task: Task[Result]) -> Callable[[Any], Result]:
        return lambda stop: with_blocks(task, Solo(stop))

    return run([alone(task) for task in tasks], inline=inline)


@dataclass(frozen=True, eq=False)
class Opening:
    """How the cells of a block are filled: `fill(cells, rows, first, last)`, and the pattern in each lane."""

    fill: Callable[[Cells, Array, int, int], int]
    patterns: Array
    scale: Scale


@dataclass(frozen=True, eq=False)
class Block:
    """A block that is open: its cells in scaled form, and the rows that have a free cell and are to be solved.

    `diagonal` is the flag of free cells, overwritten at the rows to be solved by the diagonal of the system, and by its
    inverse once they are: > 0 at free cells in any case. `leaves` hang from `parents` and come back with
    `put_trees_back`.
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


@dataclass(frozen=True, eq=False)
class Solved:
    """A block that is solved: the same as open, and the steps and the largest move of each lane."""

    block: Block
    steps: Array
    moves: Array


def links_of(job: Job) -> AnyLinks:
    """The graph as the kernels take it."""
    graph = job.problem.graph
    return make_links(graph.indptr, graph.indices, graph.weights_as(job.dtype))


def scale_of(job: Job) -> Scale:
    """The method's scale as the kernels take it."""
    return Scale(job.weighting.by_hops.astype(job.dtype), job.weighting.by_node.astype(job.dtype))


def prepare(job: Job, links: AnyLinks, opening: Opening, n_lanes: int, workers: Workers, blocks: list[Array]) -> Block:
    """Open a block, take off its hanging trees and work out its diagonal."""
    solution, scales, diagonal, *spare = blocks
    rows = _open(opening, Cells(solution, scales, diagonal), workers)
    leaves, parents = np.empty((2, len(solution)), dtype=np.int32)
    n_leaves = peel(links, diagonal, n_lanes, leaves, parents) if job.centred else 0
    leaves, parents = leaves[:n_leaves], parents[:n_leaves]
    if n_leaves:
        rows = rows[: take_off(leaves, rows, scales)]
    degree = job.weighting.degree

    def fill_diagonal(first: int, last: int) -> None:
        if degree is None:
            confidence_diagonal(links, rows[first:last], scales, diagonal)
        else:
            degree_diagonal(rows[first:last], degree, diagonal)

    workers.rows(len(rows), fill_diagonal)
    return Block(solution, scales, diagonal, rows, leaves, parents, spare)


def _open(opening: Opening, cells: Cells, workers: Workers) -> Array:
    """Fill the cells; returns the rows that have a free one."""
    rows = np.empty(len(cells.solution), dtype=np.int32)

    def fill(first: int, last: int) -> Array:
        found: Array = rows[first : first + opening.fill(cells, rows, first, last)]
        return found

    parts = workers.rows(len(rows), fill)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def solve(job: Job, links: AnyLinks, block: Block, opening: Opening, rtol: float, workers: Workers) -> Solved:
    """Diffuse the block."""
    if isinstance(job.solver, FixedSteps):
        return _step(job, links, block, opening, job.solver.steps, workers)
    return _settle(job, links, block, Goal(rtol, job.solver.max_steps), workers)


def _step(job: Job, links: AnyLinks, block: Block, opening: Opening, steps: int, workers: Workers) -> Solved:
    rows, own = block.rows, job.self_weight
    workers.rows(len(rows), lambda first, last: invert(rows[first:last], own, block.diagonal))
    pair = [block.solution, block.scales]  # scales can be worked out again, which saves a block
    pair[1][:] = pair[0]
    workers.together(lambda team: take_steps(links, rows, pair[0], pair[1], block.diagonal, own, steps, team))
    result, scales = pair if steps % 2 == 0 else pair[::-1]
    n_nodes = len(scales)
    workers.rows(
        n_nodes,
        lambda first, last: fill_scales(job.hops.codes, opening.patterns, opening.scale, scales, first, last),
    )

    def judge(first: int, last: int) -> Array:
        largest = np.zeros((1, result.shape[1]), dtype=job.dtype)
        largest_move(links, rows[first:last], result, block.diagonal, scales, job.judged_self_weight, largest)
        found: Array = largest[0]
        return found

    moves = np.max(workers.rows(len(rows), judge), axis=0)
    return Solved(replace(block, solution=result, scales=scales), np.full(len(moves), steps), moves)


def _settle(job: Job, links: AnyLinks, block: Block, goal: Goal, workers: Workers) -> Solved:
    residual, direction, image = block.spare
    work = Work(block.solution, residual, direction, image, block.diagonal, block.scales)
    sums = make_sums(len(block.rows), job.dtype)
    waiting = np.zeros((2, thread_count()), dtype=np.int64)

    def member(team: Team) -> tuple[Array, Array]:
        flood(links, block.rows, block.diagonal, image, block.solution, team, waiting)
        first, last = part_of(len(block.rows), team)
        if job.weighting.keeps_constants:
            # the flood made means of values; where scaled values are means of their neighbours it is done
            scale_rows(block.rows[first:last], block.diagonal, block.scales, block.solution)
        first, last = part_of(len(direction), team)
        residual[first:last] = 0
        direction[first:last] = 0
        steps = np.zeros(direction.shape[1], dtype=np.int64)
        largest = np.zeros((1, direction.shape[1]), dtype=job.dtype)
        settle(links, block.rows, work, sums, goal, team, steps, largest)
        return steps, largest[0]

    steps, moves = workers.together(member)[0]
    workers.rows(len(block.rows), lambda first, last: invert(block.rows[first:last], 0.0, block.diagonal))
    return Solved(block, steps, moves)


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
