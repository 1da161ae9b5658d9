"""Plain diffusion steps on a block: neighbour sum, normalisation and reset of known cells in one pass."""

from pcfi._kernels.blocks import neighbour_sum
from pcfi._kernels.compiling import compiled
from pcfi._kernels.thread_team import meet, part_by_edges
from pcfi._kernels.vectors import larger, load, magnitude, splat, store, where_positive


@compiled
def invert(rows, self_weight, diagonal):
    """`diagonal` <- 1 / (diagonal + self_weight) at free cells; the others stay 0."""
    one = splat(diagonal, 1.0)
    own = splat(diagonal, self_weight)
    for node in rows:
        row = load(diagonal, node)
        store(diagonal, node, where_positive(row, one / (row + own), row))


@compiled
def _step(links, rows, block, other, inverse, self_weight):
    own = splat(block, self_weight)
    for node in rows:
        row = load(block, node)
        factor = load(inverse, node)
        moved = factor * (neighbour_sum(links, block, node) + own * row)
        store(other, node, where_positive(factor, moved, row))


@compiled
def take_steps(links, rows, block, other, inverse, self_weight, steps, team):
    """Move the free cells of `block` by `steps` diffusion steps; `other` is a second block with the same known cells.

    In scaled form one step is y <- (A y + w y) / (diagonal + w), w the weight of the self-loop. The result is in
    `block` if `steps` is even, else in `other`. The loop over rows is a function of its own: next to the waiting of a
    meeting it would be compiled to half the speed.
    """
    first, last = part_by_edges(links.indptr, rows, 1, team)
    for _ in range(steps):
        _step(links, rows[first:last], block, other, inverse, self_weight)
        meet(team)
        if team.stop[0]:
            break
        block, other = other, block


@compiled
def largest_move(links, rows, block, inverse, scales, self_weight, largest):
    """`largest[0]` = the largest unscaled |x - Px| of each lane: what one further step would move."""
    one = splat(block, 1.0)
    zero = splat(block, 0.0)
    own = splat(block, self_weight)
    most = zero
    for node in rows:
        factor = load(inverse, node)
        row = load(block, node)
        move = factor * (neighbour_sum(links, block, node) + own * row) - row
        move = move / where_positive(factor, load(scales, node), one)
        most = larger(most, magnitude(where_positive(factor, move, zero)))
    store(largest, 0, most)
