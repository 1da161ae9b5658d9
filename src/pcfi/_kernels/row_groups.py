"""The passes of stage 1 over a part of the rows of a graph, for processes that have a part each.

The graph of a part lists the neighbours of its own rows; blocks have these rows first, then copies of the neighbours
that other parts own. Sums are taken over groups of rows that do not depend on the parts: each part fills the sums of
its groups, and whoever adds up those of all parts in their order gets the same total, however many parts there are.
"""

import numpy as np

from pcfi._kernels.compiling import compiled, inner
from pcfi._kernels.conjugate_gradients import (
    PIECE_ROWS,
    begin_lanes,
    compute_residual,
    count_active,
    multiply,
    set_ratios,
    set_step_sizes,
    update_direction,
    update_solution,
)
from pcfi._kernels.initial_guess import average_neighbours
from pcfi._kernels.leaf_elimination import GONE, is_leaf
from pcfi._kernels.vectors import count_nan, load, maximum, splat, store


@inner
def _n_pieces(rows):
    return (len(rows) + PIECE_ROWS - 1) // PIECE_ROWS


@inner
def _store_largest(pieces, n_pieces, out, group):
    largest = splat(pieces, 0.0)
    for piece in range(n_pieces):
        largest = maximum(largest, load(pieces, piece))
    store(out, group, largest)


@compiled
def residual_by_group(graph, rows, starts, work, pieces, out):
    """Compute the residual from the solution, and in `out` the maximum residual of each group.

    Group g has the rows `rows[starts[g]:starts[g + 1]]`; `pieces` is scratch space, a row for each piece of a group.
    """
    for group in range(len(starts) - 1):
        part = rows[starts[group] : starts[group + 1]]
        compute_residual(graph, part, work, (0, _n_pieces(part)), pieces)
        _store_largest(pieces, _n_pieces(part), out, group)


@compiled
def product_by_group(graph, rows, starts, work, source, sign, pieces, out):
    """Set `work.image` to (I + sign P) source, and `out` to the sums of its product with the source, in float64."""
    for group in range(len(starts) - 1):
        part = rows[starts[group] : starts[group + 1]]
        multiply(graph, part, work, source, sign, (0, _n_pieces(part)), pieces)
        for lane in range(out.shape[1]):
            out[group, lane] = 0
            for piece in range(_n_pieces(part)):
                out[group, lane] += pieces[piece, lane]


@compiled
def next_direction(rows, work, vectors):
    """Set `work.direction` to image + ratio * direction."""
    update_direction(rows, work, vectors, (0, _n_pieces(rows)))


@compiled
def solution_by_group(rows, starts, work, vectors, pieces, out):
    """Move solution and residual along the direction, and set `out` to the maximum residual of each group."""
    for group in range(len(starts) - 1):
        part = rows[starts[group] : starts[group + 1]]
        update_solution(part, work, vectors, (0, _n_pieces(part)), pieces)
        _store_largest(pieces, _n_pieces(part), out, group)


@compiled
def start_lanes(state, rule):
    """See `conjugate_gradients.begin_lanes`, like the following; these can be called from Python."""
    return begin_lanes(state, rule)


@compiled
def choose_ratios(state, rule):
    """Set the share of the last direction in the next one."""
    set_ratios(state, rule)


@compiled
def choose_step_sizes(state):
    """Set how far the solution moves along the direction."""
    set_step_sizes(state)


@compiled
def active_lanes(state, rule):
    """Return the number of lanes that go on."""
    return count_active(state, rule)


@compiled
def fill_next_level(graph, rows, block, out):
    """One sweep of the initial guess: NaN lanes of `rows` become means of neighbours in `out`; return their number."""
    n_filled = 0
    for node in rows:
        n_empty = count_nan(load(block, node))
        if n_empty:
            average_neighbours(graph, node, block, out)
            n_filled += n_empty - count_nan(load(out, node))
    return n_filled


@compiled
def eliminate_part(graph, free, n_lanes, gone, remaining, leaves, parents):
    """Eliminate the leaves among the own rows, given those of other parts; return their number.

    `gone` flags all rows, own and copied; it is updated for own rows. `remaining` is scratch space.
    """
    n_own, n_leaves = len(graph.indptr) - 1, 0
    for node in range(n_own):
        n_left = 0
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            n_left += not gone[graph.indices[edge]]
        remaining[node] = GONE if gone[node] else n_left
        if is_leaf(node, remaining, free, n_lanes):
            leaves[n_leaves] = node
            n_leaves += 1
    n_done = 0
    while n_done < n_leaves:
        leaf = leaves[n_done]
        gone[leaf] = 1
        remaining[leaf] = GONE
        for edge in range(graph.indptr[leaf], graph.indptr[leaf + 1]):
            neighbour = np.int64(graph.indices[edge])
            if not gone[neighbour]:
                parents[n_done] = neighbour
                if neighbour < n_own:
                    remaining[neighbour] -= 1
                    if is_leaf(neighbour, remaining, free, n_lanes):
                        leaves[n_leaves] = neighbour
                        n_leaves += 1
                break
        n_done += 1
    return n_leaves
