"""Single-threaded BLAS for many small matrices: faster than several threads, and independent of the number of cores."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def single_thread() -> AbstractContextManager[Any]:
    """Context in which the BLAS uses one thread; afterwards the previous number is restored."""
    limits: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limits


@cache
def _libraries() -> Any:
    """The linear algebra libraries that this process has loaded."""
    import numpy as np  # noqa: F401  loads the BLAS
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
