"""The steady state of one pattern by Gauss-Seidel sweeps, with relative weights that never underflow.

Slower than conjugate gradients on ordinary graphs, but correct for directed graphs and for any depth: the weights of a
node are alpha^(hops of the neighbour - own hops + 1), at most 1, divided by their sum. A sweep visits the nodes in the
order of their hops and replaces each by the weighted mean of its neighbours. `take_relative_steps` takes a fixed number
of diffusion steps with the same weights.
"""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled, inlined
from pcfi._kernels.vectors import absolute, load, maximum, splat, store
from pcfi._typing import Array


class SweepMatrix(NamedTuple):
    """Rows of the normalised matrix P for the free nodes, ordered by hops: row k is that of node `nodes[k]`.

    `value_scale[k]` times an entry of the block is the value of the k-th node.
    """

    nodes: Array
    indptr: Array
    indices: Array
    weights: Array
    value_scale: Array


@compiled
def order_by_hops(hops, n_levels):
    """Return the free nodes (1 <= hops <= n_levels), sorted by hops and then by number."""
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
def fill_sweep_matrix(graph, hops, n_levels, log_alpha, degree, self_weight, matrix):
    """Fill `matrix.indptr`, `matrix.indices` and `matrix.weights`; unreachable neighbours are left out.

    Weights are divided by their sum, or by `degree + self_weight` if `degree` is not empty. With a `self_weight` > 0
    each node is also its own neighbour.
    """
    weighted = graph.weights.size > 0
    n_entries = 0
    for k in range(len(matrix.nodes)):
        node = matrix.nodes[k]
        matrix.indptr[k] = n_entries
        total = 0.0
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            neighbour = graph.indices[edge]
            if hops[neighbour] <= n_levels:
                gap = np.int64(hops[neighbour]) - np.int64(hops[node])
                weight = np.exp(log_alpha * (gap + 1)) * (graph.weights[edge] if weighted else 1.0)
                matrix.indices[n_entries] = neighbour
                matrix.weights[n_entries] = weight
                total += weight
                n_entries += 1
        own = self_weight * np.exp(log_alpha)
        if self_weight > 0:
            matrix.indices[n_entries] = node
            matrix.weights[n_entries] = own
            n_entries += 1
        total = (degree[node] if degree.size else total) + own
        for position in range(matrix.indptr[k], n_entries):
            matrix.weights[position] /= total
    matrix.indptr[len(matrix.nodes)] = n_entries


@inlined
def _mean(matrix, k, block):
    """Return the weighted mean of the neighbours of the k-th free node."""
    mean = splat(block, 0.0)
    for position in range(matrix.indptr[k], matrix.indptr[k + 1]):
        mean = mean + splat(block, matrix.weights[position]) * load(block, matrix.indices[position])
    return mean


@compiled
def first_sweep(matrix, hops, block):
    """Initial guess: set each free node to the weighted mean of its neighbours that are one hop nearer to a source."""
    for k in range(len(matrix.nodes)):
        node = matrix.nodes[k]
        total = 0.0
        mean = splat(block, 0.0)
        for position in range(matrix.indptr[k], matrix.indptr[k + 1]):
            neighbour = matrix.indices[position]
            if hops[neighbour] < hops[node]:
                total += matrix.weights[position]
                mean = mean + splat(block, matrix.weights[position]) * load(block, neighbour)
        store(block, node, mean / splat(block, total))


@compiled
def sweep(matrix, block, rtol, max_steps, stop, largest):
    """Sweep until no lane changes by more than `rtol`; return the number of sweeps.

    `largest[0]` is the largest change of each lane in the last sweep.
    """
    sweeps = 0
    largest[:] = np.inf
    while sweeps < max_steps and largest.max() > rtol and not stop[0]:
        largest_change = splat(block, 0.0)
        for k in range(len(matrix.nodes)):
            mean = _mean(matrix, k, block)
            change = (mean - load(block, matrix.nodes[k])) * splat(block, matrix.value_scale[k])
            largest_change = maximum(largest_change, absolute(change))
            store(block, matrix.nodes[k], mean)
        store(largest, 0, largest_change)
        sweeps += 1
    return sweeps


@compiled
def take_relative_steps(matrix, block, other, steps, stop, largest):
    """Take `steps` diffusion steps; `other` is a second block with the same known cells.

    The result is in `block` if `steps` is even, else in `other`. `largest[0]` is the largest change that one more step
    would make.
    """
    for step in range(steps + 1):
        if stop[0]:
            break
        largest_change = splat(block, 0.0)
        for k in range(len(matrix.nodes)):
            mean = _mean(matrix, k, block)
            change = (mean - load(block, matrix.nodes[k])) * splat(block, matrix.value_scale[k])
            largest_change = maximum(largest_change, absolute(change))
            if step < steps:
                store(other, matrix.nodes[k], mean)
        store(largest, 0, largest_change)
        block, other = other, block
