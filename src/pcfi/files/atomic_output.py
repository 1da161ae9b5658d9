"""Atomic output: a file appears under its name only when it is complete."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pcfi.errors import FileError
from pcfi.files.paths import scratch_of

PRIVATE = 0o600  # mode of a file until it is published


@contextmanager
def atomic_output(path: Path, *, force: bool = True, durable: bool = True) -> Iterator[Any]:
    """A binary file to write to; it gets its name when the block ends, on disk by then if `durable`."""
    with Publication(durable=durable) as publication, publication.open(path, force=force) as file:
        yield file


@dataclass(frozen=True, eq=False)
class _Pending:
    """A file that will be published as `place` (links resolved); errors use `path`.

    `temporary` is the name that it has meanwhile, None if it has none.
    """

    file: Any
    temporary: Path | None
    path: Path
    place: Path
    force: bool


class Publication:
    """Files that are published together when the block ends; none of them if it fails."""

    def __init__(self, *, durable: bool = True) -> None:
        self._durable = durable
        self._pending: list[_Pending] = []

    @contextmanager
    def open(self, path: Path, *, force: bool = True) -> Iterator[Any]:
        """A binary file to write to, private to its owner until it is published."""
        place = Path(os.path.realpath(path))
        file, temporary = _nameless(place.parent), None
        if file is None:
            temporary = scratch_of(place)
            file = _hidden(temporary)
        self._pending.append(_Pending(file, temporary, path, place, force))
        try:
            yield file
            file.flush()
            if self._durable:
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno is None or error.filename is not None:
                raise
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error

    def __enter__(self) -> "Publication":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        published: list[_Pending] = []
        try:
            for one in self._pending if error is None else ():
                _publish(one)
                published.append(one)
        except (OSError, FileError) as failure:
            if not published:
                raise
            there = ", ".join(str(one.path) for one in published)
            raise FileError(f"{failure} ({there} had been written before)") from failure
        finally:
            for one in self._pending:
                with suppress(OSError):  # of a full disk, which has been told
                    one.file.close()
                if one not in published and one.temporary is not None:
                    one.temporary.unlink(missing_ok=True)
        for folder in {one.place.parent for one in published} if self._durable else ():
            _sync_folder(folder)


def _nameless(folder: Path) -> Any:
    """An unnamed file, which disappears if this process is killed; None if the system has none."""
    flag = getattr(os, "O_TMPFILE", 0)
    if not flag or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.fdopen(os.open(folder, flag | os.O_RDWR, PRIVATE), "w+b")
    except OSError:
        return None


def _hidden(name: Path) -> Any:
    return os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE), "w+b")


def _publish(one: _Pending) -> None:
    """Give the file the mode and owner that belong to its name, and then the name."""
    _take_over(one)
    if one.temporary is not None:
        one.file.close()  # Windows renames no file that is open
    if one.force:
        name = one.temporary or scratch_of(one.place)
        if one.temporary is None:
            _link(one.file, name)
        name.replace(one.place)
        return
    try:
        if one.temporary is None:
            _link(one.file, one.place)
        else:
            os.link(one.temporary, one.place)
            one.temporary.unlink()
    except FileExistsError:
        raise FileError(f"{one.path} was created in the meantime: choose another name, or use --force") from None


def _link(file: Any, name: Path) -> None:
    folder = os.open("/proc/self/fd", os.O_RDONLY)
    try:  # the folder is not used, the path is absolute; but only so does Python follow the link to the file
        os.link(f"/proc/self/fd/{file.fileno()}", name, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _take_over(one: _Pending) -> None:
    """Mode and owner of the file that is replaced; for a new file, the default mode."""
    descriptor = one.file.fileno()
    try:
        before = one.place.stat()
    except OSError:
        _change_mode(descriptor, 0o666 & ~_umask())
        return
    mine = os.fstat(descriptor)
    if (before.st_uid, before.st_gid) != (mine.st_uid, mine.st_gid):
        with suppress(OSError, AttributeError):  # only root may give files away
            os.fchown(descriptor, before.st_uid, before.st_gid)
    _change_mode(descriptor, before.st_mode & 0o777)


def _change_mode(descriptor: int, mode: int) -> None:
    with suppress(OSError, AttributeError):  # some file systems, and some systems, have no modes
        os.fchmod(descriptor, mode)


def publish_mode(partial: Path, place: Path) -> None:
    """Give a file or folder that was private so far the mode of what it replaces, or the usual one."""
    usual = (0o777 if partial.is_dir() else 0o666) & ~_umask()
    alike = place.exists() and place.is_dir() == partial.is_dir()
    with suppress(OSError):
        partial.chmod(place.stat().st_mode & 0o777 if alike else usual)


def _umask() -> int:
    """The umask of this process; setting it in order to read it would race with other threads."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))
    except (OSError, StopIteration, ValueError):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
