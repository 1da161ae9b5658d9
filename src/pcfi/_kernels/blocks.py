"""Feature matrix <-> blocks of channels in scaled form, one 64-byte row of channels per node."""

from typing import Any, NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._kernels.vectors import ROW_BYTES, load, splat, store, where_positive

Array = np.ndarray[Any, Any]


class Links(NamedTuple):
    """In-neighbours of each node in compressed sparse rows; no `weights` means that all are 1."""

    indptr: Array
    indices: Array
    weights: Array


class Columns(NamedTuple):
    """Which channel stands in each lane of a block, its pattern, and how its values are shifted and scaled."""

    channels: Array
    patterns: Array
    shift: Array
    factor: Array


class Scale(NamedTuple):
    """Scale of a cell: `by_code[hops] * by_node[node]`; `by_code` ends with the unreachable code, which is 0."""

    by_code: Array
    by_node: Array


def lanes_of(dtype: Any) -> int:
    """How many channels a block has."""
    return ROW_BYTES // int(np.dtype(dtype).itemsize)


def aligned_block(n_nodes: int, dtype: Any) -> Array:
    """An uninitialised block whose rows lie on cache lines, so that reading a row touches one line, not two."""
    raw = np.empty(n_nodes * ROW_BYTES + ROW_BYTES, dtype=np.uint8)
    start = -raw.ctypes.data % ROW_BYTES
    block: Array = raw[start : start + n_nodes * ROW_BYTES].view(dtype).reshape(n_nodes, lanes_of(dtype))
    return block


@compiled
def neighbour_sum(links, block, node):
    """Weighted sum of the rows of `block` over the in-neighbours of `node`, held in registers."""
    total = splat(block, 0.0)
    if links.weights.size:
        for edge in range(links.indptr[node], links.indptr[node + 1]):
            total = total + splat(block, links.weights[edge]) * load(block, links.indices[edge])
    else:
        for edge in range(links.indptr[node], links.indptr[node + 1]):
            total = total + load(block, links.indices[edge])
    return total


@compiled
def open_block(values, codes, columns, scale, scales, block):
    """Known cells of `block` = scale * (value - shift) * factor, all others 0; `scales` = the scale of each cell."""
    unreachable = len(scale.by_code) - 1
    for node in range(values.shape[0]):
        for lane in range(block.shape[1]):
            block[node, lane] = 0
            scales[node, lane] = 0
        for lane in range(len(columns.channels)):
            code = min(np.int64(codes[node, columns.patterns[lane]]), unreachable)
            cell_scale = scale.by_code[code] * scale.by_node[node]
            scales[node, lane] = cell_scale
            if code == 0:
                value = values[node, columns.channels[lane]] - columns.shift[lane]
                block[node, lane] = value * columns.factor[lane] * cell_scale


@compiled
def open_influence(sources, codes, pattern, scale, scales, block):
    """Like `open_block` for indicator channels of one pattern: lane k is 1 at node `sources[k]`, 0 at the others."""
    unreachable = len(scale.by_code) - 1
    for node in range(codes.shape[0]):
        code = min(np.int64(codes[node, pattern]), unreachable)
        for lane in range(block.shape[1]):
            block[node, lane] = 0
            scales[node, lane] = scale.by_code[code] * scale.by_node[node]
    for lane in range(len(sources)):
        block[sources[lane], lane] = scales[sources[lane], lane]


@compiled
def mark_free(codes, patterns, n_levels, free, rows):
    """`free` = 1 at missing reachable cells, else 0; `rows` lists the nodes that have one; returns how many."""
    found = 0
    for node in range(codes.shape[0]):
        any_free = False
        for lane in range(free.shape[1]):
            free[node, lane] = 0
        for lane in range(len(patterns)):
            code = codes[node, patterns[lane]]
            if 0 < code <= n_levels:
                free[node, lane] = 1
                any_free = True
        if any_free:
            rows[found] = node
            found += 1
    return found


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
def close_block(block, scales, diagonal, columns, bounds, out):
    """Write the free cells of `block` back into `out`, unscaled, unshifted and kept within `bounds`."""
    for node in range(out.shape[0]):
        for lane in range(len(columns.channels)):
            if diagonal[node, lane] > 0:
                value = block[node, lane] / scales[node, lane] / columns.factor[lane] + columns.shift[lane]
                value = min(max(value, bounds[0, lane]), bounds[1, lane])
                out[node, columns.channels[lane]] = value


@compiled
def close_influence(block, scales, out):
    """Write the unscaled lanes of `block` into the columns of `out`; unreachable nodes get 0."""
    for node in range(out.shape[0]):
        for lane in range(out.shape[1]):
            scale = scales[node, lane]
            out[node, lane] = block[node, lane] / scale if scale > 0 else 0
