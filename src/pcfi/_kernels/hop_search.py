"""Hops by breadth-first search from all sources of up to 64 patterns at once, one bit per pattern."""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled, inner
from pcfi._typing import Array

PATTERNS_AT_A_TIME = 64


class Sources(NamedTuple):
    """The features, the known mask, and one channel of each pattern: its known nodes are the sources."""

    values: Array
    known: Array
    channels: Array


@inner
def _mark_sources(sources, first, codes, visited, frontier, queue):
    """Set codes to 0 at sources, to the largest integer elsewhere; return the length of `queue`."""
    masked = sources.known.shape[0] > 0
    channels = sources.channels[first : first + PATTERNS_AT_A_TIME]
    unreached_code = np.iinfo(codes.dtype).max
    n_queued = 0
    for node in range(codes.shape[0]):
        bits = np.uint64(0)
        for k in range(len(channels)):
            value = sources.values[node, channels[k]]
            is_known = sources.known[node, channels[k]] if masked else value == value
            bits |= np.uint64(is_known) << np.uint64(k)
            codes[node, first + k] = 0 if is_known else unreached_code
        visited[node] = bits
        frontier[node] = bits
        if bits:
            queue[n_queued] = node
            n_queued += 1
    return n_queued


@inner
def _expand(indptr, indices, visited, frontier, next_frontier, queue, next_queue):
    """Pass the frontier bits of the nodes in `queue` to their neighbours; return the length of `next_queue`."""
    n_queued = 0
    for node in queue:
        bits = frontier[node]
        for edge in range(indptr[node], indptr[node + 1]):
            neighbour = indices[edge]
            new = bits & ~visited[neighbour]
            if new:
                if not next_frontier[neighbour]:
                    next_queue[n_queued] = neighbour
                    n_queued += 1
                next_frontier[neighbour] |= new
    return n_queued


@inner
def _write_level(queue, next_frontier, frontier, visited, level, codes, first):
    """Write `level` where a bit is new and make the next frontier the current one."""
    width = min(PATTERNS_AT_A_TIME, codes.shape[1] - first)
    for node in queue:
        bits = next_frontier[node]
        next_frontier[node] = 0
        frontier[node] = bits
        visited[node] |= bits
        for k in range(width):
            if (bits >> np.uint64(k)) & np.uint64(1):
                codes[node, first + k] = level


@compiled
def search(indptr, indices, sources, first, codes, stop, unreached):
    """Write the hops of the patterns `first` to `first + 63` to `codes`; return the deepest level.

    Return -1 if the hops do not fit into the dtype of `codes`. `indptr`, `indices` list out-neighbours. Unreached cells
    hold the largest integer of `codes` and are counted in `unreached[pattern]`.
    """
    n_nodes = codes.shape[0]
    width = min(PATTERNS_AT_A_TIME, codes.shape[1] - first)
    visited = np.empty(n_nodes, np.uint64)
    frontier = np.empty(n_nodes, np.uint64)
    next_frontier = np.zeros(n_nodes, np.uint64)
    queue = np.empty(n_nodes, np.int32)
    next_queue = np.empty(n_nodes, np.int32)
    n_queued = _mark_sources(sources, first, codes, visited, frontier, queue)
    limit = np.iinfo(codes.dtype).max - 1
    level = 0
    while n_queued and not stop[0]:
        n_queued = _expand(indptr, indices, visited, frontier, next_frontier, queue[:n_queued], next_queue)
        if n_queued and level == limit:
            return -1
        if n_queued:
            level += 1
            _write_level(next_queue[:n_queued], next_frontier, frontier, visited, level, codes, first)
        queue, next_queue = next_queue, queue
    for node in range(n_nodes):
        for k in range(width):
            unreached[first + k] += ~(visited[node] >> np.uint64(k)) & np.uint64(1)
    return level
