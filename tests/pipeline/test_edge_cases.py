"""Cases that broke once: weak bridges, extreme numbers, offsets, noise, and what a status may claim."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import pcfi
from pcfi._kernels import reference
from random_problems import random_problem

PAPER = {"alpha": 0.5, "objective": "representation"}
SMALL = np.array([[0.0, 1.0], [np.nan, np.nan], [np.nan, 2.0], [3.0, np.nan]])


def path(length):
    return np.stack([np.arange(length - 1), np.arange(1, length)])


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_what_hangs_on_a_weak_edge_takes_its_value(alpha):
    # broke once: from the channel's mean the triangle moved too little to be noticed
    features = np.array([[1.0], [0.0], [np.nan], [np.nan], [np.nan]])
    edges = np.array([[0, 0, 2, 2, 3], [1, 2, 3, 4, 4]])
    result = pcfi.impute(features, (edges, [1, 1e-4, 1, 1, 1]), alpha=alpha, beta=0.1, objective="representation")
    np.testing.assert_allclose(result.values.ravel(), [1, 0, 1, 1, 1], atol=1e-6)


@pytest.mark.parametrize("size", [200, 600])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_channels", [1, 12])
def test_a_clique_behind_a_bridge_takes_the_value_of_its_only_source(size, dtype, n_channels):
    clique = np.array(np.triu_indices(size, 1)) + 2
    edges = np.concatenate([clique, [[0, 0], [1, 2]]], axis=1)
    features = np.full((size + 2, n_channels), np.nan, dtype=dtype)
    features[0], features[1] = 1, 0
    np.testing.assert_allclose(
        pcfi.impute(features, edges, beta=0, alpha=0.5, objective="representation").values[2:], 1, atol=1e-5
    )


def test_two_cliques_and_a_path_between_them_settle_where_a_direct_solve_does():
    size, between = 60, 10
    left = np.array(np.triu_indices(size, 1))
    right = left + size + between
    bridge = path(between + 2) + size - 1
    edges = np.concatenate([left, right, bridge], axis=1)
    features = np.full((2 * size + between, 1), np.nan)
    features[0], features[-1] = 0, 1
    result = pcfi.impute(features, edges, alpha=0.9, beta=0.1, objective="representation")
    graph = pcfi.prepare_graph(edges)
    flow = graph.matrix().toarray()
    matrix = reference.confidence_matrix(flow, result.hops[:, 0], 0.9)
    known = ~np.isnan(features[:, 0])
    exact = reference.steady_state(matrix, features[:, 0], known, np.ones(len(features), bool))
    np.testing.assert_allclose(result.values[:, 0], exact, atol=0.05)


@pytest.mark.parametrize("weight", [1e-300, 1e-30, 1e30, 1e160, 1e300])
@pytest.mark.parametrize("n_channels", [1, 12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_unit_of_the_weights_does_not_matter_to_the_steady_state(weight, n_channels, dtype):
    # broke once: an endless loop in the influence route when weights overflowed
    features = np.full((6, n_channels), np.nan, dtype=dtype)
    features[0], features[5] = np.arange(n_channels), -1
    expected = pcfi.impute(
        features, path(6), beta=0, solver=pcfi.UntilSettled(1e-9), alpha=0.5, objective="representation"
    ).values
    result = pcfi.impute(
        features,
        (path(6), np.full(5, weight)),
        beta=0,
        solver=pcfi.UntilSettled(1e-9),
        alpha=0.5,
        objective="representation",
    )
    np.testing.assert_allclose(result.values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("edges", [path(4), [[0, 2], [1, 1]]])
def test_weights_whose_sum_is_no_number_are_refused(edges):
    # broke once: values were wrong or NaN, and said to have settled
    weights = np.full(len(edges[0]), 1.7e308)
    with pytest.raises(pcfi.GraphError, match="node 1 overflows float64: rescale the weights"):
        pcfi.prepare_graph((edges, weights))
    with pytest.raises(pcfi.GraphError, match="node 1 overflows float64"):
        pcfi.prepare_graph(([[0, 0], [1, 1]], [1.7e308, 1.7e308]), directed=True)


def test_what_left_the_finite_numbers_is_never_called_settled():
    # broke once: Python's max passes over NaN
    checked = pcfi.prepare_graph((path(4), np.full(3, 2.0)))
    graph = dataclasses.replace(checked, weights=np.full(6, 1.7e308))
    with pytest.raises(pcfi.DivergenceError, match="overflowed"):
        pcfi.impute(SMALL[:, :1], graph, alpha=0.5, beta=0, objective="representation")


@pytest.mark.parametrize("depth", [14, 26])
def test_a_tiny_weight_far_away_is_not_lost(depth):
    edges = np.concatenate([path(depth), [[0, 0], [depth, depth + 1]]], axis=1)
    weights = np.ones(edges.shape[1])
    weights[depth - 2] = 1e-300
    features = np.full((depth + 2, 1), np.nan)
    features[0], features[-2], features[-1] = 1, 0, -1
    result = pcfi.impute(features, (edges, weights), alpha=0.1, beta=0.1, objective="representation")
    np.testing.assert_allclose(result.values[:depth], 1, atol=1e-9)


@pytest.mark.parametrize("call", [pcfi.impute, pcfi.tune, pcfi.evaluate])
def test_an_empty_channel_beside_one_with_gaps_is_no_reason_to_fail(call):
    # broke once: one pattern that varies has nothing to cluster with, and was divided by zero
    angle = np.arange(60) / 60 * 2 * np.pi
    features = np.full((60, 2), np.nan)
    features[::2, 0] = np.sin(angle[::2])
    ring = [np.arange(60), (np.arange(60) + 1) % 60]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        both, alone = call(features, ring), call(features[:, :1], ring)
    if call is pcfi.impute:
        np.testing.assert_array_equal(both.values, np.stack([alone.values[:, 0], np.zeros(60)], axis=1))
        np.testing.assert_allclose(both.values[:, 0], np.sin(angle), atol=0.1)
    elif call is pcfi.tune:
        assert (both.alpha, both.error) == (alone.alpha, pytest.approx(alone.error, rel=1e-12))
    else:
        for one, other in zip(both.methods, alone.methods, strict=True):
            assert one.scores == pytest.approx(other.scores, rel=1e-12)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize(
    ("dtype", "scale"), [("f4", 1e-36), ("f4", 1e-25), ("f4", 1e20), ("f8", 1e-200), ("f8", 1e160)]
)
def test_all_channels_scaled_together_scale_the_result(dtype, scale, standardize):
    # broke once: stage 2 squared the raw values
    features = SMALL.astype(dtype)
    options = {**PAPER, "beta": 1.0, "standardize": standardize, "solver": pcfi.UntilSettled(1e-6)}
    plain = pcfi.impute(features, path(4), **options).values
    scaled = pcfi.impute(features * np.dtype(dtype).type(scale), path(4), **options).values
    np.testing.assert_allclose(scaled / scale, plain, rtol=1e-4)
    assert abs(plain[1, 0] - 0.75) > 0.01


@pytest.mark.filterwarnings("ignore::pcfi.ScaleWarning")
@pytest.mark.parametrize("scale", [1e-200, 1e160])
@pytest.mark.parametrize("standardize", [False, True])
def test_factored_sharing_scales_too(scale, standardize):
    rng = np.random.default_rng(0)
    features = np.full((30, 12), np.nan)
    features[[0, 29]] = rng.normal(size=(2, 12))
    options = {**PAPER, "beta": 1.0, "standardize": standardize}
    plain = pcfi.impute(features, path(30), **options).values
    np.testing.assert_allclose(pcfi.impute(features * scale, path(30), **options).values / scale, plain, atol=1e-9)


@pytest.mark.parametrize("beta", [1e39, 1e308])
@pytest.mark.parametrize("n_channels", [2, 12])
def test_numbers_too_large_for_sharing_are_an_error(beta, n_channels):
    features = np.full((6, n_channels), np.nan, dtype=np.float32 if beta == 1e39 else np.float64)
    features[0], features[3], features[5] = np.arange(n_channels) * 1e3, 7, -np.arange(n_channels) * 1e3
    with pytest.raises(pcfi.DivergenceError, match="channel propagation"):
        pcfi.impute(features, path(6), beta=beta, alpha=0.5, objective="representation")


@pytest.mark.parametrize(("dtype", "offset", "tolerance"), [("f4", 100, 1e-3), ("f8", 1e4, 1e-9), ("f8", 1e6, 1e-6)])
def test_an_offset_does_not_cost_the_factored_way_its_accuracy(monkeypatch, dtype, offset, tolerance):
    rng = np.random.default_rng(5)
    edges = np.concatenate([path(60), rng.integers(0, 60, (2, 60))], axis=1)
    features = rng.normal(size=(60, 30)) + offset
    features[4:] = np.nan
    options = {**PAPER, "beta": 0.5, "solver": pcfi.FixedSteps(100)}
    factored = pcfi.impute(features.astype(dtype), edges, **options).values
    monkeypatch.setattr("pcfi.stages.diffusion.definition.MIN_CHANNELS_PER_SOURCE", 1000)
    dense = pcfi.impute(features, edges, **options).values
    np.testing.assert_allclose(factored, dense, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_has_no_correlation(dtype):
    # broke once: 100 steps bring a constant channel so near to its constant that only rounding is left
    rng = np.random.default_rng(0)
    edges = np.concatenate([path(40), rng.integers(0, 40, (2, 200))], axis=1)
    features = rng.normal(size=(40, 3))
    features[rng.random((40, 3)) < 0.5] = np.nan
    features[:, 0] = np.nan
    features[[3, 11, 29], 0] = 0.1
    result = pcfi.impute(
        features.astype(dtype), edges, alpha=0.1, beta=1.0, solver=pcfi.FixedSteps(100), objective="representation"
    )
    np.testing.assert_allclose(result.values[:, 0], 0.1, atol=1e-5)


def test_ranges_near_the_smallest_number_settle_as_well():
    for dtype, unit in ((np.float32, 1e-38), (np.float64, 1e-307)):
        features = (np.array([[0.0], [np.nan], [np.nan], [np.nan], [4.0]]) * unit).astype(dtype)
        result = pcfi.impute(features, path(5), alpha=1.0, beta=0.1, objective="representation")
        np.testing.assert_allclose(result.values.ravel() / dtype(unit), [0, 1, 2, 3, 4], atol=1e-2)


def test_standardized_channels_are_divided_by_their_own_standard_deviation():
    features = np.full((8, 2), np.nan)
    features[0], features[3], features[4, 1], features[7, 1] = [0, 1], [3, 2], 5, 9
    edges = np.array([[0, 1, 2, 4, 5, 6], [1, 2, 3, 5, 6, 7]])
    with pytest.warns(pcfi.UnreachableWarning):
        filled = pcfi.impute(
            features,
            edges,
            beta=0,
            solver=pcfi.UntilSettled(1e-10),
            unreachable="nan",
            alpha=0.5,
            objective="representation",
        ).values
    with pytest.warns(pcfi.UnreachableWarning):
        shared = pcfi.impute(
            features,
            edges,
            beta=1,
            standardize=True,
            solver=pcfi.UntilSettled(1e-10),
            unreachable="nan",
            alpha=0.5,
            objective="representation",
        ).values
    means, spread = np.nanmean(filled, axis=0), np.nanstd(filled, axis=0)
    off = np.nan_to_num(filled - means)
    correlation = (off[:, 0] * off[:, 1]).sum() / np.sqrt((off**2).sum(axis=0).prod())
    confidence = 0.5
    for channel, other in ((0, 1), (1, 0)):
        received = confidence * (filled[1, other] - means[other]) / spread[other] * correlation * spread[channel]
        assert shared[1, channel] == pytest.approx(filled[1, channel] + (1 - confidence) * received, abs=1e-6)


def test_plain_fills_survive_huge_values():
    huge = np.array([[1.7e308], [1.7e308], [0.0], [0.0], [np.nan]])
    assert pcfi.impute(huge, path(5), method="mean").values[4, 0] == pytest.approx(0.85e308)
    assert pcfi.impute(huge[[0, 4]], (path(2), [4.0]), method="neighbors").values[1, 0] == 1.7e308


def test_alpha_near_zero_is_a_copy_of_the_nearest_source():
    features = np.full((7, 1), np.nan)
    features[0], features[6] = 1, 5
    result = pcfi.impute(features, path(7), alpha=5e-324, beta=0.1, objective="representation")
    np.testing.assert_allclose(result.values.ravel(), [1, 1, 1, 3, 5, 5, 5])


def test_a_status_does_not_claim_more_than_is_true():
    solver = pcfi.UntilSettled(1.4e-4)
    assert (
        "more than 0.00014 of"
        in pcfi.impute(SMALL, path(4), solver=solver, alpha=0.5, beta=0.1, objective="representation").status
    )
    with pytest.warns(pcfi.UnreachableWarning):
        nothing = pcfi.impute(SMALL, np.empty((2, 0), int), alpha=0.5, beta=0.1, objective="representation")
    assert nothing.status == "No source can reach any missing cell, so there was nothing to diffuse."
    long = np.where(np.arange(500)[:, None] % 499 == 0, np.arange(500.0)[:, None], np.nan)
    with pytest.warns(pcfi.NotSettledWarning) as caught:
        pcfi.impute(long, path(500), method="fp", solver=pcfi.UntilSettled(1e-9, max_steps=3))
    assert "alpha" not in str(caught[0].message)


def test_a_stuck_channel_is_finished_from_where_it_got_stuck():
    features = np.full((300, 12), np.nan)
    features[[0, 299]] = np.random.default_rng(0).normal(size=(2, 12))
    for columns in (slice(None), slice(1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pcfi.NotSettledWarning)
            solver = pcfi.UntilSettled(1e-16, max_steps=2000)
            result = pcfi.impute(
                features[:, columns], path(300), alpha=1.0, beta=0, solver=solver, objective="representation"
            )
        exact = np.linspace(features[0, columns], features[299, columns], 300)
        np.testing.assert_allclose(result.values, exact, atol=1e-10)


@pytest.mark.parametrize(("n_channels", "most"), [(1, 321), (12, 605)])
def test_a_stuck_channel_takes_no_more_steps_than_allowed(n_channels, most):
    # broke once: sweeps were granted all steps again
    features = np.full((300, n_channels), np.nan)
    features[[0, 299]] = np.random.default_rng(0).normal(size=(2, n_channels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.NotSettledWarning)
        solver = pcfi.UntilSettled(1e-16, max_steps=most)
        result = pcfi.impute(features, path(300), alpha=1.0, beta=0, solver=solver, objective="representation")
    assert result.steps <= most


def test_complete_features_have_full_confidence():
    result = pcfi.impute(np.ones((4, 2)), path(4), alpha=0.5, beta=0.1, objective="representation")
    np.testing.assert_array_equal(result.confidence, 1)
    np.testing.assert_array_equal(result.hops, 0)
    assert not result.unreachable.any()


@pytest.mark.parametrize("method", ["pcfi", "fp", "neighbors", "mean"])
def test_the_warning_points_to_the_caller_and_promises_nothing_else(method):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pcfi.impute(
            np.array([[1.0, np.nan], [2.0, np.nan]]),
            [[0], [1]],
            method=method,
            alpha=0.5,
            beta=0.1,
            objective="representation",
        )
    assert [warning.filename for warning in caught] == [__file__]


def test_long_integers_are_refused_and_half_floats_come_back():
    with pytest.raises(pcfi.FeatureError, match="2\\^53"):
        pcfi.impute(np.array([[2**53 + 1], [0]]), [[0], [1]], alpha=0.5, beta=0.1, objective="representation")
    assert (
        pcfi.impute(
            np.array([[1.0], [np.nan]], ">f2"), [[0], [1]], alpha=0.5, beta=0.1, objective="representation"
        ).values.dtype
        == np.float16
    )


BAD = [
    (lambda: pcfi.FixedSteps(10**30), "at most 1,000,000,000"),
    (lambda: pcfi.UntilSettled(10**400), "rtol"),
    (lambda: pcfi.impute(SMALL, path(4), beta=10**400, alpha=0.5, objective="representation"), "beta"),
    (
        lambda: pcfi.impute(SMALL, ([[0, 1], [1]], [1.0, 2.0]), alpha=0.5, beta=0.1, objective="representation"),
        "ragged",
    ),
    (lambda: pcfi.impute(SMALL, (path(4), [[1], [2, 3]]), alpha=0.5, beta=0.1, objective="representation"), "ragged"),
    (
        lambda: pcfi.impute(SMALL, [path(4), np.ones(3)], alpha=0.5, beta=0.1, objective="representation"),
        "tuple, not a list",
    ),
    (
        lambda: pcfi.impute(
            SMALL, path(4), known=[[True], [True, False]], alpha=0.5, beta=0.1, objective="representation"
        ),
        "different lengths",
    ),
    (
        lambda: pcfi.impute(SMALL, [[0, np.inf], [1, 2]], alpha=0.5, beta=0.1, objective="representation"),
        "refers to node inf",
    ),
    (
        lambda: pcfi.impute(SMALL, [[0, 1e300], [1, 2]], alpha=0.5, beta=0.1, objective="representation"),
        r"refers to node 1e\+300",
    ),
    (lambda: pcfi.tune(SMALL, path(4), objective=None, alpha=0.5, beta=0.1), "objective must be one of 'values', 'rep"),
    (lambda: pcfi.prepare_graph(path(4), "4"), "n_nodes must be"),
    (lambda: pcfi.prepare_graph(path(4), 3), "edge 2 refers to node 3, but n_nodes is 3"),
    (
        lambda: pcfi.impute(SMALL, path(4), standardize="no", alpha=0.5, beta=0.1, objective="representation"),
        "True or False, or None",
    ),
    (
        lambda: pcfi.impute(np.float16(SMALL * 9e3), path(4), beta=50.0, alpha=0.5, objective="representation"),
        "float16",
    ),
    (lambda: pcfi.prepare_graph(path(4), -1), "n_nodes must be"),
    (lambda: pcfi.prepare_graph(path(4), directed="no"), "directed must be"),
    (lambda: pcfi.prepare_graph(np.ma.masked_array(path(4))), "masked array"),
    (
        lambda: pcfi.impute(
            SMALL, path(4), known=np.ma.masked_array(~np.isnan(SMALL)), alpha=0.5, beta=0.1, objective="representation"
        ),
        "masked array",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_odd_input_gets_an_error_of_ours(call, message):
    with pytest.raises(pcfi.PcfiError, match=message):
        call()


def test_numbers_of_any_real_type_are_taken():
    from fractions import Fraction

    tight = pcfi.UntilSettled(Fraction(1, 10**6), max_steps=np.int16(500))
    assert tight == pcfi.UntilSettled(1e-6, 500)
    pcfi.impute(SMALL, path(4), alpha=Fraction(1, 2), beta=np.float16(0.5), solver=tight, objective="representation")


ENDLESS = {
    "steps of a small graph": "pcfi.impute(features[:, :1], path, solver=pcfi.FixedSteps(10**9))",
    "neighbours": "pcfi.impute(big, dense, method='neighbors')",
}


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("case", ENDLESS)
def test_small_and_plain_work_can_be_interrupted_too(case):
    code = f"""
import numpy as np, pcfi
rng = np.random.default_rng(0)
features = np.where(rng.random((30, 2)) < 0.3, 1.0, np.nan); features[:2] = [[1, 2], [3, 4]]
path = np.stack([np.arange(29), np.arange(1, 30)])
n = 100_000
big = np.where(rng.random((n, 400)) < 0.5, 1.0, np.nan)
dense = pcfi.prepare_graph(rng.integers(0, n, size=(2, 60 * n)), n)
pcfi.impute(features, path, solver=pcfi.FixedSteps(3)); pcfi.impute(features, path, method="neighbors")
print("go", flush=True)
{ENDLESS[case]}
print("finished")
"""
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline().strip() == "go"
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert "finished" not in output


def test_random_problems_survive_bounds_checks():
    code = """
import numpy as np, warnings, pcfi
from random_problems import random_problem
warnings.simplefilter("ignore")
for seed in range(6):
    problem = random_problem(np.random.default_rng(seed), kind=("uniform", "structural")[seed % 2], n_channels=20)
    for method in ("pcfi", "fp", "neighbors"):
        for solver in (pcfi.FixedSteps(3), pcfi.UntilSettled()):
            for directed in (False, True):
                pcfi.impute(problem.masked, problem.graph, method=method, solver=solver, directed=directed)
"""
    from pathlib import Path

    environment = {"NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": str(Path(random_problem.__code__.co_filename).parent)}
    import os

    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **environment, "NUMBA_CACHE_DIR": ""})
