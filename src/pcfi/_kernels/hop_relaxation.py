"""Hops of 64 patterns at a time by Bellman-Ford relaxation, one byte per pattern.

Each pass sets a node to the minimum over its neighbours plus one, until nothing changes. The 64 hops of a node are one
vector, so an edge costs one instruction for all patterns. The number of passes grows with the depth of the graph, not
with the number of patterns; graphs that need more than `MAX_PASSES` passes are left to `hop_search`.
"""

from collections.abc import Iterator

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._kernels.hop_search import PATTERNS_AT_A_TIME, Sources
from pcfi._kernels.vectors import any_less, load, minimum, saturating_add, splat, store
from pcfi._typing import Array

MAX_PASSES = 64  # beyond this a queue is faster
UNREACHED = 255  # the largest byte
ROWS_AT_A_TIME = 8192  # arrays that numpy computes on the way have at most half a megabyte


def mark_sources(sources: Sources, first: int, block: Array) -> None:
    """Set `block` to 0 at the sources of the patterns `first` to `first + 63`, to UNREACHED elsewhere."""
    channels = sources.channels[first : first + PATTERNS_AT_A_TIME]
    width = len(channels)
    consecutive = (np.diff(channels) == 1).all()
    chosen = slice(channels[0], channels[0] + width) if consecutive else channels  # a slice is not copied
    for rows in _row_slices(len(block)):
        has_mask = len(sources.known) > 0
        missing = ~sources.known[rows, chosen] if has_mask else np.isnan(sources.values[rows, chosen])
        np.negative(missing.view(np.uint8), out=block[rows, :width])  # 0 or 255
        block[rows, width:] = 0


def _row_slices(n_rows: int) -> Iterator[slice]:
    """Slices of rows, so that what numpy computes on the way is small."""
    return (slice(start, start + ROWS_AT_A_TIME) for start in range(0, n_rows, ROWS_AT_A_TIME))


@compiled
def relax(indptr, indices, block, stop):
    """Turn `block` into hops; `indptr`, `indices` list in-neighbours. Return whether MAX_PASSES were enough.

    Rows of `block` beyond those of `indptr` are neighbours whose hops are given.
    """
    one = splat(block, 1)
    for passes in range(MAX_PASSES):
        changed = False
        settled = splat(block, passes)
        for node in range(len(indptr) - 1):
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


def read_hops(block: Array, first: int, codes: Array, unreached: Array) -> int:
    """Copy the hops into the columns of `codes` from `first` on, and count unreached nodes in `unreached`.

    Return the largest number of hops, or -1 if some nodes may be unreached only because a byte cannot hold their hops.
    """
    width = min(block.shape[1], codes.shape[1] - first)
    deepest, n_unreached = 0, np.zeros(width, dtype=np.int64)
    for rows in _row_slices(len(block)):
        hops = block[rows, :width]
        codes[rows, first : first + width] = hops
        following = hops + np.uint8(1)  # UNREACHED becomes 0
        deepest = max(deepest, int(following.max(initial=1)) - 1)
        if not following.all():
            n_unreached += len(hops) - np.count_nonzero(following, axis=0)
    if deepest == UNREACHED - 1:
        return -1
    unreached[first : first + width] += n_unreached
    return deepest
