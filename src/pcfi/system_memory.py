"""Available memory of this machine, and sizes as text."""

from pathlib import Path

from pcfi.errors import TooLargeError

MIN_CHECKED_BYTES = 1 << 25  # smaller allocations are not checked
MAX_DIGITS = 9  # after the decimal point: single bytes


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


def refuse_allocation(n_bytes: int, what: str, remedy: str = "", details: str = "") -> None:
    """Raise `TooLargeError` if `n_bytes` are more than the available memory; `details` says what they consist of."""
    if n_bytes < MIN_CHECKED_BYTES or n_bytes <= (free := available()):
        return
    needed, left = two_sizes_in_words(n_bytes, free)
    raise TooLargeError(f"{what} needs about {needed}{details}, but only {left} of memory is available", remedy=remedy)


def size_in_words(n_bytes: int) -> str:
    """A number of bytes as text, in MB or GB."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f} MB"


def two_sizes_in_words(needed: int, free: int) -> tuple[str, str]:
    """Two different numbers of bytes as text, with enough digits to tell them apart.

    >>> two_sizes_in_words(320_000_000, 300_000_000)
    ('0.32 GB', '0.30 GB')
    """
    words = size_in_words(needed), size_in_words(free)
    unit, name = (1e9, "GB") if needed >= 1e8 else (1e6, "MB")
    digits = 1
    while words[0] == words[1] and digits < MAX_DIGITS:
        words = f"{needed / unit:.{digits}f} {name}", f"{free / unit:.{digits}f} {name}"
        digits += 1
    return words
