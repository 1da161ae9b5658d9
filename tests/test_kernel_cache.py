"""The cache of compiled kernels: used when it is sound, passed over when it is damaged or cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import numpy as np
from pcfi._kernels.channel_stats import copy_known
values, mask, out = np.array([[1.0, np.nan]]), np.empty((0, 1), bool), np.empty((1, 2))
copy_known(values, mask, np.array([5.0, 7.0]), 0, 1, out)
assert out.tolist() == [[1.0, 7.0]], out
hits = sum(copy_known.stats.cache_hits.values())
print("from the cache" if hits else "compiled")
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
    assert run(tmp_path) == "compiled"
    assert run(tmp_path) == "from the cache"
    return tmp_path


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_a_damaged_cache_is_passed_over_and_mended(folder, suffix, content):
    files = list(folder.rglob(f"*.{suffix}"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2] if content is None else content)
    assert run(folder) == "compiled"
    assert run(folder) == "from the cache"


def test_a_folder_that_cannot_be_written_does_not_break_a_run(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    assert run(in_the_way / "cache") in ("compiled", "from the cache")  # numba may fall back to another folder


def test_compiling_is_announced_where_progress_is_shown(tmp_path):
    assert run(tmp_path, NOTICE).count("compiling kernels") == 1
    assert "compiling" not in run(tmp_path, NOTICE)
