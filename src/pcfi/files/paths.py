"""Paths of files and addresses that fsspec opens."""

import os
import re
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

from pcfi.errors import ParameterError
from pcfi.optional import load

DRAW = "draw"  # beginning of the names of the results draw1, draw2, ...


def is_address(path: str) -> bool:
    """Whether this is an address for fsspec, not a local path."""
    return "://" in path


def full_path(path: str | Path) -> str:
    """Return an address unchanged, and a local path (also with file://) as an absolute path."""
    text = str(path).removeprefix("file://")
    if is_address(text):
        return str(path)
    has_drive = os.sep == "\\" and re.match("/[a-zA-Z]:", text)  # file:///C:/x on Windows
    return str(Path(text[1:] if has_drive else text).absolute())


def place_of(path: str) -> str:
    """The canonical path or address of a file or folder.

    >>> place_of("/data/./old/../x.npy") == place_of("/data/x.npy")
    True
    """
    full = full_path(path)
    if not is_address(full):
        return os.path.realpath(full)
    fs, root = load("fsspec", "an address", "scale").core.url_to_fs(full)
    return str(fs.unstrip_protocol(root)).rstrip("/")


def suffix_of(path: str) -> str:
    """The suffix of a file or folder in lower case."""
    name = path.replace(os.sep, "/").rstrip("/").rsplit("/", 1)[-1]
    return f".{name.rsplit('.', 1)[-1].lower()}" if "." in name else ""


def draw_name(number: int) -> str:
    """Name of a draw among the results of a run."""
    return f"{DRAW}{number}"


def numbered_path(path: str, number: int) -> str:
    """The path of a draw beside a table; a table of a database has its number in its name.

    >>> numbered_path("filled.csv.gz", 2)
    'filled.draw2.csv.gz'
    >>> numbered_path("shop.duckdb/filled", 2)
    'shop.duckdb/filled_draw2'
    """
    text = path.rstrip("/")
    folder, slash, name = text.replace(os.sep, "/").rpartition("/")
    if "." not in name:
        return f"{text}_draw{number}"
    stem = table_stem(name)
    return f"{folder}{slash}{stem}.draw{number}{name[len(stem) :]}"


def table_stem(name: str) -> str:
    """The name of a file without its suffix, and without that of a compression."""
    stem = name.rsplit(".", 1)[0]
    return stem.rsplit(".", 1)[0] if suffix_of(name) in COMPRESSIONS and "." in stem else stem


COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}


def compression_of(path: str) -> str | None:
    """The compression of a text file, by its suffix."""
    return COMPRESSIONS.get(suffix_of(path))


def table_suffix(path: str) -> str:
    """The suffix without that of a compression.

    >>> table_suffix("edges.csv.gz")
    '.csv'
    """
    inner = suffix_of(path.rstrip("/").removesuffix(suffix_of(path))) if compression_of(path) else suffix_of(path)
    return "" if compression_of(path) and inner == ".parquet" else inner


def opened(path: str) -> Any:
    """Open a local file or an address for reading."""
    try:
        if is_address(path):
            return load("fsspec", f"reading {path}", "scale").open(path, "rb").open()
        return open(path, "rb")  # noqa: PTH123  the caller closes it
    except FileNotFoundError:
        raise ParameterError(f"there is no file {path!r}") from None


def scratch_of(path: Path) -> Path:
    """A unique temporary name for a file that is being written."""
    return path.with_name(f".{path.name}.{uuid4().hex}.partial")


def is_scratch(path: Path) -> bool:
    """Whether `scratch_of` made this name; a killed writer leaves such a file."""
    return path.match(".*.partial")


def remove(path: Path) -> None:
    """Remove a file or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def reserve(descriptor: int, n_bytes: int) -> None:
    """Reserve the disk space of an open file.

    A full disk is an error here; it would kill a process that writes to the mapped file later.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, max(n_bytes, 1))
    os.ftruncate(descriptor, n_bytes)
