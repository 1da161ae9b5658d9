"""Edges in any order to compressed sparse rows, one bucket of rows at a time (a bucket sort).

An edge becomes an entry: its row (the target node), and a code = 2 * neighbour + side. Side 1 marks an edge of an
undirected graph taken against its direction. Sorting a row by code brings together duplicates, which are added up (the
same code), and the two directions of an edge, of which the larger weight is kept (the same neighbour). A key is
row << 32 | code, with the row counted from the first row of its bucket.
"""

import numpy as np

from pcfi._kernels.compiling import compiled

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
def sort_by_digit(keys, weights, shift, bits, sorted_keys, sorted_weights):
    """Sort keys and their weights by the `bits` bits from `shift` on; equal ones keep their order.

    Digit after digit, from the last to the first, this is a radix sort.
    """
    size = 1 << bits
    first, mask = np.uint64(shift), np.uint64(size - 1)
    counts = np.zeros(size, np.int64)
    for k in range(len(keys)):
        counts[(keys[k] >> first) & mask] += 1
    place = 0
    for digit in range(size):
        count = counts[digit]
        counts[digit] = place
        place += count
    weighted = len(weights) > 0
    for k in range(len(keys)):
        digit = (keys[k] >> first) & mask
        place = counts[digit]
        counts[digit] = place + 1
        sorted_keys[place] = keys[k]
        if weighted:
            sorted_weights[place] = weights[k]


@compiled
def merge_rows(keys, weights, lengths, indices, sums):
    """Write the merged rows of sorted keys to `indices`, `sums` and `lengths`; return the number of entries.

    Equal codes add up, and the larger side of each neighbour is kept. Empty weights mean 1.
    """
    weighted = len(weights) > 0
    for row in range(len(lengths)):
        lengths[row] = 0
    n_entries = 0
    last = np.uint64(0xFFFFFFFFFFFFFFFF)  # row and neighbour of the entry before
    k = 0
    while k < len(keys):
        key = keys[k]
        total = 0.0
        while k < len(keys) and keys[k] == key:
            total += weights[k] if weighted else 1.0
            k += 1
        if key >> np.uint64(1) == last:
            sums[n_entries - 1] = max(sums[n_entries - 1], total)
            continue
        last = key >> np.uint64(1)
        indices[n_entries] = np.int32((key & CODE_MASK) >> np.uint64(1))
        sums[n_entries] = total
        lengths[key >> CODE_BITS] += 1
        n_entries += 1
    return n_entries
