"""PCFI as a scikit-learn transformer: scikit-learn's own checks, the graph of similar rows, rows that come later."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import nan_euclidean_distances
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import pcfi
from pcfi.inputs import knn
from random_problems import problems_of_all_scales

TIGHT = pcfi.UntilSettled(1e-12, max_steps=20_000)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [pcfi.PCFI(), pcfi.PCFI(beta=0.1, n_neighbors=2, add_indicator=True, keep_empty_features=True)]
)
def test_scikit_learns_own_checks_pass_without_exception(estimator, check):
    check(estimator)


def table(n_rows=120, n_columns=7, rate=0.25, seed=0):
    """A table of rank 2 with noise: complete, and with cells hidden."""
    rng = np.random.default_rng(seed)
    full = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, n_columns)) + 0.1 * rng.normal(size=(n_rows, n_columns))
    hidden = rng.random(full.shape) < rate
    hidden[np.arange(n_rows), rng.integers(0, n_columns, size=n_rows)] = False  # every row knows something
    return full, np.where(hidden, np.nan, full)


def ring(n_rows):
    return np.stack([np.arange(n_rows), (np.arange(n_rows) + 1) % n_rows])


def adjacency(graph):
    return sparse.csr_array((graph.weights_as(np.float64), graph.indices, graph.indptr))


def test_with_a_graph_it_is_impute():
    _, X = table()
    imputer = pcfi.PCFI(alpha=0.3, beta=0.2, standardize=False)
    values = imputer.fit_transform(X, graph=ring(len(X)))
    expected = pcfi.impute(X, ring(len(X)), alpha=0.3, beta=0.2, standardize=False)
    np.testing.assert_array_equal(values, expected.values)
    np.testing.assert_array_equal(imputer.confidence_, expected.confidence)
    np.testing.assert_array_equal(imputer.hops_, expected.hops)
    assert (imputer.alpha_, imputer.beta_, imputer.n_iter_) == (0.3, 0.2, expected.steps)


def test_without_a_graph_it_is_impute_on_the_graph_of_similar_rows():
    _, X = table()
    imputer = pcfi.PCFI(beta=0.1, objective="representation")
    expected = pcfi.impute(
        X, imputer.fit(X).graph_, beta=0.1, standardize=True, alpha=0.5, objective="representation"
    ).values
    np.testing.assert_array_equal(imputer.transform(X), expected)


def test_what_is_left_open_is_tuned_as_by_impute():
    _, X = table(rate=0.4)
    imputer = pcfi.PCFI()
    values = imputer.fit_transform(X, graph=ring(len(X)))
    expected = pcfi.impute(X, ring(len(X)))
    np.testing.assert_array_equal(values, expected.values)
    assert (imputer.alpha_, imputer.beta_) == (expected.alpha, expected.beta)
    assert repr(imputer.tuning_) == repr(expected.tuning)


def test_without_a_graph_the_rows_are_linked_anew_when_cells_are_hidden():
    truth, X = table(rate=0.3)
    imputer = pcfi.PCFI(n_refinements=0).fit(X)
    expected = pcfi.impute(X, "knn")
    np.testing.assert_allclose(imputer.transform(X), expected.values)
    np.testing.assert_allclose(imputer.expected_error_, expected.expected_error)
    for mine, theirs in zip(imputer.interval(0.8), expected.interval(0.8), strict=True):
        np.testing.assert_allclose(mine, theirs)
    with pytest.warns(pcfi.GraphWarning):  # it has seen the cells that are hidden
        optimistic = pcfi.impute(X, imputer.graph_).tuning.error
    assert imputer.tuning_.error > optimistic
    missing = np.isnan(X)
    actual = np.sqrt((((imputer.transform(X) - truth) / truth.std(axis=0))[missing] ** 2).mean())
    assert imputer.tuning_.error > 0.8 * actual


def test_a_marker_of_missing_cells_is_read_as_scikit_learn_does():
    _, X = table()
    marked = np.where(np.isnan(X), -999.0, X)
    imputer = pcfi.PCFI(missing_values=-999, objective="representation")
    expected = pcfi.PCFI(objective="representation").fit_transform(X)
    np.testing.assert_array_equal(imputer.fit_transform(marked), expected)


def test_new_rows_are_estimated_by_the_value_model_of_the_fitted_ones():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(135, 1))
    rows = np.where(rng.random((135, 7)) < 0.5, np.nan, factor + 0.5 * rng.normal(size=(135, 7)))
    X, new = rows[:120], rows[120:]
    links = sparse.random_array((15, 120), density=0.1, random_state=rng, format="csr")
    tuned = pcfi.PCFI(beta=0.0, solver=TIGHT).fit(X, graph=ring(120))
    model = tuned.tuning_.model
    assert tuned.tuning_.n_factors > 0  # columns explain each other, so the known cells of a new row matter
    fitted = pcfi.impute(X, ring(120), alpha=tuned.alpha_, beta=0.0, solver=TIGHT, objective="representation")
    weight = links @ fitted.confidence
    diffused = np.divide(
        links @ (fitted.confidence * fitted.values), weight, out=np.zeros_like(weight), where=weight > 0
    )
    known = ~np.isnan(new)
    estimate = model.estimate(np.where(known, new, 0.0), known, np.where(weight > 0, diffused, np.nan))
    expected = np.where(known, new, model.scale.plausible(model.scale.original(estimate.value)))
    np.testing.assert_allclose(tuned.transform(new, graph=links), expected, rtol=1e-6, atol=1e-8)


def test_nan_aware_neighbours_are_those_of_scikit_learn():
    _, X = table(rate=0.5)
    search = knn.RowSearch.fit(X)
    distances = nan_euclidean_distances(search.rows)
    distances[np.isnan(distances)] = np.inf
    np.fill_diagonal(distances, np.inf)
    nearest, nearest_distances = search.search(6)
    np.testing.assert_allclose(nearest_distances, np.sort(distances, axis=1)[:, :6], rtol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(distances, nearest, axis=1), nearest_distances, rtol=1e-6)


def test_rows_without_a_common_column_are_not_neighbours():
    X = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, 5.0], [np.nan, 6.0], [np.nan, np.nan]])
    with pytest.warns(pcfi.UnreachableWarning, match="6 of 6 missing cells"):
        imputer = pcfi.PCFI(n_neighbors=3, objective="representation").fit(X)
    assert imputer.graph_.n_edges == 2
    assert (imputer.hops_ == pcfi.UNREACHABLE).sum() == 6
    np.testing.assert_array_equal(imputer.transform(X)[4], [1.5, 5.5])


@pytest.mark.slow  # pynndescent is compiled
@pytest.mark.parametrize("approximate_rows", [10**6, 10], ids=["by scikit-learn", "by pynndescent"])
def test_many_rows_are_searched_faster_and_nearly_as_well(approximate_rows, monkeypatch):
    full, X = table(400, 12)
    exact = pcfi.PCFI().fit_transform(X)
    monkeypatch.setattr(knn, "MAX_EXACT_ROWS", 10)
    monkeypatch.setattr(knn, "MIN_APPROXIMATE_ROWS", approximate_rows)
    imputer = pcfi.PCFI()
    searched = imputer.fit_transform(X)
    hidden = np.isnan(X)
    error, least = (np.sqrt(np.mean((values - full)[hidden] ** 2)) for values in (searched, exact))
    assert error < 1.15 * least
    np.testing.assert_array_equal(searched, clone(imputer).fit_transform(X))
    assert not (knn.RowSearch.fit(X).search(5)[0] == np.arange(400)[:, None]).any()
    assert np.isfinite(imputer.transform(table(20, 12, seed=1)[1])).all()


@pytest.mark.parametrize("metric", ["manhattan", "cosine"])
def test_other_metrics_are_those_of_scikit_learn(metric):
    full, X = table()
    imputer = pcfi.PCFI(metric=metric)
    values = imputer.fit_transform(X)
    hidden = np.isnan(X)
    mean = np.broadcast_to(np.nanmean(X, axis=0), X.shape)
    assert np.sqrt(np.mean((values - full)[hidden] ** 2)) < 0.7 * np.sqrt(np.mean((mean - full)[hidden] ** 2))


def test_fitted_rows_come_back_as_they_were_filled():
    _, X = table()
    imputer = pcfi.PCFI()
    np.testing.assert_array_equal(imputer.fit_transform(X), imputer.transform(X))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("sparse_links", [True, False])
def test_a_new_row_is_filled_as_if_values_flowed_towards_it_only(alpha, sparse_links):
    _, X = table(rate=0.5)
    new = table(15, rate=0.5, seed=1)[1]
    imputer = pcfi.PCFI(alpha=alpha, solver=TIGHT, objective="representation").fit(X)
    links = sparse.random_array((15, 120), density=0.1, random_state=np.random.default_rng(2), format="csr")
    if not sparse_links:
        imputer = pcfi.PCFI(alpha=alpha, solver=TIGHT, n_refinements=0, objective="representation").fit(X)
        search = knn.RowSearch.fit(X)
        links = knn.link(*search.search(15, new), knn.local_scale(search.search(15)[1]), 120)
    flow = sparse.block_array([[adjacency(imputer.graph_), None], [links, sparse.csr_array((15, 15))]])
    together = np.concatenate([X, new])
    union = pcfi.impute(
        together, flow.T, alpha=alpha, beta=0.0, directed=True, solver=TIGHT, objective="representation"
    ).values
    filled = imputer.transform(new, graph=links if sparse_links else None)
    np.testing.assert_allclose(filled, union[120:], atol=1e-9)
    np.testing.assert_allclose(imputer.transform(X), union[:120], atol=1e-9)


@pytest.mark.filterwarnings("ignore::pcfi.ScaleWarning")
@pytest.mark.parametrize("standardize", [True, False])
def test_new_rows_share_with_the_correlations_of_the_fitted_ones(standardize):
    _, X = table(rate=0.4)
    X[:, 2] *= 50
    imputer = pcfi.PCFI(beta=0.2, standardize=standardize, solver=TIGHT, objective="representation").fit(X)
    diffused = pcfi.impute(X, imputer.graph_, alpha=0.5, beta=0.0, solver=TIGHT, objective="representation")
    assert not diffused.unreachable.any()
    # stage 2 of the paper (eq. 6 to 9), with the means and correlations of the fitted rows
    mean, deviation = diffused.values.mean(axis=0), diffused.values.std(axis=0)
    correlation = np.corrcoef(diffused.values.T) - np.eye(X.shape[1])
    if standardize:
        correlation *= deviation / deviation[:, None]

    def exchange(values, hops):
        confidence = 0.5**hops
        return values + 0.2 * (1 - confidence) * ((confidence * (values - mean)) @ correlation)

    np.testing.assert_allclose(imputer.transform(X), exchange(diffused.values, diffused.hops), rtol=1e-6, atol=1e-8)
    new = X[:3] + 1e-9
    hops = np.where(np.isnan(new), diffused.hops[:3] + 1, 0)
    expected = exchange(np.where(np.isnan(new), diffused.values[:3], new), hops)
    np.testing.assert_allclose(imputer.transform(new, graph=sparse.csr_array(np.eye(3, 120))), expected, rtol=1e-6)


def test_a_part_of_the_fitted_rows_is_new_but_its_rows_do_not_depend_on_the_part():
    """The page said that results do not depend on which rows are transformed together, which is true of new rows."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(80, 2)) @ rng.normal(size=(2, 5))
    features[rng.random(features.shape) < 0.3] = np.nan
    imputer = pcfi.PCFI()
    filled = imputer.fit_transform(features)
    part = imputer.transform(features[:79])
    np.testing.assert_array_equal(imputer.transform(features), filled)
    np.testing.assert_array_equal(imputer.transform(features[:30]), part[:30])
    assert np.abs(part - filled[:79]).max() > 0.01


def test_new_rows_do_not_see_each_other():
    _, X = table()
    new = table(30, seed=3)[1]
    imputer = pcfi.PCFI(beta=0.1).fit(X)
    together = imputer.transform(new)
    one_by_one = np.concatenate([imputer.transform(new[[row]]) for row in range(30)])
    np.testing.assert_allclose(together, one_by_one, rtol=1e-10)


def test_new_rows_out_of_reach_get_what_the_policy_says():
    X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, np.nan]])
    new = np.array([[np.nan, np.nan]])
    for policy, value in {"mean": [3.0, 3.0], "zero": [0.0, 0.0], "nan": [np.nan, np.nan]}.items():
        np.testing.assert_array_equal(
            pcfi.PCFI(unreachable=policy, objective="representation").fit(X).transform(new), [value]
        )


@given(problems_of_all_scales(max_channels=6), st.integers(1, 20), st.integers(0, 2), st.booleans())
def test_any_table_is_filled_with_its_known_cells_unchanged(problem, n_neighbors, n_refinements, nan_aware):
    X, new = np.split(problem.masked, [(len(problem.masked) + 1) // 2])
    metric = "nan_euclidean" if nan_aware else "euclidean"
    imputer = pcfi.PCFI(n_neighbors, metric=metric, n_refinements=n_refinements, keep_empty_features=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.PcfiWarning)
        imputer.fit(X)
    for rows in (X, new) if len(new) else (X,):
        before = rows.tobytes()
        filled = imputer.transform(rows)
        assert rows.tobytes() == before
        assert np.isfinite(filled).all()
        np.testing.assert_array_equal(filled[~np.isnan(rows)], rows[~np.isnan(rows)])


def test_a_table_whose_cells_cannot_be_hidden_is_filled_without_a_warning_of_numpy():
    # the mean of no hidden cells was taken
    X = np.array([[1.5, 1.3, 0.2, np.nan], [np.nan, -1.3, -0.5, 0.0], [np.nan, np.nan, 0.9, np.nan], [np.nan] * 4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.PcfiWarning)
        filled = pcfi.PCFI(1, n_refinements=0, keep_empty_features=True).fit_transform(X)
    assert np.isfinite(filled).all()


def test_it_drops_in_for_the_knn_imputer():
    X, y = load_wine(return_X_y=True)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    pipeline = make_pipeline(pcfi.PCFI(), StandardScaler(), LogisticRegression())
    search = GridSearchCV(pipeline, {"pcfi__n_neighbors": [5, 15], "pcfi__alpha": [0.5, 0.9]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    columns = ColumnTransformer([("filled", pcfi.PCFI(), slice(0, 5)), ("rest", "passthrough", slice(5, 7))])
    np.testing.assert_array_equal(columns.fit_transform(X)[:, :5], pcfi.PCFI().fit_transform(X[:, :5]))


def test_it_is_no_worse_than_the_knn_imputer():
    full = load_breast_cancer().data
    full = full / full.std(axis=0)
    for rate in (0.1, 0.5):
        hidden = np.random.default_rng(0).random(full.shape) < rate
        X = np.where(hidden, np.nan, full)
        errors = [np.mean((one.fit_transform(X) - full)[hidden] ** 2) for one in (pcfi.PCFI(), KNNImputer())]
        assert errors[0] < 0.9 * errors[1]


@pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_output_may_be_a_table(library):
    _, X = table(n_columns=3)
    X[:, 1] = np.nan
    frame = pd.DataFrame(X, columns=["a", "b", "c"]) if library == "pandas" else pl.DataFrame(X, schema=["a", "b", "c"])
    imputer = pcfi.PCFI(add_indicator=True).set_output(transform=library)
    out = imputer.fit_transform(frame)
    assert list(out.columns) == ["a", "c", "missingindicator_a", "missingindicator_b", "missingindicator_c"]
    assert list(imputer.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(out.to_numpy()[:, :2], pcfi.PCFI().fit_transform(X))
    np.testing.assert_array_equal(out.to_numpy()[:, 2:], np.isnan(X))


@pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")
def test_empty_columns_are_dropped_or_zero_like_those_of_scikit_learn():
    _, X = table(n_columns=3)
    X[:, 1] = np.nan
    for keep in (True, False):
        ours, theirs = (kind(keep_empty_features=keep).fit(X) for kind in (pcfi.PCFI, KNNImputer))
        assert ours.transform(X).shape == theirs.transform(X).shape
        assert len(ours.get_feature_names_out()) == ours.transform(X).shape[1]
        assert ours.confidence_.shape == ours.transform(X).shape
    assert (pcfi.PCFI(keep_empty_features=True, n_neighbors=3).fit(X).transform(X[:4] + 1)[:, 1] == 0).all()
    nothing = np.full((4, 2), np.nan)
    assert pcfi.PCFI().fit_transform(nothing).shape == (4, 0)


def test_the_graph_is_routed_through_a_pipeline():
    _, X = table()
    graph = sparse.csr_array((np.ones(120), tuple(ring(120))), shape=(120, 120))
    expected = pcfi.PCFI().fit_transform(X, graph=graph)
    with sklearn.config_context(enable_metadata_routing=True):
        imputer = pcfi.PCFI().set_fit_request(graph=True).set_transform_request(graph=True)
        routed = make_pipeline(imputer).fit_transform(X, graph=graph)
    np.testing.assert_array_equal(routed, expected)


def test_cross_validation_over_the_rows_of_a_graph_says_why_it_cannot_be():
    _, X = table()
    graph = sparse.csr_array((np.ones(120), tuple(ring(120))), shape=(120, 120))
    with pytest.raises(pcfi.GraphError, match="Cross-validation over rows is not possible with a graph"):
        pcfi.PCFI().fit(X[:80], graph=graph[:80])
    with pytest.raises(pcfi.GraphError, match="not possible with a graph"):
        pcfi.PCFI().fit(X[:80], graph=ring(120))


def test_edges_may_be_a_table_of_ids():
    _, X = table(6)
    frame = pd.DataFrame(X, index=list("fedcba"), columns=[f"c{k}" for k in range(7)])
    edges = pd.DataFrame({"source": list("abcde"), "target": list("bcdef")})
    rows = np.stack([np.arange(1, 6), np.arange(5)])
    np.testing.assert_array_equal(
        pcfi.PCFI(alpha=0.5, beta=0.0).fit_transform(frame, graph=edges),
        pcfi.PCFI(alpha=0.5, beta=0.0).fit_transform(X, graph=rows),
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be an integer of at least 1, got 0"),
        ({"n_refinements": -1}, "n_refinements must be an integer of at least 0"),
        ({"alpha": 2.0}, "alpha must be a number greater than 0"),
        ({"solver": 3}, "solver must be"),
    ],
)
def test_bad_parameters_are_refused_when_fitting(wrong, message):
    with pytest.raises(pcfi.ParameterError, match=message):
        pcfi.PCFI(**wrong).fit(table()[1])


def test_bad_links_of_new_rows_are_refused():
    _, X = table()
    imputer = pcfi.PCFI().fit(X)
    with pytest.raises(pcfi.GraphError, match=r"sparse matrix of shape \(4, 120\) .*, got shape \(4, 4\)"):
        imputer.transform(X[:4], graph=sparse.eye_array(4))
    with pytest.raises(pcfi.GraphError, match="finite similarities of at least 0"):
        imputer.transform(X[:4], graph=-sparse.eye_array(4, 120))
