"""Where to start from: every free cell takes the mean of its neighbours that have a value already, from near to far.

A start that is right wherever only one source can be heard. From any other start, a part of the graph behind one weak
edge would move so little in a step that it could be taken for settled.
"""

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._kernels.vectors import load, splat, store, where_positive


@compiled
def flood(links, rows, free, reached, block):
    """Fill the free cells of `block`, which holds the known values, sweep by sweep; `reached` is a block to work in."""
    zero, one = splat(free, 0.0), splat(free, 1.0)
    for node in range(free.shape[0]):
        store(reached, node, where_positive(load(free, node), zero, one))
    pending = rows.copy()
    waiting = np.int64(free.size)
    before = waiting + 1
    while 0 < waiting < before:
        before = waiting
        waiting = 0
        left = 0
        for node in pending:
            _reach(links, node, reached, block)
            count = _waiting(free, reached, node)
            waiting += count
            if count:
                pending[left] = node
                left += 1
        pending = pending[:left]


@compiled
def _reach(links, node, reached, block):
    """Give the lanes of `node` that have no value yet the mean of the neighbours that do."""
    zero, one = splat(block, 0.0), splat(block, 1.0)
    before = load(reached, node)
    heard, total = zero, zero
    weighted = links.weights.size > 0
    for edge in range(links.indptr[node], links.indptr[node + 1]):
        neighbour = links.indices[edge]
        weight = splat(block, links.weights[edge]) if weighted else one
        heard = heard + weight * load(reached, neighbour)
        total = total + weight * load(block, neighbour)
    mean = total / where_positive(heard, heard, one)
    fresh = where_positive(before, zero, where_positive(heard, one, zero))
    store(block, node, where_positive(fresh, mean, load(block, node)))
    store(reached, node, before + fresh)


@compiled
def _waiting(free, reached, node):
    """How many free lanes of `node` have no value yet."""
    count = 0
    for lane in range(free.shape[1]):
        count += free[node, lane] > 0 and not reached[node, lane] > 0
    return count


@compiled
def scale_rows(rows, free, scales, block):
    """Multiply the free cells of `block` by their scale."""
    for node in rows:
        row = load(block, node)
        store(block, node, where_positive(load(free, node), row * load(scales, node), row))
