"""The profile of hypothesis, the time limit of `make fuzz`, the digits of the demo, and the paper's data."""

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hypothesis_profiles import FUZZ_DEADLINE
from pcfi.demo import Digits, load_digits

settings.load_profile("fixed")

SHARED = Path(__file__).resolve().parents[2] / "shared"
NO_SHARED = "the folder with the paper's data is not beside the repo"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the tests of `make fuzz`, so that a short run does not always end before the same ones."""
    if FUZZ_DEADLINE in os.environ:
        random.Random(os.environ[FUZZ_DEADLINE]).shuffle(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > float(os.environ.get(FUZZ_DEADLINE, "inf")):
        pytest.skip("the time of make fuzz is up")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests did not run because the paper's data are not there."""
    skipped = [report for report in terminalreporter.getreports("skipped") if NO_SHARED in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests were skipped: {NO_SHARED} ({SHARED.name}/)")


@pytest.fixture(scope="session")
def digits() -> Digits:
    return load_digits()


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.exists():
        pytest.skip(NO_SHARED)
    return SHARED


@pytest.fixture(scope="session")
def data_folder(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`PCFI_DATA`: as it is, or a copy of the paper's data sets, since loaders write into it."""
    pytest.importorskip("torch_geometric.datasets")
    if "PCFI_DATA" not in os.environ:
        copy = tmp_path_factory.mktemp("datasets")
        shutil.copytree(shared / "data", copy, dirs_exist_ok=True)
        for folder in (copy, *copy.rglob("*")):
            folder.chmod(folder.stat().st_mode | 0o200)
        os.environ["PCFI_DATA"] = str(copy)
    return Path(os.environ["PCFI_DATA"])
