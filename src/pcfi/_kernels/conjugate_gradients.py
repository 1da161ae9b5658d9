"""The steady state of a block by conjugate gradients, lane by lane, judged by the largest move of any cell.

In scaled form y the steady state solves K y = 0 at the free cells, K = diag(d) - A, symmetric positive definite,
with the known cells as boundary. With P = A / d the preconditioner is (I + P) / d: it takes half as many iterations as
1 / d, so as many products with A, but half of everything else. All is written in terms of r = P y - y, so that inner
products weigh a cell by d. Each lane has its own coefficients, but their norm weighs a cell by its confidence squared
and would stop before far cells are right. So a lane stops only when the largest |x - Px| = |r| / scale over its cells
is small enough, checked with a fresh residual at the end.
"""

from typing import Any, NamedTuple

import numpy as np

from pcfi._kernels.blocks import aligned_block, neighbour_sum
from pcfi._kernels.compiling import compiled
from pcfi._kernels.thread_team import meet, part_by_edges, part_of
from pcfi._kernels.vectors import larger, load, magnitude, splat, store, where_positive
from pcfi._typing import Array

STEPS = 2  # products with A in one iteration
PIECE = 256  # rows summed in the block's precision; the sums of pieces are added in float64


class Work(NamedTuple):
    """Blocks of one solve. Free cells have `diagonal` > 0; `residual` and `direction` start as 0 in all rows."""

    solution: Array
    residual: Array
    direction: Array
    image: Array
    diagonal: Array
    scales: Array


class Sums(NamedTuple):
    """One row for each piece of rows, filled by the member who has the piece and read by all."""

    norms: Array
    curvature: Array
    moves: Array


class Goal(NamedTuple):
    """When a lane may stop."""

    rtol: float
    max_steps: int


def make_sums(n_rows: int, dtype: Any) -> Sums:
    """Room for the sums over `n_rows` rows."""
    n_pieces = -(-n_rows // PIECE)
    return Sums(*(aligned_block(n_pieces, dtype) for _ in Sums._fields))


@compiled
def _add_up(pieces, totals):
    totals[:] = 0
    for piece in range(len(pieces)):
        for lane in range(len(totals)):
            totals[lane] += pieces[piece, lane]


@compiled
def _find_largest(pieces, largest):
    most = splat(pieces, 0.0)
    for piece in range(len(pieces)):
        most = larger(most, load(pieces, piece))
    store(largest, 0, most)


@compiled
def _restart(links, rows, work, sums, team, largest):
    """Residual from scratch, and the largest move of each lane."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    meet(team)
    first, last = part_by_edges(links.indptr, rows, PIECE, team)
    for piece in range(first, last):
        most = zero
        for node in rows[piece * PIECE : (piece + 1) * PIECE]:
            weight = load(work.diagonal, node)
            safe = where_positive(weight, weight, one)
            pull = neighbour_sum(links, work.solution, node) / safe - load(work.solution, node)
            residual = where_positive(weight, pull, zero)
            store(work.residual, node, residual)
            most = larger(most, magnitude(residual) / where_positive(weight, load(work.scales, node), one))
        store(sums.moves, piece, most)
    meet(team)
    _find_largest(sums.moves, largest)


@compiled
def _precondition(links, rows, work, sums, team, norms):
    """`image` = (I + P) residual at the free cells, and its product with the residual."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    first, last = part_by_edges(links.indptr, rows, PIECE, team)
    for piece in range(first, last):
        total = zero
        for node in rows[piece * PIECE : (piece + 1) * PIECE]:
            weight = load(work.diagonal, node)
            residual = load(work.residual, node)
            pull = neighbour_sum(links, work.residual, node) / where_positive(weight, weight, one)
            image = where_positive(weight, residual + pull, zero)
            store(work.image, node, image)
            total = total + weight * residual * image
        store(sums.norms, piece, total)
    meet(team)
    _add_up(sums.norms, norms)


@compiled
def _turn(rows, work, ratios, team):
    """New direction = image + ratio * old direction."""
    ratio = load(ratios, 0)
    first, last = part_of(len(rows), team)
    for node in rows[first:last]:
        store(work.direction, node, load(work.image, node) + ratio * load(work.direction, node))
    meet(team)


@compiled
def _apply(links, rows, work, sums, team, curvature):
    """`image` = (I - P) direction at the free cells, and its product with the direction."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    first, last = part_by_edges(links.indptr, rows, PIECE, team)
    for piece in range(first, last):
        total = zero
        for node in rows[piece * PIECE : (piece + 1) * PIECE]:
            weight = load(work.diagonal, node)
            direction = load(work.direction, node)
            pull = neighbour_sum(links, work.direction, node) / where_positive(weight, weight, one)
            image = where_positive(weight, direction - pull, zero)
            store(work.image, node, image)
            total = total + weight * direction * image
        store(sums.curvature, piece, total)
    meet(team)
    _add_up(sums.curvature, curvature)


@compiled
def _advance(rows, work, lengths, sums, team, largest):
    """Go `lengths` along the direction; the largest move that is left."""
    zero, one = splat(work.solution, 0.0), splat(work.solution, 1.0)
    length = load(lengths, 0)
    first, last = part_of(len(sums.moves), team)
    for piece in range(first, last):
        most = zero
        for node in rows[piece * PIECE : (piece + 1) * PIECE]:
            residual = load(work.residual, node) - length * load(work.image, node)
            store(work.residual, node, residual)
            store(work.solution, node, load(work.solution, node) + length * load(work.direction, node))
            scale = load(work.scales, node)
            most = larger(most, magnitude(residual) / where_positive(scale, scale, one))
        store(sums.moves, piece, most)
    meet(team)
    _find_largest(sums.moves, largest)


@compiled
def _descend(links, rows, work, sums, goal, team, steps, largest):
    """One run of conjugate gradients; a lane rests when its moves are small or its norm is down to rounding."""
    lanes = work.solution.shape[1]
    norms = np.zeros(lanes)
    previous = np.zeros(lanes)
    noise = np.zeros(lanes)
    curvature = np.zeros(lanes)
    lengths = np.zeros_like(largest)
    ratios = np.zeros_like(largest)
    resting = np.zeros(lanes, np.bool_)
    while not team.stop[0]:
        for lane in range(lanes):
            resting[lane] |= not largest[0, lane] > goal.rtol or steps[lane] >= goal.max_steps
        if resting.all():
            break
        _precondition(links, rows, work, sums, team, norms)
        for lane in range(lanes):
            starts = not previous[lane] > 0
            noise[lane] = norms[lane] * 16 * np.finfo(work.solution.dtype).eps ** 2 if starts else noise[lane]
            ratios[0, lane] = 0 if starts else norms[lane] / previous[lane]
            previous[lane] = norms[lane]
        _turn(rows, work, ratios, team)
        _apply(links, rows, work, sums, team, curvature)
        for lane in range(lanes):
            moves = not resting[lane] and norms[lane] > noise[lane] and curvature[lane] > 0
            resting[lane] = not moves
            lengths[0, lane] = norms[lane] / curvature[lane] if moves else 0
            # the last iteration may take one product more than asked for
            steps[lane] = min(steps[lane] + STEPS, goal.max_steps) if moves else steps[lane]
        _advance(rows, work, lengths, sums, team, largest)


@compiled
def settle(links, rows, work, sums, goal, team, steps, largest):
    """Bring the free cells of `work.solution` to their steady state.

    `steps` counts the steps of each lane; `largest[0]` is the largest |x - Px| of each lane, from a fresh residual.
    Both are the member's own. A lane whose number stays above `goal.rtol` has used up its steps or cannot get further.
    """
    lanes = work.solution.shape[1]
    before = np.full(lanes, np.inf)
    improving = True
    _restart(links, rows, work, sums, team, largest)
    while improving and not team.stop[0]:
        _descend(links, rows, work, sums, goal, team, steps, largest)
        _restart(links, rows, work, sums, team, largest)
        improving = False
        for lane in range(lanes):
            unfinished = largest[0, lane] > goal.rtol and steps[lane] < goal.max_steps
            improving |= unfinished and largest[0, lane] < before[lane] / 2
            before[lane] = largest[0, lane]
