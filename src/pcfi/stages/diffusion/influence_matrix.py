"""Few sources, many channels: diffuse the identity on the sources once, then multiply by their values.

Diffusion is linear in the known values of a pattern: x = H x_k, H the influence of each source on each node.
"""

import numpy as np

from pcfi._kernels.blocks import BlockCells, gather_indicators, lane_count, scatter_influence
from pcfi._kernels.influence import row_residuals, scatter_rows
from pcfi._kernels.steps import invert_diagonal
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
from pcfi.stages.diffusion.definition import Diffusion, DiffusionOutcome, InfluenceProduct
from pcfi.stages.solvers import FixedSteps

ROWS_AT_A_TIME = 4096


def diffuse(diffusion: Diffusion, chosen: Array, out: Array) -> DiffusionOutcome:
    """Fill the chosen channels of `out`, which all have the same pattern."""
    product, outcome = factorise(diffusion, chosen)
    fill(diffusion, product, out)
    diffusion.advance(len(chosen))
    return finish(diffusion, chosen, outcome, out)


def finish(diffusion: Diffusion, chosen: Array, outcome: DiffusionOutcome, out: Array) -> DiffusionOutcome:
    """Let sweeps go on where conjugate gradients got stuck, if they did."""
    if not outcome.stuck(diffusion.solver):
        return outcome
    return sweeps.finish(diffusion, chosen, outcome.steps, out)


def fill(diffusion: Diffusion, product: InfluenceProduct, out: Array) -> None:
    """Write the filled channels into `out`."""
    free = np.flatnonzero(diffusion.hops.is_filled(diffusion.hops.codes[:, product.pattern])).astype(np.int32)
    place(product, free, product.known, product.shift, out)


def factorise(diffusion: Diffusion, chosen: Array) -> tuple[InfluenceProduct, DiffusionOutcome]:
    """The chosen channels, which all have the same pattern, as a product."""
    pattern = int(diffusion.hops.patterns[chosen[0]])
    sources = np.flatnonzero(diffusion.hops.codes[:, pattern] == 0).astype(np.int32)
    influence, outcome = influence_of(diffusion, pattern, sources)
    channels = diffusion.problem.channels
    # the middle of the range: no known value is further from it than half the spread
    middle = (channels.low[chosen] / 2 + channels.high[chosen] / 2).astype(diffusion.dtype)
    known = (diffusion.problem.values[np.ix_(sources, chosen)] - middle).astype(diffusion.dtype)
    shift = middle
    if not diffusion.centred:
        # rows do not sum to 1: the middle flows like the value of one more source, with the row's sum as influence
        influence = np.append(influence, influence.sum(axis=1, dtype=np.float64)[:, None], axis=1).astype(
            diffusion.dtype
        )
        known = np.append(known, middle[None], axis=0)
        shift = np.zeros_like(middle)
    product = InfluenceProduct(
        pattern=pattern,
        channels=chosen,
        influence=influence,
        known=known,
        shift=shift,
        bounds=bounds_of(diffusion, chosen),
    )
    return product, outcome


def place(product: InfluenceProduct, rows: Array, known: Array, shift: Array, out: Array) -> None:
    """`out` = shift + influence @ known at the given rows, kept within bounds, a block of rows at a time."""
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        part = rows[start : start + ROWS_AT_A_TIME]
        scatter_rows(product.influence[part] @ known, part, product.channels, shift, product.bounds, out)


def influence_of(diffusion: Diffusion, pattern: int, sources: Array) -> tuple[Array, DiffusionOutcome]:
    """Influence of each source on each node, settled so far that every channel meets the solver's rtol."""
    if isinstance(diffusion.solver, FixedSteps):
        return _solve_identity(diffusion, pattern, sources, 0.0)
    target = diffusion.solver.rtol
    rtol = target * min(1.0, 3 / len(sources))  # what the bound asks for on real graphs, so that one solve suffices
    while True:
        influence, outcome = _solve_identity(diffusion, pattern, sources, rtol)
        out_of_reach = outcome.steps >= diffusion.solver.max_steps or rtol < 1e-6 * target
        if outcome.residual <= target or out_of_reach or not np.isfinite(outcome.residual):
            return influence, outcome
        rtol *= 0.7 * target / outcome.residual


def _solve_identity(diffusion: Diffusion, pattern: int, sources: Array, rtol: float) -> tuple[Array, DiffusionOutcome]:
    """The influence matrix with each column settled to `rtol`, and a bound on the residual of any channel.

    A channel's residual at a node is the sum over sources of (column residual) * (known value - shift). With the middle
    of the range as shift, half the sum of the absolute column residuals bounds it, relative to the channel's range;
    without a shift, and with a range that includes 0, their sum does.
    """
    csr_graph, scale = csr_graph_of(diffusion), scale_of(diffusion)
    n_nodes = diffusion.problem.graph.n_nodes
    lanes = lane_count(diffusion.dtype)
    influence = np.empty((n_nodes, len(sources)), dtype=diffusion.dtype)

    def solve_block(start: int) -> Task[tuple[int, Array]]:
        part = sources[start : start + lanes]

        def fill(cells: BlockCells, rows: Array, first: int, last: int) -> int:
            return int(gather_indicators(part, diffusion.hops.codes, pattern, scale, cells, rows, first, last))

        def task(executor: Executor, blocks: list[Array]) -> tuple[int, Array]:
            opening = Opening(fill, np.full(lanes, pattern), scale)
            block = prepare(diffusion, csr_graph, opening, lanes, executor, blocks)
            solved = solve(diffusion, csr_graph, block, opening, rtol, executor)
            block, inverse, moves = solved.block, solved.free, np.zeros(n_nodes)

            def measure(first: int, last: int) -> None:
                rows, own = block.rows[first:last], diffusion.residual_self_weight
                if diffusion.settles:
                    invert_diagonal(rows, inverse, own, inverse)  # in place
                row_residuals(csr_graph, rows, block.solution, inverse, block.scales, own, moves)

            executor.map_rows(len(block.rows), measure)
            block.restore_leaves()
            columns = influence[:, start : start + len(part)]
            executor.map_rows(
                n_nodes, lambda first, last: scatter_influence(block.solution, block.scales, columns, first, last)
            )
            return int(solved.steps.max()), moves

        return task

    starts = range(0, len(sources), lanes)
    inline = is_small(diffusion, len(sources))
    parts = run_blocks(diffusion, csr_graph, [solve_block(start) for start in starts], inline=inline)
    steps = max(taken for taken, _ in parts)
    bound = np.sum([moves for _, moves in parts], axis=0).max()
    return influence, DiffusionOutcome(steps, float(bound) / (2 if diffusion.centred else 1))
