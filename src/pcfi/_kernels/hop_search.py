"""Breadth-first search from all sources of up to 64 patterns at once, one bit per pattern."""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._typing import Array

PATTERNS_AT_A_TIME = 64


class Sources(NamedTuple):
    """Where the sources of each pattern are read from: the features, the known mask, a channel of each pattern."""

    values: Array
    known: Array
    channels: Array


@compiled
def _source_bits(sources, first, codes, reached, arrived, queue):
    """Start of a search: codes 0 at sources, the largest integer elsewhere; returns how many nodes are in `queue`."""
    masked = sources.known.shape[0] > 0
    channels = sources.channels[first : first + PATTERNS_AT_A_TIME]
    beyond = np.iinfo(codes.dtype).max
    found = 0
    for node in range(codes.shape[0]):
        bits = np.uint64(0)
        for k in range(len(channels)):
            value = sources.values[node, channels[k]]
            is_known = sources.known[node, channels[k]] if masked else value == value
            bits |= np.uint64(is_known) << np.uint64(k)
            codes[node, first + k] = 0 if is_known else beyond
        reached[node] = bits
        arrived[node] = bits
        if bits:
            queue[found] = node
            found += 1
    return found


@compiled
def _expand(indptr, indices, reached, arrived, arriving, queue, found_queue):
    """Send the bits that just arrived at the nodes in `queue` to their neighbours; returns the next queue's length."""
    found = 0
    for node in queue:
        bits = arrived[node]
        for edge in range(indptr[node], indptr[node + 1]):
            neighbour = indices[edge]
            new = bits & ~reached[neighbour]
            if new:
                if not arriving[neighbour]:
                    found_queue[found] = neighbour
                    found += 1
                arriving[neighbour] |= new
    return found


@compiled
def _record(queue, arriving, arrived, reached, level, codes, first):
    """Write `level` where a bit arrived and make the arrivals the next frontier."""
    width = min(PATTERNS_AT_A_TIME, codes.shape[1] - first)
    for node in queue:
        bits = arriving[node]
        arriving[node] = 0
        arrived[node] = bits
        reached[node] |= bits
        for k in range(width):
            if (bits >> np.uint64(k)) & np.uint64(1):
                codes[node, first + k] = level


@compiled
def search(indptr, indices, sources, first, codes, stop, unreached):
    """Hops for the patterns `first` to `first + 63` into `codes`; returns the deepest level, or -1 if it does not fit.

    `indptr`, `indices` list out-neighbours. BlockCells that stay unreached hold the largest integer of `codes` and are
    counted in `unreached[pattern]`.
    """
    n_nodes = codes.shape[0]
    width = min(PATTERNS_AT_A_TIME, codes.shape[1] - first)
    reached = np.empty(n_nodes, np.uint64)
    arrived = np.empty(n_nodes, np.uint64)
    arriving = np.zeros(n_nodes, np.uint64)
    queue = np.empty(n_nodes, np.int32)
    found_queue = np.empty(n_nodes, np.int32)
    found = _source_bits(sources, first, codes, reached, arrived, queue)
    limit = np.iinfo(codes.dtype).max - 1
    level = 0
    while found and not stop[0]:
        found = _expand(indptr, indices, reached, arrived, arriving, queue[:found], found_queue)
        if found and level == limit:
            return -1
        if found:
            level += 1
            _record(found_queue[:found], arriving, arrived, reached, level, codes, first)
        queue, found_queue = found_queue, queue
    for node in range(n_nodes):
        for k in range(width):
            unreached[first + k] += ~(reached[node] >> np.uint64(k)) & np.uint64(1)
    return level
