"""Settings of hypothesis, and the folder with the paper's data."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("pcfi", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pcfi")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.exists():
        pytest.skip("the folder with the paper's data is not beside the repo")
    return SHARED
