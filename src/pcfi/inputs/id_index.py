"""Ids of pyarrow, all different -> the row of each; in memory and, chunk by chunk, larger than memory."""

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from pcfi._typing import Array

MIN_HASHED = 100_000  # values from which the compiled table is worth loading; pyarrow looks fewer up
MAX_STRING_BYTES = 1 << 31  # of strings in one piece, with offsets of 32 bits
MAX_SLOTS_PER_ID = 4
SLOT_BYTES = 8

_Packed = tuple[Array, Array, int]  # offsets, bytes, and the bytes of each id if all have the same


class IdIndex:
    """The rows of ids.

    Parameters
    ----------
    ids : pyarrow.Array or ChunkedArray
        In the order of the rows, without null; without duplicates too, where rows are looked up.
    """

    def __init__(self, ids: Any) -> None:
        import pyarrow as pa

        if pa.types.is_string(ids.type) and ids.nbytes > MAX_STRING_BYTES:
            ids = ids.cast(pa.large_string())
        self.ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        self._width = _width(self.ids.type)

    @staticmethod
    def size(count: int, n_bytes: int) -> int:
        """Bytes of memory that so many ids of `n_bytes` in all take: in one piece, and the hash table."""
        return n_bytes + SLOT_BYTES * MAX_SLOTS_PER_ID * count

    @property
    def is_hashed(self) -> bool:
        """Whether ids of this type go into the compiled table."""
        return self._width is not None

    @property
    def first_repeated(self) -> int | None:
        """The row of the first id that stands in a row before, if one does."""
        return self._table[2]

    @cached_property
    def _table(self) -> tuple[_Packed, Array, int | None]:
        """The ids, the slots of the hash table, and the first id that is repeated."""
        from pcfi._kernels.id_table import insert_ids

        packed = _packed(self.ids, self._width)
        slots = np.zeros(1 << max(1, (2 * len(self.ids) - 1).bit_length()), dtype=np.uint64)
        repeated = int(insert_ids(packed, len(self.ids), slots))
        return packed, slots, None if repeated < 0 else repeated

    def rows(self, values: Any) -> Array:
        """Row of each element of an array of pyarrow of the type of the ids, -1 where no id is equal."""
        import pyarrow as pa

        if values.type != self.ids.type:
            values = values.cast(self.ids.type)
        if self._width is None or (len(values) < MIN_HASHED and "_table" not in self.__dict__):
            return self._small(values)
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        rows = np.empty(len(values), dtype=np.int32)
        starts = np.cumsum([0, *map(len, chunks)])
        for chunk, (first, last) in zip(chunks, pairwise(starts), strict=True):
            if len(chunk):
                self._find(chunk, rows[first:last])
        return rows

    def _small(self, values: Any) -> Array:
        from pyarrow import compute

        positions = compute.fill_null(compute.index_in(values, value_set=self.ids), -1)
        return np.asarray(positions.to_numpy(zero_copy_only=False), dtype=np.int32)

    def _find(self, values: Any, rows: Array) -> None:
        """Look up one array on all threads; `rows` is filled."""
        from pcfi._kernels.id_table import find_ids
        from pcfi._kernels.threads import run_rows

        packed, (ids, slots, _) = _packed(values, self._width), self._table
        run_rows(len(values), lambda first, last: find_ids(packed, first, last, ids, slots, rows))
        if values.null_count:
            rows[values.is_null().to_numpy(zero_copy_only=False)] = -1


def _width(kind: Any) -> int | None:
    """Bytes of each id of this type, 0 if ids have different lengths; None if equal ids may have different bytes."""
    from pyarrow import types

    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return 0
    is_plain = types.is_integer(kind) or types.is_temporal(kind) or types.is_fixed_size_binary(kind)
    return int(kind.bit_width) // 8 if is_plain and not types.is_interval(kind) else None


def _packed(values: Any, width: int | None) -> _Packed:
    """Offsets and bytes of an array, without a copy."""
    from pyarrow import types

    _, *buffers = values.buffers()
    data: Array = np.frombuffer(b"" if buffers[-1] is None else buffers[-1], dtype=np.uint8)
    offsets: Array = np.empty(0, dtype=np.int32)
    if width:
        data = data[width * values.offset :]
    else:
        is_large = types.is_large_string(values.type) or types.is_large_binary(values.type)
        offsets = np.frombuffer(buffers[0], dtype=np.int64 if is_large else np.int32)[values.offset :]
    offsets.flags.writeable = data.flags.writeable = False  # one compiled kernel for all buffers
    return offsets, data, int(width or 0)
