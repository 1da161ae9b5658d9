"""Stage 1 against the paper's equations: fixed steps, and the steady state by a direct solve, hop by hop."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import pcfi
from pcfi._kernels import reference
from pcfi.inputs.problem import read_problem
from pcfi.stages.diffusion import Diffusion, confidence_weights
from pcfi.stages.hops import count_hops
from random_problems import RandomProblem, numba_threads, problems, random_problem
from steady_states import caterpillar, citation_like, direct_solve, exact_path_between

ALPHAS = [0.1, 0.3, 0.5, 0.9, 1.0]


def run(problem: RandomProblem, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        return pcfi.impute(
            problem.masked,
            problem.graph,
            unreachable="zero",
            directed=problem.directed,
            **{"alpha": 0.5, "beta": 0, "objective": "representation"} | options,
        )


def expected_channels(problem: RandomProblem, solve, matrix_of):
    columns = []
    for d in range(problem.features.shape[1]):
        known = problem.known[:, d]
        distance = reference.hops(problem.flow, known)
        x = problem.features[:, d].astype(np.float64)
        columns.append(solve(matrix_of(problem.flow, distance), x, known, distance != reference.UNREACHED))
    return np.stack(columns, axis=1)


def tolerance(problem: RandomProblem) -> float:
    return 2e-5 if problem.features.dtype == np.float32 else 1e-10


@given(problems(), st.sampled_from(ALPHAS), st.integers(1, 12), st.booleans())
def test_fixed_steps_are_the_papers_recursion(problem, alpha, steps, self_loops):
    result = run(problem, alpha=alpha, solver=pcfi.FixedSteps(steps), self_loops=self_loops)
    expected = expected_channels(
        problem,
        lambda matrix, x, known, _: reference.take_steps(matrix, x, known, steps)[-1],
        lambda flow, distance: reference.confidence_matrix(flow, distance, alpha, float(self_loops)),
    )
    np.testing.assert_allclose(result.values, expected, atol=tolerance(problem))


@given(problems(), st.sampled_from(ALPHAS))
def test_settled_values_solve_the_steady_state(problem, alpha):
    result = run(problem, alpha=alpha, solver=pcfi.UntilSettled(rtol=1e-12, max_steps=5000))
    expected = expected_channels(
        problem,
        reference.steady_state,
        lambda flow, distance: reference.confidence_matrix(flow, distance, alpha),
    )
    atol = 1e-6 if problem.features.dtype == np.float32 else 1e-9
    np.testing.assert_allclose(result.values, expected, atol=atol)
    assert result.converged


@given(problems(), st.integers(1, 12), st.booleans())
def test_feature_propagation_takes_the_steps_of_its_matrix(problem, steps, self_loops):
    result = run(problem, method="fp", solver=pcfi.FixedSteps(steps), self_loops=self_loops)
    expected = expected_channels(
        problem,
        lambda matrix, x, known, _: reference.take_steps(matrix, x, known, steps)[-1],
        lambda flow, _: reference.propagation_matrix(flow, float(self_loops)),
    )
    np.testing.assert_allclose(result.values, expected, atol=tolerance(problem))


@given(problems(), st.booleans())
def test_feature_propagation_settles_where_its_matrix_does(problem, self_loops):
    result = run(problem, method="fp", solver=pcfi.UntilSettled(rtol=1e-12, max_steps=5000), self_loops=self_loops)
    expected = expected_channels(
        problem, reference.steady_state, lambda flow, _: reference.propagation_matrix(flow, float(self_loops))
    )
    atol = 1e-6 if problem.features.dtype == np.float32 else 1e-9
    np.testing.assert_allclose(result.values, expected, atol=atol)


def test_four_nodes_by_hand():
    # 0 - 1 - 2 - 3, the ends known. Hops 0 1 1 0. x1 = (x0 + a x2) / (1 + a), x2 = (x3 + a x1) / (1 + a).
    alpha = 0.5
    features = np.array([[0.0], [np.nan], [np.nan], [3.0]])
    path = [[0, 1, 2], [1, 2, 3]]
    settled = pcfi.impute(
        features, path, alpha=alpha, solver=pcfi.UntilSettled(1e-13), beta=0.1, objective="representation"
    ).values.ravel()
    np.testing.assert_allclose(settled, [0, 0.75, 2.25, 3], atol=1e-12)
    # one step of eq. 5 from zero: x1 = (x0 / a + x2 + x1) / (1 / a + 1 + 1) = 0, x2 = (3 / a) / (1 / a + 2) = 1.5
    once = pcfi.impute(
        features, path, alpha=alpha, solver=pcfi.FixedSteps(1), beta=0.1, objective="representation"
    ).values.ravel()
    np.testing.assert_allclose(once, [0, 0, 1.5, 3], atol=1e-12)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", ["citation", "deep"])
@pytest.mark.parametrize("n_channels", [1, 40])
def test_steady_state_is_right_at_every_hop(alpha, dtype, shape, n_channels):
    rng = np.random.default_rng(5)
    graph = citation_like(2000, rng) if shape == "citation" else caterpillar(400)
    n_nodes = graph.shape[0]
    known = np.zeros(n_nodes, dtype=bool)
    known[rng.choice(n_nodes, size=6, replace=False)] = True
    x = rng.normal(size=(n_nodes, n_channels))
    features = np.where(known[:, None], x, np.nan).astype(dtype)
    # 40 channels on 6 sources go through the influence matrix, 1 channel through the ordinary route
    result = pcfi.impute(
        features, graph, alpha=alpha, beta=0, solver=pcfi.UntilSettled(1e-9, max_steps=4000), objective="representation"
    )
    assert result.converged
    hops = result.hops[:, 0]
    for channel in (0, n_channels - 1):
        exact = direct_solve(graph, hops, known, features[:, channel].astype(np.float64), alpha)
        error = np.abs(result.values[:, channel] - exact) / np.ptp(exact[known])
        for hop in range(hops.max() + 1):
            assert error[hops == hop].max() < (2e-5 if dtype == np.float32 else 2e-5 * 1e-1), f"hop {hop}"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_source_reaches_the_end_of_a_long_path(dtype):
    length = 10_000
    features = np.full((length, 2), np.nan, dtype=dtype)
    features[0] = 3.7, -2.0
    path = np.stack([np.arange(length - 1), np.arange(1, length)])
    result = pcfi.impute(features, path, alpha=0.1, beta=0.1, objective="representation")
    np.testing.assert_array_equal(result.values, np.broadcast_to(features[0], (length, 2)))
    np.testing.assert_array_equal(result.hops[:, 0], np.arange(length))
    assert np.isfinite(result.confidence).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [10_000, 9_999])
def test_long_path_between_two_sources_agrees_with_exact_fractions(dtype, length):
    features = np.full((length, 1), np.nan, dtype=dtype)
    features[0], features[-1] = 1.0, 5.0
    path = np.stack([np.arange(length - 1), np.arange(1, length)])
    result = pcfi.impute(features, path, alpha=0.1, beta=0.1, objective="representation")
    assert result.converged
    # fractions of 10,000 digits are slow: the middle 400 nodes hold all of the fall to 1e-300
    cut = slice(length // 2 - 200, length // 2 + 200 + length % 2)
    exact = exact_path_between(cut.stop - cut.start, 0.1, 1.0, 5.0)
    np.testing.assert_allclose(result.values[cut, 0], exact, atol=1e-3)
    np.testing.assert_array_equal(result.values[: cut.start, 0], 1.0)
    np.testing.assert_array_equal(result.values[cut.stop :, 0], 5.0)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("method", ["pcfi", "fp"])
def test_one_further_step_moves_nothing(alpha, method):
    rng = np.random.default_rng(8)
    problem = random_problem(rng, n_nodes=80, degree=4, n_channels=20, rate=0.1)
    result = run(problem, alpha=alpha, method=method, solver=pcfi.UntilSettled(1e-9))
    for d in range(problem.features.shape[1]):
        known = problem.known[:, d]
        distance = reference.hops(problem.flow, known)
        matrix = (
            reference.confidence_matrix(problem.flow, distance, alpha)
            if method == "pcfi"
            else reference.propagation_matrix(problem.flow)
        )
        moved = matrix @ result.values[:, d]
        free = ~known & (distance != reference.UNREACHED)
        assert np.abs(moved - result.values[:, d])[free].max(initial=0) <= 2e-9 * np.ptp(problem.features[known, d])


def test_residual_is_what_one_further_step_would_move():
    rng = np.random.default_rng(9)
    problem = random_problem(rng, n_nodes=60, degree=4, n_channels=3, kind="structural", rate=0.2)
    result = run(problem, alpha=0.9, solver=pcfi.FixedSteps(7))
    worst = 0.0
    for d in range(3):
        known = problem.known[:, d]
        distance = reference.hops(problem.flow, known)
        states = reference.take_steps(
            reference.confidence_matrix(problem.flow, distance, 0.9), problem.features[:, d], known, 8
        )
        spread = np.ptp(np.append(problem.features[known, d], 0.0))
        worst = max(worst, np.abs(states[8] - states[7]).max() / spread)
    assert result.residual == pytest.approx(worst, rel=1e-9)
    assert result.steps == 7


@pytest.mark.parametrize("method", ["fp", "pcfi"])
@pytest.mark.parametrize("solver", [pcfi.FixedSteps(30), pcfi.UntilSettled(1e-9)])
def test_influence_is_as_honest_as_the_ordinary_route(method, solver):
    # broke once: without centring, the bound on the residual took no account of the size of the values
    features = np.full((200, 40), np.nan)
    features[[0, 100, 199]] = 1000 + np.random.default_rng(0).random((3, 40))
    path = np.stack([np.arange(199), np.arange(1, 200)])
    options = {"method": method, "solver": solver, "beta": 0, "alpha": 0.9, "objective": "representation"}
    through_influence = pcfi.impute(features, path, **options)
    ordinary = [pcfi.impute(features[:, [d]], path, **options) for d in range(40)]
    values = np.concatenate([result.values for result in ordinary], axis=1)
    np.testing.assert_allclose(through_influence.values, values, atol=1e-3)
    assert through_influence.converged
    if isinstance(solver, pcfi.FixedSteps):
        assert through_influence.residual >= 0.99 * max(result.residual for result in ordinary)


def test_unsettled_results_say_so():
    path = np.stack([np.arange(999), np.arange(1, 1000)])
    features = np.full((1000, 1), np.nan)
    features[0], features[-1] = 0.0, 1.0
    with pytest.warns(pcfi.NotSettledWarning, match="Not settled after 5 steps"):
        result = pcfi.impute(
            features, path, alpha=1, solver=pcfi.UntilSettled(1e-9, max_steps=5), beta=0.1, objective="representation"
        )
    assert not result.converged
    assert result.residual > 1e-9


def test_a_column_that_conjugate_gradients_cannot_finish_is_swept_to_the_end():
    # a chain of cliques: far cliques settle slowly and weigh nothing in the norm of conjugate gradients
    size, count = 30, 14
    blocks = []
    for k in range(count):
        rows, columns = np.triu_indices(size, 1)
        blocks.append(np.stack([rows, columns]) + k * size)
        if k:
            blocks.append(np.array([[k * size - 1], [k * size]]))
    edges = np.concatenate(blocks, axis=1)
    features = np.full((size * count, 2), np.nan, dtype=np.float32)
    features[0], features[-1] = [0.0, 1.0], [1.0, 0.5]
    result = pcfi.impute(features, edges, alpha=0.1, beta=0, objective="representation")
    assert result.converged
    graph = pcfi.prepare_graph(edges)
    matrix = sparse.csr_array((np.ones(len(graph.indices)), graph.indices, graph.indptr))
    known = ~np.isnan(features[:, 0])
    exact = direct_solve(matrix, result.hops[:, 0], known, features[:, 0].astype(float), 0.1)
    np.testing.assert_allclose(result.values[:, 0], exact, atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("solver", [pcfi.FixedSteps(21), pcfi.UntilSettled(1e-6)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["uniform", "structural"])
@pytest.mark.parametrize("threads", [1, 2])
def test_sharing_a_block_between_threads_does_not_change_a_bit(monkeypatch, solver, weighted, kind, threads):
    rng = np.random.default_rng(3)
    problem = random_problem(rng, n_nodes=900, degree=5, n_channels=40, weighted=weighted, kind=kind)
    alone = run(problem, solver=solver).values
    monkeypatch.setattr("pcfi._kernels.csr_graph.MAX_CACHED_BLOCK_BYTES", 0)
    with numba_threads(threads):
        assert run(problem, solver=solver).values.tobytes() == alone.tobytes()


def test_nodes_are_visited_window_by_window_and_by_their_number_of_neighbours():
    rng = np.random.default_rng(0)
    problem = random_problem(rng, n_nodes=150, degree=5, n_channels=4)
    read = read_problem(problem.features, problem.graph)
    hops = count_hops(read)
    weights = confidence_weights(read.graph, hops, 0.5)
    order = Diffusion(problem=read, hops=hops, weights=weights, solver=pcfi.UntilSettled()).node_order
    n_neighbors = np.diff(read.graph.indptr)
    for start in range(0, 150, 64):
        window = order[start : start + 64]
        assert sorted(window) == list(range(start, min(start + 64, 150)))
        assert (np.diff(n_neighbors[window]) <= 0).all()
