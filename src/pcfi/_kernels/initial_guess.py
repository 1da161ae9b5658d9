"""Initial guess of the steady state: free cells take the mean of neighbours that already have a value, near to far.

The guess is exact wherever only one source reaches. From a worse guess, a part of the graph behind one weak edge would
change so little in a step that it could be mistaken for settled.
"""

import numpy as np

from pcfi._kernels.compiling import compiled, inner
from pcfi._kernels.csr_graph import known_neighbour_mean
from pcfi._kernels.thread_team import barrier
from pcfi._kernels.vectors import count_nan, load, splat, store, where_not_nan, where_positive


@compiled
def fill_initial_guess(graph, pending, free, scratch, scales, block, team, n_filled):
    """Fill the free cells of `block`, which holds the known values, sweep by sweep, and multiply them by their scale.

    A sweep reads only values of earlier sweeps, so the order of the nodes does not matter: new values go to the block
    `scratch` until all threads have finished the sweep. NaN marks cells without a value; cells that no sweep reaches
    become 0. `pending` are the rows of the calling thread, and are overwritten; `scales` without rows mean 1.
    `n_filled`, of shape (2, team.size), is shared by the team.
    """
    nan, zero = splat(free, np.nan), splat(free, 0.0)
    n_nodes = free.shape[0]
    first, last = n_nodes * team.rank // team.size, n_nodes * (team.rank + 1) // team.size
    for node in range(first, last):
        store(block, node, where_positive(load(free, node), nan, load(block, node)))
    barrier(team)
    n_pending = len(pending)
    sweep = 0
    while not team.stop[0]:
        for k in range(n_pending):
            average_neighbours(graph, pending[k], block, scratch)
        barrier(team)
        n_left, count = 0, 0
        for k in range(n_pending):
            node = pending[k]
            n_empty = count_nan(load(scratch, node))
            count += count_nan(load(block, node)) - n_empty
            store(block, node, load(scratch, node))
            if n_empty:
                pending[n_left] = node
                n_left += 1
        n_pending = n_left
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
        row = where_not_nan(row, row, zero)
        if scales.shape[0]:
            row = where_positive(load(free, node), row * load(scales, node), row)
        store(block, node, row)


@inner
def average_neighbours(graph, node, block, out):
    """Write the row of `node` to `out`, NaN lanes replaced by the mean of the neighbours that have a value."""
    own = load(block, node)
    store(out, node, where_not_nan(own, own, known_neighbour_mean(graph, block, node)))
