"""One pattern at a time, with weights relative to each node: for deep graphs and steady states of directed ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._kernels.blocks import Links, aligned_block, lanes_of
from pcfi._kernels.sweeping import Plan, order_by_hops, plan_sweeps, start_near_to_far, sweep, take_planned_steps
from pcfi._kernels.threads import run
from pcfi.diffusion.job import Job, Outcome
from pcfi.solvers import FixedSteps

Array = npt.NDArray[Any]


def diffuse(job: Job, chosen: Array) -> Outcome:
    """Fill the chosen channels of `job.out`, pattern by pattern, in float64."""
    patterns = job.hops.patterns[chosen]

    def solve_pattern(pattern: int) -> Callable[[Any], Outcome]:
        return lambda stop: _fill_pattern(job, pattern, chosen[patterns == pattern], stop)

    return Outcome.worst(run([solve_pattern(int(pattern)) for pattern in np.unique(patterns)]))


def _fill_pattern(job: Job, pattern: int, chosen: Array, stop: Any) -> Outcome:
    plan = _plan(job, pattern)
    hops = job.hops.codes[:, pattern]
    lanes = lanes_of(np.float64)
    outcomes = []
    for start in range(0, len(chosen), lanes):
        part = chosen[start : start + lanes]
        outcomes.append(_fill_channels(job, plan, hops, part, stop))
        job.advance(len(part))
    return Outcome.worst(outcomes)


def _plan(job: Job, pattern: int) -> Plan:
    """Free nodes of the pattern from near to far, with their normalised relative weights."""
    graph, weighting = job.problem.graph, job.weighting
    links = Links(graph.indptr, graph.indices, graph.weights_as(np.float64))
    hops = np.ascontiguousarray(job.hops.codes[:, pattern])
    nodes = order_by_hops(hops, job.hops.n_levels)
    n_entries = int(np.diff(graph.indptr)[nodes].sum()) + len(nodes)
    degree = np.empty(0) if weighting.degree is None else weighting.degree
    with np.errstate(divide="ignore"):
        unit = 1.0 / weighting.by_node[nodes]
    plan = Plan(
        nodes,
        np.empty(len(nodes) + 1, dtype=np.int64),
        np.empty(n_entries, dtype=np.int32),
        np.empty(n_entries),
        unit,
    )
    plan_sweeps(links, hops, job.hops.n_levels, float(np.log(weighting.alpha)), degree, job.own_weight, plan)
    return plan


def _fill_channels(job: Job, plan: Plan, hops: Array, part: Array, stop: Any) -> Outcome:
    channels, by_node = job.problem.channels, job.weighting.by_node
    spread = job.spread(part)
    shift = channels.mean[part] if job.centred else np.zeros(len(part))
    sources = np.flatnonzero(hops == 0)
    known = (job.problem.values[np.ix_(sources, part)] - shift) / spread * by_node[sources, None]
    block = aligned_block(len(hops), np.float64)
    block[:] = 0
    block[sources, : len(part)] = known
    largest = np.zeros((1, block.shape[1]))
    if isinstance(job.solver, FixedSteps):
        other = aligned_block(len(hops), np.float64)
        other[:] = block
        take_planned_steps(plan, block, other, job.solver.steps, stop, largest)
        steps = job.solver.steps
        block = block if steps % 2 == 0 else other
    else:
        start_near_to_far(plan, np.ascontiguousarray(hops), block)
        steps = sweep(plan, block, job.solver.rtol, job.solver.max_steps, stop, largest)
    filled = block[plan.nodes, : len(part)] * plan.unit[:, None] * spread + shift
    if job.centred:
        filled = np.clip(filled, channels.low[part], channels.high[part])
    job.out[np.ix_(plan.nodes, part)] = filled
    return Outcome(int(steps), float(largest[0, : len(part)].max()))
