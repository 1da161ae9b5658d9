"""The ordinary route: blocks of channels in scaled form."""

import numpy as np

from pcfi._kernels.blocks import BlockCells, CellScale, gather_block, lane_count, scatter_block
from pcfi._kernels.csr_graph import AnyCsrGraph
from pcfi._kernels.thread_team import Executor
from pcfi._typing import Array
from pcfi.stages.diffusion import sweeps
from pcfi.stages.diffusion.block_solver import (
    Opening,
    Task,
    bounds_of,
    columns_of,
    csr_graph_of,
    is_small,
    prepare,
    run_blocks,
    scale_of,
    solve,
)
from pcfi.stages.diffusion.definition import Diffusion, DiffusionOutcome
from pcfi.stages.solvers import FixedSteps, UntilSettled


def diffuse(diffusion: Diffusion, chosen: Array, out: Array) -> DiffusionOutcome:
    """Fill the chosen channels of `out`, a block at a time."""
    csr_graph, scale = csr_graph_of(diffusion), scale_of(diffusion)
    lanes = lane_count(diffusion.dtype)

    def solve_block(part: Array) -> Task[tuple[DiffusionOutcome, Array, int]]:
        def task(executor: Executor, blocks: list[Array]) -> tuple[DiffusionOutcome, Array, int]:
            filled = _fill_channels(diffusion, csr_graph, scale, part, executor, blocks, out)
            diffusion.advance(len(part))
            return filled

        return task

    parts = [chosen[start : start + lanes] for start in range(0, len(chosen), lanes)]
    inline = is_small(diffusion, len(chosen))
    solved = run_blocks(diffusion, csr_graph, [solve_block(part) for part in parts], inline=inline)
    outcomes, stuck, taken = zip(*solved, strict=True)
    unsettled = np.sort(np.concatenate(stuck))
    if not len(unsettled):
        return DiffusionOutcome.worst(outcomes)
    return DiffusionOutcome.worst([*outcomes, sweeps.finish(diffusion, unsettled, max(taken), out)])


def _fill_channels(
    diffusion: Diffusion,
    csr_graph: AnyCsrGraph,
    scale: CellScale,
    chosen: Array,
    executor: Executor,
    blocks: list[Array],
    out: Array,
) -> tuple[DiffusionOutcome, Array, int]:
    """One block; returns its outcome, the channels that conjugate gradients could not settle, and their steps."""
    columns = columns_of(diffusion, chosen)

    def fill(cells: BlockCells, rows: Array, first: int, last: int) -> int:
        return int(
            gather_block(diffusion.problem.values, diffusion.hops.codes, columns, scale, cells, rows, first, last)
        )

    opening = Opening(fill, columns.patterns, scale)
    block = prepare(diffusion, csr_graph, opening, len(chosen), executor, blocks)
    unit = columns.factor.astype(np.float64) * diffusion.spread(
        chosen
    )  # 1 unless the range is near the smallest number
    rtol = diffusion.solver.rtol if isinstance(diffusion.solver, UntilSettled) else 0.0
    solved = solve(diffusion, csr_graph, block, opening, rtol * unit.min(), executor)
    block = solved.block
    block.restore_leaves()
    bounds = bounds_of(diffusion, chosen)

    def close(first: int, last: int) -> None:
        scatter_block(block.solution, block.scales, solved.free, columns, bounds, out, first, last)

    executor.map_rows(len(out), close)
    relative_moves, steps = solved.moves[: len(chosen)] / unit, solved.steps[: len(chosen)]
    if isinstance(diffusion.solver, FixedSteps):
        return DiffusionOutcome(diffusion.solver.steps, float(relative_moves.max())), chosen[:0], 0
    stuck = ~(relative_moves <= rtol) & (steps < diffusion.solver.max_steps)
    worst = float(np.max(relative_moves[~stuck], initial=0.0))
    return DiffusionOutcome(int(steps.max()), worst), chosen[stuck], int(np.max(steps[stuck], initial=0))
