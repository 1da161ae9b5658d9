"""Memory: estimated before it is allocated, and no more of it than estimated."""

import tracemalloc

import numpy as np
import pytest

import pcfi
from pcfi import memory, system_memory
from pcfi.inputs.problem import read_problem
from pcfi.settings import Settings

RING = np.stack([np.arange(90_000), (np.arange(90_000) + 1) % 90_000])


def large_problem(n_channels: int = 64, kind: str = "uniform") -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (90_000, n_channels if kind == "uniform" else 1)
    return np.where(rng.random(shape) < 0.2, rng.normal(size=(90_000, n_channels)), np.nan).astype(np.float32)


def test_too_little_memory_is_an_error_that_says_how_much_is_needed(monkeypatch):
    features, graph = large_problem(), pcfi.prepare_graph(RING)
    read_problem(features, graph)  # loads the kernels
    monkeypatch.setattr(system_memory, "available", lambda: 10_000_000)
    tracemalloc.start()
    with pytest.raises(
        pcfi.TooLargeError, match=r"90,000 nodes x 64 channels needs about .* only 10 MB .*pcfi.scale.impute"
    ):
        pcfi.impute(features, graph, alpha=0.5, beta=0.1, objective="representation")
    assert tracemalloc.get_traced_memory()[1] < features.nbytes / 2
    tracemalloc.stop()
    assert isinstance(pcfi.TooLargeError("x"), MemoryError)


def test_small_problems_do_not_ask(monkeypatch):
    monkeypatch.setattr(system_memory, "available", lambda: 0)
    assert (
        pcfi.impute(np.array([[1.0], [np.nan]]), [[0], [1]], alpha=0.5, beta=0.1, objective="representation").values[1]
        == 1
    )


@pytest.mark.parametrize("solver", [pcfi.FixedSteps(3), pcfi.UntilSettled()])
@pytest.mark.parametrize("kind", ["uniform", "structural"])
def test_an_imputation_takes_about_what_it_says(solver, kind):
    features, graph = large_problem(kind=kind), pcfi.prepare_graph(RING)
    settings = Settings(alpha=0.5, beta=0.1, solver=solver, objective="representation")
    said = memory.estimate_memory(read_problem(features, graph), settings)
    pcfi.impute(features, graph, solver=solver, alpha=0.5, beta=0.1, objective="representation")  # loads the kernels
    tracemalloc.start()
    pcfi.impute(features, graph, solver=solver, alpha=0.5, beta=0.1, objective="representation")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.6 * said.total < peak < 1.2 * said.total


@pytest.mark.parametrize("kind", ["uniform", "structural"])
def test_tuning_takes_about_what_it_says(kind):
    features, graph = large_problem(kind=kind), pcfi.prepare_graph(RING)
    settings = Settings()
    said = memory.estimate_memory(read_problem(features, graph), settings)
    pcfi.impute(features[:300], pcfi.prepare_graph(RING[:, :299]))  # loads the kernels
    tracemalloc.start()
    pcfi.impute(features, graph)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.6 * said.total < peak < 1.2 * said.total


def test_what_is_available_is_known_here():
    assert system_memory.available() > 1 << 20
