"""Settings of hypothesis, the digits of the demo, and the folder with the paper's data."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pcfi.demo import Digits, load_digits

settings.register_profile("pcfi", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pcfi")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def digits() -> Digits:
    return load_digits()


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.exists():
        pytest.skip("the folder with the paper's data is not beside the repo")
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
