"""The one way kernels are compiled: without the GIL, IEEE arithmetic, cached on disk.

The cache is numba's own, with two differences: its stamp covers the source of all kernels, because a kernel is
compiled together with those it calls; and a cache that is damaged or cannot be written is passed over.
"""

import contextlib
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile


@cache
def _source_stamp() -> str:
    """Digest of all kernel sources (their slow twins are none)."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "reference":
            digest.update(path.read_bytes())
    return digest.hexdigest()


class KernelCache(FunctionCache):
    """Numba's cache of compiled functions, made to never break a run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path, filename_base=self._impl.filename_base, source_stamp=_source_stamp()
        )

    def load_overload(self, *args: Any) -> Any:
        """The compiled function, or None if it is not there or cannot be read."""
        try:
            return super().load_overload(*args)
        except Exception:  # whatever a damaged file makes of unpickling
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *args: Any) -> None:
        """Save the compiled function if that is possible."""
        with contextlib.suppress(OSError):
            super().save_overload(*args)


def compiled(function: Callable[..., Any], *, inline: bool = False) -> Any:
    """Compile `function` on first use; other threads run on meanwhile."""
    dispatcher = numba.njit(nogil=True, error_model="numpy", forceinline=inline)(function)
    with contextlib.suppress(OSError, RuntimeError):  # numba found no folder to write to
        dispatcher._cache = KernelCache(function)
    return dispatcher


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` into its callers: a vector that is handed over in memory loses what registers gain."""
    return compiled(function, inline=True)
