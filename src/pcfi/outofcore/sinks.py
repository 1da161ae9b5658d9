"""Results in files, written some rows at a time by anyone who has them, and complete all at once."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import ParameterError
from pcfi.files.atomic_output import atomic_output
from pcfi.files.paths import is_address, is_scratch, remove, reserve, suffix_of
from pcfi.optional import load
from pcfi.outofcore.feature_stores import SUFFIXES
from pcfi.outofcore.node_conversion import METADATA, category_channel
from pcfi.stages.hops import UNREACHABLE

FINISHED = "_SUCCESS"


Write = Callable[[int, Array, Any], None]
"""Writes rows from a number on; the third is the record batch that they were read with, if they were."""


class ResultSink:
    """A matrix that is being written; until it is finished it has another name.

    At an address, where renaming would copy, it has its own name from the start, and a file `_SUCCESS` says that it is
    complete (within a Zarr array, its attribute "complete").
    """

    def __init__(self, path: str, shape: tuple[int, int], dtype: npt.DTypeLike, names: list[str]) -> None:
        self.path = path
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.names = names
        self.partial = path if is_address(path) else f"{path}.partial"

    def create(self, range_rows: int) -> None:
        """Make room for all rows, which will be written in ranges of `range_rows`, anyone at any time."""
        raise NotImplementedError

    def range(self, index: int) -> AbstractContextManager[Write]:
        """A context with the function that writes the rows of a range, in their order."""
        raise NotImplementedError

    def finish(self) -> None:
        """Give the result its name."""
        if is_address(self.path):
            fs, root = load("fsspec", "an address", "scale").core.url_to_fs(self.path)
            fs.pipe_file(f"{root}/{FINISHED}", b"")
        elif Path(self.partial).exists():  # else a run that was killed just now had come this far
            remove(Path(self.path))
            Path(self.partial).rename(self.path)


class NpySink(ResultSink):
    """A .npy file."""

    def create(self, range_rows: int) -> None:  # noqa: ARG002
        """Reserve the file, with its header."""
        with Path(self.partial).open("wb") as file:
            np.lib.format.write_array_header_2_0(
                file, {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
            )
            reserve(file.fileno(), file.tell() + int(np.prod(self.shape)) * self.dtype.itemsize)

    @contextmanager
    def range(self, index: int) -> Iterator[Write]:  # noqa: ARG002
        """Rows go where they belong in the file."""
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        with Path(self.partial).open("r+b") as file:
            header = os.fstat(file.fileno()).st_size - size

            def write(start: int, rows: Array, _batch: Any) -> None:
                file.seek(header + start * self.shape[1] * self.dtype.itemsize)
                file.write(np.ascontiguousarray(rows, dtype=self.dtype).data)

            yield write
            file.flush()
            os.fsync(file.fileno())


class ZarrSink(ResultSink):
    """A Zarr array whose chunks are whole rows and lie within one range each."""

    CHUNK_BYTES = 1 << 24

    def create(self, range_rows: int) -> None:
        """Make the empty array."""
        zarr = load("zarr", "writing Zarr", "scale")
        rows = max(1, self.CHUNK_BYTES // max(1, self.shape[1] * self.dtype.itemsize))
        pieces = -(-range_rows // min(rows, range_rows))
        while range_rows % pieces:
            pieces += 1
        chunks = (range_rows // pieces, self.shape[1])
        zarr.open(self.partial, mode="w", shape=self.shape, chunks=chunks, dtype=self.dtype)

    @contextmanager
    def range(self, index: int) -> Iterator[Write]:  # noqa: ARG002
        """Rows are gathered to whole chunks."""
        array = load("zarr", "writing Zarr", "scale").open(self.partial, mode="r+")
        gathered = _Gathered(array)
        yield gathered.write
        gathered.flush()

    def finish(self) -> None:
        """Give the result its name, or say in it that it is complete."""
        if is_address(self.path):
            load("zarr", "writing Zarr", "scale").open(self.path, mode="r+").attrs["complete"] = True
        else:
            super().finish()


class _Gathered:
    """Puts rows into an array in parts that are whole chunks."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.start = 0
        self.waiting: list[Array] = []

    def write(self, start: int, rows: Array, _batch: Any) -> None:
        """Keep rows until there are enough."""
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
        """Write what is there."""
        if self.waiting:
            rows = np.concatenate(self.waiting)
            self.array[self.start : self.start + len(rows)] = rows
            self.waiting = []


class ParquetSink(ResultSink):
    """A folder of Parquet files, one per range; columns that are no channels come along from Parquet features.

    Attributes
    ----------
    kept : frozenset of str or None
        Channels that come along, too, while the others are as wide as they were; None: all are new.
    categories : dict of lists of str
        Categories of each column of categories, which are one channel each. The column gets the category of the largest
        value where it is missing if `kept` says that values are written, else what is written for its channels.
    """

    kept: frozenset[str] | None = None
    categories: dict[str, list[str]] = {}  # noqa: RUF012  replaced, never changed

    def create(self, range_rows: int) -> None:  # noqa: ARG002
        """Make the empty folder."""
        if is_address(self.path):
            fs, root = load("fsspec", "an address", "scale").core.url_to_fs(self.path)
            if fs.exists(root):  # parts of a result with more ranges, and its word that it is complete
                fs.rm(root, recursive=True)
            fs.makedirs(root, exist_ok=True)
        else:
            remove(Path(self.partial))
            Path(self.partial).mkdir(parents=True)

    @contextmanager
    def range(self, index: int) -> Iterator[Write]:
        """Rows become row groups of a file of their own, which appears when it is complete."""
        pa = load("pyarrow", "writing Parquet", "scale")
        import pyarrow.parquet as pq

        name = f"part-{index:05d}.parquet"
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

    def finish(self) -> None:
        """Give the result its name, without what killed writers left behind."""
        for path in filter(is_scratch, Path(self.partial).glob("*")):
            path.unlink()
        super().finish()

    def replaced(self, rows: Array, batch: Any) -> Any:
        """The batch with the rows in the place of its channels; without a batch, the rows alone."""
        import pyarrow as pa

        places = {name: k for k, name in enumerate(self.names)}
        groups = {
            name: [places.pop(category_channel(name, one)) for one in self.categories[name]] for name in self.categories
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
                columns[field.name] = self._column(rows[:, places[field.name]], field.type)
            elif field.name not in dropped:
                columns[field.name] = before
        facts = {key: text for key, text in (batch.schema.metadata or {}).items() if key != METADATA}
        return pa.record_batch(columns).replace_schema_metadata(facts or None)

    def _category(self, shares: Array, before: Any, labels: list[str]) -> Any:
        """A column of categories with the largest share where it is missing; without `kept`, its numbers instead."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.kept is None:
            return self._column(shares[:, 0], None)
        known = pa.array(np.isfinite(shares).all(axis=1))
        chosen = pa.array(labels).cast(before.type).take(pa.array(shares.argmax(axis=1)))
        return pc.if_else(pc.and_(before.is_null(nan_is_null=True), known), chosen, before)

    def _column(self, values: Array, before: Any) -> Any:
        """Values as a column; unreachable hops are null."""
        import pyarrow as pa

        if self.dtype.kind == "i":
            return pa.array(np.ascontiguousarray(values, dtype=self.dtype), mask=values == UNREACHABLE)
        keeps = self.kept is not None and before is not None and pa.types.is_floating(before)
        dtype = np.dtype(before.to_pandas_dtype()) if keeps else self.dtype
        return pa.array(np.ascontiguousarray(values, dtype=dtype))


def open_sink(path: Any, what: str, shape: tuple[int, int], dtype: npt.DTypeLike, names: list[str]) -> ResultSink:
    """The matrix to write at a path or an address, by its suffix."""
    name = str(path)
    kinds = {".npy": NpySink, ".zarr": ZarrSink, ".parquet": ParquetSink}
    if suffix_of(name) not in kinds:
        raise ParameterError(f"{what} is {name!r}, but must end in one of {', '.join(SUFFIXES)}")
    if suffix_of(name) == ".npy" and is_address(name):
        raise ParameterError(f"{what} is {name!r}, but .npy files must be local: use Zarr or Parquet")
    if not is_address(name) and not Path(name).absolute().parent.is_dir():
        raise ParameterError(f"{what} is {name!r}, but there is no folder {str(Path(name).absolute().parent)!r}")
    return kinds[suffix_of(name)](name, shape, dtype, names)


def exists(path: str) -> bool:
    """Whether there is a file or a folder of that name."""
    if is_address(path):
        fs, root = load("fsspec", "an address", "scale").core.url_to_fs(path)
        return bool(fs.exists(root))
    return Path(path).exists()
