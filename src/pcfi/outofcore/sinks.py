"""Result files, written in ranges of rows by any process, which appear under their names when they are complete."""

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import ParameterError, StorageError
from pcfi.files.atomic_output import PRIVATE, atomic_output, publish_mode
from pcfi.files.checksums import checksum
from pcfi.files.paths import is_address, is_scratch, remove, reserve, suffix_of
from pcfi.inputs.node_tables import whole_numbers
from pcfi.optional import load
from pcfi.outofcore.feature_stores import SUFFIXES
from pcfi.outofcore.node_conversion import METADATA, category_channel
from pcfi.stages.hops import UNREACHABLE

FINISHED = "_SUCCESS"
INTERVAL_ENDINGS = ("_low", "_high", "_error")


Write = Callable[[int, Array, Any], None]
"""Writes rows: number of the first row, rows, and the record batch that they were read from, if any."""


class ResultSink:
    """A matrix that is being written, under a temporary name until it is complete.

    At an address, where renaming would copy, it has its final name from the start, and a file `_SUCCESS` marks it as
    complete (for a Zarr array, its attribute "complete").
    """

    def __init__(self, path: str, shape: tuple[int, int], dtype: npt.DTypeLike, names: list[str]) -> None:
        self.path = path
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.names = names
        self.partial = path if is_address(path) else f"{path}.partial"

    def create(self, range_rows: int) -> None:
        """Create the result; ranges of `range_rows` rows are then written in any order, by any process."""
        raise NotImplementedError

    def range(self, index: int) -> AbstractContextManager[Write]:
        """A context with the function that writes the rows of a range, in order."""
        raise NotImplementedError

    def checksum(self, index: int, first: int, last: int) -> int | None:
        """Checksum of the rows `first` to `last`, which are the range `index`; None at an address."""
        raise NotImplementedError

    @property
    def identity(self) -> list[int] | None:
        """What the result keeps when it is renamed: device and inode; None at an address, where nothing is renamed."""
        return None if is_address(self.path) else _identity(Path(self.partial))

    @property
    def _written(self) -> Path:
        """Where the result is now: under its temporary name, or already under its final one."""
        return Path(self.partial if Path(self.partial).exists() else self.path)

    def is_there(self, identity: list[int] | None) -> bool:
        """Whether the result that was created is there, under its temporary name or already under its final one."""
        if is_address(self.path):
            return True
        return identity is not None and identity in (_identity(Path(self.partial)), _identity(Path(self.path)))

    def absent_ranges(self, n_ranges: int) -> list[int]:  # noqa: ARG002
        """Ranges whose files are gone; arrays are one file, which `finish` looks for."""
        return []

    def finish(self, identity: list[int] | None) -> None:
        """Give the result that was created its name, or mark it as complete."""
        if is_address(self.path):
            fs, root = load("fsspec", "an address", "scale").core.url_to_fs(self.path)
            fs.pipe_file(f"{root}/{FINISHED}", b"")
            return
        partial, place = Path(self.partial), Path(self.path)
        if identity == _identity(place):
            return  # a run that was killed had already renamed it
        if identity != _identity(partial):
            raise StorageError(f"{self.partial!r} was removed or replaced: run it again to rewrite it")
        publish_mode(partial, place)
        if place.is_dir() or partial.is_dir():  # what is a folder cannot be replaced at once
            remove(place)
        partial.replace(place)


def _identity(path: Path) -> list[int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return [facts.st_dev, facts.st_ino]


class NpySink(ResultSink):
    """A .npy file."""

    def create(self, range_rows: int) -> None:  # noqa: ARG002
        """Reserve the file, with its header."""
        Path(self.partial).unlink(missing_ok=True)
        with open(self.partial, "wb", opener=_private) as file:
            np.lib.format.write_array_header_2_0(
                file, {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
            )
            reserve(file.fileno(), file.tell() + int(np.prod(self.shape)) * self.dtype.itemsize)

    @contextmanager
    def range(self, index: int) -> Iterator[Write]:  # noqa: ARG002
        """Write rows at their offset in the file."""
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        with Path(self.partial).open("r+b") as file:
            header = os.fstat(file.fileno()).st_size - size

            def write(start: int, rows: Array, _batch: Any) -> None:
                file.seek(header + start * self.shape[1] * self.dtype.itemsize)
                file.write(np.ascontiguousarray(rows, dtype=self.dtype).data)

            yield write
            file.flush()
            os.fsync(file.fileno())

    def checksum(self, index: int, first: int, last: int) -> int | None:  # noqa: ARG002
        """Checksum of the bytes of these rows."""
        row = self.shape[1] * self.dtype.itemsize
        path = self._written
        header = path.stat().st_size - self.shape[0] * row
        return checksum(path, header + first * row, (last - first) * row)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


class ZarrSink(ResultSink):
    """A Zarr array in chunks of complete rows; each chunk lies within one range."""

    CHUNK_BYTES = 1 << 24

    def create(self, range_rows: int) -> None:
        """Make the empty array."""
        zarr = load("zarr", "writing Zarr", "scale")
        rows = max(1, self.CHUNK_BYTES // max(1, self.shape[1] * self.dtype.itemsize))
        pieces = -(-range_rows // min(rows, range_rows))
        while range_rows % pieces:
            pieces += 1
        chunks = (range_rows // pieces, self.shape[1])
        if not is_address(self.path):
            remove(Path(self.partial))
            Path(self.partial).mkdir(mode=0o700)
        zarr.open(self.partial, mode="w", shape=self.shape, chunks=chunks, dtype=self.dtype)

    @contextmanager
    def range(self, index: int) -> Iterator[Write]:  # noqa: ARG002
        """Buffer rows until a chunk is complete."""
        array = load("zarr", "writing Zarr", "scale").open(self.partial, mode="r+")
        buffer = _ChunkBuffer(array)
        yield buffer.write
        buffer.flush()

    def checksum(self, index: int, first: int, last: int) -> int | None:  # noqa: ARG002
        """Checksum of these rows, some at a time; they are read as any reader would."""
        if is_address(self.path):
            return None
        array, value = load("zarr", "writing Zarr", "scale").open(str(self._written), mode="r"), 0
        for start in range(first, last, array.chunks[0]):
            rows = array[start : min(start + array.chunks[0], last)]
            value = zlib.crc32(np.ascontiguousarray(rows).data, value)
        return value

    def finish(self, identity: list[int] | None) -> None:
        """Rename the result, or mark it as complete."""
        if is_address(self.path):
            load("zarr", "writing Zarr", "scale").open(self.path, mode="r+").attrs["complete"] = True
        else:
            super().finish(identity)


class _ChunkBuffer:
    """Buffers rows, and writes them into an array in complete chunks."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.start = 0
        self.waiting: list[Array] = []

    def write(self, start: int, rows: Array, _batch: Any) -> None:
        """Buffer rows; write each chunk that is complete."""
        size = self.array.chunks[0]
        while len(rows):
            if not self.waiting:
                self.start = start
            part = rows[: size - start % size]
            self.waiting.append(part.copy())
            start += len(part)
            rows = rows[len(part) :]
            if start % size == 0:
                self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        if self.waiting:
            rows = np.concatenate(self.waiting)
            self.array[self.start : self.start + len(rows)] = rows
            self.waiting = []


class ParquetSink(ResultSink):
    """A folder of Parquet files, one per range; other columns of Parquet features are copied.

    Attributes
    ----------
    kept : frozenset of str or None
        Channels without missing cells, which are copied as well. Other channels keep the float type of their column.
        None: the result is not values but confidence or hops.
    categories : dict of lists of str
        Categories of each categorical column; each category is a channel. For values, missing cells of the column get
        the category with the largest value. For confidence and hops, the column gets those of its first channel.
    rounded : frozenset of str
        Channels of integers that stay integers.
    """

    kept: frozenset[str] | None = None
    categories: dict[str, list[str]] = {}  # noqa: RUF012  replaced, never changed
    rounded: frozenset[str] = frozenset()

    def create(self, range_rows: int) -> None:  # noqa: ARG002
        """Make the empty folder."""
        if is_address(self.path):
            fs, root = load("fsspec", "an address", "scale").core.url_to_fs(self.path)
            if fs.exists(root):  # an earlier result may have more parts, and is marked as complete
                fs.rm(root, recursive=True)
            fs.makedirs(root, exist_ok=True)
        else:
            remove(Path(self.partial))
            Path(self.partial).mkdir(mode=0o700, parents=True)

    @contextmanager
    def range(self, index: int) -> Iterator[Write]:
        """Write the rows of a range as a file of their own, which appears when it is complete."""
        pa = load("pyarrow", "writing Parquet", "scale")
        import pyarrow.parquet as pq

        name = part_name(index)
        opened: list[Any] = []

        def write(_start: int, rows: Array, batch: Any) -> None:
            table = pa.Table.from_batches([self.replaced(rows, batch)])
            if not opened:
                opened.append(pq.ParquetWriter(file, table.schema))
            opened[0].write_table(table)

        if is_address(self.path):
            with load("fsspec", "an address", "scale").open(f"{self.path.rstrip('/')}/{name}", "wb") as file:
                yield write
                opened[0].close()
            return
        with atomic_output(Path(self.partial) / name) as file:
            yield write
            opened[0].close()

    def checksum(self, index: int, first: int, last: int) -> int | None:  # noqa: ARG002
        """Checksum of the file of the range; None if there is none, and at an address."""
        path = None if is_address(self.path) else self._written / part_name(index)
        return checksum(path) if path is not None and path.is_file() else None

    def absent_ranges(self, n_ranges: int) -> list[int]:
        """Ranges whose files are gone."""
        if is_address(self.path):
            return []
        return [index for index in range(n_ranges) if not (self._written / part_name(index)).is_file()]

    def finish(self, identity: list[int] | None) -> None:
        """Remove temporary files of killed writers, and rename the result."""
        for path in filter(is_scratch, Path(self.partial).glob("*")):
            path.unlink()
        super().finish(identity)

    def replaced(self, rows: Array, batch: Any) -> Any:
        """The batch with its channels replaced by `rows`; without a batch, the rows alone."""
        import pyarrow as pa

        places = {name: k for k, name in enumerate(self.names)}
        groups = {
            name: [places.pop(category_channel(name, label)) for label in labels]
            for name, labels in self.categories.items()
        }
        if batch is None:
            places |= {name: group[0] for name, group in groups.items()}
            order = sorted(places, key=lambda name: places[name])
            return pa.record_batch({name: self._column(rows[:, places[name]], None) for name in order})
        columns = {}
        dropped = {self.names[k] for group in groups.values() for k in group}
        for field in batch.schema:
            before = batch.column(field.name)
            if field.name in groups:
                columns[field.name] = self._category(rows[:, groups[field.name]], before, self.categories[field.name])
            elif field.name in places and field.name not in (self.kept or ()):
                filled = rows[:, places[field.name]]
                if field.name in self.rounded and pa.types.is_integer(field.type):
                    columns[field.name] = pa.array(whole_numbers(filled, str(field.type))).cast(field.type)
                else:
                    columns[field.name] = self._column(filled, field.type, before)
            elif field.name not in dropped:
                columns[field.name] = before
        facts = {key: text for key, text in (batch.schema.metadata or {}).items() if key != METADATA}
        return pa.record_batch(columns).replace_schema_metadata(facts or None)

    def _category(self, shares: Array, before: Any, labels: list[str]) -> Any:
        """A categorical column with missing cells filled; for confidence and hops, those of its first channel."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.kept is None:
            return self._column(shares[:, 0], None)
        if pa.types.is_dictionary(before.type):
            kind = before.type
            found = self._category(shares, before.cast(kind.value_type), labels).dictionary_encode()
            return pa.DictionaryArray.from_arrays(
                found.indices.cast(kind.index_type), found.dictionary, ordered=kind.ordered
            )
        known = pa.array(np.isfinite(shares).all(axis=1))
        chosen = pa.array(labels).cast(before.type).take(pa.array(shares.argmax(axis=1)))
        return pc.if_else(pc.and_(before.is_null(nan_is_null=True), known), chosen, before)

    def _column(self, values: Array, kind: Any, before: Any = None) -> Any:
        """Values as a column; unreachable hops are null, and truth values stay truth values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.dtype.kind == "i":
            return pa.array(np.ascontiguousarray(values, dtype=self.dtype), mask=values == UNREACHABLE)
        if self.kept is not None and before is not None and pa.types.is_boolean(kind):
            chosen = pc.if_else(pa.array(np.isfinite(values)), pa.array(values > 0.5), pa.scalar(None, pa.bool_()))
            return pc.coalesce(before, chosen)
        keeps = self.kept is not None and kind is not None and pa.types.is_floating(kind)
        dtype = np.dtype(kind.to_pandas_dtype()) if keeps else self.dtype
        return pa.array(np.ascontiguousarray(values, dtype=dtype))


class IntervalSink(ParquetSink):
    """The same with the ids, and three columns for each numeric column: low end, high end, expected error."""

    def replaced(self, rows: Array, batch: Any) -> Any:
        """The batch, which holds the ids alone, and the rows."""
        import pyarrow as pa

        columns = {} if batch is None else {name: batch.column(name) for name in batch.schema.names}
        names = [name + ending for name in self.names for ending in INTERVAL_ENDINGS]
        columns |= {name: pa.array(np.ascontiguousarray(rows[:, k])) for k, name in enumerate(names)}
        return pa.record_batch(columns)


def part_name(index: int) -> str:
    """The name of the file of a range."""
    return f"part-{index:05d}.parquet"


def open_sink(path: Any, what: str, shape: tuple[int, int], dtype: npt.DTypeLike, names: list[str]) -> ResultSink:
    """The sink for a path or an address, by its suffix."""
    name = str(path)
    kinds = {".npy": NpySink, ".zarr": ZarrSink, ".parquet": ParquetSink}
    if suffix_of(name) not in kinds:
        raise ParameterError(f"{what} is {name!r}, but must end in one of {', '.join(SUFFIXES)}")
    if suffix_of(name) == ".npy" and is_address(name):
        raise ParameterError(f"{what} is {name!r}, but .npy files must be local: use Zarr or Parquet")
    if not is_address(name) and not Path(name).absolute().parent.is_dir():
        raise ParameterError(f"{what} is {name!r}, but there is no folder {str(Path(name).absolute().parent)!r}")
    if what == "intervals":
        if suffix_of(name) != ".parquet":
            raise ParameterError(f"intervals is {name!r}, but must end in .parquet")
        return IntervalSink(name, shape, dtype, names)
    return kinds[suffix_of(name)](name, shape, dtype, names)


def exists(path: str) -> bool:
    """Whether there is a file or a folder of that name."""
    if is_address(path):
        fs, root = load("fsspec", "an address", "scale").core.url_to_fs(path)
        return bool(fs.exists(root))
    return Path(path).exists()
