"""Values that grow with the degree of their node: what dividing by its square root means, and when it is chosen."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

import pcfi
from array_interfaces import DEVICE, device_backend_on_cpu, to_numpy, to_tensor
from pcfi.backends import backend_for
from pcfi.estimation.channel_moments import moments_of_problem
from pcfi.estimation.channel_scale import fit_channel_scale
from pcfi.inputs.problem import read_problem
from pcfi.pipeline import fill
from pcfi.settings import Settings
from pcfi.stages.degree_scaling import DegreeScale, grows_with_degree


def popular(power=0.5, n_nodes=1500, n_channels=6, missing=0.5, seed=0):
    """A graph with hubs; features that neighbours have in common, times a power of the degree; half of them known."""
    rng = np.random.default_rng(seed)
    graph = nx.to_scipy_sparse_array(nx.barabasi_albert_graph(n_nodes, 3, seed=seed), dtype=float)
    degree = graph.sum(axis=0)
    common = 1 + rng.random((n_nodes, n_channels))
    for _ in range(3):
        common = (common + (graph @ common) / degree[:, None]) / 2
    truth = common * degree[:, None] ** power * (1 + 0.1 * rng.normal(size=common.shape))
    known = np.broadcast_to(rng.random((n_nodes, 1)) >= missing, truth.shape)
    return truth, np.where(known, truth, np.nan), graph


def error(values, truth, features):
    missing = np.isnan(features)
    return float(np.sqrt(np.mean((values - truth)[missing] ** 2)))


def test_the_steady_state_of_divided_features_is_that_of_feature_propagation():
    _, features, graph = popular()
    problem = read_problem(features, graph)
    scale = DegreeScale.of(problem)
    settings = Settings(alpha=1.0, beta=0.0, solver=pcfi.UntilSettled(rtol=1e-10, max_steps=10_000), standardize=False)
    divided = scale.divide(problem)
    filled = fill(divided, settings, backend_for(divided)).values
    filled = scale.multiplied(filled)
    propagated = pcfi.impute(features, graph, method="fp", self_loops=False, solver=settings.solver).values
    np.testing.assert_allclose(filled, propagated, rtol=1e-7)


def test_it_is_chosen_where_values_grow_with_the_degree_and_helps():
    truth, features, graph = popular()
    result = pcfi.impute(features, graph)
    assert result.tuning.by_degree
    assert {one.by_degree for one in result.tuning.tried} == {True, False}
    assert "square root of the degree" in repr(result.tuning)
    plain = [pcfi.impute(features, graph, method=method).values for method in ("fp", "neighbors", "mean")]
    assert error(result.values, truth, features) < 0.99 * min(error(values, truth, features) for values in plain)
    known = ~np.isnan(features)
    assert np.array_equal(result.values[known], truth[known])
    low, high = result.interval(0.9)
    assert 0.87 < ((low <= truth) & (truth <= high))[~known].mean() < 0.93


@pytest.mark.parametrize("power", [0.0, -0.5])
def test_it_is_not_chosen_where_values_do_not_grow(power):
    _, features, graph = popular(power)
    result = pcfi.impute(features, graph)
    assert not result.tuning.by_degree
    assert not any(one.by_degree for one in result.tuning.tried)


def test_a_graph_without_hubs_gives_no_reason_to_look():
    features = np.where(np.arange(60) % 3 == 0, np.nan, np.arange(60.0))[:, None]
    problem = read_problem(features, [np.arange(60), (np.arange(60) + 1) % 60])
    assert not grows_with_degree(problem, moments_of_problem(problem).squares / problem.channels.n_known)


def test_constant_channels_keep_their_constant_and_scales_of_channels_do_not_matter():
    _, features, graph = popular()
    more = np.column_stack([features, np.where(np.isnan(features[:, 0]), np.nan, 7.0)])
    one = pcfi.impute(more, graph)
    assert one.tuning.by_degree
    assert (one.values[:, -1] == 7.0).all()
    units = 2.0 ** np.arange(-3, 4)
    np.testing.assert_allclose(pcfi.impute(more * units, graph).values, one.values * units, rtol=1e-9)


@pytest.mark.parametrize(("unreachable", "expected"), [("zero", 0.0), ("nan", np.nan)])
def test_unreachable_cells_hold_what_was_asked_for(unreachable, expected):
    _, features, graph = popular()
    more = np.vstack([features, np.full((2, features.shape[1]), np.nan)])
    graph = graph.tocoo()
    edges = np.column_stack([np.stack(graph.coords), [[1500], [1501]]])
    with pytest.warns(pcfi.UnreachableWarning):
        result = pcfi.impute(more, edges, unreachable=unreachable)
    assert result.tuning.by_degree
    np.testing.assert_array_equal(result.values[1500:], expected)
    assert np.isfinite(result.values[:1500]).all()


def test_values_near_the_largest_number_are_left_as_they_are():
    _, features, graph = popular()
    largest = np.nanmax(np.abs(features))
    with np.errstate(all="raise", under="ignore"):
        result = pcfi.impute(features / largest * 1e307, graph)
    assert not result.tuning.by_degree
    assert np.isfinite(result.values).all()


def test_the_engine_for_devices_does_the_same():
    _, features, graph = popular()
    with device_backend_on_cpu():
        result = pcfi.impute(to_tensor(features).to(DEVICE), graph)
    expected = pcfi.impute(features, graph)
    assert result.tuning.by_degree
    np.testing.assert_allclose(to_numpy(result.values), expected.values, rtol=1e-3)
    known = ~np.isnan(features)
    assert np.array_equal(to_numpy(result.values)[known], features[known])


@pytest.mark.parametrize("offset", [0.0, -3.0])
def test_logarithms_and_other_values_are_scaled_alike(offset):
    _, features, graph = popular()
    problem = read_problem(features + offset, graph)  # below 0 no logarithm is taken
    channel_scale = fit_channel_scale(problem)
    assert (channel_scale.logarithmic == (offset == 0)).all()
    transformed = channel_scale.transformed(problem)
    scale = DegreeScale.of(transformed, channel_scale.logarithmic)
    divided = scale.divide(transformed).values
    expected = (
        np.log(features / scale.by_node[:, None]) if offset == 0 else (features + offset) / scale.by_node[:, None]
    )
    np.testing.assert_allclose(divided, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scale.multiplied(divided), transformed.values, rtol=1e-12, atol=1e-12)
    cells = np.array([3, 900, 7]), np.array([0, 5, 5])
    np.testing.assert_array_equal(scale.multiplied_at(divided[cells], *cells), scale.multiplied(divided)[cells])


def test_rows_that_come_later_are_scaled_by_their_own_degree():
    _, features, graph = popular()
    features[np.argmin(np.isnan(features), axis=0), np.arange(features.shape[1])] = 0.0  # zeros have no logarithm
    solver = pcfi.UntilSettled(rtol=1e-9)
    fitted = pcfi.PCFI(beta=0.0, solver=solver).fit(features, graph=graph)
    tuning, model = fitted.tuning_, fitted.tuning_.model
    assert tuning.by_degree
    assert not model.scale.logarithmic.any()
    links = np.zeros((2, len(features)))
    links[0, [3, 900]] = 1.0  # the second row has no links
    new = np.full((2, features.shape[1]), np.nan)
    new[0, 0] = 2.0
    plain = pcfi.impute(
        features / model.degree.by_node[:, None],
        graph,
        alpha=fitted.alpha_,
        beta=0.0,
        solver=solver,
        objective="representation",
    )
    trust = plain.confidence[[3, 900]]
    usual = np.exp(np.mean(np.log(graph.sum(axis=0))) / 2)
    diffused = np.sqrt(2) / usual * (trust * plain.values[[3, 900]]).sum(axis=0) / trust.sum(axis=0)
    known = np.array([[True] + 5 * [False]])
    estimate = model.estimate(np.where(known, new[:1], 0.0), known, diffused[None, :])
    expected = model.scale.plausible(model.scale.original(estimate.value))[0]
    filled = fitted.transform(new, graph=sparse.csr_array(links))
    np.testing.assert_allclose(filled[0, 1:], expected[1:], rtol=1e-5)
    assert filled[0, 0] == 2.0
    np.testing.assert_allclose(filled[1], np.nanmean(features, axis=0))


def test_what_stands_in_missing_cells_has_no_say():
    _, features, graph = popular()
    known = ~np.isnan(features)
    expected = pcfi.impute(features, graph)
    filled = pcfi.impute(np.where(known, features, 1.7e308), graph, known=known)
    assert filled.tuning.by_degree
    np.testing.assert_allclose(filled.values, expected.values, rtol=1e-9)
