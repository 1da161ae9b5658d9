"""Layout of a block, and the kernels that gather channels into a block and scatter them back.

A block holds up to 16 channels (float32) or 8 channels (float64) of all nodes in a C-contiguous array of shape
(n_nodes, lanes): one row of 64 bytes, a cache line, per node, and one channel per lane (column). A kernel loads a row
into a vector register (see `vectors`), so each instruction works on all channels of the block at once.

Values are kept in scaled form, y = scale o (x - shift) * factor, because diffusion is simplest there (see
`pcfi.stages.diffusion`). A cell is free if it is missing and reachable; these are the unknowns. Other cells keep their
value: known cells are the boundary, and unreachable cells and unused lanes are 0.
"""

import contextlib
import mmap
from typing import Any, NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._kernels.csr_graph import neighbour_sum
from pcfi._kernels.vectors import ROW_BYTES, load, splat, store, where_positive
from pcfi._typing import Array


class BlockChannels(NamedTuple):
    """For each lane of a block: its channel, the channel's pattern, and the shift and factor of its values."""

    channels: Array
    patterns: Array
    shift: Array
    factor: Array


class BlockCells(NamedTuple):
    """Values of a block in scaled form, their scales, and a flag > 0 where a cell is free (missing and reachable)."""

    solution: Array
    scales: Array
    free: Array


class CellScale(NamedTuple):
    """Scale of a cell: `by_code[hops] * by_node[node]`; the last entry of `by_code`, 0, is for unreachable cells."""

    by_code: Array
    by_node: Array


MIN_MAPPED_BYTES = 1 << 22  # smaller blocks are reused by the allocator


def lane_count(dtype: Any) -> int:
    """Return the number of channels in a block of `dtype`."""
    return ROW_BYTES // int(np.dtype(dtype).itemsize)


def aligned_block(n_nodes: int, dtype: Any) -> Array:
    """Allocate an uninitialised block whose rows are cache lines, so that reading a row touches one line, not two.

    A large block is mapped, so that its memory is given back at once: freed by a thread, an array of this size would
    stay with the allocator, out of reach of other threads.
    """
    n_bytes = n_nodes * ROW_BYTES
    if n_bytes >= MIN_MAPPED_BYTES:
        raw = np.frombuffer(_map_memory(n_bytes), dtype=np.uint8)
    else:
        raw = np.empty(n_bytes + ROW_BYTES, dtype=np.uint8)
    start = -raw.ctypes.data % ROW_BYTES
    block: Array = raw[start : start + n_bytes].view(dtype).reshape(n_nodes, lane_count(dtype))
    return block


def _map_memory(n_bytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, n_bytes)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # as numpy does for large arrays
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


@compiled
def gather_block(values, codes, columns, scale, cells, rows, first, last):
    """Fill `cells` from the features of the nodes `first` to `last`; return the number of nodes with a free cell.

    A known cell becomes scale * (value - shift) * factor, all others 0. The nodes that have a free cell are listed in
    `rows`, from position `first` on.
    """
    unreachable = len(scale.by_code) - 1
    width = len(columns.channels)
    n_rows = 0
    for node in range(first, last):
        node_scale = scale.by_node[node]
        n_free = 0
        for lane in range(width):
            code = min(np.int64(codes[node, columns.patterns[lane]]), unreachable)
            cell_scale = scale.by_code[code] * node_scale
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
            rows[first + n_rows] = node
            n_rows += 1
    return n_rows


@compiled
def gather_indicators(sources, codes, pattern, scale, cells, rows, first, last):
    """Like `gather_block` for indicator channels of one pattern: lane k is 1 at node `sources[k]`, 0 at the others."""
    unreachable = len(scale.by_code) - 1
    n_rows = 0
    for node in range(first, last):
        code = min(np.int64(codes[node, pattern]), unreachable)
        is_free = 0 < code < unreachable
        cells.solution[node] = 0
        cells.scales[node] = scale.by_code[code] * scale.by_node[node]
        cells.free[node] = is_free
        if is_free:
            rows[first + n_rows] = node
            n_rows += 1
    for lane in range(len(sources)):
        if first <= sources[lane] < last:
            cells.solution[sources[lane], lane] = cells.scales[sources[lane], lane]
    return n_rows


@compiled
def fill_scales(codes, patterns, scale, scales, first, last):
    """Fill the scales of a block for the nodes `first` to `last`; lane k has the pattern `patterns[k]`."""
    unreachable = len(scale.by_code) - 1
    for node in range(first, last):
        for lane in range(len(patterns)):
            code = min(np.int64(codes[node, patterns[lane]]), unreachable)
            scales[node, lane] = scale.by_code[code] * scale.by_node[node]


@compiled
def confidence_diagonal(graph, rows, scales, free, out):
    """Set `out` to the sum of the neighbours' scales relative to the node's own, 0 where `free` is 0.

    `out` may be the same array as `free`.
    """
    for node in rows:
        flag = load(free, node)
        relative = neighbour_sum(graph, scales, node) / load(scales, node)
        store(out, node, where_positive(flag, relative, flag))


@compiled
def degree_diagonal(rows, degree, free, out):
    """Set `out` to the node's degree, 0 where `free` is 0; `out` may be the same array as `free`."""
    for node in rows:
        flag = load(free, node)
        store(out, node, where_positive(flag, splat(out, degree[node]), flag))


@compiled
def scatter_block(block, scales, free, columns, bounds, out, first, last):
    """Write the free cells of `block` into the features `out`, unscaled, unshifted and clipped to `bounds`."""
    for node in range(first, last):
        for lane in range(len(columns.channels)):
            if free[node, lane] > 0:
                value = block[node, lane] / scales[node, lane] / columns.factor[lane] + columns.shift[lane]
                out[node, columns.channels[lane]] = min(max(value, bounds[0, lane]), bounds[1, lane])


@compiled
def scatter_influence(block, scales, out, first, last):
    """Write the unscaled lanes of `block` into the columns of `out`; unreachable nodes get 0."""
    for node in range(first, last):
        for lane in range(out.shape[1]):
            scale = scales[node, lane]
            out[node, lane] = block[node, lane] / scale if scale > 0 else 0
