"""Edges in any order -> compressed sparse rows, a bucket of rows at a time.

An edge becomes an entry: the row it flows into, and a code = 2 * neighbour + side. Side 1 is an edge of an undirected
graph read against its direction; as its code follows that of side 0, sorting a row by code brings together what has to
be added up (the same code) and what has to be compared (the same neighbour). A key is row << 32 | code, with the row
counted from the first of its bucket.
"""

import numpy as np

from pcfi._kernels.compiling import compiled

SHORT_ROW = 48  # entries up to which inserting beats a sort
CODE_BITS = np.uint64(32)
CODE_MASK = np.uint64(0xFFFFFFFF)


@compiled
def count_entries(rows, neighbours, weights, both_sides, shift, counts):
    """Add the entries of some edges to `counts`, one number per bucket of 2^shift rows."""
    for edge in range(len(rows)):
        if rows[edge] != neighbours[edge] and not (len(weights) and weights[edge] == 0):
            counts[rows[edge] >> shift] += 1
            if both_sides:
                counts[neighbours[edge] >> shift] += 1


@compiled
def place_entries(edges, weights, both_sides, shift, cursors, keys, key_weights):
    """Write the entries of some edges bucket by bucket; `cursors` has the place of each bucket's next entry.

    `edges` is the pair (rows, neighbours). Self-loops and edges of weight 0 leave no entry.
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
    """Like `place_entries` for the keys of a bucket that is split into narrower ones."""
    narrow = (np.uint64(1) << np.uint64(shift)) - np.uint64(1)
    for k in range(len(keys)):
        row = keys[k] >> CODE_BITS
        bucket = row >> np.uint64(shift)
        place = cursors[bucket]
        cursors[bucket] = place + 1
        placed[place] = ((row & narrow) << CODE_BITS) | (keys[k] & CODE_MASK)
        if len(weights):
            placed_weights[place] = weights[k]


@compiled
def count_keys(keys, shift, counts):
    """Add the keys to `counts`, one number per 2^shift rows."""
    for k in range(len(keys)):
        counts[(keys[k] >> CODE_BITS) >> np.uint64(shift)] += 1


@compiled
def build_rows(keys, weights, starts, codes, code_weights, lengths, indices, sums):
    """Sorted, merged rows of a bucket: `indices` and `sums`, `lengths[row]` of each; returns how many entries in all.

    `starts[row]` is where the row begins in `codes` (scratch, like `code_weights`); no weights means that all are 1.
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
    found = 0
    for row in range(len(lengths)):
        first, last = starts[row], starts[row + 1]
        row_weights = code_weights[first:last] if weighted else code_weights[:0]
        _sort(codes[first:last], row_weights)
        merged = _merge(codes[first:last], row_weights, indices[found:], sums[found:])
        lengths[row] = merged
        found += merged
    return found


@compiled
def _sort(codes, weights):
    """Sort codes and bring their weights along; equal codes keep their order, so that sums do not depend on luck."""
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
    """Add up equal codes, keep the maximum side of each neighbour; returns how many neighbours there are."""
    found = 0
    k = 0
    while k < len(codes):
        code = codes[k]
        total = 0.0
        while k < len(codes) and codes[k] == code:
            total += weights[k] if len(weights) else 1.0
            k += 1
        neighbour = np.int32(code >> 1)
        if found and indices[found - 1] == neighbour:
            sums[found - 1] = max(sums[found - 1], total)
        else:
            indices[found] = neighbour
            sums[found] = total
            found += 1
    return found
