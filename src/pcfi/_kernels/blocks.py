"""Feature matrix <-> blocks of channels in scaled form, one 64-byte row of channels per node."""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from pcfi._kernels.compiling import compiled
from pcfi._kernels.vectors import ROW_BYTES, load, prefetch, splat, store, where_positive
from pcfi._typing import Array


class Links(NamedTuple):
    """In-neighbours of each node in compressed sparse rows; no `weights` means that all are 1."""

    indptr: Array
    indices: Array
    weights: Array


class FarLinks(NamedTuple):
    """Links of a graph whose blocks outgrow the cache: rows are asked for `AHEAD` edges before they are added."""

    indptr: Array
    indices: Array
    weights: Array


class Columns(NamedTuple):
    """Which channel stands in each lane of a block, its pattern, and how its values are shifted and scaled."""

    channels: Array
    patterns: Array
    shift: Array
    factor: Array


class Cells(NamedTuple):
    """The cells of an open block: values in scaled form, scales, and > 0 where a cell is free (missing, reachable)."""

    solution: Array
    scales: Array
    free: Array


class Scale(NamedTuple):
    """Scale of a cell: `by_code[hops] * by_node[node]`; `by_code` ends with the unreachable code, which is 0."""

    by_code: Array
    by_node: Array


AnyLinks = Links | FarLinks

AHEAD = 64
BEYOND_CACHE = 1 << 22  # bytes of a block


def make_links(indptr: Array, indices: Array, weights: Array) -> AnyLinks:
    """Links of the kind that suits the size of the graph."""
    kind = FarLinks if (len(indptr) - 1) * ROW_BYTES >= BEYOND_CACHE else Links
    return kind(indptr, indices, weights)


def lanes_of(dtype: Any) -> int:
    """How many channels a block has."""
    return ROW_BYTES // int(np.dtype(dtype).itemsize)


def aligned_block(n_nodes: int, dtype: Any) -> Array:
    """An uninitialised block whose rows lie on cache lines, so that reading a row touches one line, not two."""
    raw = np.empty(n_nodes * ROW_BYTES + ROW_BYTES, dtype=np.uint8)
    start = -raw.ctypes.data % ROW_BYTES
    block: Array = raw[start : start + n_nodes * ROW_BYTES].view(dtype).reshape(n_nodes, lanes_of(dtype))
    return block


def neighbour_sum(links: Any, block: Array, node: int) -> Any:
    """Weighted sum of the rows of `block` over the in-neighbours of `node`, held in registers; for kernels only."""
    raise NotImplementedError("neighbour_sum works inside compiled kernels only")


def _near_sum(links, block, node):
    total = splat(block, 0.0)
    if links.weights.size:
        for edge in range(links.indptr[node], links.indptr[node + 1]):
            total = total + splat(block, links.weights[edge]) * load(block, links.indices[edge])
    else:
        for edge in range(links.indptr[node], links.indptr[node + 1]):
            total = total + load(block, links.indices[edge])
    return total


def _far_sum(links, block, node):
    total = splat(block, 0.0)
    end = len(links.indices) - 1
    if links.weights.size:
        for edge in range(links.indptr[node], links.indptr[node + 1]):
            prefetch(block, links.indices[min(edge + AHEAD, end)])
            total = total + splat(block, links.weights[edge]) * load(block, links.indices[edge])
    else:
        for edge in range(links.indptr[node], links.indptr[node + 1]):
            prefetch(block, links.indices[min(edge + AHEAD, end)])
            total = total + load(block, links.indices[edge])
    return total


@overload(neighbour_sum, jit_options={"nogil": True, "error_model": "numpy", "forceinline": True}, strict=False)
def _choose_sum(links, block, node):
    return _far_sum if links.instance_class is FarLinks else _near_sum


def ask_ahead(links: Any, block: Array, edge: int) -> None:
    """Ask for the row that `AHEAD` edges later will be read, if the block outgrows the cache; for kernels only."""
    raise NotImplementedError("ask_ahead works inside compiled kernels only")


@overload(ask_ahead, jit_options={"forceinline": True}, strict=False)
def _choose_ask(links, block, edge):
    if links.instance_class is FarLinks:
        return lambda links, block, edge: prefetch(block, links.indices[min(edge + AHEAD, len(links.indices) - 1)])
    return lambda links, block, edge: None


@compiled
def open_block(values, codes, columns, scale, cells, rows, first, last):
    """Fill `cells` from the features of the nodes from `first` to `last`.

    A known cell is scale * (value - shift) * factor, all others are 0. `rows`, from `first` on, lists the nodes that
    have a free cell; returns how many.
    """
    unreachable = len(scale.by_code) - 1
    width = len(columns.channels)
    found = 0
    for node in range(first, last):
        own = scale.by_node[node]
        n_free = 0
        for lane in range(width):
            code = min(np.int64(codes[node, columns.patterns[lane]]), unreachable)
            cell_scale = scale.by_code[code] * own
            is_free = 0 < code < unreachable
            n_free += is_free
            cells.scales[node, lane] = cell_scale
            cells.free[node, lane] = is_free
            cells.solution[node, lane] = 0
            if code == 0:  # a branch: most cells are missing, and their features need not be fetched
                value = (values[node, columns.channels[lane]] - columns.shift[lane]) * columns.factor[lane]
                cells.solution[node, lane] = value * cell_scale
        for lane in range(width, cells.free.shape[1]):
            cells.scales[node, lane] = 0
            cells.free[node, lane] = 0
            cells.solution[node, lane] = 0
        if n_free:
            rows[first + found] = node
            found += 1
    return found


@compiled
def open_influence(sources, codes, pattern, scale, cells, rows, first, last):
    """Like `open_block` for indicator channels of one pattern: lane k is 1 at node `sources[k]`, 0 at the others."""
    unreachable = len(scale.by_code) - 1
    found = 0
    for node in range(first, last):
        code = min(np.int64(codes[node, pattern]), unreachable)
        is_free = 0 < code < unreachable
        cells.solution[node] = 0
        cells.scales[node] = scale.by_code[code] * scale.by_node[node]
        cells.free[node] = is_free
        if is_free:
            rows[first + found] = node
            found += 1
    for lane in range(len(sources)):
        if first <= sources[lane] < last:
            cells.solution[sources[lane], lane] = cells.scales[sources[lane], lane]
    return found


@compiled
def fill_scales(codes, patterns, scale, scales, first, last):
    """Scales of the cells of a block, lane k in pattern `patterns[k]`, for the nodes from `first` to `last`."""
    unreachable = len(scale.by_code) - 1
    for node in range(first, last):
        for lane in range(len(patterns)):
            code = min(np.int64(codes[node, patterns[lane]]), unreachable)
            scales[node, lane] = scale.by_code[code] * scale.by_node[node]


@compiled
def confidence_diagonal(links, rows, scales, diagonal):
    """`diagonal` = sum over neighbours of their scale relative to the node's own; 0 stays where it is not free."""
    for node in rows:
        free = load(diagonal, node)
        relative = neighbour_sum(links, scales, node) / load(scales, node)
        store(diagonal, node, where_positive(free, relative, free))


@compiled
def degree_diagonal(rows, degree, diagonal):
    """`diagonal` = the node's degree; 0 stays where it is not free."""
    for node in rows:
        free = load(diagonal, node)
        store(diagonal, node, where_positive(free, splat(diagonal, degree[node]), free))


@compiled
def close_block(block, scales, free, columns, bounds, out, first, last):
    """Write the free cells of `block` back into `out`, unscaled, unshifted and kept within `bounds`."""
    for node in range(first, last):
        for lane in range(len(columns.channels)):
            if free[node, lane] > 0:
                value = block[node, lane] / scales[node, lane] / columns.factor[lane] + columns.shift[lane]
                out[node, columns.channels[lane]] = min(max(value, bounds[0, lane]), bounds[1, lane])


@compiled
def close_influence(block, scales, out, first, last):
    """Write the unscaled lanes of `block` into the columns of `out`; unreachable nodes get 0."""
    for node in range(first, last):
        for lane in range(out.shape[1]):
            scale = scales[node, lane]
            out[node, lane] = block[node, lane] / scale if scale > 0 else 0
