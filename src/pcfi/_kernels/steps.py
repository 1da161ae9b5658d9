"""Plain diffusion steps on a block: neighbour sum, normalisation and reset of known cells in one pass."""

from pcfi._kernels.blocks import neighbour_sum
from pcfi._kernels.compiling import compiled
from pcfi._kernels.vectors import larger, load, magnitude, splat, store, where_positive


@compiled
def invert(rows, diagonal, self_weight, inverse):
    """`inverse` = 1 / (diagonal + self_weight) at free cells, 0 elsewhere in `rows`."""
    one = splat(diagonal, 1.0)
    own = splat(diagonal, self_weight)
    zero = splat(diagonal, 0.0)
    for node in rows:
        row = load(diagonal, node)
        store(inverse, node, where_positive(row, one / (row + own), zero))


@compiled
def take_steps(links, rows, block, other, inverse, self_weight, steps, stop):
    """Move the free cells of `block` by `steps` diffusion steps; `other` is a second block with the same known cells.

    In scaled form one step is y <- (A y + w y) / (diagonal + w), w the weight of the self-loop. The result is in
    `block` if `steps` is even, else in `other`.
    """
    own = splat(block, self_weight)
    for _ in range(steps):
        if stop[0]:
            break
        for node in rows:
            row = load(block, node)
            factor = load(inverse, node)
            moved = factor * (neighbour_sum(links, block, node) + own * row)
            store(other, node, where_positive(factor, moved, row))
        block, other = other, block


@compiled
def largest_move(links, rows, block, diagonal, scales, self_weight, largest):
    """`largest[0]` = the largest unscaled |x - Px| of each lane: what one further step would move."""
    one = splat(block, 1.0)
    zero = splat(block, 0.0)
    own = splat(block, self_weight)
    most = zero
    for node in rows:
        weight = load(diagonal, node)
        safe = where_positive(weight, (weight + own) * load(scales, node), one)
        move = (neighbour_sum(links, block, node) - weight * load(block, node)) / safe
        most = larger(most, magnitude(where_positive(weight, move, zero)))
    store(largest, 0, most)
