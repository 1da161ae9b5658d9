"""A hash table of ids: which row has an id, for ids of any length, laid out as Arrow does.

Id number k is `data[offsets[k]:offsets[k + 1]]`, or `data[k * width : (k + 1) * width]` if all ids have `width` bytes,
which is 0 for ids of different lengths. The table has 2^bits slots of 8 bytes, at least twice as many as ids; an id is
in the slot that its hash names, or in the next free one (linear probing). A slot holds the upper half of the hash and
the row plus 1; 0 is free. Ids are compared byte by byte in the end, so that equal hashes cannot mislead.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pcfi._kernels.compiling import compiled, inlined
from pcfi._kernels.vectors import emit_prefetch

WORD = 8
SHIFT, FACTOR = np.uint64(29), np.uint64(0x9E3779B97F4A7C15)  # of the hash; the factor is 2^64 over the golden ratio
TAG = np.uint64(0xFFFFFFFF00000000)
ROW = np.uint64(0xFFFFFFFF)
GROUP = 64  # values that are looked up in step, so that the memory answers several at a time


@intrinsic
def _word(typing: Any, data: Any, place: Any) -> Any:
    """Return the 8 bytes from `place` on as one number."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(first, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(data, types.intp), build


@intrinsic
def _prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Start to fetch the element at `place` into the cache."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = context.make_array(signature.args[0])(context, builder, args[0]).data
        emit_prefetch(builder, builder.gep(first, [args[1]]))
        return context.get_dummy_value()

    return types.void(array, types.intp), build


@inlined
def _bounds(ids, k):
    """Return where id number k begins and ends in the data."""
    offsets, _, width = ids
    if width:
        return np.int64(k) * width, np.int64(k) * width + width
    return np.int64(offsets[k]), np.int64(offsets[k + 1])


@inlined
def _short(data, start, stop):
    """Return fewer than 8 bytes as one number."""
    word = np.uint64(0)
    for place in range(start, stop):
        word = (word << np.uint64(8)) | np.uint64(data[place])
    return word


@inlined
def _hash(data, start, stop):
    """Return the hash of an id: its words, the last of which may overlap the one before, multiplied and folded."""
    value = np.uint64(stop - start) * FACTOR
    if stop - start < WORD:
        value = (value ^ _short(data, start, stop)) * FACTOR
    else:
        for place in range(start, stop - WORD, WORD):
            value = (value ^ _word(data, place)) * FACTOR
            value ^= value >> SHIFT
        value = (value ^ _word(data, stop - WORD)) * FACTOR
    value ^= value >> SHIFT
    value *= FACTOR
    return value ^ (value >> np.uint64(32))


@inlined
def _equal(data, start, stop, others, begin, end):
    """Return whether two ids have the same bytes."""
    length = stop - start
    if end - begin != length:
        return False
    if length < WORD:
        return _short(data, start, stop) == _short(others, begin, end)
    for place in range(0, length - WORD, WORD):
        if _word(data, start + place) != _word(others, begin + place):
            return False
    return _word(data, stop - WORD) == _word(others, end - WORD)


@compiled
def insert_ids(ids, n_ids, slots):
    """Put the ids (offsets, data, width) into the free `slots`; return the number of the first that is there, or -1."""
    mask = np.uint64(len(slots) - 1)
    data = ids[1]
    for k in range(n_ids):
        start, stop = _bounds(ids, k)
        value = _hash(data, start, stop)
        slot = value & mask
        while slots[slot]:
            row = np.int64(slots[slot] & ROW) - 1
            if (slots[slot] ^ value) & TAG == 0:
                begin, end = _bounds(ids, row)
                if _equal(data, start, stop, data, begin, end):
                    return k
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = (value & TAG) | np.uint64(k + 1)
    return -1


@compiled
def find_ids(values, first, last, ids, slots, rows):
    """Write the rows of the values number `first` to `last` - 1, ids as above, to `rows`; -1 where there is none."""
    mask = np.uint64(len(slots) - 1)
    data = values[1]
    hashes = np.empty(GROUP, np.uint64)
    for group in range(first, last, GROUP):
        size = min(GROUP, last - group)
        for k in range(size):
            start, stop = _bounds(values, group + k)
            hashes[k] = _hash(data, start, stop)
            _prefetch(slots, np.int64(hashes[k] & mask))
        for k in range(size):
            row = _candidate(hashes[k], slots, mask)
            rows[group + k] = row
            if row >= 0 and not ids[2]:
                _prefetch(ids[0], np.int64(row))
        for k in range(size):
            row = rows[group + k]
            if row >= 0:
                _prefetch(ids[1], _bounds(ids, row)[0])
        for k in range(size):
            row = rows[group + k]
            if row < 0:
                continue
            start, stop = _bounds(values, group + k)
            begin, end = _bounds(ids, row)
            if not _equal(data, start, stop, ids[1], begin, end):
                rows[group + k] = _probe(data, start, stop, hashes[k], ids, slots)


@inlined
def _candidate(value, slots, mask):
    """Return the row of the first id whose hash has the same upper half, or -1; probably the right one."""
    slot = value & mask
    while slots[slot]:
        if (slots[slot] ^ value) & TAG == 0:
            return np.int32(np.int64(slots[slot] & ROW) - 1)
        slot = (slot + np.uint64(1)) & mask
    return np.int32(-1)


@inlined
def _probe(data, start, stop, value, ids, slots):
    """Return the row of an id, or -1, by comparing every id whose hash has the same upper half."""
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    while slots[slot]:
        row = np.int64(slots[slot] & ROW) - 1
        if (slots[slot] ^ value) & TAG == 0:
            begin, end = _bounds(ids, row)
            if _equal(data, start, stop, ids[1], begin, end):
                return np.int32(row)
        slot = (slot + np.uint64(1)) & mask
    return np.int32(-1)
