"""Buckets of rows on disk: filled with entries in any order, read back as sorted, merged rows."""

import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import TooLargeError
from pcfi.files.checksums import checksum
from pcfi.files.paths import remove
from pcfi.inputs.graphs import refuse_overflow
from pcfi.inputs.sorted_rows import merge_bucket
from pcfi.progress import Advance

BUCKETS = 256
WORK_BYTES = 6  # that a bucket's rows take while they are built, relative to the bucket on disk
HEADER = 128


class Buckets:
    """Entries of a graph in files, one per 2^shift rows."""

    def __init__(
        self, folder: Path, n_rows: int, weighted: bool, shift: int | None = None, n_nodes: int | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.n_rows = n_rows
        self.n_nodes = n_rows if n_nodes is None else n_nodes  # of the whole graph
        self.weighted = weighted
        self.shift = max(0, (max(n_rows, 1) - 1).bit_length() - BUCKETS.bit_length() + 1) if shift is None else shift
        self.n_entries = np.zeros((max(n_rows - 1, 0) >> self.shift) + 1, dtype=np.int64)

    def add(self, rows: Array, neighbours: Array, weights: Array, *, both_sides: bool) -> None:
        """Put edges into their buckets: from `neighbours` into `rows`, and the other way round if `both_sides`."""
        from pcfi._kernels.edge_sorting import count_entries, place_entries

        rows, neighbours = np.ascontiguousarray(rows), np.ascontiguousarray(neighbours)
        counts = np.zeros_like(self.n_entries)
        count_entries(rows, neighbours, weights, both_sides, self.shift, counts)
        kept = weights if self.weighted else np.empty(0)
        keys, key_weights = np.empty(counts.sum(), np.uint64), np.empty(counts.sum() if self.weighted else 0)
        if not self.weighted and len(weights):  # edges of weight 0 leave no entry even where weights do not matter
            lasting = weights != 0
            rows, neighbours = rows[lasting], neighbours[lasting]
        place_entries((rows, neighbours), kept, both_sides, self.shift, _starts(counts), keys, key_weights)
        self._append(counts, keys, key_weights)

    def _append(self, counts: Array, keys: Array, weights: Array) -> None:
        first = 0
        for bucket in np.flatnonzero(counts):
            last = first + counts[bucket]
            _append_to(self.folder / f"{bucket}.keys", keys[first:last])
            if self.weighted:
                _append_to(self.folder / f"{bucket}.weights", weights[first:last])
            first = last
        self.n_entries += counts

    def rows_of(self, bucket: int) -> int:
        """How many rows a bucket has."""
        return int(min(self.n_rows, (bucket + 1) << self.shift) - (bucket << self.shift))

    def take(self, bucket: int) -> tuple[Array, Array]:
        """Keys and weights of a bucket, in the order they came."""
        if not self.n_entries[bucket]:
            return np.empty(0, np.uint64), np.empty(0)
        keys: Array = np.fromfile(self.folder / f"{bucket}.keys", dtype=np.uint64)
        weights = np.fromfile(self.folder / f"{bucket}.weights") if self.weighted else np.empty(0)
        return keys, weights

    def split(self, bucket: int, limit: int) -> "Buckets":
        """The entries of a bucket in narrower ones, read a part at a time."""
        from pcfi._kernels.edge_sorting import count_keys, place_keys

        n_rows = self.rows_of(bucket)
        shift = max(0, self.shift - BUCKETS.bit_length() + 1)
        narrow = Buckets(self.folder / f"{bucket}.split", n_rows, self.weighted, shift, self.n_nodes)
        part = max(1 << 14, limit // 64)
        for start in range(0, int(self.n_entries[bucket]), part):
            keys: Array = np.fromfile(self.folder / f"{bucket}.keys", np.uint64, count=part, offset=8 * start)
            weights = np.empty(0)
            if self.weighted:
                weights = np.fromfile(self.folder / f"{bucket}.weights", count=part, offset=8 * start)
            counts = np.zeros_like(narrow.n_entries)
            count_keys(keys, narrow.shift, counts)
            placed, placed_weights = np.empty_like(keys), np.empty_like(weights)
            place_keys(keys, weights, narrow.shift, _starts(counts), placed, placed_weights)
            narrow._append(counts, placed, placed_weights)
        return narrow

    def merged(self, limit: int) -> Iterator[tuple[Array, Array, Array]]:
        """Lengths, indices and weights of all rows, some rows at a time, in their order; removes what was read."""
        for bucket in range(len(self.n_entries)):
            entry_bytes = 16 if self.weighted else 8
            if self.n_entries[bucket] * entry_bytes * WORK_BYTES > limit:
                if self.shift == 0:
                    raise TooLargeError(
                        f"a node with {self.n_entries[bucket]:,} edges does not fit into the memory that was granted: "
                        "grant more"
                    )
                yield from self.split(bucket, limit).merged(limit)
            else:
                yield _merge(self.rows_of(bucket), self.n_nodes, *self.take(bucket))
            for name in ("keys", "weights", "split"):
                remove(self.folder / f"{bucket}.{name}")
        remove(self.folder)


def _starts(counts: Array) -> Array:
    return np.concatenate([[0], np.cumsum(counts)[:-1]])


def _append_to(path: Path, array: Array) -> None:
    with path.open("ab") as file:
        file.write(array.data)


def _merge(n_rows: int, n_nodes: int, keys: Array, weights: Array) -> tuple[Array, Array, Array]:
    lengths, indices = np.empty(n_rows, dtype=np.int64), np.empty(len(keys), dtype=np.int32)
    sums = keys.view(np.float64)
    found = merge_bucket(keys, weights, n_nodes, lengths, indices, sums)
    return lengths, indices[:found], sums[:found]


class _Growing:
    """A one-dimensional .npy file that is appended to; its header is written last, and is last in its checksum."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self.length = 0
        self.checksum = 0
        self._file: IO[bytes] = path.open("wb")
        self._file.write(bytes(HEADER))

    def append(self, array: Array) -> None:
        with np.errstate(over="ignore"):  # weights beyond float32 are worked with in float64
            part = np.ascontiguousarray(array, dtype=self.dtype).data
        self._file.write(part)
        self.checksum = zlib.crc32(part, self.checksum)
        self.length += len(array)

    def close(self) -> None:
        text = f"{{'descr': {self.dtype.str!r}, 'fortran_order': False, 'shape': ({self.length},), }}"
        header = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little") + text.encode()
        header = header.ljust(HEADER - 1) + b"\n"
        self._file.seek(0)
        self._file.write(header)
        self._file.close()
        self.checksum = zlib.crc32(header, self.checksum)


def array_checksum(path: Path) -> int:
    """Checksum of an array that `write_rows` wrote."""
    return checksum(path, 0, HEADER, checksum(path, HEADER))


def write_rows(
    buckets: Buckets, folder: Path, prefix: str, limit: int, advance: Advance, *, weights: bool
) -> dict[str, Any]:
    """Write the merged rows to `<prefix>indptr.npy`, `<prefix>indices.npy` and, if any is not 1, the weights.

    Returns facts about the weights, and the checksums of the files.
    """
    names: dict[str, npt.DTypeLike] = {"indptr": np.int64, "indices": np.int32}
    if weights:
        names |= {"weights": np.float64, "weights_float32": np.float32, "degree": np.float64}
    n_entries, lightest, heaviest = 0, np.inf, 0.0
    pending = 0  # entries whose weights are all 1 and have not been written yet
    with ExitStack() as opened:
        files = {
            name: opened.enter_context(closing(_Growing(folder / f"{prefix}{name}.npy", dtype)))
            for name, dtype in names.items()
        }
        files["indptr"].append(np.zeros(1))
        for lengths, indices, sums in buckets.merged(limit):
            ends = np.cumsum(lengths)
            files["indptr"].append(n_entries + ends)
            files["indices"].append(indices)
            n_entries += len(indices)
            advance(len(lengths))
            if not weights:
                continue
            lightest = min(lightest, sums.min(initial=np.inf))
            heaviest = max(heaviest, sums.max(initial=0.0))
            degree = _row_sums(lengths, ends, sums)
            refuse_overflow(degree, files["degree"].length)
            files["degree"].append(degree)
            if lightest == heaviest == 1.0:
                pending += len(sums)
                continue
            for start in range(0, pending, 1 << 20):
                ones = np.ones(min(1 << 20, pending - start))
                files["weights"].append(ones)
                files["weights_float32"].append(ones)
            pending = 0
            files["weights"].append(sums)
            files["weights_float32"].append(sums)
    weighted = n_entries > 0 and not lightest == heaviest == 1.0
    if weights and not weighted:
        for name in ("weights", "weights_float32", "degree"):
            remove(folder / f"{prefix}{name}.npy")
            del files[name]
    bounds = {"lightest": lightest, "heaviest": heaviest} if weighted else {"lightest": 1.0, "heaviest": 1.0}
    return {"weighted": weighted, **bounds, "checksums": {file.path.name: file.checksum for file in files.values()}}


def _row_sums(lengths: Array, ends: Array, sums: Array) -> Array:
    with np.errstate(over="ignore"):
        row_sums: Array = np.add.reduceat(np.append(sums, 0.0), ends - lengths) if len(lengths) else np.empty(0)
    return np.where(lengths > 0, row_sums, 0.0)
