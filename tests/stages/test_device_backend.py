"""The device backend against the compiled kernels, closed forms and direct solves.

Runs on the CPU; to test another device:
`PCFI_TEST_DEVICE=cuda pytest tests/stages/test_device_backend.py tests/pipeline/test_laws.py`.
"""

import warnings

import numpy as np
import pytest
import torch

import pcfi
from array_interfaces import DEVICE, device_backend_on_cpu, device_tensor, numpy
from pcfi._kernels import reference
from pcfi.backends.torch_device.adjacency import Adjacency
from pcfi.inputs import tensors
from random_problems import random_problem
from steady_states import caterpillar, citation_like, direct_solve, exact_path_between

pytestmark = pytest.mark.skipif(
    tensors.wide_dtype(DEVICE) != torch.float64, reason="the tolerances are those of devices that have float64"
)

SOLVERS = [pcfi.FixedSteps(9), pcfi.UntilSettled(1e-9, max_steps=5000)]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def path(length):
    return np.stack([np.arange(length - 1), np.arange(1, length)])


def random_call(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(
        rng,
        n_nodes=int(rng.integers(1, 60)),
        n_channels=int(rng.integers(1, 20)),
        degree=float(rng.uniform(0.5, 6)),
        kind=rng.choice(["structural", "uniform", "block", "mixed"]),
        rate=float(rng.uniform(0.05, 0.95)),
        directed=bool(rng.random() < 0.4),
        weighted=bool(rng.random() < 0.5),
        dtype=rng.choice([np.float32, np.float64]),
    )
    options = {
        "directed": problem.directed,
        "alpha": float(rng.choice([0.05, 0.5, 0.9, 1.0])),
        "beta": float(rng.choice([0, 0.3, 1.5])),
        "standardize": bool(rng.random() < 0.5),
        "self_loops": bool(rng.random() < 0.5),
        "unreachable": str(rng.choice(["mean", "zero", "nan"])),
    }
    return problem, options


@pytest.mark.parametrize("solver", SOLVERS, ids=["fixed", "settled"])
@pytest.mark.parametrize("method", ["pcfi", "fp", "neighbors", "mean", "zero"])
def test_both_engines_give_the_same(method, solver):
    for seed in range(40):
        problem, options = random_call(seed)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            ours = device_tensor(problem.masked, problem.graph, method=method, solver=solver, **options)
            theirs = numpy(problem.masked, problem.graph, method=method, solver=solver, **options)
        said = [str(warning.message) for warning in heard]
        assert said[: len(said) // 2] == said[len(said) // 2 :]
        atol = 2e-5 if problem.features.dtype == np.float32 else 1e-6
        np.testing.assert_allclose(ours.values, theirs.values, atol=atol, err_msg=f"seed {seed}")
        assert (ours.unreachable == theirs.unreachable).all()
        assert ours.n_unreachable == theirs.n_unreachable
        assert ours.converged == theirs.converged
        assert ours.residual <= 1.01 * theirs.residual + 1e-6  # theirs may be a bound
        if theirs.hops is not None:
            np.testing.assert_array_equal(ours.hops, theirs.hops)
        if theirs.confidence is not None:
            np.testing.assert_allclose(ours.confidence, theirs.confidence, rtol=1e-6)
            assert ours.confidence.dtype == theirs.confidence.dtype


@pytest.mark.parametrize("n_channels", [1, 20])
def test_residual_is_what_one_further_step_would_move(n_channels):
    features = np.full((40, n_channels), np.nan)
    features[[0, 30]] = np.random.default_rng(0).normal(size=(2, n_channels))
    after = [device_tensor(features, path(40), beta=0, alpha=0.9, solver=pcfi.FixedSteps(steps)) for steps in (7, 8)]
    spread = np.ptp(np.concatenate([features[[0, 30]], np.zeros((1, n_channels))]), axis=0)
    moved = np.abs(after[1].values - after[0].values).max(axis=0) / spread
    assert after[0].residual == pytest.approx(moved.max(), rel=1e-9)
    assert after[0].steps == 7


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("n_channels", [1, 40])
@pytest.mark.parametrize(("shape", "dtype"), [("citation", np.float32), ("deep", np.float64)])
def test_steady_state_is_right_at_every_hop(alpha, n_channels, shape, dtype):
    rng = np.random.default_rng(5)
    graph = citation_like(2000, rng) if shape == "citation" else caterpillar(200)
    n_nodes = graph.shape[0]
    known = np.zeros(n_nodes, dtype=bool)
    known[rng.choice(n_nodes, size=6, replace=False)] = True
    features = np.where(known[:, None], rng.normal(size=(n_nodes, n_channels)), np.nan).astype(dtype)
    solver = pcfi.UntilSettled(1e-9, max_steps=4000)
    edges = np.stack(graph.tocoo().coords)
    result = device_tensor(features, edges, alpha=alpha, beta=0, solver=solver)
    assert result.converged
    hops = result.hops[:, 0]
    for channel in (0, n_channels - 1):
        exact = direct_solve(graph, hops, known, features[:, channel].astype(np.float64), alpha)
        error = np.abs(result.values[:, channel] - exact) / np.ptp(exact[known])
        for hop in range(hops.max() + 1):
            assert error[hops == hop].max() < (2e-5 if dtype == np.float32 else 2e-6), f"hop {hop}"


def test_a_long_path_between_two_sources_agrees_with_exact_fractions():
    length = 10_000
    features = np.full((length, 2), np.nan, dtype=np.float32)
    features[[0, -1]] = [[1.0, 3.7], [5.0, 3.7]]
    result = device_tensor(features, path(length), alpha=0.1)
    assert result.converged
    cut = slice(length // 2 - 200, length // 2 + 200)
    np.testing.assert_allclose(result.values[cut, 0], exact_path_between(400, 0.1, 1.0, 5.0), atol=1e-3)
    np.testing.assert_array_equal(result.values[: cut.start, 0], 1.0)
    np.testing.assert_array_equal(result.values[cut.stop :, 0], 5.0)
    np.testing.assert_array_equal(result.values[:, 1], np.float32(3.7))
    np.testing.assert_array_equal(result.hops[:, 0], np.minimum(np.arange(length), np.arange(length)[::-1]))


def test_a_clique_behind_a_bridge_takes_the_value_of_its_only_source():
    clique = np.array(np.triu_indices(200, 1)) + 2
    edges = np.concatenate([clique, [[0, 0], [1, 2]]], axis=1)
    features = np.full((202, 3), np.nan)
    features[0], features[1] = 1, 0
    np.testing.assert_allclose(device_tensor(features, edges, beta=0).values[2:], 1, atol=1e-5)


def test_a_chain_of_cliques_is_swept_to_the_end():
    size, count = 20, 10
    within = np.array(np.triu_indices(size, 1))
    edges = np.concatenate([within + k * size for k in range(count)], axis=1)
    bridges = size * np.arange(1, count)
    edges = np.concatenate([edges, [bridges - 1, bridges]], axis=1)
    features = np.full((size * count, 2), np.nan, dtype=np.float32)
    features[0], features[-1] = [0.0, 1.0], [1.0, 0.5]
    result = device_tensor(features, edges, alpha=0.1, beta=0)
    assert result.converged
    flow = pcfi.prepare_graph(edges).matrix().toarray()
    matrix = reference.confidence_matrix(flow, result.hops[:, 0], 0.1)
    known = ~np.isnan(features[:, 0])
    exact = reference.steady_state(matrix, features[:, 0].astype(float), known, np.ones(len(features), bool))
    np.testing.assert_allclose(result.values[:, 0], exact, atol=5e-3)


@pytest.mark.parametrize("weight", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("n_channels", [1, 12])
def test_the_unit_of_the_weights_does_not_matter_to_the_steady_state(weight, n_channels):
    features = np.full((6, n_channels), np.nan, dtype=np.float32)
    features[0], features[5] = np.arange(n_channels), -1
    options = {"beta": 0, "solver": pcfi.UntilSettled(1e-9)}
    expected = device_tensor(features, path(6), **options).values
    result = device_tensor(features, (path(6), np.full(5, weight)), **options).values
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth", [14, 26])
def test_a_tiny_weight_far_away_is_not_lost(depth):
    edges = np.concatenate([path(depth), [[0, 0], [depth, depth + 1]]], axis=1)
    weights = np.ones(edges.shape[1])
    weights[depth - 2] = 1e-300
    features = np.full((depth + 2, 1), np.nan)
    features[0], features[-2], features[-1] = 1, 0, -1
    result = device_tensor(features, (edges, weights), alpha=0.1)
    np.testing.assert_allclose(result.values[:depth], 1, atol=1e-9)


def test_alpha_near_zero_is_a_copy_of_the_nearest_source():
    features = np.full((7, 1), np.nan)
    features[0], features[6] = 1, 5
    result = device_tensor(features, path(7), alpha=5e-324)
    np.testing.assert_allclose(result.values.ravel(), [1, 1, 1, 3, 5, 5, 5])


def test_small_blocks_of_rows_and_columns_add_up(monkeypatch):
    problem = random_problem(np.random.default_rng(6), n_nodes=60, degree=6, n_channels=11)
    whole = device_tensor(problem.masked, problem.graph, beta=1.0, solver=SOLVERS[1])
    monkeypatch.setattr(tensors, "CELLS_AT_A_TIME", 150)
    blocks = device_tensor(problem.masked, problem.graph, beta=1.0, solver=SOLVERS[1])
    np.testing.assert_allclose(blocks.values, whole.values, atol=1e-7)
    np.testing.assert_array_equal(blocks.hops, whole.hops)


def test_a_device_without_sparse_products_sums_over_edges(monkeypatch):
    problem = random_problem(np.random.default_rng(7), n_nodes=60, degree=12, weighted=True)
    sparse = device_tensor(problem.masked, problem.graph, solver=SOLVERS[1]).values
    monkeypatch.setattr("pcfi.backends.torch_device.adjacency._compressed", lambda *_: None)
    edges = device_tensor(problem.masked, problem.graph, solver=SOLVERS[1]).values
    np.testing.assert_allclose(edges, sparse, atol=1e-7)
    links = Adjacency.of(pcfi.prepare_graph(problem.graph, 60), None, DEVICE, torch.float64)
    assert links._matrix is None


def test_numbers_beyond_the_finite_ones_are_an_error():
    features = np.full((6, 3), np.nan, dtype=np.float32)
    features[0], features[3], features[5] = np.arange(3) * 1e3, 7, -np.arange(3) * 1e3
    with pytest.raises(pcfi.DivergenceError, match="channel propagation"):
        device_tensor(features, path(6), beta=1e39)
    with pytest.raises(pcfi.DivergenceError, match="mean of the neighbours"):
        device_tensor(np.array([[1.7e308], [np.nan]]), (path(2), np.array([4.0])), method="neighbors")
    with pytest.raises(pcfi.DivergenceError, match="float16"):
        device_tensor((features * 30).astype(np.float16), path(6), beta=500.0)


def test_bad_values_on_a_device_get_the_same_errors():
    features = np.array([[1.0, np.inf], [np.nan, 2.0]])
    with pytest.raises(pcfi.FeatureError, match=r"features\[0, 1\] is inf"):
        device_tensor(features, [[0], [1]])
    features[0, 1] = 0.0
    with pytest.raises(pcfi.FeatureError, match="NaN, but known is True there"):
        device_tensor(features, [[0], [1]], known=np.ones((2, 2), bool))
    with pytest.raises(pcfi.FeatureError, match="shape \\(2, 1\\), but features has shape \\(2, 2\\)"):
        device_tensor(features, [[0], [1]], known=np.ones((2, 1), bool))
    with pytest.raises(pcfi.FeatureError, match=r"2\^53"):
        device_tensor(np.array([[2**53 + 1], [0]]), [[0], [1]])


def test_channels_of_different_scales_are_warned_of_on_a_device_too():
    rng = np.random.default_rng(13)
    ring = np.stack([np.arange(200), (np.arange(200) + 1) % 200])
    waves = 5 + np.sin(2 * np.pi * ring[0] / 200)[:, None]
    features = np.where(rng.random((200, 3)) < 0.4, waves * np.array([1.0, 1e3, 1e-3]), np.nan)
    features = np.column_stack([features, np.full(200, np.nan)])
    for interface in (numpy, device_tensor):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            interface(features, ring, beta=2.0, unreachable="nan")
        (said,) = (str(warning.message) for warning in caught if warning.category is pcfi.ScaleWarning)
        assert said.startswith("channel propagation with beta=2 moved channel 2 ")


def test_huge_values_have_a_mean():
    huge = np.array([[1.7e308], [1.7e308], [0.0], [0.0], [np.nan]])
    assert device_tensor(huge, path(5), method="mean").values[4, 0] == pytest.approx(0.85e308)


def test_tables_of_a_result_are_tensors_beside_the_features():
    x = torch.tensor([[1.0, torch.nan], [torch.nan, torch.nan], [2.0, torch.nan]], device=DEVICE)
    with device_backend_on_cpu(), pytest.warns(pcfi.UnreachableWarning):
        results = [
            pcfi.impute(
                x,
                torch.tensor([[0, 1], [1, 2]], device=DEVICE),
                method=m,
                alpha=0.5,
                beta=0.1,
                objective="representation",
            )
            for m in ("pcfi", "mean")
        ]
    for result in results:
        for table in (result.values, result.unreachable):
            assert table.device == x.device
        assert result.unreachable.tolist() == [[False, True]] * 3
    assert results[0].hops.tolist() == [[0, pcfi.UNREACHABLE], [1, pcfi.UNREACHABLE], [0, pcfi.UNREACHABLE]]
    assert results[0].confidence.tolist() == [[1, 0], [0.5, 0], [1, 0]]
    assert results[0].confidence.device == x.device


@pytest.mark.parametrize("method", ["pcfi", "fp", "neighbors", "mean", "zero"])
def test_nothing_known_is_filled_by_the_policy_with_no_confidence(method):
    nothing = np.full((4, 3), np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        ours = device_tensor(nothing, path(4), method=method)
        theirs = numpy(nothing, path(4), method=method)
    assert (ours.values == 0).all()
    assert ours.status == theirs.status
    np.testing.assert_array_equal(ours.unreachable, theirs.unreachable)
    if method == "pcfi":
        assert (ours.confidence == 0).all()


def test_a_mask_that_must_not_be_written_to_is_read_in_silence():
    x = torch.tensor([[1.0], [0.0], [3.0]], device=DEVICE)
    known = np.array([[True], [False], [True]])
    known.flags.writeable = False
    with device_backend_on_cpu():
        assert pcfi.impute(
            x, path(3), known=known, alpha=0.5, beta=0.1, objective="representation"
        ).values.tolist() == [[1.0], [2.0], [3.0]]


def test_progress_is_shown_on_a_device_too(capsys):
    device_tensor(np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, np.nan]]), path(3), progress=True)
    shown = capsys.readouterr().err
    assert all(stage in shown for stage in ("hops", "diffuse", "channels"))
