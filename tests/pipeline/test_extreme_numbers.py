"""Numbers near the ends of what floats hold: finite results or an error in words, and no warnings of numpy."""

from contextlib import suppress

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pcfi
from pcfi import system_memory

N_NODES = 60
RING = np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES])
PATH = np.array([[0, 1, 2], [1, 2, 3]])
REPRESENTATION = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}


@pytest.mark.parametrize("method", ["pcfi", "fp", "neighbors", "mean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "weights",
    [[1, 1e80, 1], [1, 1e80, 1e80], [1e80, 1, 1e-80], [1e-200, 1, 1e200], [1, 1e300, 1e-300], [1e-310, 1e-310, 3e-310]],
)
def test_edge_weights_of_any_size_give_finite_values_or_an_error(method, dtype, weights):
    features = np.array([[1.0], [np.nan], [np.nan], [3.0]], dtype=dtype)
    for solver in (pcfi.UntilSettled(), pcfi.FixedSteps(20)):
        with suppress(pcfi.DivergenceError):
            result = pcfi.impute(features, (PATH, np.array(weights)), method=method, solver=solver, **REPRESENTATION)
            assert np.isfinite(result.values).all()


def test_values_beyond_what_the_features_hold_are_refused_in_words():
    features = np.array([[1.0], [np.nan], [np.nan], [3.0]], dtype=np.float32)
    with pytest.raises(pcfi.DivergenceError, match=r"overflow float32.*span too many orders of magnitude"):
        pcfi.impute(features, (PATH, np.array([1, 1e80, 1])), method="fp")


def test_means_of_neighbours_do_not_underflow():
    features = np.array([[1e-20], [np.nan], [3e-20]])
    for size in (1e-310, 1e-300, 1.0, 1e300):
        graph = (np.array([[0, 1], [1, 2]]), size * np.array([1.0, 3.0]))
        filled = pcfi.impute(features, graph, method="neighbors").values
        np.testing.assert_allclose(filled[1], 2.5e-20, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
@pytest.mark.parametrize("kind", ["positive", "signed"])
def test_a_channel_of_all_magnitudes_has_finite_values_and_intervals_without_nan(kind):
    rng = np.random.default_rng(0)
    features = 10.0 ** rng.uniform(-300, 300, size=(N_NODES, 1))
    if kind == "signed":
        features[::2] *= -1
    features[::3] = np.nan
    result = pcfi.impute(features, RING)
    assert np.isfinite(result.values).all()
    assert not any(np.isnan(end).any() for end in result.interval(0.9))


STANDARDIZED = REPRESENTATION | {"standardize": True}


@pytest.mark.parametrize(
    ("dtype", "size", "options"), [(np.float32, 1e-40, STANDARDIZED), (np.float32, 1e-40, {}), (np.float64, 1e-310, {})]
)
def test_a_channel_of_tiny_values_does_not_disturb_others(dtype, size, options):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(N_NODES, 3))
    features[rng.random(features.shape) < 0.3] = np.nan
    features[:, 1] *= size
    result = pcfi.impute(features.astype(dtype), RING, **options)
    assert np.isfinite(result.values).all()
    assert np.abs(result.values[:, 1]).max() < 10 * size


def test_a_deviation_that_one_cannot_divide_by_is_refused_in_words():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(N_NODES, 3))
    features[rng.random(features.shape) < 0.3] = np.nan
    features[:, 1] *= 1e-310
    with pytest.raises(pcfi.DivergenceError, match="rescale channels of tiny or huge values"):
        pcfi.impute(features, RING, **STANDARDIZED)


def test_sizes_are_checked_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(system_memory, "available", lambda: 4_000_000_000)
    with pytest.raises(pcfi.TooLargeError, match=r"a graph of 2,147,483,647 nodes.* needs about 51.5 GB, but only"):
        pcfi.prepare_graph([[0], [2**31 - 2]])
    monkeypatch.setattr(system_memory, "available", lambda: 1_000_000)
    transposed = np.zeros((100, 100_000)).T
    with pytest.raises(
        pcfi.TooLargeError, match=r"a contiguous copy of the features as float64 needs about 80 MB, but"
    ):
        pcfi.impute(transposed, np.zeros((2, 0), dtype=int))


def test_two_sizes_are_told_apart():
    assert system_memory.two_sizes_in_words(310_000_000, 300_000_000) == ("0.31 GB", "0.30 GB")
    assert system_memory.two_sizes_in_words(3_000_000_000, 10**9) == ("3.0 GB", "1.0 GB")
    assert system_memory.two_sizes_in_words(5_100_000, 5_000_000) == ("5.1 MB", "5.0 MB")
    assert system_memory.two_sizes_in_words(600_000_000, 10_000_000) == ("0.6 GB", "10 MB")


# What comes back


@pytest.mark.parametrize(
    "nodes",
    [
        pd.DataFrame({"x": [1.0, None, 3.0], "y": [None] * 3}),
        pl.DataFrame({"x": [1.0, None, 3.0], "y": [None] * 3}),
        pa.table({"x": [1.0, None, 3.0], "y": pa.nulls(3)}),
    ],
    ids=["pandas", "polars", "pyarrow"],
)
@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
def test_a_column_that_is_null_everywhere_is_a_channel_as_in_files(nodes):
    result = pcfi.impute(nodes, [[0, 1], [1, 2]])
    assert result.column_names == ("x", "y")
    assert list(np.asarray(result.values["y"])) == [0, 0, 0]


def test_confidence_has_ids_and_channels_only():
    nodes = pd.DataFrame({"id": list("abc"), "x": [1.0, None, 3.0], "city": list("pqr"), "day": pd.Timestamp("2020")})
    edges = pd.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})
    result = pcfi.impute(nodes, edges, **REPRESENTATION)
    assert list(result.values.columns) == ["id", "x", "city", "day"]
    for table in (result.confidence, result.hops, result.unreachable):
        assert list(table.columns) == ["id", "x"]


@pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")
def test_truth_values_stay_truth_values_in_every_table():
    for nodes in (
        pd.DataFrame({"b": pd.array([True, None, True], dtype="boolean")}, index=[5, 6, 7]),
        pl.DataFrame({"b": [True, None, True]}),
        pa.table({"b": [True, None, True]}),
    ):
        edges = [[0, 1], [1, 2]]
        filled = pcfi.impute(nodes, edges, **REPRESENTATION).values
        assert list(filled["b"].to_pylist() if isinstance(filled, pa.Table) else filled["b"]) == [True, True, True]
        nothing = pcfi.impute(nodes, np.zeros((2, 0), int), unreachable="nan", **REPRESENTATION).values
        cells = nothing["b"].to_pylist() if isinstance(nothing, pa.Table) else list(nothing["b"])
        assert cells[0] is True or cells[0] == np.True_
        assert cells[1] is None or cells[1] is pd.NA
