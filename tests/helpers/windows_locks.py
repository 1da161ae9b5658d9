"""A stand-in for the module msvcrt of Windows: its locks, by those of this system."""

LK_NBLCK = 2


def locking(descriptor: int, mode: int, n_bytes: int) -> None:
    """Lock one byte of a file, or raise the error of Windows at once if another process has done so."""
    import fcntl

    assert (mode, n_bytes) == (LK_NBLCK, 1)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied") from None
