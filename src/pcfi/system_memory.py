"""The memory of this machine: how much is available, and sizes in words."""

from pathlib import Path

from pcfi.errors import TooLargeError

MIN_CHECKED_BYTES = 1 << 25  # below, no machine runs out of memory
MAX_DIGITS = 9  # after the point: single bytes


def available() -> int:
    """Bytes that can still be allocated, within the limit of the container if there is one."""
    limit = _container_limit()
    return _system_available() if limit is None else min(_system_available(), limit)


def _system_available() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def _container_limit() -> int | None:
    """Bytes left within the limit of the control group; None if there is no limit."""
    group = Path("/sys/fs/cgroup")
    try:
        return int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def refuse_allocation(n_bytes: int, what: str) -> None:
    """Raise `TooLargeError` before so many bytes are allocated, if they are not available."""
    if n_bytes < MIN_CHECKED_BYTES:
        return
    there = available()
    if n_bytes > there:
        needed, left = two_sizes_in_words(n_bytes, there)
        raise TooLargeError(f"{what} takes {needed}, but only {left} of memory is available")


def size_in_words(n_bytes: int) -> str:
    """A number of bytes as people say it."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f} MB"


def two_sizes_in_words(needed: int, there: int) -> tuple[str, str]:
    """Two numbers of bytes that differ, with as many digits as it takes to see that.

    >>> two_sizes_in_words(320_000_000, 300_000_000)
    ('0.32 GB', '0.30 GB')
    """
    words = size_in_words(needed), size_in_words(there)
    unit, name = (1e9, "GB") if needed >= 1e8 else (1e6, "MB")
    digits = 1
    while words[0] == words[1] and digits < MAX_DIGITS:
        words = f"{needed / unit:.{digits}f} {name}", f"{there / unit:.{digits}f} {name}"
        digits += 1
    return words
