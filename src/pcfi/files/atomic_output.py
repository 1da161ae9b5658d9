"""A file that appears under its name, complete, or not at all: written without a name or under another one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pcfi.errors import FileError
from pcfi.files.paths import scratch_of


@contextmanager
def atomic_output(path: Path, *, force: bool = True, durable: bool = True) -> Iterator[Any]:
    """A binary file to write to; it gets its name when the block ends, on disk by then if `durable`."""
    with _nameless(path.parent) or _hidden(path) as file:
        try:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            _publish(file, path, force=force)
        except BaseException:
            _remove(file)
            raise
    if durable:
        _sync_folder(path.parent)


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
    return scratch_of(place).open("w+b")


def _publish(file: Any, place: Path, *, force: bool) -> None:
    name = getattr(file, "name", None)
    if not isinstance(name, str):
        name = str(place) if not force else str(scratch_of(place))
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
