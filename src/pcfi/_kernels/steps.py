"""A fixed number of diffusion steps on a block, with known cells reset in the same pass."""

from pcfi._kernels.compiling import compiled, inner
from pcfi._kernels.csr_graph import neighbour_sum
from pcfi._kernels.thread_team import barrier
from pcfi._kernels.vectors import absolute, load, maximum, splat, store, where_positive


@compiled
def invert_diagonal(rows, diagonal, self_weight, out):
    """Set `out` to 1 / (diagonal + self_weight) at free cells (diagonal > 0), 0 at the others.

    `out` may be the same array as `diagonal`.
    """
    one = splat(diagonal, 1.0)
    own = splat(diagonal, self_weight)
    for node in rows:
        row = load(diagonal, node)
        store(out, node, where_positive(row, one / (row + own), row))


@inner
def _step(graph, rows, block, out, inverse, self_weight):
    own = splat(block, self_weight)
    for node in rows:
        row = load(block, node)
        factor = load(inverse, node)
        stepped = factor * (neighbour_sum(graph, block, node) + own * row)
        store(out, node, where_positive(factor, stepped, row))


@compiled
def take_steps(graph, rows, block, other, inverse, self_weight, steps, team):
    """Take `steps` diffusion steps from `block`; `other` is a second block with the same known cells.

    `rows` are those of the calling thread. In scaled form one step is y <- (A y + w y) / (diagonal + w), w the weight
    of the self-loop. The result is in `block` if `steps` is even, else in `other`. The loop over rows is a function of
    its own because numba compiles it to half the speed next to the waiting loop of a barrier.
    """
    for _ in range(steps):
        _step(graph, rows, block, other, inverse, self_weight)
        barrier(team)
        if team.stop[0]:
            break
        block, other = other, block


@compiled
def max_residual(graph, rows, block, inverse, scales, self_weight, out):
    """Set `out[0]` to the largest unscaled |x - Px| of each lane: the largest change that one more step would make."""
    one = splat(block, 1.0)
    zero = splat(block, 0.0)
    own = splat(block, self_weight)
    largest = zero
    for node in rows:
        factor = load(inverse, node)
        row = load(block, node)
        residual = factor * (neighbour_sum(graph, block, node) + own * row) - row
        residual = residual / where_positive(factor, load(scales, node), one)
        largest = maximum(largest, absolute(where_positive(factor, residual, zero)))
    store(out, 0, largest)
