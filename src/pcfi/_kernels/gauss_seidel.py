"""The steady state of a block by conjugate gradients with symmetric Gauss-Seidel as preconditioner, lane by lane.

The system is that of `conjugate_gradients`: K = D (I - P) at the free cells, P = A / d. With the rows in ascending
order, P = L + U, its parts below and above the diagonal. The preconditioner is D (I - L) (I - U), and conjugate
gradients on

    (I - L)^-1 (I - P) (I - U)^-1 = (I - U)^-1 + (I - L)^-1 (I - (I - U)^-1)                     (Eisenstat's trick)

need one sweep back, t = (I - U)^-1 p, and one forth, s = (I - L)^-1 (p - t), in each iteration. Together they read
every edge once, like one product with A, and there are fewer than half as many of them as products in
`conjugate_gradients`. But sweeps are sequential, so this is for blocks that one thread works on.

`residual` holds h = (I - L)^-1 r, r = P y - y. The largest |h| / scale is close to the largest |x - Px| = |r| / scale,
the maximum residual (rows of L sum to at most 1 in unscaled form, so r is at most twice as large). A lane stops when it
is small enough; then the maximum residual is computed from the solution, and lanes where that is too large start again.
"""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.blocks import sum_edges
from pcfi._kernels.compiling import compiled, inner
from pcfi._kernels.conjugate_gradients import (
    PIECE_ROWS,
    RATIO,
    STEP_SIZE,
    begin_lanes,
    compute_residual,
    count_active,
    largest_piece,
    set_ratios,
    set_step_sizes,
    sum_pieces,
)
from pcfi._kernels.vectors import absolute, load, maximum, splat, store, where_positive
from pcfi._typing import Array

PRODUCTS_PER_ITERATION = 1  # products with A in one iteration


class SweepWorkspace(NamedTuple):
    """Blocks of one solve. Free cells have `diagonal` > 0; `residual` to `forward` start as 0 in all rows."""

    solution: Array
    residual: Array
    direction: Array
    backward: Array
    forward: Array
    diagonal: Array
    scales: Array


@compiled
def find_diagonal(graph, rows, out):
    """Set `out[k]` to the first edge of the k-th row to a node above its own number; edges are sorted by node."""
    for k in range(len(rows)):
        node = rows[k]
        low, high = np.int64(graph.indptr[node]), np.int64(graph.indptr[node + 1])
        while low < high:
            middle = (low + high) // 2
            if graph.indices[middle] < node:
                low = middle + 1
            else:
                high = middle
        out[k] = low


@inner
def _sweep_residual(graph, rows, middles, work, norms):
    """Replace the residual r by (I - L)^-1 r, and set `norms` to its weighted squares."""
    block, diagonal, indptr = work.residual, work.diagonal, graph.indptr
    zero, one = splat(block, 0.0), splat(block, 1.0)
    for piece in range(norms.shape[0]):
        total = zero
        for k in range(piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, len(rows))):
            node = rows[k]
            weight = load(diagonal, node)
            mean = sum_edges(graph, block, indptr[node], middles[k]) / where_positive(weight, weight, one)
            residual = where_positive(weight, load(block, node) + mean, zero)
            store(block, node, residual)
            total = total + weight * residual * residual
        store(norms, piece, total)


@inner
def _sweep_back(graph, rows, middles, work, vectors):
    """Set the direction to residual + ratio * direction, and `backward` to (I - U)^-1 direction."""
    block, diagonal, indptr = work.backward, work.diagonal, graph.indptr
    residual, direction = work.residual, work.direction
    zero, one = splat(block, 0.0), splat(block, 1.0)
    ratio = load(vectors, RATIO)
    for k in range(len(rows) - 1, -1, -1):
        node = rows[k]
        weight = load(diagonal, node)
        mean = sum_edges(graph, block, middles[k], indptr[node + 1]) / where_positive(weight, weight, one)
        own = load(residual, node) + ratio * load(direction, node)
        store(direction, node, own)
        store(block, node, where_positive(weight, own + mean, zero))


@inner
def _sweep_forth(graph, rows, middles, work, curvature):
    """Set `forward` to (I - L)^-1 (direction - backward), and `curvature` to the product of direction and image."""
    block, diagonal, indptr = work.forward, work.diagonal, graph.indptr
    backward, direction = work.backward, work.direction
    zero, one = splat(block, 0.0), splat(block, 1.0)
    for piece in range(curvature.shape[0]):
        total = zero
        for k in range(piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, len(rows))):
            node = rows[k]
            weight = load(diagonal, node)
            mean = sum_edges(graph, block, indptr[node], middles[k]) / where_positive(weight, weight, one)
            own = load(direction, node)
            image = where_positive(weight, own + mean, zero)
            store(block, node, image - load(backward, node))
            total = total + weight * own * image
        store(curvature, piece, total)


@inner
def _update_solution(rows, work, vectors, norms, max_residuals):
    """Move solution and residual by the step size; set `norms` and `max_residuals` to those of each piece."""
    solution, residual, diagonal, scales = work.solution, work.residual, work.diagonal, work.scales
    backward, forward = work.backward, work.forward
    zero, one = splat(solution, 0.0), splat(solution, 1.0)
    step_size = load(vectors, STEP_SIZE)
    for piece in range(norms.shape[0]):
        largest, total = zero, zero
        for k in range(piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, len(rows))):
            node = rows[k]
            swept = load(backward, node)
            rest = load(residual, node) - step_size * (swept + load(forward, node))
            store(residual, node, rest)
            store(solution, node, load(solution, node) + step_size * swept)
            scale = load(scales, node)
            largest = maximum(largest, absolute(rest) / where_positive(scale, scale, one))
            total = total + load(diagonal, node) * rest * rest
        store(norms, piece, total)
        store(max_residuals, piece, largest)


@compiled
def sweep_to_steady_state(graph, rows, middles, work, reductions, rule, stop, state):
    """Bring the free cells of `work.solution` to their steady state, like `conjugate_gradients.solve_steady_state`.

    `middles` is what `find_diagonal` fills. `state.steps` counts the iterations of each lane, and `state.max_residual`
    is the largest |x - Px| of each lane, computed from the solution.
    """
    n_active, n_pieces = 0, reductions.norms.shape[0]
    while not stop[0]:
        if not n_active:  # start, or start again if the true residual has at least been halved
            compute_residual(graph, rows, work, (0, n_pieces), reductions.max_residuals)
            largest_piece(reductions.max_residuals, state.vectors)
            if not begin_lanes(state, rule):
                break
            _sweep_residual(graph, rows, middles, work, reductions.norms)
        sum_pieces(reductions.norms, state.norm)
        set_ratios(state, rule)
        _sweep_back(graph, rows, middles, work, state.vectors)
        _sweep_forth(graph, rows, middles, work, reductions.curvature)
        sum_pieces(reductions.curvature, state.curvature)
        set_step_sizes(state, PRODUCTS_PER_ITERATION)
        _update_solution(rows, work, state.vectors, reductions.norms, reductions.max_residuals)
        largest_piece(reductions.max_residuals, state.vectors)
        n_active = count_active(state, rule)
