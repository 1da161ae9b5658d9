"""Edges in any order to compressed sparse rows, one bucket of rows at a time (a bucket sort).

An edge becomes an entry: its row (the target node), and a code = 2 * neighbour + side. Side 1 marks an edge of an
undirected graph taken against its direction. Sorting a row by code brings together duplicates, which are added up (the
same code), and the two directions of an edge, of which the larger weight is kept (the same neighbour). A key is
row << 32 | code, with the row counted from the first row of its bucket.
"""

import numpy as np

from pcfi._kernels.compiling import compiled

SHORT_ROW = 48  # entries up to which insertion sort is faster
CODE_BITS = np.uint64(32)
CODE_MASK = np.uint64(0xFFFFFFFF)


@compiled
def count_entries(rows, neighbours, weights, both_sides, shift, counts):
    """Add the number of entries of the edges to `counts`, one count per bucket of 2^shift rows."""
    for edge in range(len(rows)):
        if rows[edge] != neighbours[edge] and not (len(weights) and weights[edge] == 0):
            counts[rows[edge] >> shift] += 1
            if both_sides:
                counts[neighbours[edge] >> shift] += 1


@compiled
def place_entries(edges, weights, both_sides, shift, cursors, keys, key_weights):
    """Write the entries of the edges to their buckets; `cursors` holds the position of each bucket's next entry.

    `edges` is the pair (rows, neighbours). Self-loops and edges of weight 0 are dropped.
    """
    rows, neighbours = edges
    weighted = len(weights) > 0
    for edge in range(len(rows)):
        row, neighbour = np.int64(rows[edge]), np.int64(neighbours[edge])
        if row == neighbour or (weighted and weights[edge] == 0):
            continue
        for side in range(2 if both_sides else 1):
            bucket = row >> shift
            place = cursors[bucket]
            cursors[bucket] = place + 1
            local = np.uint64(row - (bucket << shift))
            keys[place] = (local << CODE_BITS) | np.uint64(2 * neighbour + side)
            if weighted:
                key_weights[place] = weights[edge]
            row, neighbour = neighbour, row


@compiled
def place_keys(keys, weights, shift, cursors, placed, placed_weights):
    """Like `place_entries` for the keys of a bucket that is split into smaller buckets."""
    row_mask = (np.uint64(1) << np.uint64(shift)) - np.uint64(1)
    for k in range(len(keys)):
        row = keys[k] >> CODE_BITS
        bucket = row >> np.uint64(shift)
        place = cursors[bucket]
        cursors[bucket] = place + 1
        placed[place] = ((row & row_mask) << CODE_BITS) | (keys[k] & CODE_MASK)
        if len(weights):
            placed_weights[place] = weights[k]


@compiled
def count_keys(keys, shift, counts):
    """Add the number of keys to `counts`, one count per 2^shift rows."""
    for k in range(len(keys)):
        counts[(keys[k] >> CODE_BITS) >> np.uint64(shift)] += 1


@compiled
def build_rows(keys, weights, starts, codes, code_weights, lengths, indices, sums):
    """Write the sorted, merged rows of a bucket to `indices`, `sums` and `lengths`; return the number of entries.

    `starts[row]` is the first position of the row in `codes` (scratch, like `code_weights`); empty weights mean 1.
    """
    weighted = len(weights) > 0
    cursors = starts[:-1].copy()
    for k in range(len(keys)):
        row = keys[k] >> CODE_BITS
        place = cursors[row]
        cursors[row] = place + 1
        codes[place] = keys[k] & CODE_MASK
        if weighted:
            code_weights[place] = weights[k]
    n_entries = 0
    for row in range(len(lengths)):
        first, last = starts[row], starts[row + 1]
        row_weights = code_weights[first:last] if weighted else code_weights[:0]
        _sort(codes[first:last], row_weights)
        merged = _merge(codes[first:last], row_weights, indices[n_entries:], sums[n_entries:])
        lengths[row] = merged
        n_entries += merged
    return n_entries


@compiled
def _sort(codes, weights):
    """Sort codes and their weights; the sort is stable, so that sums are reproducible."""
    if len(codes) > SHORT_ROW:
        if len(weights):
            order = np.argsort(codes, kind="mergesort")
            codes[:] = codes[order]
            weights[:] = weights[order]
        else:
            codes.sort()
        return
    for k in range(1, len(codes)):
        code = codes[k]
        weight = weights[k] if len(weights) else 0.0
        place = k
        while place > 0 and codes[place - 1] > code:
            codes[place] = codes[place - 1]
            if len(weights):
                weights[place] = weights[place - 1]
            place -= 1
        codes[place] = code
        if len(weights):
            weights[place] = weight


@compiled
def _merge(codes, weights, indices, sums):
    """Add up equal codes, keep the larger side of each neighbour; return the number of neighbours."""
    n_entries = 0
    k = 0
    while k < len(codes):
        code = codes[k]
        total = 0.0
        while k < len(codes) and codes[k] == code:
            total += weights[k] if len(weights) else 1.0
            k += 1
        neighbour = np.int32(code >> 1)
        if n_entries and indices[n_entries - 1] == neighbour:
            sums[n_entries - 1] = max(sums[n_entries - 1], total)
        else:
            indices[n_entries] = neighbour
            sums[n_entries] = total
            n_entries += 1
    return n_entries
