"""The ordinary route: blocks of channels in scaled form, a block at a time on each thread."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._kernels.blocks import AnyLinks, Cells, Scale, close_block, lanes_of, open_block
from pcfi._kernels.threads import run
from pcfi.diffusion import relative
from pcfi.diffusion.blocks import Arena, bounds_of, columns_of, is_small, links_of, prepare, scale_of, solve
from pcfi.diffusion.job import Job, Outcome
from pcfi.solvers import FixedSteps, UntilSettled

Array = npt.NDArray[Any]


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
    outcome = Outcome.worst(outcomes)
    if not stuck:
        return outcome
    finished = relative.diffuse(job, np.sort(np.concatenate(stuck)), finish=True)
    return Outcome(outcome.steps + finished.steps, max(outcome.residual, finished.residual))


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
    block.put_trees_back()
    close_block(result, block.scales, block.diagonal, columns, bounds_of(job, chosen), job.out)
    relative_moves, steps = moves[: len(chosen)] / unit, steps[: len(chosen)]
    if isinstance(job.solver, FixedSteps):
        return Outcome(job.solver.steps, float(relative_moves.max())), chosen[:0]
    stuck = ~(relative_moves <= rtol) & (steps < job.solver.max_steps)
    worst = float(np.max(relative_moves[~stuck], initial=0.0))
    return Outcome(int(steps.max()), worst), chosen[stuck]
