"""Where to start from: every free cell takes the mean of its neighbours that have a value already, from near to far.

A start that is right wherever only one source can be heard. From any other start, a part of the graph behind one weak
edge would move so little in a step that it could be taken for settled.
"""

import numpy as np

from pcfi._kernels.blocks import ask_ahead
from pcfi._kernels.compiling import compiled
from pcfi._kernels.thread_team import meet, part_by_edges, part_of
from pcfi._kernels.vectors import count_nan, load, splat, store, where_number, where_positive


@compiled
def flood(links, rows, free, other, block, team, reached):
    """Fill the free cells of `block`, which holds the known values, sweep by sweep.

    A sweep looks at what the sweeps before it left, so the order of nodes does not matter: new values go to `other`, a
    block to work in, until everybody is done. NaN marks cells without a value; what no sweep reaches is 0 in the end.
    `reached`, of shape (2, team.size), is shared.
    """
    nothing, zero = splat(free, np.nan), splat(free, 0.0)
    first, last = part_of(free.shape[0], team)
    for node in range(first, last):
        store(block, node, where_positive(load(free, node), nothing, load(block, node)))
    meet(team)
    start, end = part_by_edges(links.indptr, rows, 1, team)
    pending = rows[start:end].copy()
    sweep = 0
    while not team.stop[0]:
        for node in pending:
            _listen(links, node, block, other)
        meet(team)
        left, count = 0, 0
        for node in pending:
            waiting = count_nan(load(other, node))
            count += count_nan(load(block, node)) - waiting
            store(block, node, load(other, node))
            if waiting:
                pending[left] = node
                left += 1
        pending = pending[:left]
        reached[sweep % 2, team.rank] = count
        meet(team)
        if not reached[sweep % 2].sum():
            break
        sweep += 1
    for node in range(first, last):
        row = load(block, node)
        store(block, node, where_number(row, row, zero))


@compiled
def _listen(links, node, block, other):
    """`other` = the row of `node`, its lanes without a value filled with the mean of the neighbours that have one."""
    nothing, zero, one = splat(block, np.nan), splat(block, 0.0), splat(block, 1.0)
    heard, total = zero, zero
    weighted = links.weights.size > 0
    for edge in range(links.indptr[node], links.indptr[node + 1]):
        ask_ahead(links, block, edge)
        value = load(block, links.indices[edge])
        weight = where_number(value, splat(block, links.weights[edge]) if weighted else one, zero)
        heard = heard + weight
        total = total + weight * where_number(value, value, zero)
    mean = where_positive(heard, total / where_positive(heard, heard, one), nothing)
    own = load(block, node)
    store(other, node, where_number(own, own, mean))


@compiled
def scale_rows(rows, free, scales, block):
    """Multiply the free cells of `block` by their scale."""
    for node in rows:
        row = load(block, node)
        store(block, node, where_positive(load(free, node), row * load(scales, node), row))
