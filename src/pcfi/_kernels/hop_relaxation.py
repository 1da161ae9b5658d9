"""Hops of 64 patterns at a time by Bellman-Ford relaxation, one byte per pattern.

Each pass sets a node to the minimum over its neighbours plus one, until nothing changes. The 64 hops of a node are one
vector, so an edge costs one instruction for all patterns. The number of passes grows with the depth of the graph, not
with the number of patterns; graphs that need more than `MAX_PASSES` passes are left to `hop_search`.
"""

import numpy as np

from pcfi._kernels.channel_stats import known_flags
from pcfi._kernels.compiling import compiled
from pcfi._kernels.hop_search import PATTERNS_AT_A_TIME
from pcfi._kernels.vectors import any_less, load, minimum, saturating_add, splat, store

MAX_PASSES = 64  # beyond this a queue is faster
UNREACHED = 255  # the largest byte


@compiled
def mark_sources(sources, first, block):
    """Set `block` to 0 at the sources of the patterns `first` to `first + 63`, to UNREACHED elsewhere."""
    masked = sources.known.shape[0] > 0
    channels = sources.channels[first : first + PATTERNS_AT_A_TIME]
    flags = np.empty(len(channels), np.bool_)
    contiguous = True
    for k in range(1, len(channels)):
        contiguous &= channels[k] == channels[k - 1] + 1
    for node in range(block.shape[0]):
        row = block[node]
        if contiguous:
            values = sources.values[node, channels[0] : channels[0] + len(channels)]
            known = sources.known[node, channels[0] : channels[0] + len(channels)] if masked else sources.known[:0, 0]
            known_flags(values, known, flags)
        else:
            for k in range(len(channels)):
                value = sources.values[node, channels[k]]
                flags[k] = sources.known[node, channels[k]] if masked else value == value
        for k in range(len(channels)):
            row[k] = 0 if flags[k] else UNREACHED
        for k in range(len(channels), len(row)):
            row[k] = 0


@compiled
def relax(indptr, indices, block, stop):
    """Turn `block` into hops; `indptr`, `indices` list in-neighbours. Return whether MAX_PASSES were enough."""
    one = splat(block, 1)
    for passes in range(MAX_PASSES):
        changed = False
        settled = splat(block, passes)
        for node in range(block.shape[0]):
            hops = load(block, node)
            if any_less(settled, hops):  # hops of at most `passes` are final
                nearest = splat(block, UNREACHED)
                for edge in range(indptr[node], indptr[node + 1]):
                    nearest = minimum(nearest, load(block, indices[edge]))
                nearest = saturating_add(nearest, one)
                if any_less(nearest, hops):
                    store(block, node, minimum(hops, nearest))
                    changed = True
        if not changed or stop[0]:
            return True
    return False


@compiled
def read_hops(block, first, codes, unreached):
    """Copy the hops into the columns of `codes` from `first` on, and count unreached nodes in `unreached`.

    Return the largest number of hops, or -1 if some nodes may be unreached only because a byte cannot hold their hops.
    """
    width = min(PATTERNS_AT_A_TIME, codes.shape[1] - first)
    counts = np.zeros(width, np.int64)
    deepest = np.zeros(width, np.uint8)
    for node in range(block.shape[0]):
        row = block[node]
        code_row = codes[node, first : first + width]
        for k in range(width):
            code_row[k] = row[k]
        for k in range(width):
            deepest[k] = max(deepest[k], np.uint8(0) if row[k] == UNREACHED else row[k])
        for k in range(width):
            counts[k] += row[k] == UNREACHED
    most = np.int64(0)
    for k in range(width):
        most = max(most, np.int64(deepest[k]))
    if most == UNREACHED - 1:
        return np.int64(-1)
    for k in range(width):
        unreached[first + k] += counts[k]
    return most
