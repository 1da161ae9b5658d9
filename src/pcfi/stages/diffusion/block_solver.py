"""Blocks of channels in scaled form: opening them, solving them, and the memory they work in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np

from pcfi._kernels.blocks import (
    BlockCells,
    BlockChannels,
    CellScale,
    aligned_block,
    confidence_diagonal,
    degree_diagonal,
    fill_scales,
)
from pcfi._kernels.conjugate_gradients import (
    PIECE_ROWS,
    Workspace,
    make_lane_state,
    make_partial_reductions,
    make_stopping_rule,
    solve_steady_state,
)
from pcfi._kernels.csr_graph import AnyCsrGraph, LargeCsrGraph, make_csr_graph
from pcfi._kernels.initial_guess import fill_initial_guess
from pcfi._kernels.leaf_elimination import eliminate_leaves, restore_leaves
from pcfi._kernels.steps import invert_diagonal, max_residual, take_steps
from pcfi._kernels.thread_team import Executor, SerialExecutor, TeamExecutor, ThreadTeam
from pcfi._kernels.threads import run_tasks, thread_count
from pcfi._typing import Array
from pcfi.stages.diffusion.definition import Diffusion
from pcfi.stages.solvers import FixedSteps, UntilSettled

MIN_THREADED_WORK = 200_000  # edges times channels; below, a thread costs more than it saves
MAX_INLINE_WORK = (
    500_000_000  # edges times channels times steps: some tenths of a second, which an interrupt can wait for
)

BLOCKS_TO_STEP = 3  # that a task needs: values, values of the next step, normalisation
BLOCKS_TO_SETTLE = 6  # values, residual, direction, its image, diagonal, scales

Result = TypeVar("Result")
Task = Callable[[Executor, list[Array]], Result]


def run_blocks(
    diffusion: Diffusion, csr_graph: AnyCsrGraph, tasks: Sequence[Task[Result]], *, inline: bool
) -> list[Result]:
    """Results of `task(executor, blocks)`: each thread has a block, or, beyond the cache, all threads share one.

    Working blocks are handed from one task to the next, so that memory does not grow with channels.
    """
    n_blocks = BLOCKS_TO_SETTLE if diffusion.settles else BLOCKS_TO_STEP
    idle: SimpleQueue[list[Array]] = SimpleQueue()

    def with_blocks(task: Task[Result], executor: Executor) -> Result:
        try:
            blocks = idle.get_nowait()
        except Empty:
            blocks = [aligned_block(diffusion.problem.graph.n_nodes, diffusion.dtype) for _ in range(n_blocks)]
        result = task(executor, blocks)
        idle.put(blocks)
        return result

    if isinstance(csr_graph, LargeCsrGraph):
        return [with_blocks(task, TeamExecutor()) for task in tasks]

    def alone(task: Task[Result]) -> Callable[[Any], Result]:
        return lambda stop: with_blocks(task, SerialExecutor(stop))

    return run_tasks([alone(task) for task in tasks], inline=inline)


@dataclass(frozen=True, eq=False)
class Opening:
    """How the cells of a block are filled: `fill(cells, rows, first, last)`, and the pattern in each lane."""

    fill: Callable[[BlockCells, Array, int, int], int]
    patterns: Array
    scale: CellScale


@dataclass(frozen=True, eq=False)
class Block:
    """A block to be solved: its cells in scaled form, and the rows that have a free cell.

    `diagonal`, the diagonal of the system, is > 0 at free cells; a solver overwrites it. `leaves`, eliminated from
    `rows`, take the value of `parents` in `restore_leaves`.
    """

    solution: Array
    scales: Array
    diagonal: Array
    rows: Array
    leaves: Array
    parents: Array
    spare: list[Array]

    def restore_leaves(self) -> None:
        """Give the eliminated leaves the values of their parents."""
        if len(self.leaves):
            restore_leaves(self.leaves, self.parents, self.solution, self.scales)


@dataclass(frozen=True, eq=False)
class Solved:
    """A solved block, steps and largest residual of each lane, and a block `free` that is > 0 at free cells.

    `free` is the diagonal, inverted by a solver that takes a fixed number of steps.
    """

    block: Block
    free: Array
    steps: Array
    moves: Array


def csr_graph_of(diffusion: Diffusion) -> AnyCsrGraph:
    """The graph as the kernels take it."""
    graph = diffusion.problem.graph
    return make_csr_graph(graph.indptr, graph.indices, graph.weights_as(diffusion.dtype))


def scale_of(diffusion: Diffusion) -> CellScale:
    """The method's scale as the kernels take it."""
    return CellScale(
        diffusion.weights.by_hops.astype(diffusion.dtype), diffusion.weights.by_node.astype(diffusion.dtype)
    )


def prepare(
    diffusion: Diffusion,
    csr_graph: AnyCsrGraph,
    opening: Opening,
    n_lanes: int,
    executor: Executor,
    blocks: list[Array],
) -> Block:
    """Gather the channels into a block, eliminate leaves and compute the diagonal of the system."""
    solution, scales, free, *spare = blocks
    rows = _open(opening, BlockCells(solution, scales, free), executor)
    leaves, parents, remaining = np.empty((3, len(solution)), dtype=np.int32)
    n_leaves = 0
    if diffusion.centred:
        n_leaves = eliminate_leaves(csr_graph, free, n_lanes, remaining, leaves, parents, rows, scales)
    leaves, parents, rows = leaves[:n_leaves], parents[:n_leaves], rows[: len(rows) - n_leaves]
    rows = _in_order(rows, diffusion.node_order)
    degree = diffusion.weights.degree
    diagonal = free  # in place, which saves a block

    def fill_diagonal(first: int, last: int) -> None:
        if degree is None:
            confidence_diagonal(csr_graph, rows[first:last], scales, free, diagonal)
        else:
            degree_diagonal(rows[first:last], degree, free, diagonal)

    executor.map_rows(len(rows), fill_diagonal)
    return Block(solution, scales, diagonal, rows, leaves, parents, spare)


def _in_order(rows: Array, order: Array | None) -> Array:
    """The rows in the order of `order`, which has all of them."""
    if order is None:
        return rows
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[rows] = True
    return np.asarray(order[chosen[order]])


def _open(opening: Opening, cells: BlockCells, executor: Executor) -> Array:
    """Fill the cells; returns the rows that have a free one."""
    rows = np.empty(len(cells.solution), dtype=np.int32)

    def fill(first: int, last: int) -> Array:
        free: Array = rows[first : first + opening.fill(cells, rows, first, last)]
        return free

    parts = executor.map_rows(len(rows), fill)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def solve(
    diffusion: Diffusion, csr_graph: AnyCsrGraph, block: Block, opening: Opening, rtol: float, executor: Executor
) -> Solved:
    """Diffuse the block."""
    if isinstance(diffusion.solver, FixedSteps):
        return _step(diffusion, csr_graph, block, opening, diffusion.solver.steps, executor)
    return _settle(diffusion, csr_graph, block, rtol, diffusion.solver.max_steps, executor)


def _step(
    diffusion: Diffusion, csr_graph: AnyCsrGraph, block: Block, opening: Opening, steps: int, executor: Executor
) -> Solved:
    rows, own = block.rows, diffusion.self_weight
    inverse = block.diagonal  # in place
    executor.map_rows(len(rows), lambda first, last: invert_diagonal(rows[first:last], block.diagonal, own, inverse))
    other = block.scales  # as the second block: the scales are computed again below, which saves a block
    other[:] = block.solution

    def member(team: ThreadTeam) -> None:
        first, last = team.share(csr_graph.indptr, rows)
        take_steps(csr_graph, rows[first:last], block.solution, other, inverse, own, steps, team)

    executor.run_team(member)
    result, scales = (block.solution, other) if steps % 2 == 0 else (other, block.solution)
    n_nodes = len(scales)
    executor.map_rows(
        n_nodes,
        lambda first, last: fill_scales(diffusion.hops.codes, opening.patterns, opening.scale, scales, first, last),
    )

    def measure(first: int, last: int) -> Array:
        largest = np.zeros((1, result.shape[1]), dtype=diffusion.dtype)
        max_residual(csr_graph, rows[first:last], result, inverse, scales, diffusion.residual_self_weight, largest)
        row: Array = largest[0]
        return row

    moves = np.max(executor.map_rows(len(rows), measure), axis=0)
    return Solved(replace(block, solution=result, scales=scales), inverse, np.full(len(moves), steps), moves)


def _settle(
    diffusion: Diffusion, csr_graph: AnyCsrGraph, block: Block, rtol: float, max_steps: int, executor: Executor
) -> Solved:
    residual, direction, image = block.spare
    work = Workspace(block.solution, residual, direction, image, block.diagonal, block.scales)
    sums = make_partial_reductions(len(block.rows), diffusion.dtype)
    rule = make_stopping_rule(rtol, max_steps, diffusion.dtype)
    n_filled = np.zeros((2, thread_count()), dtype=np.int64)
    # the initial guess holds means of values; the system is in scaled form
    scales = block.scales if diffusion.weights.keeps_constants else block.scales[:0]

    def member(team: ThreadTeam) -> tuple[Array, Array]:
        first, last = team.share(csr_graph.indptr, block.rows)
        own_rows = block.rows[first:last].copy()
        fill_initial_guess(csr_graph, own_rows, block.diagonal, image, scales, block.solution, team, n_filled)
        first, last = (len(direction) * rank // team.size for rank in (team.rank, team.rank + 1))
        residual[first:last] = 0
        direction[first:last] = 0
        state = make_lane_state(direction.shape[1], diffusion.dtype)
        pieces = team.share(csr_graph.indptr, block.rows, PIECE_ROWS)
        solve_steady_state(csr_graph, block.rows, work, sums, rule, team, pieces, state)
        return np.minimum(state.steps, max_steps), state.max_residual

    steps, moves = executor.run_team(member)[0]
    return Solved(block, block.diagonal, steps, moves)


def columns_of(diffusion: Diffusion, chosen: Array) -> BlockChannels:
    """The chosen channels, with the shift and the factor that bring their known values to the order of 1."""
    channels = diffusion.problem.channels
    shift = channels.mean[chosen] if diffusion.centred else np.zeros(len(chosen))
    with np.errstate(over="ignore", divide="ignore"):
        factor = 1.0 / diffusion.spread(chosen)
        if not diffusion.settles:
            # a power of two: the steps stay those of the paper to the last bit
            factor = np.ldexp(1.0, np.frexp(factor)[1])
    factor = np.minimum(factor, np.finfo(diffusion.dtype).max / 1e6)
    return BlockChannels(
        chosen, diffusion.hops.patterns[chosen], shift.astype(diffusion.dtype), factor.astype(diffusion.dtype)
    )


def bounds_of(diffusion: Diffusion, chosen: Array) -> Array:
    """Lowest and highest value that a missing cell of the chosen channels may take."""
    if diffusion.centred:
        return np.stack([diffusion.problem.channels.low[chosen], diffusion.problem.channels.high[chosen]])
    limit = np.full(len(chosen), np.inf, dtype=diffusion.problem.dtype)
    return np.stack([-limit, limit])


def is_small(diffusion: Diffusion, n_channels: int) -> bool:
    """Whether the work is done before a thread has started."""
    size = (len(diffusion.problem.graph.indices) + diffusion.problem.graph.n_nodes) * n_channels
    limit = diffusion.solver.max_steps if isinstance(diffusion.solver, UntilSettled) else diffusion.solver.steps
    return size < MIN_THREADED_WORK and size * limit < MAX_INLINE_WORK
