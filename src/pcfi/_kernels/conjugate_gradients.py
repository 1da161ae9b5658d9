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

from pcfi._kernels.blocks import aligned_block
from pcfi._kernels.compiling import compiled, inner
from pcfi._kernels.csr_graph import neighbour_sum
from pcfi._kernels.thread_team import barrier
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
    """A lane stops when its maximum residual is at most `rtol`, or after `max_steps` steps.

    It also stops when its norm has fallen by the factor `rounding`, below which it holds rounding errors only.
    """

    rtol: float
    max_steps: int
    rounding: float


class LaneState(NamedTuple):
    """Numbers of each lane, which belong to the calling thread; all start as 0.

    `vectors` holds what is multiplied with rows of blocks, in their dtype: see MAX_RESIDUAL and the following.
    """

    steps: Array
    active: Array
    norm: Array
    previous_norm: Array
    smallest_norm: Array
    curvature: Array
    previous_residual: Array
    vectors: Array

    @property
    def max_residual(self) -> Array:
        """Largest |x - Px| of each lane."""
        return np.asarray(self.vectors[MAX_RESIDUAL])


MAX_RESIDUAL, STEP_SIZE, RATIO = range(3)  # rows of `LaneState.vectors`


def make_partial_reductions(n_rows: int, dtype: Any) -> PartialReductions:
    """Allocate the partial reductions over `n_rows` rows."""
    n_pieces = -(-n_rows // PIECE_ROWS)
    return PartialReductions(*(aligned_block(n_pieces, dtype) for _ in PartialReductions._fields))


def make_stopping_rule(rtol: float, max_steps: int, dtype: Any) -> StoppingRule:
    """Return the rule for blocks of `dtype`."""
    return StoppingRule(float(rtol), int(max_steps), 16 * float(np.finfo(dtype).eps) ** 2)


def make_lane_state(lanes: int, dtype: Any) -> LaneState:
    """Allocate the state of all lanes."""
    norm, previous_norm, smallest_norm, curvature, previous_residual = np.zeros((5, lanes))
    return LaneState(
        steps=np.zeros(lanes, np.int64),
        active=np.zeros(lanes, np.bool_),
        norm=norm,
        previous_norm=previous_norm,
        smallest_norm=smallest_norm,
        curvature=curvature,
        previous_residual=previous_residual,
        vectors=np.zeros((3, lanes), dtype),
    )


@inner
def _sum_pieces(pieces, out):
    for lane in range(len(out)):
        out[lane] = 0
    for piece in range(pieces.shape[0]):
        for lane in range(len(out)):
            out[lane] += pieces[piece, lane]


@inner
def _max_of_pieces(pieces, vectors):
    largest = splat(pieces, 0.0)
    for piece in range(pieces.shape[0]):
        largest = maximum(largest, load(pieces, piece))
    store(vectors, MAX_RESIDUAL, largest)


@inner
def compute_residual(graph, rows, work, pieces, max_residuals):
    """Compute the residual from the solution, and the maximum residual of each piece."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    for piece in range(pieces[0], pieces[1]):
        largest = zero
        for k in range(piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, len(rows))):
            node = rows[k]
            weight = load(work.diagonal, node)
            safe = where_positive(weight, weight, one)
            change = neighbour_sum(graph, work.solution, node) / safe - load(work.solution, node)
            residual = where_positive(weight, change, zero)
            store(work.residual, node, residual)
            largest = maximum(largest, absolute(residual) / where_positive(weight, load(work.scales, node), one))
        store(max_residuals, piece, largest)


@inner
def multiply(graph, rows, work, source, sign, pieces, sums):
    """Set `image` to (I + sign P) source at the free cells, and `sums` to its product with the source."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    signs = splat(work.solution, sign)
    for piece in range(pieces[0], pieces[1]):
        total = zero
        for k in range(piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, len(rows))):
            node = rows[k]
            weight = load(work.diagonal, node)
            own = load(source, node)
            mean = neighbour_sum(graph, source, node) / where_positive(weight, weight, one)
            image = where_positive(weight, own + signs * mean, zero)
            store(work.image, node, image)
            total = total + weight * own * image
        store(sums, piece, total)


@inner
def update_direction(rows, work, vectors, pieces):
    """Set the direction to image + ratio * direction."""
    ratio = load(vectors, RATIO)
    for k in range(pieces[0] * PIECE_ROWS, min(pieces[1] * PIECE_ROWS, len(rows))):
        node = rows[k]
        store(work.direction, node, load(work.image, node) + ratio * load(work.direction, node))


@inner
def update_solution(rows, work, vectors, pieces, max_residuals):
    """Move the solution by the step size along the direction, update the residual and the maxima of its pieces."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    step_size = load(vectors, STEP_SIZE)
    for piece in range(pieces[0], pieces[1]):
        largest = zero
        for k in range(piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, len(rows))):
            node = rows[k]
            residual = load(work.residual, node) - step_size * load(work.image, node)
            store(work.residual, node, residual)
            store(work.solution, node, load(work.solution, node) + step_size * load(work.direction, node))
            scale = load(work.scales, node)
            largest = maximum(largest, absolute(residual) / where_positive(scale, scale, one))
        store(max_residuals, piece, largest)


@inner
def begin_lanes(state, rule):
    """Start the lanes whose residual, computed from the solution, is too large; return whether one is worth it.

    After the first start the true residual must at least have been halved.
    """
    improving = False
    for lane in range(len(state.steps)):
        residual, previous = state.vectors[MAX_RESIDUAL, lane], state.previous_residual[lane]
        state.active[lane] = residual > rule.rtol and state.steps[lane] < rule.max_steps
        improving |= state.active[lane] and (previous == 0 or residual < previous / 2)
        state.previous_residual[lane] = residual
        state.previous_norm[lane] = 0
    return improving


@inner
def set_ratios(state, rule):
    """Set the share of the last direction in the next one, from the norms."""
    for lane in range(len(state.steps)):
        norm, previous = state.norm[lane], state.previous_norm[lane]
        is_first = not previous > 0
        if is_first:
            state.smallest_norm[lane] = norm * rule.rounding
        state.vectors[RATIO, lane] = 0.0 if is_first else norm / previous
        state.previous_norm[lane] = norm


@inner
def set_step_sizes(state):
    """Set how far the solution moves along the direction, from norm and curvature; count the steps."""
    for lane in range(len(state.steps)):
        norm, curvature = state.norm[lane], state.curvature[lane]
        active = state.active[lane] and norm > state.smallest_norm[lane] and curvature > 0
        state.vectors[STEP_SIZE, lane] = norm / curvature if active else 0.0
        state.steps[lane] += PRODUCTS_PER_ITERATION if active else 0
        state.active[lane] = active


@inner
def count_active(state, rule):
    """Return the number of lanes that go on."""
    n_active = 0
    for lane in range(len(state.steps)):
        # the last iteration may take one product more than `max_steps`
        unfinished = state.vectors[MAX_RESIDUAL, lane] > rule.rtol and state.steps[lane] < rule.max_steps
        state.active[lane] = state.active[lane] and unfinished
        n_active += state.active[lane]
    return n_active


@compiled
def solve_steady_state(graph, rows, work, reductions, rule, team, pieces, state):
    """Bring the free cells of `work.solution` to their steady state.

    `pieces` are the first and last of the pieces of rows that the calling thread works on. `state.steps` counts the
    steps of each lane, and `state.max_residual` is the largest |x - Px| of each lane, computed from the solution. A
    lane whose residual stays above `rule.rtol` has used up its steps or cannot get further.
    """
    n_active = 0
    while not team.stop[0]:
        if not n_active:  # start, or start again if the true residual has at least been halved
            barrier(team)
            compute_residual(graph, rows, work, pieces, reductions.max_residuals)
            barrier(team)
            _max_of_pieces(reductions.max_residuals, state.vectors)
            if not begin_lanes(state, rule):
                break
        multiply(graph, rows, work, work.residual, 1.0, pieces, reductions.norms)
        barrier(team)
        _sum_pieces(reductions.norms, state.norm)
        set_ratios(state, rule)
        update_direction(rows, work, state.vectors, pieces)
        barrier(team)
        multiply(graph, rows, work, work.direction, -1.0, pieces, reductions.curvature)
        barrier(team)
        _sum_pieces(reductions.curvature, state.curvature)
        set_step_sizes(state)
        update_solution(rows, work, state.vectors, pieces, reductions.max_residuals)
        barrier(team)
        _max_of_pieces(reductions.max_residuals, state.vectors)
        n_active = count_active(state, rule)
