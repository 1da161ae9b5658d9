"""Where to start from: every free cell takes the mean of its neighbours that have a value already, from near to far.

A start that is right wherever only one source can be heard. From any other start, a part of the graph behind one weak
edge would move so little in a step that it could be taken for settled.
"""

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._kernels.teams import meet, part_by_edges, part_of
from pcfi._kernels.vectors import load, splat, store, where_positive


@compiled
def flood(links, rows, free, levels, block, team, waiting):
    """Fill the free cells of `block`, which holds the known values, sweep by sweep.

    `levels` is a block to work in: in which sweep a cell was reached. `waiting`, of shape (2, team.size), is shared.
    """
    zero, one = splat(free, 0.0), splat(free, 1.0)
    first, last = part_of(free.shape[0], team)
    for node in range(first, last):
        store(levels, node, where_positive(load(free, node), zero, one))
    meet(team)
    first, last = part_by_edges(links.indptr, rows, 1, team)
    pending = rows[first:last].copy()
    left_before = np.int64(-1)
    sweep = 1
    while not team.stop[0]:
        sweep += 1
        left, count = 0, 0
        for node in pending:
            _reach(links, node, sweep, levels, block)
            waits = _waiting(free, levels, node)
            count += waits
            if waits:
                pending[left] = node
                left += 1
        pending = pending[:left]
        waiting[sweep % 2, team.rank] = count
        meet(team)
        left_now = waiting[sweep % 2].sum()
        if left_now in (0, left_before):
            break
        left_before = left_now


@compiled
def _reach(links, node, sweep, levels, block):
    """Give the lanes of `node` without a value the mean of the neighbours that had one before this sweep."""
    zero, one = splat(block, 0.0), splat(block, 1.0)
    now = splat(block, sweep)
    before = load(levels, node)
    heard, total = zero, zero
    weighted = links.weights.size > 0
    for edge in range(links.indptr[node], links.indptr[node + 1]):
        neighbour = links.indices[edge]
        level = load(levels, neighbour)
        weight = splat(block, links.weights[edge]) if weighted else one
        weight = where_positive(level, where_positive(now - level, weight, zero), zero)
        heard = heard + weight
        total = total + weight * load(block, neighbour)
    mean = total / where_positive(heard, heard, one)
    fresh = where_positive(before, zero, where_positive(heard, now, zero))
    store(block, node, where_positive(fresh, mean, load(block, node)))
    store(levels, node, before + fresh)


@compiled
def _waiting(free, levels, node):
    """How many free lanes of `node` have no value yet."""
    count = 0
    for lane in range(free.shape[1]):
        count += free[node, lane] > 0 and not levels[node, lane] > 0
    return count


@compiled
def scale_rows(rows, free, scales, block):
    """Multiply the free cells of `block` by their scale."""
    for node in rows:
        row = load(block, node)
        store(block, node, where_positive(load(free, node), row * load(scales, node), row))
