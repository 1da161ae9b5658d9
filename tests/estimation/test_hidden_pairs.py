"""A model that is tried on a fold depends on no cell of that fold, and hidden cells are as those that are missing."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info

import pcfi
from pcfi.estimation.channel_scale import fit_channel_scale
from pcfi.estimation.folds import make_folds
from pcfi.estimation.graph_estimates import graph_estimates, with_pairs
from pcfi.inputs.problem import read_problem
from pcfi.settings import Settings
from spatial_fields import hide, neighbour_graph, rmse, smooth_field

pytestmark = pytest.mark.filterwarnings("ignore::pcfi.GraphWarning")  # the graphs of real tables are made from them


def field(n_nodes=300, n_channels=3, noise=0.3):
    graph = neighbour_graph(n_nodes, 0)
    rng = np.random.default_rng(1)
    smooth = [smooth_field(graph, seed) for seed in range(n_channels)]
    return graph, np.stack(smooth, axis=1) + noise * rng.standard_normal((n_nodes, n_channels))


def pairs_of(features, graph):
    problem = read_problem(features, graph)
    settings = Settings(alpha=0.5, beta=0.0)
    scale = fit_channel_scale(problem, None)
    folds = make_folds(problem, 5, 0)
    return with_pairs(graph_estimates(folds, scale, settings), scale, settings, None)


def test_estimates_for_a_model_that_is_tried_on_a_fold_do_not_depend_on_its_cells():
    graph, truth = field()
    features, _ = hide(truth, 0.3, 2)
    parts = pairs_of(features, graph)
    tried, scale = parts[1].fold, np.ptp(truth, axis=0)
    folds = [part.fold for part in parts]
    changed = features.copy()
    changed[tried.nodes, tried.channels] += 0.1 * scale[tried.channels]
    again = read_problem(changed, graph)
    refilled = [replace(fold, problem=replace(fold.problem, values=again.values)) for fold in folds]
    settings, scale = Settings(alpha=0.5, beta=0.0), fit_channel_scale(read_problem(features, graph), None)
    others = with_pairs(graph_estimates(refilled, scale, settings), scale, settings, None)
    for number in (0, 2, 3, 4):
        np.testing.assert_array_equal(others[1].of_others[number], parts[1].of_others[number])
        assert not np.array_equal(others[number].graph, parts[number].graph)  # but those of single folds do


def test_large_tables_are_not_hidden_in_pairs(monkeypatch):
    graph, truth = field()
    monkeypatch.setattr("pcfi.estimation.graph_estimates.MAX_EXACT_CELLS", truth.size - 1)
    assert all(not part.of_others for part in pairs_of(hide(truth, 0.3, 2)[0], graph))


def scaled_table(name):
    """A table of scikit-learn in standard deviations, and the graph of its nearest rows."""
    from sklearn import datasets
    from sklearn.neighbors import kneighbors_graph

    table = getattr(datasets, f"load_{name}")().data
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    graph = sparse.csr_array(kneighbors_graph(table, 10))
    return table, graph.maximum(graph.T)


def test_where_whole_rows_are_missing_all_columns_of_the_neighbours_count():
    from sklearn.linear_model import BayesianRidge

    truth, graph = scaled_table("iris")
    errors = []
    for seed in range(8):
        missing = np.random.default_rng(seed).random(len(truth)) < 0.3
        means = graph[:, ~missing] @ truth[~missing] / graph[:, ~missing].sum(axis=1)[:, None]
        by_hand = np.stack([BayesianRidge().fit(means[~missing], one[~missing]).predict(means) for one in truth.T], 1)
        features = np.where(missing[:, None], np.nan, truth)
        errors.append([rmse(filled, truth, missing) for filled in (pcfi.impute(features, graph).values, by_hand)])
    ours, by_hand = np.mean(errors, axis=0)
    assert ours < 1.015 * by_hand


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_expected_errors_are_right_though_folds_leave_fewer_neighbours_known(name):
    """Nodes with many neighbours have small errors here; that a fold hides a fifth of them must not count as that."""
    truth, graph = scaled_table(name)
    expected, actual = [], []
    for seed in range(8):
        features, missing = hide(truth, 0.1, seed)
        result = pcfi.impute(features, graph)
        expected.append(result.expected_error[missing])
        actual.append(np.abs(result.values - truth)[missing])
    assert np.concatenate(expected).mean() == pytest.approx(np.concatenate(actual).mean(), rel=0.08)


def n_blas_threads():
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_a_fit_uses_one_thread_of_the_blas_and_gives_the_others_back(monkeypatch):
    graph, truth = field()
    features, _ = hide(truth, 0.3, 2)
    before, inside = n_blas_threads(), []

    def recorded(*arguments):
        inside.extend(n_blas_threads())
        return make_folds(*arguments[:3])

    monkeypatch.setattr("pcfi.estimation.fitting.make_folds", lambda *arguments, **_: recorded(*arguments))
    pcfi.impute(features, graph)
    assert set(inside) == {1}
    assert n_blas_threads() == before


def test_columns_that_say_the_same_are_no_more_evidence_than_one():
    from pcfi.estimation.factor_model import FactorModel
    from pcfi.estimation.graph_link import fit_graph_link

    rng = np.random.default_rng(0)
    graph = rng.standard_normal(12)
    values = 1.5 * graph + 0.5 * rng.standard_normal(12)

    def slope(n_columns, *, copies):
        """Slope of the first of some columns: copies in the same 12 rows, or each in 12 rows of its own."""
        rows = np.tile(np.arange(12), n_columns)
        rows = rows if copies else rows + 12 * np.repeat(np.arange(n_columns), 12)
        channels = np.repeat(np.arange(n_columns), 12)
        cells = rows, channels, np.tile(values, n_columns), np.tile(graph, n_columns)
        return fit_graph_link(cells, None, FactorModel.independent(n_columns)).slope[0]

    assert slope(8, copies=False) > 1.02 * slope(
        8, copies=True
    )  # eight observations say more, and less is drawn towards the prior
    assert slope(8, copies=True) == pytest.approx(slope(2, copies=True), rel=0.02)
