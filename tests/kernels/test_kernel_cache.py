"""The cache of compiled kernels: used when sound, ignored when damaged or not writable, and optional."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CODE = """
import numpy as np
from pcfi._kernels.channel_stats import copy_known
values, mask, out = np.array([[1.0, np.nan]]), np.empty((0, 1), bool), np.empty((1, 2))
copy_known(values, mask, np.array([5.0, 7.0]), 0, 1, out)
assert out.tolist() == [[1.0, 7.0]], out
hits = sum(copy_known.stats.cache_hits.values())
print(type(copy_known._cache).__name__, "from the cache" if hits else "compiled")
"""

# versions of numba whose private parts are not as `compiling` expects
WITHOUT_CACHE_FILE = """
from numba.core import dispatcher
original = dispatcher.FunctionCache

class PlainCache:
    def __init__(self, function):
        cache = original(function)
        self.load_overload, self.save_overload = cache.load_overload, cache.save_overload
        self.cache_path, self.flush = cache.cache_path, cache.flush

dispatcher.FunctionCache = PlainCache
"""
WITHOUT_SOURCE_STAMP = """
from numba.core import caching, dispatcher

class RenamedStamp(caching.IndexDataCacheFile):
    _source_stamp = property()

    def __init__(self, cache_path, filename_base, source_stamp):
        inner = caching.IndexDataCacheFile.__new__(original)
        original.__init__(inner, cache_path, filename_base, source_stamp)
        self.inner = inner

    load = lambda self, *args: self.inner.load(*args)
    save = lambda self, *args: self.inner.save(*args)
    flush = lambda self: self.inner.flush()

original, caching.IndexDataCacheFile = caching.IndexDataCacheFile, RenamedStamp
"""
WITHOUT_CACHING = """
from numba.core import dispatcher

def fail(function):
    raise NotImplementedError("no caching")

dispatcher.FunctionCache = fail
"""


NOTICE = """
import sys, pcfi
pcfi.impute([[1.0], [float("nan")]], [[0], [1]], method="neighbors", progress=True)
"""


def run(folder: Path, code: str = CODE) -> str:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert run(tmp_path) == "KernelCache compiled"
    assert run(tmp_path) == "KernelCache from the cache"
    return tmp_path


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_a_damaged_cache_is_ignored_and_replaced(folder, suffix, content):
    files = list(folder.rglob(f"*.{suffix}"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if content is None else content)
    assert run(folder) == "KernelCache compiled"
    assert run(folder) == "KernelCache from the cache"


@pytest.mark.parametrize(
    ("patch", "name"), [(WITHOUT_CACHE_FILE, "PlainCache"), (WITHOUT_SOURCE_STAMP, "FunctionCache")]
)
def test_kernels_fall_back_to_the_plain_cache_of_a_numba_with_other_private_parts(tmp_path, patch, name):
    assert run(tmp_path, patch + CODE) == f"{name} compiled"
    assert run(tmp_path, patch + CODE) == f"{name} from the cache"


def test_kernels_are_compiled_without_a_cache_if_numba_cannot_cache(tmp_path):
    assert run(tmp_path, WITHOUT_CACHING + CODE) == "NullCache compiled"
    assert run(tmp_path, WITHOUT_CACHING + CODE) == "NullCache compiled"


def test_the_stamp_of_a_cached_kernel_covers_the_sources_of_all_kernels():
    from pcfi._kernels import compiling, steps

    stamps = {kernel._cache._cache_file._source_stamp for kernel in (steps.take_steps, steps.invert_diagonal)}
    assert stamps == {compiling._source_stamp()}


def test_a_folder_that_cannot_be_written_does_not_break_a_run(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    assert run(in_the_way / "cache").split(" ", 1)[1] in (
        "compiled",
        "from the cache",
    )  # numba may fall back to another folder


def test_compiling_is_announced_where_progress_is_shown(tmp_path):
    assert run(tmp_path, NOTICE).count("compiling kernels") == 1
    assert "compiling" not in run(tmp_path, NOTICE)
