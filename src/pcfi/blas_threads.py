"""Linear algebra of many small matrices, which the BLAS does faster on one thread than on several.

On one thread its results do not depend on the number of cores either.
"""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


def single_thread() -> AbstractContextManager[Any]:
    """A block of code during which the BLAS has one thread; afterwards it has as many as before."""
    limits: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limits


@cache
def _libraries() -> Any:
    """The libraries for linear algebra that this process has loaded."""
    import numpy as np  # noqa: F401  whose BLAS is meant
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
