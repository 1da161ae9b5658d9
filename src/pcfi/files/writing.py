"""Tables -> files: under a temporary name or none at all, made durable, and only then under their own name."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from pcfi.errors import FileError
from pcfi.files.formats import DELIMITERS, STANDARD, Format
from pcfi.files.text import write_rows


def check_output(path: str, *, force: bool) -> None:
    """Refuse early what could not be written in the end."""
    if path == STANDARD:
        return
    place = Path(path)
    if place.is_dir():
        raise FileError(f"{path} is a folder: name a file in it")
    if place.exists() and not force:
        raise FileError(f"{path} exists already: choose another name, or overwrite it with --force")
    if not place.parent.is_dir():
        raise FileError(f"{path} cannot be written, because the folder {place.parent} does not exist: make it first")
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise FileError(f"{path} cannot be written, because the folder {place.parent} may not be written to")


@contextmanager
def atomic_file(path: str, *, force: bool = False) -> Iterator[Any]:
    """A binary file to write to; it appears under its name, whole, when the block ends, or never."""
    check_output(path, force=force)
    place = Path(path)
    with _nameless(place.parent) or _hidden(place) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _publish(file, place, force=force)
        except BaseException:
            _remove(file)
            raise
    _sync_folder(place.parent)


def _nameless(folder: Path) -> Any:
    """A file without a name, of which nothing is left if this process is killed; None where there is no such thing."""
    flag = getattr(os, "O_TMPFILE", 0)
    if not flag or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.fdopen(os.open(folder, flag | os.O_RDWR, 0o666), "w+b")
    except OSError:
        return None


def _hidden(place: Path) -> Any:
    file = NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp", delete=False)  # noqa: SIM115
    mask = os.umask(0)
    os.umask(mask)
    Path(file.name).chmod(0o666 & ~mask)
    return file


def _publish(file: Any, place: Path, *, force: bool) -> None:
    name = getattr(file, "name", None)
    if not isinstance(name, str):
        name = str(place) if not force else str(place.with_name(f".{place.name}.{token_hex(8)}.tmp"))
        folder = os.open("/proc/self/fd", os.O_RDONLY)
        try:  # the folder is not used, the path is absolute; but only so does Python follow the link to the file
            os.link(f"/proc/self/fd/{file.fileno()}", name, src_dir_fd=folder, follow_symlinks=True)
        except FileExistsError:
            raise FileError(f"{place} has appeared meanwhile: choose another name, or use --force") from None
        finally:
            os.close(folder)
        if not force:
            return
    Path(name).replace(place)


def _remove(file: Any) -> None:
    name = getattr(file, "name", None)
    if isinstance(name, str):
        with suppress(OSError):
            Path(name).unlink()


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_table(table: Any, path: str, form: Format, *, force: bool = False) -> None:
    """Write a table in a format of tables; `path` may be standard output."""
    if path == STANDARD:
        _write(table, sys.stdout.buffer, form)
        sys.stdout.buffer.flush()
        return
    with atomic_file(path, force=force) as file:
        _write(table, file, form)


def _write(table: Any, file: Any, form: Format) -> None:
    import pyarrow as pa
    from pyarrow import feather, parquet

    match form.name:
        case "parquet":
            parquet.write_table(table, file)
        case "arrow":
            feather.write_feather(table, file)
        case "npy":
            np.save(file, _array(table), allow_pickle=False)
        case "npz":
            np.savez_compressed(file, features=_array(table))
        case _:
            if form.compression is None:
                write_rows(table, file, DELIMITERS[form.name])
            else:
                file.flush()
                copy = os.fdopen(os.dup(file.fileno()), "wb")  # closed by pyarrow, unlike the file itself
                with pa.CompressedOutputStream(pa.PythonFile(copy, mode="w"), form.compression) as packed:
                    write_rows(table, packed, DELIMITERS[form.name])


def _array(table: Any) -> Any:
    """The columns of a table of numbers as one array."""
    columns = [column.to_numpy(zero_copy_only=False) for column in table.columns]
    return np.stack(columns, axis=1) if columns else np.empty((table.num_rows, 0))


def write_text(text: str, path: str, *, force: bool = False) -> None:
    """Write a text file."""
    if path == STANDARD:
        sys.stdout.write(text)
        return
    with atomic_file(path, force=force) as file:
        file.write(text.encode())
