"""Hanging trees: in the steady state a node whose only way to any source is one neighbour equals that neighbour.

Such nodes can be taken off the graph before solving, again and again until none is left, and put back afterwards. Half
of the nodes of a citation graph may go this way, and what remains settles in fewer steps.
"""

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._kernels.vectors import load, splat, store


@compiled
def _free_in_all(free, n_lanes, node):
    for lane in range(n_lanes):
        if not free[node, lane] > 0:
            return False
    return True


@compiled
def peel(links, free, n_lanes, leaves, parents):
    """Fill `leaves` and `parents` in the order of taking off; returns how many. Only nodes free in all lanes go."""
    n_nodes = free.shape[0]
    remaining = np.empty(n_nodes, np.int64)
    found = 0
    for node in range(n_nodes):
        remaining[node] = links.indptr[node + 1] - links.indptr[node]
        if remaining[node] == 1 and _free_in_all(free, n_lanes, node):
            leaves[found] = node
            found += 1
    done = 0
    while done < found:
        leaf = leaves[done]
        remaining[leaf] = 0
        for edge in range(links.indptr[leaf], links.indptr[leaf + 1]):
            neighbour = links.indices[edge]
            if remaining[neighbour] > 0:
                parents[done] = neighbour
                remaining[neighbour] -= 1
                if remaining[neighbour] == 1 and _free_in_all(free, n_lanes, neighbour):
                    leaves[found] = neighbour
                    found += 1
                break
        done += 1
    return found


@compiled
def take_off(leaves, rows, scales):
    """Take the leaves off `rows` and their weight off `scales`; returns the number of rows that are left."""
    zero = splat(scales, 0.0)
    gone = np.zeros(scales.shape[0], np.bool_)
    for leaf in leaves:
        gone[leaf] = True
        store(scales, leaf, zero)
    left = 0
    for node in rows:
        if not gone[node]:
            rows[left] = node
            left += 1
    return left


@compiled
def put_back(leaves, parents, block, scales):
    """Give each leaf the value of its parent, last taken off first."""
    for k in range(len(leaves) - 1, -1, -1):
        store(block, leaves[k], load(block, parents[k]))
        store(scales, leaves[k], load(scales, parents[k]))
