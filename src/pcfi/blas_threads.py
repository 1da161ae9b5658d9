"""Single-threaded BLAS for many small matrices: faster than several threads, and independent of the number of cores."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_LOCK = threading.Lock()
_users: list[Any] = []  # the limits in force, once for each caller in the context


@contextmanager
def single_thread() -> Iterator[None]:
    """Context in which the BLAS uses one thread; when all callers have left it, the previous number is restored."""
    with _LOCK:
        _users.append(_users[0] if _users else _libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _LOCK:
            limits = _users.pop()
            if not _users:
                limits.restore_original_limits()


@cache
def _libraries() -> Any:
    """The linear algebra libraries that this process has loaded."""
    import numpy as np  # noqa: F401  loads the BLAS
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
