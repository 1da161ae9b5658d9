"""Features in files, read some rows at a time: .npy (mapped), Zarr, Parquet."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import (
    FeatureError,
    ParameterError,
    PcfiError,
    StorageError,
    TooLargeError,
    UnsupportedTypeError,
)
from pcfi.files.hive import dataset_files, partition_columns, values_of, with_partition
from pcfi.files.paths import full_path, is_address, opened, suffix_of
from pcfi.inputs.columns import refuse_long_integers
from pcfi.inputs.node_tables import kind_of_arrow
from pcfi.optional import load
from pcfi.system_memory import size_in_words

SUFFIXES = (".npy", ".zarr", ".parquet")


class FeatureStore:
    """A matrix in a file, one row per node, one column per channel.

    Attributes
    ----------
    path : str
    shape : tuple of int
    dtype : numpy dtype
    names : list of str
        Of the columns.
    stamp : list
        Changes when the file does.
    largest_read : int
        Bytes that reading a single row may take.
    truth_values : ndarray of int
        Channels that hold truth values.
    """

    def __init__(self, path: str, shape: tuple[int, ...], dtype: npt.DTypeLike, stamp: list[Any]) -> None:
        if len(shape) != 2:
            raise FeatureError(f"{path!r} must be 2-D (nodes x channels), but has shape {tuple(shape)}")
        self.path = path
        self.shape = (int(shape[0]), int(shape[1]))
        self.dtype = np.dtype(dtype)
        self.names = [f"channel_{k}" for k in range(shape[1])]  # as in every table that is made from an array
        self.stamp = stamp
        self.largest_read = 0
        self.truth_values = np.empty(0, dtype=np.int64)

    def chunks(self, first: int, last: int, size: int) -> Iterator[tuple[int, Array]]:
        """Rows `first` to `last`, at most `size` at a time, each part with the number of its first row."""
        raise NotImplementedError

    def column(self, name: str, most: int) -> Any:  # noqa: ARG002
        """A complete column as a pyarrow array of at most `most` bytes; only for Parquet."""
        raise ParameterError(f"names a column {name!r}, but {self.path!r} is not a Parquet file", parameter="id")


class NpyStore(FeatureStore):
    """A .npy file, mapped."""

    def __init__(self, path: str) -> None:
        mapped, facts = _map_npy(path), Path(path).stat()
        super().__init__(path, mapped.shape, mapped.dtype, [facts.st_size, facts.st_mtime_ns])

    def chunks(self, first: int, last: int, size: int) -> Iterator[tuple[int, Array]]:
        """Copies of rows; the file is mapped anew each time, so that pages of it do not stay with the process."""
        for start in range(first, last, size):
            yield start, np.array(_map_npy(self.path)[start : min(start + size, last)], order="C")


def _map_npy(path: str) -> Array:
    try:
        mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped
    except (ValueError, EOFError) as error:
        raise FeatureError(f"{path!r} cannot be read as .npy: {error}") from None


class ZarrStore(FeatureStore):
    """A Zarr array, in a folder or at an address."""

    def __init__(self, path: str) -> None:
        array = open_zarr(path)
        super().__init__(path, array.shape, array.dtype, [*array.shape, str(array.dtype)])
        self.largest_read = int(np.prod(array.chunks)) * self.dtype.itemsize

    def chunks(self, first: int, last: int, size: int) -> Iterator[tuple[int, Array]]:
        """Rows; parts begin where chunks of the array do, so that few are read twice."""
        array = open_zarr(self.path)
        step = max(size // array.chunks[0], 1) * array.chunks[0] if array.chunks[0] <= size else size
        start = first
        while start < last:
            end = min((start // step + 1) * step, last)
            yield start, np.ascontiguousarray(array[start:end])
            start = end


def open_zarr(path: str) -> Any:
    """The array at a path or an address."""
    zarr = load("zarr", "reading Zarr", "scale")
    try:
        array = zarr.open(path, mode="r")
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise ParameterError(f"{path!r} cannot be opened as Zarr: {error}") from None
    if not hasattr(array, "chunks"):
        raise FeatureError(f"{path!r} is a Zarr group: name one of its arrays, {path.rstrip('/')}/<name>")
    return array


class ParquetStore(FeatureStore):
    """Columns of a Parquet file or of a folder of them, in the order of the file names."""

    def __init__(self, path: str, columns: Any = None, *, boolean: bool = False) -> None:
        files = parquet_files(path)
        if not files:
            raise ParameterError(f"there is no Parquet file in {path!r}")
        facts = [_parquet_facts(file) for file in files]
        import pyarrow as pa

        schema, self.partitions = facts[0].schema.to_arrow_schema(), partition_columns(files, path)
        for name, kind in self.partitions.items():
            schema = schema.append(pa.field(name, kind))
        names = _columns(schema, columns, path, boolean)
        dtypes = [np.dtype(schema.field(name).type.to_pandas_dtype()) for name in names]
        narrow = all(dtype.kind == "f" and dtype.itemsize <= 4 for dtype in dtypes)
        dtype = np.bool_ if boolean else np.float32 if narrow else np.float64
        shape = (sum(part.num_rows for part in facts), len(names))
        stamp = [
            [part.num_rows, part.serialized_size, _modified(file)] for part, file in zip(facts, files, strict=True)
        ]
        super().__init__(path, shape, dtype, stamp)
        self.names = names
        self.schema = schema
        self._files = [(file, part.num_rows) for file, part in zip(files, facts, strict=True)]
        self.truth_values = np.flatnonzero([one.kind == "b" for one in dtypes])
        groups = (part.row_group(k).total_byte_size for part in facts for k in range(part.num_row_groups))
        self.largest_read = max(groups, default=0)

    def chunks(self, first: int, last: int, size: int) -> Iterator[tuple[int, Array]]:
        """Rows, with NaN for null."""
        for start, batch in self.batches(first, last, size, self.names):
            yield start, self.rows_of(batch)

    def rows_of(self, batch: Any) -> Array:
        """The channels of a record batch as an array."""
        rows = np.empty((batch.num_rows, len(self.names)), dtype=self.dtype)
        for k, name in enumerate(self.names):
            rows[:, k] = self._plain(batch.column(name), name).to_numpy(zero_copy_only=False)
        return rows

    def _plain(self, column: Any, name: str) -> Any:
        """The column as a type that numpy reads without conversion: booleans without nulls, or floats."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.dtype == np.bool_:
            return column.fill_null(False)
        if pa.types.is_floating(column.type):
            return column
        if pa.types.is_integer(column.type) and column.type.bit_width == 64 and len(column):
            low, high = pc.min_max(column).values()
            remedy = "leave it out of {columns}, or name it with {id} if it holds the ids"
            refuse_long_integers(low.as_py(), high.as_py(), f"the column {name!r}", remedy)
        return column.cast(pa.float64())

    def column(self, name: str, most: int) -> Any:
        """A complete column."""
        import pyarrow as pa

        if name not in self.schema.names:
            raise ParameterError(f"id must be a column of the features, got {name!r}")
        parts, size = [], 0
        for _, batch in self.batches(0, self.shape[0], 1 << 20, [name]):
            parts.append(batch.column(name))
            size += parts[-1].nbytes
            if size > most:
                raise TooLargeError(
                    f"the column {name!r} of {self.path!r} takes more than {size_in_words(most)}, too much for the "
                    "memory that was granted: grant more, or name nodes by row numbers"
                )
        return pa.chunked_array(parts, type=None if parts else self.schema.field(name).type)

    def batches(self, first: int, last: int, size: int, names: list[str] | None) -> Iterator[tuple[int, Any]]:
        """Record batches of the named columns, or of all of them."""
        import pyarrow.parquet as pq

        start = 0
        for path, n_rows in self._files:
            if start >= last or start + n_rows <= first:  # a folder may hold thousands of files, each an address
                start += n_rows
                continue
            with feature_errors(path), opened(path) as raw, pq.ParquetFile(raw, pre_buffer=False) as file:
                for group in range(file.num_row_groups):
                    end = start + file.metadata.row_group(group).num_rows
                    if start < last and end > first:
                        inner = None if names is None else [name for name in names if name not in self.partitions]
                        batches = file.iter_batches(batch_size=size, row_groups=[group], columns=inner)
                        for number, batch in _within(batches, start, first, last):
                            yield number, self._with_partition(batch, path, names)
                    start = end

    def _with_partition(self, batch: Any, path: str, names: list[str] | None) -> Any:
        return with_partition(batch, values_of(path, self.path), self.partitions, names) if self.partitions else batch


def _within(batches: Iterator[Any], start: int, first: int, last: int) -> Iterator[tuple[int, Any]]:
    """The parts of the batches that lie within `first` and `last`; the first batch begins at `start`."""
    for batch in batches:
        low, high = max(first - start, 0), min(last - start, batch.num_rows)
        if low < high:
            yield start + low, batch.slice(low, high - low)
        start += batch.num_rows


def parquet_files(path: str) -> list[str]:
    """The file, or the Parquet files of a folder in the order of their names."""
    if is_address(path):
        with feature_errors(path):
            fs, root = load("fsspec", "an address", "scale").core.url_to_fs(path)
            paths = dataset_files(fs.find(root), root) if fs.isdir(root) else [root]
            return [fs.unstrip_protocol(name) for name in paths]
    folder = Path(path)
    return dataset_files(map(str, folder.rglob("*.parquet")), path) if folder.is_dir() else [path]


def _modified(path: str) -> int:
    return 0 if is_address(path) else Path(path).stat().st_mtime_ns


def _parquet_facts(path: str) -> Any:
    load("pyarrow", "reading Parquet", "scale")
    import pyarrow.parquet as pq

    with feature_errors(path), opened(path) as file:
        facts = pq.read_metadata(file)
        facts.schema.to_arrow_schema().names  # noqa: B018  decodes them
        return facts


@contextmanager
def feature_errors(path: str) -> Iterator[None]:
    """Raise errors of pyarrow about a bad file as a `FeatureError` that names the file.

    At an address, where access may be denied and connections may break, it is a `StorageError`: what is finished stays.
    """
    import pyarrow as pa

    try:
        yield
    except PcfiError:
        raise
    except Exception as error:
        # libraries for addresses have errors of their own, not all of them an OSError
        if not is_address(path) or isinstance(error, pa.ArrowInvalid):
            if not isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError):
                raise
            raise FeatureError(f"{path!r} cannot be read as Parquet: {' '.join(str(error).split())}") from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise StorageError(
            f"{path!r} cannot be read ({reason}): check the address, the credentials and the connection, and run it "
            "again"
        ) from None


def _columns(schema: Any, names: Any, path: str, boolean: bool) -> list[str]:
    from pyarrow import types

    def fits(kind: Any) -> bool:
        return bool(types.is_boolean(kind) or (not boolean and kind_of_arrow(kind).is_number))

    what = "booleans" if boolean else "numbers"
    fitting = [field.name for field in schema if fits(field.type)]
    if names is None:
        if not fitting:
            raise FeatureError(f"{path!r} has no columns of {what}: its columns are {schema.names}")
        return fitting
    for name in names:
        if name not in fitting:
            reason = f"holds {schema.field(name).type}, not {what}" if name in schema.names else "is not there"
            raise FeatureError(f"column {name!r} of {path!r} {reason}: the columns of {what} are {fitting}")
    return list(names)


def open_features(path: Any, what: str, columns: Any = None, *, boolean: bool = False) -> FeatureStore:
    """Open the features at a path or an address, by its suffix."""
    if not isinstance(path, str | Path):
        raise UnsupportedTypeError(
            f"{what} is a {type(path).__module__}.{type(path).__qualname__}, but pcfi.scale works on files: pass a "
            f"path that ends in {', '.join(SUFFIXES)} (np.save writes .npy), or use pcfi.impute"
        )
    name = full_path(path)
    kind = ".zarr" if ".zarr/" in name else suffix_of(name)
    if kind not in SUFFIXES:
        raise ParameterError(f"{what} is {name!r}, but must end in one of {', '.join(SUFFIXES)}")
    if columns is not None and kind != ".parquet":
        raise ParameterError("names columns of a Parquet file; other files have none", parameter="columns")
    if not is_address(name) and not Path(name).exists():
        raise ParameterError(f"there is no file {name!r}")
    if kind == ".npy" and is_address(name):
        raise ParameterError(f"{what} is {name!r}, but .npy files are mapped and must be local: use Zarr or Parquet")
    if kind == ".parquet":
        return ParquetStore(name, columns, boolean=boolean)
    return NpyStore(name) if kind == ".npy" else ZarrStore(name)
