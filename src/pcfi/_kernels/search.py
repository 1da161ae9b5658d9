"""Breadth-first search from all sources of up to 64 patterns at once, one bit per pattern."""

import numpy as np

from pcfi._kernels.compiling import compiled

PATTERNS_PER_WORD = 64


@compiled
def _source_bits(codes, first, width, reached, arrived, queue):
    """Bits of the patterns that each node is a source of; returns how many nodes entered `queue`."""
    found = 0
    for node in range(codes.shape[0]):
        bits = np.uint64(0)
        for k in range(width):
            bits |= np.uint64(codes[node, first + k] == 0) << np.uint64(k)
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
    width = min(PATTERNS_PER_WORD, codes.shape[1] - first)
    for node in queue:
        bits = arriving[node]
        arriving[node] = 0
        arrived[node] = bits
        reached[node] |= bits
        for k in range(width):
            if (bits >> np.uint64(k)) & np.uint64(1):
                codes[node, first + k] = level


@compiled
def search(indptr, indices, codes, first, limit, stop, unreached):
    """Hops for the patterns `first` to `first + 63` of `codes`; returns the deepest level, or -1 if beyond `limit`.

    On entry `codes[node, pattern]` is 0 at sources and larger than `limit` elsewhere; `indptr`, `indices` list
    out-neighbours. Cells that stay unreached keep their entry and are counted in `unreached[pattern]`.
    """
    n_nodes = codes.shape[0]
    width = min(PATTERNS_PER_WORD, codes.shape[1] - first)
    reached = np.empty(n_nodes, np.uint64)
    arrived = np.empty(n_nodes, np.uint64)
    arriving = np.zeros(n_nodes, np.uint64)
    queue = np.empty(n_nodes, np.int32)
    found_queue = np.empty(n_nodes, np.int32)
    found = _source_bits(codes, first, width, reached, arrived, queue)
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
