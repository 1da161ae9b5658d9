"""Tables and text -> files that appear under their names when they are complete."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np

from pcfi.errors import FileError
from pcfi.files.atomic_output import Publication, atomic_output
from pcfi.files.duckdb_files import DuckdbPlace, check_place, write_duckdb
from pcfi.files.formats import DELIMITERS, STANDARD, Format
from pcfi.files.geo_files import GeometryColumn, with_geoparquet_metadata, write_geo
from pcfi.files.hive import write_partitioned
from pcfi.files.text import write_rows

ARRAY = "features.npy"  # the array in a file .npz


def check_output(path: str, *, force: bool) -> None:
    """Raise an error if a path cannot be written; links are followed."""
    if path == STANDARD:
        return
    database = DuckdbPlace.of(path)
    if database is not None:
        check_folder(database.file)
        check_place(path, force=force)
        return
    place = Path(os.path.realpath(path))
    if place.is_dir():
        raise FileError(f"{path} is a folder: name a file in it")
    if place.exists() and not place.is_file():
        raise FileError(
            f"{path} is a device or a pipe, which cannot be replaced by a file: name a file, or - for pipes"
        )
    if place.exists() and not force:
        raise FileError(f"{path} exists already: choose another name, or overwrite it with --force")
    check_folder(path)


def check_folder(path: str) -> None:
    """Raise an error if the folder of a path does not exist or is not writable."""
    folder = Path(path).parent if not Path(path).is_symlink() else Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise FileError(f"{path} cannot be written, because the folder {folder} does not exist: create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(f"{path} cannot be written, because the folder {folder} is not writable: check its permissions")


@contextmanager
def atomic_file(path: str, *, force: bool = False, publication: Publication | None = None) -> Iterator[Any]:
    """A binary file to write to; it appears under its name, whole, when the block ends, or never.

    With a `publication`, it appears together with the other files of it.
    """
    check_output(path, force=force)
    if publication is not None:
        with publication.open(Path(path), force=force) as file:
            yield file
        return
    with atomic_output(Path(path), force=force) as file:
        yield file


def write_table(
    table: Any,
    path: str,
    form: Format,
    *,
    force: bool = False,
    publication: Publication | None = None,
    delimiter: str | None = None,
    geometry: GeometryColumn | None = None,
    partitions: Sequence[str] = (),
) -> None:
    """Write a table in a format of tables; `path` may be standard output. None is the delimiter of the format."""
    write_tables(
        iter([table]),
        table.num_rows,
        path,
        form,
        force=force,
        publication=publication,
        delimiter=delimiter,
        geometry=geometry,
        partitions=partitions,
    )


def write_tables(
    tables: Iterator[Any],
    n_rows: int,
    path: str,
    form: Format,
    *,
    force: bool = False,
    publication: Publication | None = None,
    delimiter: str | None = None,
    geometry: GeometryColumn | None = None,
    partitions: Sequence[str] = (),
) -> None:
    """The same for a table of `n_rows` rows that comes in parts, at least one, of which one at a time is in memory.

    With `partitions`, columns that the folders of the node file hold, Parquet is written in such folders as well.
    """
    delimiter = delimiter or DELIMITERS.get(form.name, "")
    if form.name == "duckdb":
        write_duckdb(tables, path)
        return
    if form.is_geo:
        if geometry is None:
            raise FileError(f"{path}: a .{form.name} file needs geometry, but the nodes have none")
        with atomic_file(path, force=force, publication=publication) as file:
            write_geo(tables, file, Path(path).stem, form.name, geometry)
        return
    if geometry is not None and form.name == "parquet":
        tables = _with_metadata(tables, geometry)
    if partitions and form.name == "parquet" and path != STANDARD:
        write_partitioned(tables, path, partitions)
        return
    if path == STANDARD:
        _write(tables, n_rows, sys.stdout.buffer, form, delimiter)
        sys.stdout.buffer.flush()
        return
    with atomic_file(path, force=force, publication=publication) as file:
        _write(tables, n_rows, file, form, delimiter)


def _with_metadata(tables: Iterator[Any], geometry: GeometryColumn) -> Iterator[Any]:
    for table in tables:
        yield with_geoparquet_metadata(table, geometry) if geometry.name in table.column_names else table


def _write(tables: Iterator[Any], n_rows: int, file: Any, form: Format, delimiter: str) -> None:
    import pyarrow as pa
    from pyarrow import ipc, parquet

    first = next(tables)
    parts = chain([first], tables)
    match form.name:
        case "parquet":
            with parquet.ParquetWriter(file, first.schema) as writer:
                _write_each(parts, writer)
        case "arrow":
            codec = "lz4" if pa.Codec.is_available("lz4") else None
            options = ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
            with ipc.new_file(file, first.schema, options=options) as writer:
                _write_each(_with_growing_dictionaries(parts), writer)
        case "npy":
            _write_array(parts, n_rows, file)
        case "npz":
            with ZipFile(file, "w", ZIP_DEFLATED) as archive, archive.open(ARRAY, "w", force_zip64=True) as member:
                _write_array(parts, n_rows, member)
        case _:
            if form.compression is None:
                write_rows(parts, file, delimiter)
            else:
                file.flush()
                copy = os.fdopen(os.dup(file.fileno()), "wb")  # closed by pyarrow, unlike the file itself
                with pa.CompressedOutputStream(pa.PythonFile(copy, mode="w"), form.compression) as packed:
                    write_rows(parts, packed, delimiter)


def _with_growing_dictionaries(tables: Iterable[Any]) -> Iterator[Any]:
    """Tables whose dictionaries each extend that of the table before, as an Arrow file requires."""
    import pyarrow as pa
    import pyarrow.compute as pc

    seen: dict[str, Any] = {}
    for table in tables:
        for place, field in enumerate(table.schema):
            if not pa.types.is_dictionary(field.type):
                continue
            column = table[field.name].unify_dictionaries().combine_chunks()
            known = seen.get(field.name, column.dictionary.slice(0, 0))
            is_new = pc.invert(pc.is_in(column.dictionary, value_set=known))
            seen[field.name] = pa.concat_arrays([known, column.dictionary.filter(is_new)])
            indices = pc.index_in(column.dictionary_decode(), value_set=seen[field.name]).cast(field.type.index_type)
            column = pa.DictionaryArray.from_arrays(indices, seen[field.name], ordered=field.type.ordered)
            table = table.set_column(place, field, column)
        yield table


def _write_each(tables: Iterable[Any], writer: Any) -> None:
    for table in tables:
        writer.write_table(table)


def _write_array(tables: Iterable[Any], n_rows: int, file: Any) -> None:
    """The columns of tables of numbers as one array."""
    has_header = False
    for table in tables:
        rows = _array(table)
        if not has_header:
            facts = {"descr": rows.dtype.str, "fortran_order": False, "shape": (n_rows, rows.shape[1])}
            np.lib.format.write_array_header_1_0(file, facts)
            has_header = True
        file.write(np.ascontiguousarray(rows).data)


def check_columns(schema: Any, path: str, form: Format) -> None:
    """Refuse columns that the format cannot hold, such as lists in a text file, before any work is done."""
    import io

    import pyarrow as pa
    from pyarrow import feather, parquet

    if form.is_array or form.name == "duckdb":
        return
    for field in schema:
        table = pa.schema([field]).empty_table()
        try:
            if form.is_text:
                write_rows([pa.table({field.name: pa.nulls(1, field.type)})], io.BytesIO(), ",")
            else:
                (parquet.write_table if form.name == "parquet" else feather.write_feather)(table, io.BytesIO())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise FileError(
                f"{path} cannot hold the column {field.name!r} of type {field.type}: write another format, such as "
                ".parquet or .feather, or leave the column out of the node file"
            ) from None


def _array(table: Any) -> Any:
    """The columns of a table of numbers as one array."""
    columns = [column.to_numpy(zero_copy_only=False) for column in table.columns]
    return np.stack(columns, axis=1) if columns else np.empty((table.num_rows, 0))


def write_text(text: str, path: str, *, force: bool = False, publication: Publication | None = None) -> None:
    """Write a text file in UTF-8."""
    if path == STANDARD:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
        return
    with atomic_file(path, force=force, publication=publication) as file:
        file.write(text.encode())
