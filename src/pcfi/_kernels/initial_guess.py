"""Initial guess of the steady state: free cells take the mean of neighbours that already have a value, near to far.

The guess is exact wherever only one source reaches. From a worse guess, a part of the graph behind one weak edge would
change so little in a step that it could be mistaken for settled.
"""

import numpy as np

from pcfi._kernels.blocks import prefetch_neighbour
from pcfi._kernels.compiling import compiled, inner
from pcfi._kernels.thread_team import barrier, thread_range, thread_range_by_edges
from pcfi._kernels.vectors import count_nan, load, splat, store, where_not_nan, where_positive


@compiled
def fill_initial_guess(graph, rows, free, scratch, block, team, n_filled):
    """Fill the free cells of `block`, which holds the known values, sweep by sweep.

    A sweep reads only values of earlier sweeps, so the order of the nodes does not matter: new values go to the block
    `scratch` until all threads have finished the sweep. NaN marks cells without a value; cells that no sweep reaches
    become 0. `n_filled`, of shape (2, team.size), is shared by the team.
    """
    nan, zero = splat(free, np.nan), splat(free, 0.0)
    first, last = thread_range(free.shape[0], team)
    for node in range(first, last):
        store(block, node, where_positive(load(free, node), nan, load(block, node)))
    barrier(team)
    start, end = thread_range_by_edges(graph.indptr, rows, 1, team)
    pending = np.empty(end - start, rows.dtype)
    for k in range(end - start):
        pending[k] = rows[start + k]
    sweep = 0
    while not team.stop[0]:
        for node in pending:
            _average_neighbours(graph, node, block, scratch)
        barrier(team)
        n_pending, count = 0, 0
        for node in pending:
            n_empty = count_nan(load(scratch, node))
            count += count_nan(load(block, node)) - n_empty
            store(block, node, load(scratch, node))
            if n_empty:
                pending[n_pending] = node
                n_pending += 1
        pending = pending[:n_pending]
        n_filled[sweep % 2, team.rank] = count
        barrier(team)
        n_all = 0
        for rank in range(team.size):
            n_all += n_filled[sweep % 2, rank]
        if not n_all:
            break
        sweep += 1
    for node in range(first, last):
        row = load(block, node)
        store(block, node, where_not_nan(row, row, zero))


@inner
def _average_neighbours(graph, node, block, out):
    """Write the row of `node` to `out`, NaN lanes replaced by the mean of the neighbours that have a value."""
    nan, zero, one = splat(block, np.nan), splat(block, 0.0), splat(block, 1.0)
    weight_sum, total = zero, zero
    weighted = graph.weights.size > 0
    for edge in range(graph.indptr[node], graph.indptr[node + 1]):
        prefetch_neighbour(graph, block, edge)
        value = load(block, graph.indices[edge])
        weight = where_not_nan(value, splat(block, graph.weights[edge]) if weighted else one, zero)
        weight_sum = weight_sum + weight
        total = total + weight * where_not_nan(value, value, zero)
    mean = where_positive(weight_sum, total / where_positive(weight_sum, weight_sum, one), nan)
    own = load(block, node)
    store(out, node, where_not_nan(own, own, mean))


@compiled
def scale_rows(rows, free, scales, block):
    """Multiply the free cells of `block` by their scale."""
    for node in rows:
        row = load(block, node)
        store(block, node, where_positive(load(free, node), row * load(scales, node), row))
