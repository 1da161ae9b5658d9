"""The steady state of one pattern by sweeps from near to far cells, with relative weights that never underflow.

Slower than conjugate gradients on ordinary graphs, but right for directed graphs and any depth: a node's weights
are alpha^(hops of the neighbour - own hops + 1), at most 1, normalised to sum 1. A sweep visits the nodes in the
order of their hops and replaces each by the weighted mean of its neighbours. Plain steps with the same weights are here
for deep graphs, too.
"""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled, inlined
from pcfi._kernels.vectors import absolute, load, maximum, splat, store
from pcfi._typing import Array


class SweepMatrix(NamedTuple):
    """Free nodes from near to far, and for the k-th of them its neighbours and normalised weights.

    `unit[k]` turns a change of the k-th node in the block into a change of its value.
    """

    nodes: Array
    indptr: Array
    indices: Array
    weights: Array
    unit: Array


@compiled
def order_by_hops(hops, n_levels):
    """Free nodes (1 <= hops <= n_levels) sorted by hops, stably."""
    starts = np.zeros(n_levels + 2, np.int64)
    for hop in hops:
        if 0 < hop <= n_levels:
            starts[hop + 1] += 1
    for level in range(1, n_levels + 2):
        starts[level] += starts[level - 1]
    nodes = np.empty(starts[n_levels + 1], np.int32)
    for node in range(len(hops)):
        hop = hops[node]
        if 0 < hop <= n_levels:
            nodes[starts[hop]] = node
            starts[hop] += 1
    return nodes


@compiled
def fill_sweep_matrix(graph, hops, n_levels, log_alpha, degree, self_weight, plan):
    """Fill `plan.indptr`, `plan.indices`, `plan.weights`; unreachable neighbours take no part.

    Weights are divided by their sum, or by `degree + self_weight` if there is a `degree`. With a `self_weight` each
    node is its own neighbour, too.
    """
    weighted = graph.weights.size > 0
    filled = 0
    for k in range(len(plan.nodes)):
        node = plan.nodes[k]
        plan.indptr[k] = filled
        total = 0.0
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            neighbour = graph.indices[edge]
            if hops[neighbour] <= n_levels:
                gap = np.int64(hops[neighbour]) - np.int64(hops[node])
                weight = np.exp(log_alpha * (gap + 1)) * (graph.weights[edge] if weighted else 1.0)
                plan.indices[filled] = neighbour
                plan.weights[filled] = weight
                total += weight
                filled += 1
        own = self_weight * np.exp(log_alpha)
        if self_weight > 0:
            plan.indices[filled] = node
            plan.weights[filled] = own
            filled += 1
        total = (degree[node] if degree.size else total) + own
        for position in range(plan.indptr[k], filled):
            plan.weights[position] /= total
    plan.indptr[len(plan.nodes)] = filled


@inlined
def _mean(plan, k, block):
    """Weighted mean of the neighbours of the k-th free node."""
    mean = splat(block, 0.0)
    for position in range(plan.indptr[k], plan.indptr[k + 1]):
        mean = mean + splat(block, plan.weights[position]) * load(block, plan.indices[position])
    return mean


@compiled
def first_sweep(plan, hops, block):
    """Each free node takes the weighted mean of its neighbours that are one hop nearer."""
    for k in range(len(plan.nodes)):
        node = plan.nodes[k]
        total = 0.0
        mean = splat(block, 0.0)
        for position in range(plan.indptr[k], plan.indptr[k + 1]):
            neighbour = plan.indices[position]
            if hops[neighbour] < hops[node]:
                total += plan.weights[position]
                mean = mean + splat(block, plan.weights[position]) * load(block, neighbour)
        store(block, node, mean / splat(block, total))


@compiled
def sweep(plan, block, rtol, max_steps, stop, largest):
    """Sweep until no lane changes by more than `rtol`; returns the number of sweeps, `largest[0]` the last changes."""
    sweeps = 0
    largest[:] = np.inf
    while sweeps < max_steps and largest.max() > rtol and not stop[0]:
        most = splat(block, 0.0)
        for k in range(len(plan.nodes)):
            mean = _mean(plan, k, block)
            change = (mean - load(block, plan.nodes[k])) * splat(block, plan.unit[k])
            most = maximum(most, absolute(change))
            store(block, plan.nodes[k], mean)
        store(largest, 0, most)
        sweeps += 1
    return sweeps


@compiled
def take_relative_steps(plan, block, other, steps, stop, largest):
    """`steps` plain steps; `other` is a second block with the same known cells, and holds the result if `steps` is odd.

    `largest[0]` is the largest change that one further step would make.
    """
    for step in range(steps + 1):
        if stop[0]:
            break
        most = splat(block, 0.0)
        for k in range(len(plan.nodes)):
            mean = _mean(plan, k, block)
            change = (mean - load(block, plan.nodes[k])) * splat(block, plan.unit[k])
            most = maximum(most, absolute(change))
            if step < steps:
                store(other, plan.nodes[k], mean)
        store(largest, 0, most)
        block, other = other, block
