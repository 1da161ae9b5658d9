"""The steady state of a block by conjugate gradients, lane by lane, judged by the largest move of any cell.

In scaled form y the steady state solves K y = 0 at the free cells, K = diag(d) - A, symmetric positive definite,
with the known cells as boundary. Conjugate gradients preconditioned by d give each lane its own coefficients, but
their norm weighs a cell by its confidence squared and would stop before far cells are right. So a lane stops only
when the largest |x - Px| = |r| / (d * scale) over its cells is small enough, checked with a fresh residual at the end.
"""

from typing import Any, NamedTuple

import numpy as np

from pcfi._kernels.blocks import neighbour_sum
from pcfi._kernels.compiling import compiled
from pcfi._kernels.vectors import larger, load, magnitude, splat, store, where_positive

Array = np.ndarray[Any, Any]

FLUSH = 256  # rows summed in the block's precision before the sum moves to float64


class Work(NamedTuple):
    """Blocks of one solve. Free cells have `diagonal` > 0; `direction` is 0 in all rows before the first use."""

    solution: Array
    residual: Array
    direction: Array
    image: Array
    diagonal: Array
    inverse: Array  # 1 / diagonal
    unit: Array  # 1 / (diagonal * scale): from a residual to the move of the cell


@compiled
def measure_units(rows, work, scales):
    """Fill `inverse` and `unit` of `work` from its diagonal and the scale of each cell."""
    one = splat(scales, 1.0)
    zero = splat(scales, 0.0)
    for node in rows:
        weight = load(work.diagonal, node)
        inverse = where_positive(weight, one / weight, zero)
        store(work.inverse, node, inverse)
        store(work.unit, node, where_positive(weight, inverse / load(scales, node), zero))


@compiled
def _flush(partial, totals):
    for lane in range(len(totals)):
        totals[lane] += partial[0, lane]
        partial[0, lane] = 0


@compiled
def _restart(links, rows, work, norms, largest, partial):
    """Residual from scratch, direction = preconditioned residual, their product in `norms`, the largest move."""
    zero = splat(work.solution, 0.0)
    most = zero
    norms[:] = 0
    for start in range(0, len(rows), FLUSH):
        total = zero
        for node in rows[start : start + FLUSH]:
            weight = load(work.diagonal, node)
            pull = neighbour_sum(links, work.solution, node) - weight * load(work.solution, node)
            residual = where_positive(weight, pull, zero)
            direction = residual * load(work.inverse, node)
            store(work.residual, node, residual)
            store(work.direction, node, direction)
            total = total + residual * direction
            most = larger(most, magnitude(residual * load(work.unit, node)))
        store(partial, 0, total)
        _flush(partial, norms)
    store(largest, 0, most)


@compiled
def _apply(links, rows, work, curvature, partial):
    """`image` = K direction at the free cells, and its product with the direction, lane by lane."""
    zero = splat(work.solution, 0.0)
    curvature[:] = 0
    for start in range(0, len(rows), FLUSH):
        total = zero
        for node in rows[start : start + FLUSH]:
            weight = load(work.diagonal, node)
            direction = load(work.direction, node)
            image = where_positive(weight, weight * direction - neighbour_sum(links, work.direction, node), zero)
            store(work.image, node, image)
            total = total + direction * image
        store(partial, 0, total)
        _flush(partial, curvature)


@compiled
def _advance(rows, work, lengths, norms, largest, partial):
    """Go `lengths` along the direction; the new norms and the largest move."""
    zero = splat(work.solution, 0.0)
    length = load(lengths, 0)
    most = zero
    norms[:] = 0
    for start in range(0, len(rows), FLUSH):
        total = zero
        for node in rows[start : start + FLUSH]:
            residual = load(work.residual, node) - length * load(work.image, node)
            store(work.residual, node, residual)
            store(work.solution, node, load(work.solution, node) + length * load(work.direction, node))
            total = total + residual * residual * load(work.inverse, node)
            most = larger(most, magnitude(residual * load(work.unit, node)))
        store(partial, 0, total)
        _flush(partial, norms)
    store(largest, 0, most)


@compiled
def _turn(rows, work, ratios):
    """New direction = preconditioned residual + ratio * old direction."""
    ratio = load(ratios, 0)
    for node in rows:
        descent = load(work.residual, node) * load(work.inverse, node)
        store(work.direction, node, descent + ratio * load(work.direction, node))


@compiled
def _descend(links, rows, work, rtol, max_steps, stop, steps, largest):
    """One run of conjugate gradients; a lane rests when its moves are small or its norm is down to rounding."""
    lanes = work.solution.shape[1]
    norms = np.zeros(lanes)
    previous = np.zeros(lanes)
    curvature = np.zeros(lanes)
    lengths = np.zeros_like(largest)
    ratios = np.zeros_like(largest)
    partial = np.zeros_like(largest)
    _restart(links, rows, work, norms, largest, partial)
    noise = norms * 16 * np.finfo(work.solution.dtype).eps ** 2
    resting = np.zeros(lanes, np.bool_)
    while not stop[0]:
        for lane in range(lanes):
            resting[lane] |= not largest[0, lane] > rtol or not norms[lane] > noise[lane] or steps[lane] >= max_steps
        if resting.all():
            break
        previous[:] = norms
        _apply(links, rows, work, curvature, partial)
        for lane in range(lanes):
            moves = not resting[lane] and curvature[lane] > 0
            resting[lane] = not moves
            lengths[0, lane] = norms[lane] / curvature[lane] if moves else 0
            steps[lane] += moves
        _advance(rows, work, lengths, norms, largest, partial)
        for lane in range(lanes):
            ratios[0, lane] = norms[lane] / previous[lane] if previous[lane] > 0 else 0
        _turn(rows, work, ratios)


@compiled
def settle(links, rows, work, rtol, max_steps, stop, steps, largest):
    """Bring the free cells of `work.solution` to their steady state.

    `steps` counts the steps of each lane; `largest[0]` is the largest |x - Px| of each lane, from a fresh residual.
    A lane whose number stays above `rtol` has used up `max_steps` or cannot get further this way.
    """
    lanes = work.solution.shape[1]
    partial = np.zeros_like(largest)
    norms = np.zeros(lanes)
    before = np.full(lanes, np.inf)
    improving = True
    while improving and not stop[0]:
        _descend(links, rows, work, rtol, max_steps, stop, steps, largest)
        _restart(links, rows, work, norms, largest, partial)
        improving = False
        for lane in range(lanes):
            unfinished = largest[0, lane] > rtol and steps[lane] < max_steps
            improving |= unfinished and largest[0, lane] < before[lane] / 2
            before[lane] = largest[0, lane]
