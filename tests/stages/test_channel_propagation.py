"""Stage 2 against the paper's equations 6 to 9."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcfi
from pcfi._kernels import reference
from pcfi.stages.channel_propagation import PropagationParameters, propagate
from pcfi.stages.hops import Hops
from random_problems import RandomProblem, problems, random_problem

CONNECTED = {"n_nodes": 40, "degree": 8, "n_channels": 7}


PAPER = {"alpha": 0.5, "objective": "representation"}


def both_stages(problem: RandomProblem, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        options = PAPER | {"directed": problem.directed} | options
        first = pcfi.impute(problem.masked, problem.graph, **options | {"beta": 0})
        return first, pcfi.impute(problem.masked, problem.graph, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["structural", "uniform", "block", "mixed"])
@pytest.mark.parametrize("solver", [pcfi.FixedSteps(30), pcfi.UntilSettled(1e-9)])
def test_sharing_is_the_papers_equation(kind, dtype, solver):
    problem = random_problem(np.random.default_rng(2), kind=kind, dtype=dtype, **CONNECTED)
    filled, shared = both_stages(problem, alpha=0.6, beta=0.7, solver=solver)
    assert filled.n_unreachable == 0
    expected = reference.share(filled.values.astype(np.float64), filled.hops, 0.6, 0.7)
    np.testing.assert_allclose(shared.values, expected, atol=1e-5 if dtype == np.float32 else 1e-12)
    assert np.abs(shared.values - filled.values).max() > 0.01


def test_two_channels_by_hand():
    # a star: the centre is known in channel 0 only, the leaves 1, 2 in both. Hops of the centre: (0, 1).
    features = np.array([[4.0, np.nan], [0.0, 1.0], [2.0, 3.0]])
    alpha, beta = 0.5, 1.0
    result = pcfi.impute(
        features, [[0, 0], [1, 2]], alpha=alpha, beta=beta, solver=pcfi.UntilSettled(1e-12), objective="representation"
    )
    # diffusion gives the centre 2 in channel 1; means (2, 2); deviations (2, -2, 0) and (0, -1, 1)
    correlation = (2 * 0 + -2 * -1 + 0 * 1) / np.sqrt(8 * 2)
    expected = 2 + beta * (1 - alpha) * 1.0 * correlation * (4 - 2)
    assert result.values[0, 1] == pytest.approx(expected, abs=1e-10)
    assert expected == pytest.approx(2.5)


@given(problems(), st.floats(0.05, 1.0), st.floats(0.0, 2.0), st.booleans())
def test_unreachable_cells_take_no_part(problem, alpha, beta, standardize):
    options = PAPER | {"alpha": alpha, "beta": beta, "standardize": standardize}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        results = [
            pcfi.impute(problem.masked, problem.graph, directed=problem.directed, unreachable=policy, **options)
            for policy in ("mean", "zero", "nan")
        ]
    reachable = ~results[0].unreachable
    for other in results[1:]:
        np.testing.assert_array_equal(other.values[reachable], results[0].values[reachable])
    assert (results[1].values[~reachable] == 0).all()
    assert np.isnan(results[2].values[~reachable]).all()
    assert results[0].n_unreachable == (~reachable).sum()


def test_outcome_is_linear_in_beta():
    problem = random_problem(np.random.default_rng(3), **CONNECTED)
    at = {beta: both_stages(problem, alpha=0.4, beta=beta)[1].values for beta in (0.0, 0.5, 1.0)}
    np.testing.assert_allclose(at[0.5], (at[0.0] + at[1.0]) / 2, atol=1e-12)


@pytest.mark.filterwarnings("ignore::pcfi.ScaleWarning")
def test_standardized_sharing_does_not_depend_on_units():
    problem = random_problem(np.random.default_rng(4), **CONNECTED)
    units = np.array([1.0, 1000.0, 1e-3, 1.0, 7.0, 1.0, 50.0])
    scaled = RandomProblem(problem.edge_index, None, False, problem.features * units, problem.known)
    options = {"alpha": 0.5, "beta": 0.5}
    _, with_units = both_stages(scaled, standardize=True, **options)
    _, plain = both_stages(problem, standardize=True, **options)
    np.testing.assert_allclose(with_units.values / units, plain.values, atol=1e-3)
    _, mixed = both_stages(scaled, standardize=False, **options)
    _, paper = both_stages(problem, standardize=False, **options)
    assert np.abs(mixed.values / units - paper.values).max() > 1


def test_standardized_sharing_of_channels_with_unit_spread_is_the_papers():
    problem = random_problem(np.random.default_rng(5), **CONNECTED)
    filled, _ = both_stages(problem, alpha=0.5, beta=0.5)
    spread = filled.values.std(axis=0)
    unit = RandomProblem(problem.edge_index, None, False, problem.features / spread, problem.known)
    _, plain = both_stages(unit, alpha=0.5, beta=0.5, standardize=False, solver=pcfi.UntilSettled(1e-10))
    _, standardized = both_stages(unit, alpha=0.5, beta=0.5, standardize=True, solver=pcfi.UntilSettled(1e-10))
    np.testing.assert_allclose(plain.values, standardized.values, atol=1e-3)


def test_blocks_of_rows_add_up(monkeypatch):
    problem = random_problem(np.random.default_rng(6), n_nodes=600, degree=6, n_channels=5)
    _, whole = both_stages(problem, beta=1.0)
    monkeypatch.setattr("pcfi.stages.channel_propagation.MAX_BLOCK_BYTES", 1)  # the smallest blocks: 256 rows
    _, blocks = both_stages(problem, beta=1.0)
    np.testing.assert_allclose(blocks.values, whole.values, atol=1e-12)


def test_channels_with_a_large_offset_keep_their_correlation():
    rng = np.random.default_rng(7)
    signal = rng.normal(size=(50, 1))
    values = (np.concatenate([signal, -signal, rng.normal(size=(50, 1))], axis=1) + 1e4).astype(np.float32)
    codes = rng.integers(0, 3, size=(50, 1)).astype(np.uint8)
    hops = Hops(codes, 2, np.zeros(1, dtype=int), np.zeros(3, dtype=int))
    expected = reference.share(values.astype(np.float64), np.repeat(codes, 3, axis=1), 0.5, 1.0)
    propagate(values, hops, np.arange(3), np.full(3, 1e4), PropagationParameters(0.5, 1.0))
    np.testing.assert_allclose(values, expected, atol=5e-3)


def test_constant_channels_have_no_correlation():
    features = np.array([[1.0, 5.0], [np.nan, np.nan], [3.0, 5.0], [np.nan, 5.0]])
    result = pcfi.impute(features, [[0, 1, 2], [1, 2, 3]], beta=10.0, alpha=0.5, objective="representation")
    alone = pcfi.impute(features[:, :1], [[0, 1, 2], [1, 2, 3]], beta=0, alpha=0.5, objective="representation")
    np.testing.assert_array_equal(result.values[:, 1], 5.0)
    np.testing.assert_allclose(result.values[:, :1], alone.values)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("solver", [pcfi.FixedSteps(30), pcfi.UntilSettled(1e-9)])
@pytest.mark.parametrize("degree", [6, 1.5])
def test_factored_sharing_equals_the_dense_way(monkeypatch, standardize, solver, degree):
    rng = np.random.default_rng(10)
    problem = random_problem(rng, n_nodes=60, degree=degree, n_channels=40, kind="structural", rate=0.1)
    options = {"alpha": 0.6, "beta": 0.7, "standardize": standardize, "solver": solver}
    _, factored = both_stages(problem, **options)
    monkeypatch.setattr("pcfi.stages.diffusion.definition.MIN_CHANNELS_PER_SOURCE", 1000)
    filled, dense = both_stages(problem, **options)
    assert np.abs(dense.values - filled.values).max() > 0.01
    np.testing.assert_allclose(factored.values, dense.values, atol=1e-7)


def test_rounding_of_a_channel_that_is_almost_constant_has_no_influence():
    # broke once: its correlations came from rounding, so that other orders of the nodes gave other values
    edges = np.array([[3, 4, 2, 0, 4, 2, 0, 0, 2, 3, 2, 2, 2, 4, 1], [4, 0, 1, 3, 2, 4, 3, 4, 4, 0, 4, 4, 3, 1, 0]])
    features = np.full((5, 3), np.nan, np.float32)
    features[0, 0], features[1, 2] = -0.760626, 0.2763338  # one source each: constant but for the steps left to take
    features[[0, 1, 3], 1] = 0.42582566, 0.18368354, 0.8046316
    order = np.random.default_rng(0).permutation(5)
    options = PAPER | {"alpha": 0.05, "beta": 0.3, "solver": pcfi.FixedSteps(9)}

    plain = pcfi.impute(features, edges, **options).values
    moved = pcfi.impute(features[order], np.argsort(order)[edges], **options).values
    np.testing.assert_allclose(moved, plain[order], atol=1e-6)
