"""The ordinary route: blocks of channels in scaled form."""

import numpy as np

from pcfi._kernels.blocks import AnyLinks, Cells, Scale, close_block, lanes_of, open_block
from pcfi._kernels.thread_team import Workers
from pcfi._typing import Array
from pcfi.stages.diffusion import sweeps
from pcfi.stages.diffusion.block_solver import (
    Opening,
    Task,
    bounds_of,
    columns_of,
    is_small,
    links_of,
    prepare,
    run_blocks,
    scale_of,
    solve,
)
from pcfi.stages.diffusion.job import Job, Outcome
from pcfi.stages.solvers import FixedSteps, UntilSettled


def diffuse(job: Job, chosen: Array) -> Outcome:
    """Fill the chosen channels of `job.out`, a block at a time."""
    links, scale = links_of(job), scale_of(job)
    lanes = lanes_of(job.dtype)

    def solve_block(part: Array) -> Task[tuple[Outcome, Array, int]]:
        def task(workers: Workers, blocks: list[Array]) -> tuple[Outcome, Array, int]:
            filled = _fill_channels(job, links, scale, part, workers, blocks)
            job.advance(len(part))
            return filled

        return task

    parts = [chosen[start : start + lanes] for start in range(0, len(chosen), lanes)]
    inline = is_small(job, len(chosen))
    solved = run_blocks(job, links, [solve_block(part) for part in parts], inline=inline)
    outcomes, stuck, taken = zip(*solved, strict=True)
    unsettled = np.sort(np.concatenate(stuck))
    if not len(unsettled):
        return Outcome.worst(outcomes)
    return Outcome.worst([*outcomes, sweeps.finish(job, unsettled, max(taken))])


def _fill_channels(
    job: Job, links: AnyLinks, scale: Scale, chosen: Array, workers: Workers, blocks: list[Array]
) -> tuple[Outcome, Array, int]:
    """One block; returns its outcome, the channels that conjugate gradients could not settle, and their steps."""
    columns = columns_of(job, chosen)

    def fill(cells: Cells, rows: Array, first: int, last: int) -> int:
        return int(open_block(job.problem.values, job.hops.codes, columns, scale, cells, rows, first, last))

    opening = Opening(fill, columns.patterns, scale)
    block = prepare(job, links, opening, len(chosen), workers, blocks)
    unit = columns.factor.astype(np.float64) * job.spread(chosen)  # 1 unless the range is near the smallest number
    rtol = job.solver.rtol if isinstance(job.solver, UntilSettled) else 0.0
    solved = solve(job, links, block, opening, rtol * unit.min(), workers)
    block = solved.block
    block.put_trees_back()
    bounds = bounds_of(job, chosen)

    def close(first: int, last: int) -> None:
        close_block(block.solution, block.scales, block.diagonal, columns, bounds, job.out, first, last)

    workers.rows(len(job.out), close)
    relative_moves, steps = solved.moves[: len(chosen)] / unit, solved.steps[: len(chosen)]
    if isinstance(job.solver, FixedSteps):
        return Outcome(job.solver.steps, float(relative_moves.max())), chosen[:0], 0
    stuck = ~(relative_moves <= rtol) & (steps < job.solver.max_steps)
    worst = float(np.max(relative_moves[~stuck], initial=0.0))
    return Outcome(int(steps.max()), worst), chosen[stuck], int(np.max(steps[stuck], initial=0))
