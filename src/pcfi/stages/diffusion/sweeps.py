"""One pattern at a time, with weights relative to each node: for deep graphs and steady states of directed ones."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcfi._kernels.blocks import CsrGraph, aligned_block, lane_count
from pcfi._kernels.sweeps import SweepMatrix, fill_sweep_matrix, first_sweep, order_by_hops, sweep, take_relative_steps
from pcfi._kernels.threads import run_tasks
from pcfi._typing import Array
from pcfi.stages.diffusion.job import Job, Outcome
from pcfi.stages.solvers import FixedSteps, UntilSettled


def diffuse(job: Job, chosen: Array) -> Outcome:
    """Fill the chosen channels of `job.out`, pattern by pattern, in float64."""
    return _fill(job, chosen, finish=False)


def finish(job: Job, chosen: Array, taken: int) -> Outcome:
    """Sweep on from `job.out`, which holds what another route got stuck at after `taken` steps, with those left."""
    finished = _fill(job.after(taken), chosen, finish=True)
    return Outcome(taken + finished.steps, finished.residual)


def _fill(job: Job, chosen: Array, *, finish: bool) -> Outcome:
    patterns = job.hops.patterns[chosen]

    def solve_pattern(pattern: int) -> Callable[[Any], Outcome]:
        return lambda stop: _fill_pattern(job, pattern, chosen[patterns == pattern], finish, stop)

    return Outcome.worst(run_tasks([solve_pattern(int(pattern)) for pattern in np.unique(patterns)]))


def _fill_pattern(job: Job, pattern: int, chosen: Array, finish: bool, stop: Any) -> Outcome:
    matrix = _sweep_matrix(job, pattern)
    hops = job.hops.codes[:, pattern]
    lanes = lane_count(np.float64)
    outcomes = []
    for start in range(0, len(chosen), lanes):
        part = chosen[start : start + lanes]
        outcomes.append(_fill_channels(job, matrix, hops, part, finish, stop))
        if not finish:
            job.advance(len(part))
    return Outcome.worst(outcomes)


def _sweep_matrix(job: Job, pattern: int) -> SweepMatrix:
    """Free nodes of the pattern from near to far, with their normalised relative weights."""
    graph, weighting = job.problem.graph, job.weighting
    csr_graph = CsrGraph(graph.indptr, graph.indices, graph.weights_as(np.float64))
    hops = np.ascontiguousarray(job.hops.codes[:, pattern])
    nodes = order_by_hops(hops, job.hops.n_levels)
    n_entries = int(np.diff(graph.indptr)[nodes].sum()) + len(nodes)
    degree = np.empty(0) if weighting.degree is None else weighting.degree
    with np.errstate(divide="ignore"):
        value_scale = 1.0 / weighting.by_node[nodes]
    matrix = SweepMatrix(
        nodes,
        np.empty(len(nodes) + 1, dtype=np.int64),
        np.empty(n_entries, dtype=np.int32),
        np.empty(n_entries),
        value_scale,
    )
    fill_sweep_matrix(
        csr_graph, hops, job.hops.n_levels, float(np.log(weighting.alpha)), degree, job.judged_self_weight, matrix
    )
    return matrix


def _fill_channels(job: Job, matrix: SweepMatrix, hops: Array, part: Array, finish: bool, stop: Any) -> Outcome:
    channels, by_node = job.problem.channels, job.weighting.by_node
    spread = job.spread(part)
    shift = channels.mean[part] if job.centred else np.zeros(len(part))
    sources = np.flatnonzero(hops == 0)
    block = aligned_block(len(hops), np.float64)
    block[:] = 0
    block[sources, : len(part)] = (job.problem.values[np.ix_(sources, part)] - shift) / spread * by_node[sources, None]
    if not job.settles:
        block, outcome = _take_steps(job, matrix, block, stop)
    else:
        first_sweep(matrix, np.ascontiguousarray(hops), block)
        if finish:
            reached = (job.out[np.ix_(matrix.nodes, part)] - shift) / spread / matrix.value_scale[:, None]
            finite = np.isfinite(reached).all(axis=0)
            block[np.ix_(matrix.nodes, np.flatnonzero(finite))] = reached[:, finite]
        outcome = _sweep(job, matrix, block, stop)
    filled = block[matrix.nodes, : len(part)] * matrix.value_scale[:, None] * spread + shift
    if job.centred:
        filled = np.clip(filled, channels.low[part], channels.high[part])
    job.out[np.ix_(matrix.nodes, part)] = filled
    return outcome


def _take_steps(job: Job, matrix: SweepMatrix, block: Array, stop: Any) -> tuple[Array, Outcome]:
    """The block after the solver's fixed number of steps."""
    steps = job.solver.steps if isinstance(job.solver, FixedSteps) else 0
    largest = np.zeros((1, block.shape[1]))
    other = aligned_block(len(block), np.float64)
    other[:] = block
    take_relative_steps(matrix, block, other, steps, stop, largest)
    return (block if steps % 2 == 0 else other), Outcome(steps, float(largest.max()))


def _sweep(job: Job, matrix: SweepMatrix, block: Array, stop: Any) -> Outcome:
    """Sweep the block until what one further step would move, measured afresh, is small enough."""
    rtol, max_steps = (job.solver.rtol, job.solver.max_steps) if isinstance(job.solver, UntilSettled) else (0.0, 0)
    largest = np.zeros((1, block.shape[1]))
    steps, wanted = 0, rtol
    while True:
        steps += int(sweep(matrix, block, wanted, max_steps - steps, stop, largest))
        take_relative_steps(matrix, block, block, 0, stop, largest)
        residual = float(largest.max())
        if residual <= rtol or steps >= max_steps or stop[0] or not np.isfinite(residual):
            return Outcome(steps, residual)
        wanted /= 2
