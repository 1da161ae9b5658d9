"""Few sources, many channels: diffuse the identity on the sources once, then multiply by their values.

Diffusion is linear in the known values of a pattern: x = H x_k, H the influence of each source on each node.
"""

import numpy as np

from pcfi._kernels.blocks import BlockCells, gather_indicators, lane_count, scatter_influence
from pcfi._kernels.influence import row_residuals, scatter_rows
from pcfi._kernels.thread_team import Executor
from pcfi._typing import Array
from pcfi.stages.diffusion import sweeps
from pcfi.stages.diffusion.block_solver import (
    Opening,
    Task,
    bounds_of,
    csr_graph_of,
    is_small,
    prepare,
    run_blocks,
    scale_of,
    solve,
)
from pcfi.stages.diffusion.job import Factors, Job, Outcome
from pcfi.stages.solvers import FixedSteps

ROWS_AT_A_TIME = 4096


def diffuse(job: Job, chosen: Array) -> Outcome:
    """Fill the chosen channels of `job.out`, which all have the same pattern."""
    factors, outcome = factorise(job, chosen)
    fill(job, factors)
    job.advance(len(chosen))
    return finish(job, chosen, outcome)


def finish(job: Job, chosen: Array, outcome: Outcome) -> Outcome:
    """Let sweeps go on where conjugate gradients got stuck, if they did."""
    if not outcome.stuck(job.solver):
        return outcome
    return sweeps.finish(job, chosen, outcome.steps)


def fill(job: Job, factors: Factors) -> None:
    """Write the filled channels into `job.out`."""
    hops = job.hops.codes[:, factors.pattern]
    free = np.flatnonzero((hops > 0) & (hops <= job.hops.n_levels)).astype(np.int32)
    place(factors, free, factors.known, factors.shift, job.out)


def factorise(job: Job, chosen: Array) -> tuple[Factors, Outcome]:
    """The chosen channels, which all have the same pattern, as a product."""
    pattern = int(job.hops.patterns[chosen[0]])
    sources = np.flatnonzero(job.hops.codes[:, pattern] == 0).astype(np.int32)
    influence, outcome = influence_of(job, pattern, sources)
    channels = job.problem.channels
    # the middle of the range: no known value is further from it than half the spread
    middle = (channels.low[chosen] / 2 + channels.high[chosen] / 2).astype(job.dtype)
    known = (job.problem.values[np.ix_(sources, chosen)] - middle).astype(job.dtype)
    shift = middle
    if not job.centred:
        # rows do not sum to 1: the middle flows like the value of one more source, with the row's sum as influence
        influence = np.append(influence, influence.sum(axis=1, dtype=np.float64)[:, None], axis=1).astype(job.dtype)
        known = np.append(known, middle[None], axis=0)
        shift = np.zeros_like(middle)
    return Factors(pattern, chosen, influence, known, shift, bounds_of(job, chosen)), outcome


def place(factors: Factors, rows: Array, known: Array, shift: Array, out: Array) -> None:
    """`out` = shift + influence @ known at the given rows, kept within bounds, a block of rows at a time."""
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        part = rows[start : start + ROWS_AT_A_TIME]
        scatter_rows(factors.influence[part] @ known, part, factors.channels, shift, factors.bounds, out)


def influence_of(job: Job, pattern: int, sources: Array) -> tuple[Array, Outcome]:
    """Influence of each source on each node, settled so far that every channel meets the solver's rtol."""
    if isinstance(job.solver, FixedSteps):
        return _solve_identity(job, pattern, sources, 0.0)
    wanted = job.solver.rtol
    rtol = wanted * min(1.0, 3 / len(sources))  # what the bound asks for on real graphs, so that one solve suffices
    while True:
        influence, outcome = _solve_identity(job, pattern, sources, rtol)
        out_of_reach = outcome.steps >= job.solver.max_steps or rtol < 1e-6 * wanted
        if outcome.residual <= wanted or out_of_reach or not np.isfinite(outcome.residual):
            return influence, outcome
        rtol *= 0.7 * wanted / outcome.residual


def _solve_identity(job: Job, pattern: int, sources: Array, rtol: float) -> tuple[Array, Outcome]:
    """The influence matrix with each column settled to `rtol`, and a bound on the residual of any channel.

    A channel's residual at a node is the sum over sources of (column residual) * (known value - shift). With the middle
    of the range as shift, half the sum of the absolute column residuals bounds it, relative to the channel's range;
    without a shift, and with a range that includes 0, their sum does.
    """
    csr_graph, scale = csr_graph_of(job), scale_of(job)
    n_nodes = job.problem.graph.n_nodes
    lanes = lane_count(job.dtype)
    influence = np.empty((n_nodes, len(sources)), dtype=job.dtype)

    def solve_block(start: int) -> Task[tuple[int, Array]]:
        part = sources[start : start + lanes]

        def fill(cells: BlockCells, rows: Array, first: int, last: int) -> int:
            return int(gather_indicators(part, job.hops.codes, pattern, scale, cells, rows, first, last))

        def task(executor: Executor, blocks: list[Array]) -> tuple[int, Array]:
            opening = Opening(fill, np.full(lanes, pattern), scale)
            block = prepare(job, csr_graph, opening, lanes, executor, blocks)
            solved = solve(job, csr_graph, block, opening, rtol, executor)
            block, moves = solved.block, np.zeros(n_nodes)

            def judge(first: int, last: int) -> None:
                rows, own = block.rows[first:last], job.judged_self_weight
                row_residuals(csr_graph, rows, block.solution, solved.inverse, block.scales, own, moves)

            executor.map_rows(len(block.rows), judge)
            block.restore_leaves()
            columns = influence[:, start : start + len(part)]
            executor.map_rows(
                n_nodes, lambda first, last: scatter_influence(block.solution, block.scales, columns, first, last)
            )
            return int(solved.steps.max()), moves

        return task

    starts = range(0, len(sources), lanes)
    inline = is_small(job, len(sources))
    parts = run_blocks(job, csr_graph, [solve_block(start) for start in starts], inline=inline)
    steps = max(taken for taken, _ in parts)
    bound = np.sum([moves for _, moves in parts], axis=0).max()
    return influence, Outcome(steps, float(bound) / (2 if job.centred else 1))
