"""Edges in any order -> compressed sparse rows, by a bucket sort on all threads (see `_kernels.edge_sorting`)."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pcfi._typing import Array

MIN_EDGES = 100_000  # from which the compiled sort is worth loading; scipy sorts fewer
DIGIT_BITS = 11  # of the radix sort: the counts of a digit, 16 kB, stay in the first cache
MAX_BUCKETS = 1024
BUCKET_EDGES = 1 << 13  # edges in a bucket of a smaller graph: their entries, some 100 kB, are sorted within the cache


def sorted_rows(
    rows: Array, neighbours: Array, weights: Array, n_rows: int, *, both_sides: bool
) -> tuple[Array, Array, Array | None]:
    """Row pointers, neighbours and weights, None if all are 1, of edges from `neighbours` into `rows`.

    Empty `weights` mean 1. Duplicates add up in the order of the edges; with `both_sides` edges count in both
    directions, and the larger weight of the two is kept. Self-loops and weights of 0 are dropped.
    """
    sort = _by_scipy if len(rows) < MIN_EDGES else _by_buckets
    return sort(rows, neighbours, weights, n_rows, both_sides)


def _by_scipy(
    rows: Array, neighbours: Array, weights: Array, n_rows: int, both_sides: bool
) -> tuple[Array, Array, Array | None]:
    from scipy import sparse

    kept = rows != neighbours
    data = weights[kept] if len(weights) else np.ones(int(kept.sum()))
    matrix = sparse.coo_array((data, (rows[kept], neighbours[kept])), shape=(n_rows, n_rows)).tocsr()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if both_sides:
        matrix = matrix.maximum(matrix.T).tocsr()
        matrix.sum_duplicates()
    is_uniform = bool(np.all(matrix.data == 1.0))
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
    return indptr, indices, None if is_uniform else matrix.data


def _by_buckets(
    rows: Array, neighbours: Array, weights: Array, n_rows: int, both_sides: bool
) -> tuple[Array, Array, Array | None]:
    n_buckets = min(MAX_BUCKETS, -(-len(rows) // BUCKET_EDGES))
    shift = max(0, (max(n_rows, 1) - 1).bit_length() - n_buckets.bit_length() + 1)
    starts, keys, key_weights = _in_buckets(rows, neighbours, weights, both_sides, shift, n_rows)
    lengths, indices = np.empty(n_rows, dtype=np.int64), np.empty(len(keys), dtype=np.int32)
    sums = keys.view(np.float64)  # the keys are no longer needed where a weight is written
    sizes = np.zeros(len(starts) - 1, dtype=np.int64)

    def build(first: int, last: int) -> bool:
        is_uniform = True
        for bucket in range(first, last):
            part, own = slice(starts[bucket], starts[bucket + 1]), slice(bucket << shift, (bucket + 1) << shift)
            found = merge_bucket(keys[part], key_weights[part], n_rows, lengths[own], indices[part], sums[part])
            sizes[bucket] = found
            is_uniform = is_uniform and bool((sums[part][:found] == 1.0).all())
        return is_uniform

    from pcfi._kernels.threads import run_rows

    is_uniform = all(run_rows(len(sizes), build))
    indptr, n_entries = np.concatenate([[0], np.cumsum(lengths)]), int(sizes.sum())
    _close_gaps(indices, starts, sizes)
    indices.resize(n_entries, refcheck=False)
    if is_uniform:
        return indptr, indices, None
    _close_gaps(sums, starts, sizes)
    return indptr, indices, sums[:n_entries]


def _close_gaps(array: Array, starts: Array, sizes: Array) -> None:
    """Move the entries of all buckets together, where duplicates have left gaps between them."""
    ends = np.cumsum(sizes)
    for first, end, size in zip(starts[:-1].tolist(), ends.tolist(), sizes.tolist(), strict=True):
        if end - size < first:
            array[end - size : end] = array[first : first + size]


def _in_buckets(
    rows: Array, neighbours: Array, weights: Array, both_sides: bool, shift: int, n_rows: int
) -> tuple[Array, Array, Array]:
    """The keys of all entries by buckets, in the order of the edges: where buckets begin, keys, and their weights."""
    from pcfi._kernels.edge_sorting import count_entries, place_entries
    from pcfi._kernels.threads import run_tasks, thread_count

    rows, neighbours = np.ascontiguousarray(rows), np.ascontiguousarray(neighbours)
    bounds = np.linspace(0, len(rows), thread_count() + 1).astype(np.int64)
    parts = [slice(first, last) for first, last in pairwise(bounds.tolist())]
    counts = np.zeros((len(parts), (max(n_rows - 1, 0) >> shift) + 1), dtype=np.int64)

    def count(piece: int, _: Any) -> None:
        part = parts[piece]
        count_entries(rows[part], neighbours[part], weights[part], both_sides, shift, counts[piece])

    run_tasks([partial(count, piece) for piece in range(len(parts))])
    cursors = np.ascontiguousarray((np.cumsum(counts.T) - counts.T.ravel()).reshape(counts.T.shape).T)
    starts = np.append(cursors[0], counts.sum())
    keys = np.empty(starts[-1], dtype=np.uint64)
    key_weights = np.empty(len(keys) if len(weights) else 0)

    def place(piece: int, _: Any) -> None:
        part = parts[piece]
        edges = rows[part], neighbours[part]
        place_entries(edges, weights[part], both_sides, shift, cursors[piece], keys, key_weights)

    run_tasks([partial(place, piece) for piece in range(len(parts))])
    return starts, keys, key_weights


def merge_bucket(keys: Array, weights: Array, n_nodes: int, lengths: Array, indices: Array, sums: Array) -> int:
    """Sort and merge the rows of a bucket into `lengths`, `indices` and `sums`; returns the number of entries.

    `indices` and `sums` have room for one entry per key; `sums` may lie in the memory of `keys`, which is overwritten.
    """
    from pcfi._kernels.edge_sorting import CODE_BITS, merge_rows, sort_by_digit

    row_start, code_bits, row_bits = int(CODE_BITS), (2 * n_nodes - 1).bit_length(), (len(lengths) - 1).bit_length()
    digits = [*_digits(0, code_bits), *_digits(row_start, row_start + row_bits)]
    spare = np.empty_like(keys), np.empty_like(weights)
    for shift, bits in digits:
        sort_by_digit(keys, weights, shift, bits, *spare)
        (keys, weights), spare = spare, (keys, weights)
    return int(merge_rows(keys, weights, lengths, indices, sums))


def _digits(start: int, stop: int) -> list[tuple[int, int]]:
    """The digits of the radix sort for some bits of a key: where each begins, and its bits."""
    return [(shift, min(DIGIT_BITS, stop - shift)) for shift in range(start, stop, DIGIT_BITS)]
