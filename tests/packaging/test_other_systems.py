"""Windows and macOS, simulated on Linux: modules import, tests are collected, and fallbacks do what they stand for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pcfi.files import paths

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulates other systems on Linux")

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ["windows", "macos"]


def pytest_as_on(system, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "simulated_system", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        env=os.environ | {"PCFI_TEST_SYSTEM": system, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests' / 'helpers'}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_all_modules_are_imported_and_all_tests_are_collected(system):
    done = pytest_as_on(system, "--collect-only")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_files_are_written_and_tests_that_need_another_system_are_skipped(system):
    tests = ["files/test_publication.py", "outofcore/test_scale_results.py::test_a_finished_run_leaves_only_its_result",
             "outofcore/test_scale_integrity.py::test_one_run_at_a_time_works_in_a_folder"]  # fmt: skip
    done = pytest_as_on(system, *(f"tests/{test}" for test in tests), "-rs")
    assert done.returncode == 0, done.stdout[-3000:]
    assert ("needs pipes with names" in done.stdout) == (system == "windows")


def test_paths_of_windows(monkeypatch):
    monkeypatch.setattr(paths.os, "sep", "\\")
    assert paths.suffix_of("C:\\data.old\\table") == ""
    assert paths.table_suffix("C:\\data.old\\table.csv.gz") == ".csv"
    assert paths.full_path("file:///C:/table.csv").endswith("/C:/table.csv")
    assert "//" not in paths.full_path("file:///C:/table.csv")
