"""The steady state of a block by preconditioned conjugate gradients, lane by lane.

In scaled form y the steady state solves K y = 0 at the free cells, K = diag(d) - A, symmetric positive definite,
with the known cells as boundary. With P = A / d the preconditioner is (I + P) / d: it halves the number of iterations
of 1 / d, so the number of products with A stays the same and everything else is halved. All is written in terms of
r = P y - y, so inner products weight a cell by d.

Each lane has its own coefficients. Their norm weights a cell by its confidence squared and would stop before cells far
from the sources are right. So a lane stops only when the largest |x - Px| = |r| / scale over its cells, the maximum
residual, is at most rtol; at the end it is computed again from the solution.
"""

from typing import Any, NamedTuple

import numpy as np

from pcfi._kernels.blocks import aligned_block, neighbour_sum
from pcfi._kernels.compiling import compiled, inner
from pcfi._kernels.thread_team import barrier, thread_range, thread_range_by_edges
from pcfi._kernels.vectors import absolute, load, maximum, splat, store, where_positive
from pcfi._typing import Array

PRODUCTS_PER_ITERATION = 2  # products with A in one iteration
PIECE_ROWS = 256  # rows summed in the block's precision; the reductions of pieces are added in float64


class Workspace(NamedTuple):
    """Blocks of one solve. Free cells have `diagonal` > 0; `residual` and `direction` start as 0 in all rows."""

    solution: Array
    residual: Array
    direction: Array
    image: Array
    diagonal: Array
    scales: Array


class PartialReductions(NamedTuple):
    """Sums and maxima over each piece of rows, filled by the thread that has the piece and read by all."""

    norms: Array
    curvature: Array
    max_residuals: Array


class StoppingRule(NamedTuple):
    """A lane stops when its maximum residual is at most `rtol`, or after `max_steps` steps."""

    rtol: float
    max_steps: int


def make_partial_reductions(n_rows: int, dtype: Any) -> PartialReductions:
    """Allocate the partial reductions over `n_rows` rows."""
    n_pieces = -(-n_rows // PIECE_ROWS)
    return PartialReductions(*(aligned_block(n_pieces, dtype) for _ in PartialReductions._fields))


@inner
def _sum_pieces(pieces, out):
    for lane in range(len(out)):
        out[lane] = 0
    for piece in range(len(pieces)):
        for lane in range(len(out)):
            out[lane] += pieces[piece, lane]


@inner
def _max_of_pieces(pieces, out):
    largest = splat(pieces, 0.0)
    for piece in range(len(pieces)):
        largest = maximum(largest, load(pieces, piece))
    store(out, 0, largest)


@inner
def _compute_residual(graph, rows, work, reductions, team, max_residual):
    """Compute the residual from the solution, and the maximum residual of each lane."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    barrier(team)
    first, last = thread_range_by_edges(graph.indptr, rows, PIECE_ROWS, team)
    for piece in range(first, last):
        largest = zero
        for node in rows[piece * PIECE_ROWS : (piece + 1) * PIECE_ROWS]:
            weight = load(work.diagonal, node)
            safe = where_positive(weight, weight, one)
            change = neighbour_sum(graph, work.solution, node) / safe - load(work.solution, node)
            residual = where_positive(weight, change, zero)
            store(work.residual, node, residual)
            largest = maximum(largest, absolute(residual) / where_positive(weight, load(work.scales, node), one))
        store(reductions.max_residuals, piece, largest)
    barrier(team)
    _max_of_pieces(reductions.max_residuals, max_residual)


@inner
def _precondition(graph, rows, work, reductions, team, norms):
    """Set `image` to (I + P) residual at the free cells, and `norms` to its product with the residual."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    first, last = thread_range_by_edges(graph.indptr, rows, PIECE_ROWS, team)
    for piece in range(first, last):
        total = zero
        for node in rows[piece * PIECE_ROWS : (piece + 1) * PIECE_ROWS]:
            weight = load(work.diagonal, node)
            residual = load(work.residual, node)
            mean = neighbour_sum(graph, work.residual, node) / where_positive(weight, weight, one)
            image = where_positive(weight, residual + mean, zero)
            store(work.image, node, image)
            total = total + weight * residual * image
        store(reductions.norms, piece, total)
    barrier(team)
    _sum_pieces(reductions.norms, norms)


@inner
def _update_direction(rows, work, ratios, team):
    """Set the direction to image + ratio * direction."""
    ratio = load(ratios, 0)
    first, last = thread_range(len(rows), team)
    for node in rows[first:last]:
        store(work.direction, node, load(work.image, node) + ratio * load(work.direction, node))
    barrier(team)


@inner
def _apply_operator(graph, rows, work, reductions, team, curvature):
    """Set `image` to (I - P) direction at the free cells, and `curvature` to its product with the direction."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    first, last = thread_range_by_edges(graph.indptr, rows, PIECE_ROWS, team)
    for piece in range(first, last):
        total = zero
        for node in rows[piece * PIECE_ROWS : (piece + 1) * PIECE_ROWS]:
            weight = load(work.diagonal, node)
            direction = load(work.direction, node)
            mean = neighbour_sum(graph, work.direction, node) / where_positive(weight, weight, one)
            image = where_positive(weight, direction - mean, zero)
            store(work.image, node, image)
            total = total + weight * direction * image
        store(reductions.curvature, piece, total)
    barrier(team)
    _sum_pieces(reductions.curvature, curvature)


@inner
def _update_solution(rows, work, step_sizes, reductions, team, max_residual):
    """Move the solution by `step_sizes` along the direction, update the residual and its maximum."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    step_size = load(step_sizes, 0)
    first, last = thread_range(len(reductions.max_residuals), team)
    for piece in range(first, last):
        largest = zero
        for node in rows[piece * PIECE_ROWS : (piece + 1) * PIECE_ROWS]:
            residual = load(work.residual, node) - step_size * load(work.image, node)
            store(work.residual, node, residual)
            store(work.solution, node, load(work.solution, node) + step_size * load(work.direction, node))
            scale = load(work.scales, node)
            largest = maximum(largest, absolute(residual) / where_positive(scale, scale, one))
        store(reductions.max_residuals, piece, largest)
    barrier(team)
    _max_of_pieces(reductions.max_residuals, max_residual)


@inner
def _iterate(graph, rows, work, reductions, rule, team, steps, max_residual):
    """Iterate until every lane has stopped: by the rule, or because its norm is down to rounding errors."""
    lanes = work.solution.shape[1]
    norms = np.zeros(lanes)
    previous = np.zeros(lanes)
    rounding = np.zeros(lanes)
    curvature = np.zeros(lanes)
    step_sizes = np.zeros((1, lanes), max_residual.dtype)
    ratios = np.zeros((1, lanes), max_residual.dtype)
    stopped = np.zeros(lanes, np.bool_)
    while not team.stop[0]:
        n_active = 0
        for lane in range(lanes):
            stopped[lane] |= not max_residual[0, lane] > rule.rtol or steps[lane] >= rule.max_steps
            n_active += not stopped[lane]
        if not n_active:
            break
        _precondition(graph, rows, work, reductions, team, norms)
        for lane in range(lanes):
            is_first = not previous[lane] > 0
            if is_first:
                rounding[lane] = norms[lane] * 16 * np.finfo(work.solution.dtype).eps ** 2
            ratios[0, lane] = 0 if is_first else norms[lane] / previous[lane]
            previous[lane] = norms[lane]
        _update_direction(rows, work, ratios, team)
        _apply_operator(graph, rows, work, reductions, team, curvature)
        for lane in range(lanes):
            active = not stopped[lane] and norms[lane] > rounding[lane] and curvature[lane] > 0
            stopped[lane] = not active
            step_sizes[0, lane] = norms[lane] / curvature[lane] if active else 0
            # the last iteration may take one product more than `max_steps`
            steps[lane] = min(steps[lane] + PRODUCTS_PER_ITERATION, rule.max_steps) if active else steps[lane]
        _update_solution(rows, work, step_sizes, reductions, team, max_residual)


@compiled
def solve_steady_state(graph, rows, work, reductions, rule, team, steps, max_residual):
    """Bring the free cells of `work.solution` to their steady state.

    `steps` counts the steps of each lane; `max_residual[0]` is the largest |x - Px| of each lane, computed from the
    solution. Both belong to the calling thread. A lane whose residual stays above `rule.rtol` has used up its steps or
    cannot get further.
    """
    lanes = work.solution.shape[1]
    previous_residual = np.empty(lanes)
    for lane in range(lanes):
        previous_residual[lane] = np.inf
    improving = True
    _compute_residual(graph, rows, work, reductions, team, max_residual)
    while improving and not team.stop[0]:
        _iterate(graph, rows, work, reductions, rule, team, steps, max_residual)
        _compute_residual(graph, rows, work, reductions, team, max_residual)
        improving = False
        for lane in range(lanes):
            unfinished = max_residual[0, lane] > rule.rtol and steps[lane] < rule.max_steps
            improving |= unfinished and max_residual[0, lane] < previous_residual[lane] / 2
            previous_residual[lane] = max_residual[0, lane]
