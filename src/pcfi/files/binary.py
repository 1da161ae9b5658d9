"""Parquet, Arrow, numpy, AnnData and Matrix Market files -> tables of pyarrow, arrays and sparse matrices."""

from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FileError
from pcfi.files.hive import partition_columns, values_of, with_partition
from pcfi.files.opening import InputFile
from pcfi.files.sizes import refuse_beyond_memory, row_bytes

FEATURES = ("features", "x", "X", "values")  # arrays of an .npz that hold features
EDGES = ("edge_index", "edges")
CONNECTIVITIES = "connectivities"


def read_parquet(source: InputFile) -> Any:
    """Read a Parquet file or a folder of them; the sizes in their metadata are checked against the memory first."""
    import pyarrow as pa
    from pyarrow import parquet

    tables, size, parts = [], 0, source.parts()
    kinds = partition_columns([part.path for part in parts], source.path)
    for part in parts:
        with part.arrow() as stream, parquet.ParquetFile(stream) as file:
            schema, metadata = file.schema_arrow, file.metadata
            stored = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
            size += max(stored, metadata.num_rows * row_bytes(schema))
            refuse_beyond_memory(size, source.words)
            tables.append(with_partition(file.read(), values_of(part.path, source.path), kinds))
    table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
    _decode_names(table.schema)
    return table


def read_arrow(source: InputFile) -> Any:
    """Read an Arrow file (Feather) or stream, batch by batch, and stop if it outgrows the memory."""
    import pyarrow as pa

    with source.arrow() as stream:
        try:
            reader = pa.ipc.open_file(stream)
            batches: Any = (reader.get_batch(number) for number in range(reader.num_record_batches))
        except pa.ArrowInvalid:
            stream.seek(0)
            reader = pa.ipc.open_stream(stream)
            batches = reader
        kept, size = [], 0
        for batch in batches:
            size += batch.nbytes
            refuse_beyond_memory(size, source.words)
            kept.append(batch)
        table = pa.Table.from_batches(kept, schema=reader.schema)
        _decode_names(table.schema)
        table.validate(full=True)  # buffers are not checked by pyarrow: lengths, offsets and text may be invalid
        return table


def _decode_names(schema: Any) -> Any:
    """Return the schema; raises `UnicodeDecodeError` if a name is not valid UTF-8, which pyarrow does not check."""
    schema.names  # noqa: B018  decodes them
    return schema


def parquet_schema(source: InputFile) -> Any:
    """Names and types of the columns of a Parquet file, or of the first one of a folder."""
    from pyarrow import parquet

    with source.parts()[0].arrow() as stream, parquet.ParquetFile(stream) as file:
        return _decode_names(file.schema_arrow)


def arrow_schema(source: InputFile) -> Any:
    """Names and types of the columns of an Arrow file or stream."""
    import pyarrow as pa

    with source.arrow() as stream:
        try:
            return _decode_names(pa.ipc.open_file(stream).schema)
        except pa.ArrowInvalid:
            stream.seek(0)
            return _decode_names(pa.ipc.open_stream(stream).schema)


def read_npy(source: InputFile) -> Array:
    """Read a numpy array; pickles are refused."""
    with source.open() as file:
        _refuse_large_array(file, source)
        file.seek(0)
        return np.asarray(np.load(file, allow_pickle=False))


def read_npz(source: InputFile, names: tuple[str, ...]) -> Array:
    """Read the array with one of these names from an .npz, or its only array."""
    import zipfile

    with source.open() as file, zipfile.ZipFile(file) as archive:
        inside = {name.removesuffix(".npy"): name for name in archive.namelist()}
        chosen = next((name for name in names if name in inside), None)
        if chosen is None and len(inside) == 1:
            chosen = next(iter(inside))
        if chosen is None:
            raise FileError(
                f"{source.words} holds the arrays {', '.join(sorted(inside))}: name the one to use {names[0]!r}"
            )
        with archive.open(inside[chosen]) as member:
            _refuse_large_array(member, source)
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays[chosen])


def _refuse_large_array(file: Any, source: InputFile) -> None:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    refuse_beyond_memory(int(np.prod(shape, dtype=object)) * dtype.itemsize, source.words)


def read_sparse(source: InputFile) -> Any:
    """Read an adjacency from a Matrix Market file or from an .npz of scipy."""
    if source.format.name == "mtx":
        from scipy.io import mminfo, mmread

        path = _by_name(source)  # scipy 1.17 crashes on a file object, and on what is refused here
        _refuse_broken_lines(source)
        rows, columns, entries, layout, *_ = mminfo(path)
        refuse_beyond_memory(16 * (rows * columns if layout == "array" else entries), source.words)
        return mmread(path)
    from scipy import sparse

    with source.open() as file:
        return sparse.load_npz(file)


def _refuse_broken_lines(source: InputFile) -> None:
    last = b""
    with source.open() as file:
        while block := file.read(1 << 20):
            if b"\0" in block:
                raise FileError(f"{source.words} is not text, but .{source.format.name} files are: is it complete?")
            last = block[-1:]
    if last != b"\n":
        raise FileError(f"{source.words} does not end with a newline: add one if the file is complete")


def is_sparse_npz(source: InputFile) -> bool:
    """Whether an .npz was written by `scipy.sparse.save_npz`."""
    import zipfile

    with source.open() as file, zipfile.ZipFile(file) as archive:
        return {"format.npy", "shape.npy", "data.npy"} <= set(archive.namelist())


def read_h5ad(source: InputFile) -> Any:
    """A table of the observations: their names in the column `id`, and a channel for each variable."""
    import pyarrow as pa

    data = _open_h5ad(source)
    if hasattr(data.X, "toarray"):
        refuse_beyond_memory(data.n_obs * data.n_vars * data.X.dtype.itemsize, source.words)
    values = data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
    names = list(map(str, data.var_names))
    return pa.table([pa.array(list(data.obs_names)), *map(pa.array, values.T)], names=["id", *names])


def read_connectivities(source: InputFile) -> tuple[Any, list[str]]:
    """The graph that scanpy leaves in `obsp["connectivities"]`, and the names of the observations."""
    data = _open_h5ad(source)
    if CONNECTIVITIES not in data.obsp:
        names = ", ".join(data.obsp) or "none"
        raise FileError(
            f"{source.words} has no obsp[{CONNECTIVITIES!r}]: run scanpy.pp.neighbors first (it has: {names})"
        )
    return data.obsp[CONNECTIVITIES], list(map(str, data.obs_names))


def _open_h5ad(source: InputFile) -> Any:
    from pcfi.optional import load

    anndata = load("anndata", "a file .h5ad", "anndata")
    return anndata.read_h5ad(_by_name(source))


def _by_name(source: InputFile) -> str:
    """The path, for libraries that open files themselves."""
    if source.data is not None:
        raise FileError(f"a file .{source.format.name} cannot come from standard input: name the file")
    return source.path


def as_table(values: Array, source: InputFile) -> Any:
    """A 2-D array as a table with the columns channel_0, channel_1, ..."""
    import pyarrow as pa

    if values.ndim != 2 or values.dtype.kind not in "fiub":
        raise FileError(
            f"{source.words} holds an array of shape {values.shape} and dtype {values.dtype}: features are numbers, "
            "one row per node, one column per channel"
        )
    if values.dtype.kind == "f" and values.dtype.itemsize > 8:
        raise FileError(f"{source.words} holds {values.dtype}, which tables cannot hold: save it as float64")
    return pa.table({f"channel_{place}": np.ascontiguousarray(column) for place, column in enumerate(values.T)})
