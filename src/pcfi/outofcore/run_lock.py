"""Lock of a work folder: one process at a time; the system releases the lock if the process is killed."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pcfi.errors import StorageError
from pcfi.files.paths import remove

_HELD: dict[str, int] = {}  # path of each lock that this process holds -> the thread that does
_GUARD = threading.Lock()


@contextmanager
def run_lock(work: Path) -> Iterator[None]:
    """Hold the lock of a work folder, or raise `StorageError` if another run holds it. A thread may take it twice."""
    path, me = work.with_name(f"{work.name}.lock"), threading.get_ident()
    with _GUARD:
        holder = _HELD.get(str(path))
        _HELD.setdefault(str(path), me)
    if holder == me:
        yield
        return
    if holder is not None:
        raise _taken(work)
    descriptor = None
    try:
        descriptor = _acquire(path, work)
        yield
    finally:
        if descriptor is not None:
            _release(descriptor, path)
        with _GUARD:
            del _HELD[str(path)]


def _acquire(path: Path, work: Path) -> int | None:
    """The descriptor of the locked file; None where no file can be made or locked, as on some networks."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return None  # a folder that cannot be written to is told by those who write there
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            raise _taken(work) from None
        except OSError:
            return descriptor
        if _is_same(descriptor, path):
            return descriptor
        os.close(descriptor)  # its holder removed it between the two calls


def _lock(descriptor: int) -> None:
    """Lock a file, or raise an error at once: BlockingIOError on POSIX, PermissionError on Windows."""
    try:
        import fcntl
    except ModuleNotFoundError:
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _release(descriptor: int, path: Path) -> None:
    """Remove the file and its lock; Windows removes no open file, and none that the next holder has opened."""
    try:
        remove(path)
    except PermissionError:
        os.close(descriptor)
        with suppress(PermissionError):
            remove(path)
    else:
        os.close(descriptor)


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _taken(work: Path) -> StorageError:
    return StorageError(
        f"another run is working in {str(work)!r}",
        remedy="wait until it has ended, or choose another folder with {work}",
    )
