"""The one way kernels are compiled: without the GIL, IEEE arithmetic, cached on disk.

The cache is numba's, with two differences. Its stamp covers the source of all kernels, because a kernel is compiled
together with the kernels it calls, and numba looks only at the file of the kernel itself. And files that are damaged or
cannot be written never break a run. Both need private attributes of numba: where a version of numba lacks them, kernels
use numba's cache as it is, and where that is not available either, they are compiled in every process.
"""

import contextlib
import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba


@cache
def _source_stamp() -> str:
    """Return a digest of all kernel sources (the reference implementations are not compiled)."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "reference":
            digest.update(path.read_bytes())
    return digest.hexdigest()


class KernelCache:
    """Numba's cache of one compiled function, with the stamp of all kernels and without errors.

    Raises AttributeError if numba's cache is not built as expected.
    """

    def __init__(self, numba_cache: Any) -> None:
        index = numba_cache._cache_file
        if not hasattr(index, "_source_stamp"):
            raise AttributeError("numba's cache has no source stamp")
        self._load, self._save, self._flush = numba_cache.load_overload, numba_cache.save_overload, numba_cache.flush
        self._numba_cache = numba_cache
        index._source_stamp = _source_stamp()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._numba_cache, name)

    def load_overload(self, *args: Any) -> Any:
        """Return the compiled function, or None if it is not there or cannot be read."""
        try:
            return self._load(*args)
        except Exception:  # unpickling a damaged file can raise anything
            with contextlib.suppress(Exception):
                self._flush()
            return None

    def save_overload(self, *args: Any) -> None:
        """Save the compiled function if possible."""
        with contextlib.suppress(Exception):
            self._save(*args)


def prepare_numba() -> None:
    """Load what numba loads before its first kernel, so that it can be loaded while another thread reads files."""
    with contextlib.suppress(Exception):  # a version of numba without these attributes loads it later
        from numba.core.compiler_lock import global_compiler_lock
        from numba.core.registry import cpu_target

        with global_compiler_lock:
            cpu_target.typing_context.refresh()
            cpu_target.target_context.refresh()


_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Any:
    """Compile `function` on first use, without holding the GIL while it runs."""
    try:
        dispatcher = numba.njit(cache=True, **_OPTIONS)(function)
    except Exception:  # numba found no folder that can be written to
        return numba.njit(**_OPTIONS)(function)
    with contextlib.suppress(AttributeError):
        dispatcher._cache = KernelCache(dispatcher._cache)
    return dispatcher


def inner(function: Callable[..., Any], **options: Any) -> Any:
    """Compile `function` for other kernels only: without code for calls from Python, which is slow to compile.

    It is not cached either, because the machine code of its callers contains it. Python must not call it: there is no
    code for that, and the process would crash.
    """
    return numba.njit(no_cpython_wrapper=True, **_OPTIONS, **options)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` into its callers, so that vectors stay in registers."""
    return inner(function, forceinline=True)
