"""The one way kernels are compiled: without the GIL, cached on disk, IEEE arithmetic."""

from collections.abc import Callable
from typing import Any

import numba


def compiled(function: Callable[..., Any]) -> Any:
    """Compile `function` on first use; other threads run on meanwhile."""
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)
