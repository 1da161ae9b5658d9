"""One pattern at a time, with weights relative to each node: for deep graphs and steady states of directed ones."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcfi._kernels.blocks import aligned_block, lane_count
from pcfi._kernels.csr_graph import CsrGraph
from pcfi._kernels.sweeps import SweepMatrix, fill_sweep_matrix, first_sweep, order_by_hops, sweep, take_relative_steps
from pcfi._kernels.threads import run_tasks
from pcfi._typing import Array
from pcfi.stages.diffusion.definition import Diffusion, DiffusionOutcome
from pcfi.stages.solvers import FixedSteps, UntilSettled


def diffuse(diffusion: Diffusion, chosen: Array, out: Array) -> DiffusionOutcome:
    """Fill the chosen channels of `out`, pattern by pattern, in float64."""
    return _fill(diffusion, chosen, out, finish=False)


def finish(diffusion: Diffusion, chosen: Array, taken: int, out: Array) -> DiffusionOutcome:
    """Sweep on from `out`, which holds what another route got stuck at after `taken` steps, with those left."""
    finished = _fill(diffusion.after(taken), chosen, out, finish=True)
    return DiffusionOutcome(taken + finished.steps, finished.residual)


def _fill(diffusion: Diffusion, chosen: Array, out: Array, *, finish: bool) -> DiffusionOutcome:
    patterns = diffusion.hops.patterns[chosen]

    def solve_pattern(pattern: int) -> Callable[[Any], DiffusionOutcome]:
        return lambda stop: _fill_pattern(diffusion, pattern, chosen[patterns == pattern], finish, stop, out)

    return DiffusionOutcome.worst(run_tasks([solve_pattern(int(pattern)) for pattern in np.unique(patterns)]))


def _fill_pattern(
    diffusion: Diffusion, pattern: int, chosen: Array, finish: bool, stop: Any, out: Array
) -> DiffusionOutcome:
    matrix = _sweep_matrix(diffusion, pattern)
    hops = diffusion.hops.codes[:, pattern]
    lanes = lane_count(np.float64)
    outcomes = []
    for start in range(0, len(chosen), lanes):
        part = chosen[start : start + lanes]
        outcomes.append(_fill_channels(diffusion, matrix, hops, part, finish, stop, out))
        if not finish:
            diffusion.advance(len(part))
    return DiffusionOutcome.worst(outcomes)


def _sweep_matrix(diffusion: Diffusion, pattern: int) -> SweepMatrix:
    """Free nodes of the pattern from near to far, with their normalised relative weights."""
    graph, weights = diffusion.problem.graph, diffusion.weights
    csr_graph = CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64))
    hops = np.ascontiguousarray(diffusion.hops.codes[:, pattern])
    nodes = order_by_hops(hops, diffusion.hops.n_levels)
    n_entries = int(np.diff(graph.indptr)[nodes].sum()) + len(nodes)
    degree = np.empty(0) if weights.degree is None else weights.degree
    with np.errstate(divide="ignore"):
        value_scale = 1.0 / weights.by_node[nodes]
    matrix = SweepMatrix(
        nodes,
        np.empty(len(nodes) + 1, dtype=np.int64),
        np.empty(n_entries, dtype=np.int32),
        np.empty(n_entries),
        value_scale,
    )
    fill_sweep_matrix(
        csr_graph,
        hops,
        diffusion.hops.n_levels,
        float(np.log(weights.alpha)),
        degree,
        diffusion.residual_self_weight,
        matrix,
    )
    return matrix


def _fill_channels(
    diffusion: Diffusion, matrix: SweepMatrix, hops: Array, part: Array, finish: bool, stop: Any, out: Array
) -> DiffusionOutcome:
    channels, by_node = diffusion.problem.channels, diffusion.weights.by_node
    spread = diffusion.spread(part)
    shift = channels.mean[part] if diffusion.centred else np.zeros(len(part))
    sources = np.flatnonzero(hops == 0)
    block = aligned_block(len(hops), np.float64)
    block[:] = 0
    block[sources, : len(part)] = (
        (diffusion.problem.values[np.ix_(sources, part)] - shift) / spread * by_node[sources, None]
    )
    if not diffusion.settles:
        block, outcome = _take_steps(diffusion, matrix, block, stop)
    else:
        first_sweep(matrix, np.ascontiguousarray(hops), block)
        if finish:
            reached = (out[np.ix_(matrix.nodes, part)] - shift) / spread / matrix.value_scale[:, None]
            finite = np.isfinite(reached).all(axis=0)
            block[np.ix_(matrix.nodes, np.flatnonzero(finite))] = reached[:, finite]
        outcome = _sweep(diffusion, matrix, block, stop)
    filled = block[matrix.nodes, : len(part)] * matrix.value_scale[:, None] * spread + shift
    if diffusion.centred:
        filled = np.clip(filled, channels.low[part], channels.high[part])
    with np.errstate(over="ignore"):  # refused when all is filled
        out[np.ix_(matrix.nodes, part)] = filled
    return outcome


def _take_steps(diffusion: Diffusion, matrix: SweepMatrix, block: Array, stop: Any) -> tuple[Array, DiffusionOutcome]:
    """The block after the solver's fixed number of steps."""
    steps = diffusion.solver.steps if isinstance(diffusion.solver, FixedSteps) else 0
    largest = np.zeros((1, block.shape[1]))
    other = aligned_block(len(block), np.float64)
    other[:] = block
    take_relative_steps(matrix, block, other, steps, stop, largest)
    return (block if steps % 2 == 0 else other), DiffusionOutcome(steps, float(largest.max()))


def _sweep(diffusion: Diffusion, matrix: SweepMatrix, block: Array, stop: Any) -> DiffusionOutcome:
    """Sweep the block until what one further step would move, measured afresh, is small enough."""
    rtol, max_steps = (
        (diffusion.solver.rtol, diffusion.solver.max_steps) if isinstance(diffusion.solver, UntilSettled) else (0.0, 0)
    )
    largest = np.zeros((1, block.shape[1]))
    steps, target = 0, rtol
    while True:
        steps += int(sweep(matrix, block, target, max_steps - steps, stop, largest))
        take_relative_steps(matrix, block, block, 0, stop, largest)
        residual = float(largest.max())
        if residual <= rtol or steps >= max_steps or stop[0] or not np.isfinite(residual):
            return DiffusionOutcome(steps, residual)
        target /= 2
