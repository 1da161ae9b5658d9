"""Laws that hold for every method, solver, dtype, backend and interface, or for a part of them."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcfi
from array_interfaces import INTERFACES
from hypothesis_profiles import examples
from random_problems import RandomProblem, numba_threads, problems, problems_of_all_scales
from smooth_features import hidden_at, ring, smooth

METHODS = ["pcfi", "fp", "neighbors", "mean", "zero"]
SOLVERS = [pcfi.FixedSteps(9), pcfi.UntilSettled(1e-9, max_steps=5000), pcfi.UntilSettled(max_steps=5000)]

# numpy and device tensors are two backends, the other interfaces convert their input
interfaces = st.sampled_from(["numpy", "numpy", "device_tensor", "cpu_tensor", "pyg"])

options = st.fixed_dictionaries(
    {
        "interface": interfaces,
        "method": st.sampled_from(METHODS),
        "solver": st.sampled_from(SOLVERS),
        "alpha": st.sampled_from([0.05, 0.5, 0.9, 1.0]),
        "beta": st.sampled_from([0.0, 0.3, 1.5]),
        "standardize": st.booleans(),
        "self_loops": st.booleans(),
    }
)
settled = st.fixed_dictionaries({"interface": interfaces, "alpha": st.sampled_from([0.05, 0.5, 0.9, 1.0])})
TIGHT = {"beta": 0.0, "solver": pcfi.UntilSettled(1e-11, max_steps=20_000)}


def law(*strategies, count=200):
    return lambda test: examples(count)(given(*strategies)(test))


def run(problem: RandomProblem, features=None, graph=None, interface="numpy", **chosen):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.UnreachableWarning)
        warnings.simplefilter("ignore", pcfi.ScaleWarning)
        warnings.simplefilter("ignore", pcfi.TuningWarning)
        return INTERFACES[interface](
            problem.masked if features is None else features,
            problem.graph if graph is None else graph,
            directed=problem.directed,
            **chosen,
        )


@law(problems_of_all_scales(), options)
def test_known_cells_survive_bit_for_bit(problem, chosen):
    features = problem.masked
    features[problem.known & (np.abs(features) < 0.3)] = -0.0
    result = run(problem, features, **chosen)
    assert result.values[problem.known].tobytes() == features[problem.known].tobytes()


@law(problems_of_all_scales(), options)
def test_input_is_untouched_and_no_nan_is_left(problem, chosen):
    features, known, edges = problem.masked, problem.known.copy(), problem.edge_index.copy()
    weights = None if problem.weights is None else problem.weights.copy()
    before = features.tobytes()
    graph = edges if weights is None else (edges, weights)
    for array in (features, known, edges):
        array.flags.writeable = False
    result = run(problem, features, graph, known=known, **chosen)
    assert features.tobytes() == before
    assert (known == problem.known).all()
    assert (edges == problem.edge_index).all()
    assert weights is None or (weights == problem.weights).all()
    assert np.isfinite(result.values).all()
    assert not np.shares_memory(result.values, features)


computing = st.sampled_from(["numpy", "device_tensor"])


@law(problems_of_all_scales(max_channels=4), st.sampled_from(["values", "representation"]), computing, count=100)
def test_tuned_results_keep_these_laws(problem, objective, interface):
    features = problem.masked
    before = features.tobytes()
    result = run(problem, features, interface=interface, objective=objective, alpha="auto", beta="auto")
    assert features.tobytes() == before
    assert result.values[problem.known].tobytes() == features[problem.known].tobytes()
    assert np.isfinite(result.values).all()


small_tables = problems(max_channels=4, max_nodes=40, values=("normal", "binary"))


def values_of(problem: RandomProblem, features=None, graph=None, **chosen):
    return run(problem, features, graph, objective="values", alpha="auto", beta="auto", **chosen)


@law(small_tables, st.sampled_from([7.0, np.nan]), st.floats(0, 1), count=60)
def test_a_constant_or_empty_column_does_not_change_the_others(problem, constant, share):
    column = np.where(np.arange(len(problem.features)) < share * len(problem.features), constant, np.nan)
    more = np.column_stack([column.astype(problem.features.dtype), problem.masked])
    # as far as values settle
    np.testing.assert_allclose(values_of(problem, more).values[:, 1:], values_of(problem).values, atol=1e-4)


@law(small_tables, st.lists(st.integers(-60, 60), min_size=4, max_size=4), count=60)
def test_scaling_columns_scales_their_values_and_errors(problem, exponents):
    units = (2.0 ** np.array(exponents))[: problem.features.shape[1]].astype(problem.features.dtype)
    binary = np.isin(problem.features, (0, 1)).all()
    units = np.where(binary, 1, units).astype(units.dtype)  # a share between 0 and 1 is no share in another unit
    plain, scaled = values_of(problem), values_of(problem, problem.masked * units)
    np.testing.assert_allclose(scaled.values / units, plain.values, atol=1e-6)
    np.testing.assert_allclose(scaled.expected_error / units, plain.expected_error, rtol=1e-4, atol=1e-6)


def test_order_and_origin_do_not_matter_to_values():
    rng = np.random.default_rng(0)
    edges, features = ring(200), hidden_at(rng, smooth(rng), kind="uniform")
    plain = pcfi.impute(features, edges)
    nodes, columns = rng.permutation(200), rng.permutation(features.shape[1])
    moved = pcfi.impute(features[nodes][:, columns] - 1000, np.argsort(nodes)[edges])
    np.testing.assert_allclose(moved.values + 1000, plain.values[nodes][:, columns], atol=1e-2)
    assert moved.alpha == plain.alpha
    assert [one.name for one in moved.columns] == [str(number) for number in range(6)]
    errors = np.array([one.rmse for one in plain.columns])
    np.testing.assert_allclose([one.rmse for one in moved.columns], errors[columns], rtol=1e-2)


@pytest.mark.parametrize(
    "chosen", [{}, {"alpha": 0.3, "beta": 0.2}, {"bounds": (4.5, 5.5)}, {"random_state": 3}, {"method": "auto"}]
)
@pytest.mark.parametrize("objective", ["values", "representation"])
def test_the_parameters_of_a_result_reproduce_it(objective, chosen):
    rng = np.random.default_rng(1)
    edges, features = ring(120), hidden_at(rng, smooth(rng, n_nodes=120), kind="uniform")
    result = pcfi.impute(features, edges, objective=objective, **chosen)
    again = pcfi.impute(features, edges, **result.parameters)
    assert again.values.tobytes() == result.values.tobytes()
    assert (again.alpha, again.beta, again.method) == (result.alpha, result.beta, result.method)


@law(problems_of_all_scales(), options)
def test_values_in_missing_cells_are_ignored(problem, chosen):
    by_nan = run(problem, **chosen)
    with_garbage = np.where(problem.known, problem.features, problem.features.dtype.type(1e30))
    with_garbage[~problem.known & (problem.features > 0)] = np.inf
    by_mask = run(problem, with_garbage, known=problem.known, **chosen)
    assert by_nan.values.tobytes() == by_mask.values.tobytes()


@law(problems_of_all_scales(), options)
def test_the_same_call_gives_the_same_bits(problem, chosen):
    assert run(problem, **chosen).values.tobytes() == run(problem, **chosen).values.tobytes()


def tolerance_of(problem: RandomProblem, chosen: dict) -> float:
    loose = chosen.get("solver") == SOLVERS[2] and chosen.get("method") in ("pcfi", "fp")
    return 0.1 if loose else 3e-4 if problem.features.dtype == np.float32 else 1e-5


@law(problems(), options, st.integers(0, 2**32 - 1))
def test_node_order_does_not_matter(problem, chosen, seed):
    order = np.random.default_rng(seed).permutation(len(problem.features))
    place = np.argsort(order)
    edges = place[problem.edge_index]
    graph = edges if problem.weights is None else (edges, problem.weights)
    moved = run(problem, problem.masked[order], graph, **chosen)
    np.testing.assert_allclose(moved.values, run(problem, **chosen).values[order], atol=tolerance_of(problem, chosen))


@law(problems(), options, st.integers(0, 2**32 - 1))
def test_channel_order_does_not_matter(problem, chosen, seed):
    order = np.random.default_rng(seed).permutation(problem.features.shape[1])
    moved = run(problem, problem.masked[:, order], **chosen)
    np.testing.assert_allclose(
        moved.values, run(problem, **chosen).values[:, order], atol=tolerance_of(problem, chosen)
    )


@law(problems(), options)
def test_grouping_channels_into_patterns_does_not_matter(problem, chosen):
    chosen = {**chosen, "beta": 0.0}
    whole = run(problem, **chosen).values
    one_by_one = [run(problem, problem.masked[:, [d]], **chosen).values for d in range(whole.shape[1])]
    np.testing.assert_allclose(whole, np.concatenate(one_by_one, axis=1), atol=tolerance_of(problem, chosen))


@law(problems(), settled, st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_settled_diffusion_follows_the_channels_unit(problem, chosen, shift, scale):
    plain = run(problem, **chosen, **TIGHT, unreachable="mean").values.astype(np.float64)
    features = (problem.masked.astype(np.float64) * scale + shift).astype(problem.features.dtype)
    moved = run(problem, features, **chosen, **TIGHT, unreachable="mean").values.astype(np.float64)
    empty = ~problem.known.any(axis=0)
    size = np.abs(features[problem.known]).max(initial=0) + scale
    eps = np.finfo(problem.features.dtype).eps
    expected = np.where(empty, 0.0, plain * scale + shift)
    np.testing.assert_allclose(moved, expected, atol=max(1e-7 * scale, 8 * eps * size))


@law(problems_of_all_scales(), settled)
def test_settled_values_stay_within_the_known_range(problem, chosen):
    result = run(problem, **chosen, beta=0.0, unreachable="mean")
    for d in np.flatnonzero(problem.known.any(axis=0)):
        known = problem.features[problem.known[:, d], d]
        assert known.min() <= result.values[:, d].min()
        assert result.values[:, d].max() <= known.max()


@law(problems(), settled, st.floats(-1e6, 1e6, width=32))
def test_a_constant_channel_stays_constant(problem, chosen, constant):
    features = np.where(problem.known, problem.features.dtype.type(constant), np.nan).astype(problem.features.dtype)
    result = run(problem, features, **chosen, beta=0.5)
    some = problem.known.any(axis=0)
    np.testing.assert_array_equal(result.values[:, some], problem.features.dtype.type(constant))


@law(problems(), st.sampled_from(["pcfi", "fp"]), st.integers(-20, 20), interfaces)
def test_fixed_steps_scale_with_the_channels_together(problem, method, exponent, interface):
    chosen = {"interface": interface, "method": method, "solver": pcfi.FixedSteps(6), "beta": 0.3}
    scale = problem.features.dtype.type(2.0**exponent)
    plain = run(problem, **chosen).values
    scaled = run(problem, problem.masked * scale, **chosen).values
    np.testing.assert_allclose(scaled, plain * scale, rtol=1e-4, atol=1e-6 * float(scale))


@law(problems_of_all_scales(), options)
def test_confidence_is_alpha_to_the_power_of_hops(problem, chosen):
    result = run(problem, **chosen)
    if chosen["method"] in ("neighbors", "mean", "zero"):
        assert result.confidence is None
        return
    assert ((result.hops == 0) == problem.known).all()
    assert ((result.hops == pcfi.UNREACHABLE) == result.unreachable).all()
    if chosen["method"] == "fp":
        assert result.confidence is None
        return
    assert ((result.confidence == 1) >= problem.known).all()
    assert (result.confidence[result.unreachable] == 0).all()
    reachable = ~result.unreachable
    np.testing.assert_allclose(
        result.confidence[reachable], result.alpha ** result.hops[reachable].astype(float), rtol=1e-6
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", METHODS)
def test_values_come_back_in_the_dtype_that_went_in(dtype, method):
    features = np.array([[1.0, np.nan], [np.nan, 2.0]], dtype=dtype)
    assert (
        pcfi.impute(features, [[0], [1]], method=method, alpha=0.5, beta=0.1, objective="representation").values.dtype
        == dtype
    )


def test_thread_count_does_not_change_a_bit():
    from random_problems import random_problem

    problem = random_problem(np.random.default_rng(1), n_nodes=400, degree=5, n_channels=150, dtype=np.float32)
    results = []
    for threads in (1, 2):
        with numba_threads(threads):
            results.append(run(problem).values.tobytes())
    assert results[0] == results[1]


def test_calls_from_several_threads_do_not_disturb_each_other():
    from concurrent.futures import ThreadPoolExecutor

    from random_problems import random_problem

    cases = [random_problem(np.random.default_rng(k), n_nodes=200, degree=5, n_channels=40) for k in range(8)]
    alone = [
        pcfi.impute(case.masked, case.graph, unreachable="zero", alpha=0.5, beta=0.1, objective="representation").values
        for case in map(connect, cases)
    ]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(
                lambda case: (
                    pcfi.impute(case.masked, case.graph, alpha=0.5, beta=0.1, objective="representation").values
                ),
                map(connect, cases),
            )
        )
    for one, other in zip(alone, together, strict=True):
        assert one.tobytes() == other.tobytes()


def connect(problem: RandomProblem) -> RandomProblem:
    """The same problem on a ring with its edges as chords, so that all is reachable."""
    n_nodes = len(problem.features)
    ring = np.stack([np.arange(n_nodes), (np.arange(n_nodes) + 1) % n_nodes])
    known = problem.known.copy()
    known[0] = True
    return RandomProblem(np.concatenate([problem.edge_index, ring], axis=1), None, False, problem.features, known)
