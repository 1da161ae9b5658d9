"""Values that a user can trust: each finding on ordinary tables is a test of its own."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import spearmanr

import pcfi
from pcfi.estimation.fitting import CellShares
from pcfi.estimation.folds import make_folds
from pcfi.inputs.columns import NodeColumns
from pcfi.inputs.node_tables import read_table
from pcfi.inputs.problem import read_problem
from spatial_fields import hide, neighbour_graph, rmse, smooth_field

pytestmark = pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")


def path_edges(n_nodes):
    return np.stack([np.arange(n_nodes - 1), np.arange(1, n_nodes)])


def test_a_column_against_the_graph_does_not_disturb_one_that_follows_it():
    nodes = np.arange(200.0)
    truth = np.stack([nodes, nodes % 2], axis=1)
    missing = np.random.default_rng(0).random(truth.shape) < [1 / 3, 1 / 5]
    missing[3, 0] = True
    result = pcfi.impute(np.where(missing, np.nan, truth), path_edges(200))
    assert abs(result.values[3, 0] - 3) < 0.3
    assert result.columns[0].verdict == "follows the graph"
    assert "against the graph" in result.columns[1].verdict
    assert result.columns[1].r2 > 0.3


def test_noise_columns_do_not_disturb_a_column():
    graph = neighbour_graph(600, 0)
    rng = np.random.default_rng(1)
    truth = (smooth_field(graph, 2) + 0.3 * rng.standard_normal(600))[:, None]
    features, missing = hide(truth, 0.3, 3)
    noise, _ = hide(rng.standard_normal((600, 20)), 0.3, 4)
    alone = rmse(pcfi.impute(features, graph).values, truth, missing)
    beside = pcfi.impute(np.hstack([features, noise]), graph)
    assert rmse(beside.values[:, :1], truth, missing) < 1.05 * alone
    assert "neither" in beside.columns[1].verdict


def test_columns_that_explain_each_other_are_used():
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    graph = neighbour_graph(400, 5)
    rng = np.random.default_rng(6)
    base = smooth_field(graph, 7) + rng.standard_normal(400)
    truth = np.stack([base + 0.2 * rng.standard_normal(400) for _ in range(5)], axis=1)
    features, missing = hide(truth, 0.1, 8)
    result = pcfi.impute(features, graph)
    iterative = IterativeImputer(random_state=0).fit_transform(features)
    assert rmse(result.values, truth, missing) < 1.03 * rmse(iterative, truth, missing)
    assert result.columns[0].verdict.startswith("explained by")
    assert result.columns[0].r2_columns > 0.8


def test_nodes_that_miss_everything_lose_nothing_by_other_columns():
    graph = neighbour_graph(500, 9)
    rng = np.random.default_rng(10)
    base = smooth_field(graph, 11)
    truth = np.stack([base + 0.3 * rng.standard_normal(500) for _ in range(4)], axis=1)
    missing = np.repeat(rng.random((500, 1)) < 0.3, 4, axis=1)
    together = pcfi.impute(np.where(missing, np.nan, truth), graph).values
    alone = pcfi.impute(np.where(missing, np.nan, truth)[:, :1], graph).values
    assert rmse(together[:, :1], truth[:, :1], missing[:, :1]) < 1.03 * rmse(alone, truth[:, :1], missing[:, :1])


def test_isolated_nodes_have_the_spread_of_their_column():
    graph = neighbour_graph(1000, 12)
    truth = 100 + 12 * np.concatenate([smooth_field(graph, 13), np.random.default_rng(14).standard_normal(50)])[:, None]
    graph = sparse.csr_array(sparse.block_diag([graph, sparse.csr_array((50, 50))]))
    features, _ = hide(truth, 0.2, 15)
    features[1000:] = np.nan
    result = pcfi.impute(features, graph)
    low, high = result.interval(0.9)
    covered = ((low <= truth) & (truth <= high))[1000:].mean()
    assert 0.75 <= covered <= 1.0
    assert 6 < np.median(result.expected_error[1000:]) < 14
    assert np.median(result.expected_error[:1000][np.isnan(features[:1000])]) < 5


@pytest.mark.parametrize(("rate", "by_rows"), [(0.3, False), (0.3, True), (0.9, False)])
def test_intervals_cover_what_they_say_in_calm_and_wild_neighbourhoods(rate, by_rows):
    graph = neighbour_graph(1500, 16)
    rng = np.random.default_rng(17)
    wildness = np.exp(smooth_field(graph, 18))
    truth = np.stack(
        [smooth_field(graph, seed) + 0.5 * wildness * rng.standard_normal(1500) for seed in (19, 20)], axis=1
    )
    missing = np.repeat(rng.random((1500, 1)) < rate, 2, axis=1) if by_rows else rng.random(truth.shape) < rate
    result = pcfi.impute(np.where(missing, np.nan, truth), graph)
    low, high = result.interval(0.9)
    covered = ((low <= truth) & (truth <= high))[missing]
    error, expected = np.abs(result.values - truth)[missing], result.expected_error[missing]
    assert 0.87 < covered.mean() < 0.94
    fifths = np.digitize(expected, np.quantile(expected, [0.2, 0.4, 0.6, 0.8]))
    assert min(covered[fifths == fifth].mean() for fifth in range(5)) > 0.8
    if rate == 0.3:
        assert spearmanr(expected, error)[0] > 0.15


def test_gaps_in_time_are_filled_as_by_linear_interpolation():
    rng = np.random.default_rng(21)
    truth = np.cumsum(rng.standard_normal((300, 3)), axis=0)
    missing = np.zeros(truth.shape, dtype=bool)
    for column in range(3):
        for start in range(10 + 5 * column, 280, 40):
            missing[start : start + 8, column] = True
    values = pcfi.impute(np.where(missing, np.nan, truth), path_edges(300)).values
    nodes = np.arange(300)
    linear = np.stack([np.interp(nodes, nodes[~m], x[~m]) for m, x in zip(missing.T, truth.T, strict=True)], axis=1)
    assert rmse(values, truth, missing) < 1.05 * rmse(linear, truth, missing)


def test_the_end_of_a_series_has_wide_intervals():
    covered = []
    for seed in range(12):
        truth = np.cumsum(np.random.default_rng(seed).standard_normal((120, 1)), axis=0)
        features = truth.copy()
        features[-5:] = np.nan
        low, high = pcfi.impute(features, path_edges(120)).interval(0.9)
        covered.append(((low <= truth) & (truth <= high))[-5:].mean())
    assert np.mean(covered) > 0.75


def test_filled_values_and_intervals_are_possible():
    graph = neighbour_graph(300, 22)
    rng = np.random.default_rng(23)
    field = smooth_field(graph, 24)
    counts = rng.poisson(np.exp(field)).astype(float)
    share = 1 / (1 + np.exp(-2 * field + rng.standard_normal(300)))
    binary = (field + 0.5 * rng.standard_normal(300) > 0).astype(float)
    truth = np.stack([counts, share, binary], axis=1)
    features, missing = hide(truth, 0.4, 25)
    result = pcfi.impute(features, graph)
    low, high = result.interval(0.95)
    assert (result.values[:, 0] >= 0).all()
    assert (low[:, 0] >= 0).all()
    for column in (1, 2):
        assert ((result.values[:, column] >= 0) & (result.values[:, column] <= 1)).all()
        assert ((low[:, column] >= 0) & (high[:, column] <= 1)).all()
    bounded = pcfi.impute(features, graph, bounds={0: (None, 2.0)})
    assert bounded.values[missing[:, 0], 0].max() <= 2
    with pytest.raises(pcfi.ParameterError, match="names 'age', but the columns are 0, 1, 2"):
        pcfi.impute(features, graph, bounds={"age": (0, 1)})


def test_a_value_that_is_cut_off_has_an_open_interval_and_bounds_lift_the_cut():
    """A county 40 times larger than all others was filled with 1.5 times the largest, with a narrow interval."""
    rng = np.random.default_rng(0)
    size = np.exp(0.5 * rng.normal(size=300))
    size[5] = 40.0
    truth = 1000 * size[:, None] * np.exp(0.03 * rng.normal(size=(300, 3)))
    features = np.where(rng.random(truth.shape) < 0.15, np.nan, truth)
    features[5] = [np.nan, *truth[5, 1:]]
    path = [np.arange(299), np.arange(1, 300)]
    result = pcfi.impute(features, path)
    _, high = result.interval(0.9)
    known = features[:, 0][~np.isnan(features[:, 0])]
    assert result.values[5, 0] == pytest.approx(known.max() + (known.max() - known.min()) / 2)
    assert high[5, 0] == np.inf
    assert result.expected_error[5, 0] >= (known.max() - known.min()) / 2
    others = np.isnan(features) & (np.arange(300) != 5)[:, None]
    assert np.isfinite(high[others]).all()
    lifted = pcfi.impute(features, path, bounds={0: (0, None)})
    assert lifted.values[5, 0] == pytest.approx(truth[5, 0], rel=0.1)
    assert np.isfinite(lifted.interval(0.9)[1][5, 0])


def test_few_known_cells_give_no_confident_guesses():
    graph = neighbour_graph(80, 26)
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        truth = rng.standard_normal((80, 2))
        features, missing = hide(truth, 0.85, seed + 100)
        if (np.isfinite(features).sum(axis=0) < 3).any():
            continue
        values = pcfi.impute(features, graph).values
        mean = np.broadcast_to(np.nanmean(features, axis=0), truth.shape)
        ratios.append(rmse(values, truth, missing) / rmse(mean, truth, missing))
    assert max(ratios) < 1.25
    assert np.mean(ratios) < 1.1


def test_too_few_known_cells_are_said():
    features = np.array([[0.0], [np.nan], [np.nan], [3.0]])
    with pytest.warns(pcfi.TuningWarning, match="halfway between the graph's estimate and the column's mean"):
        result = pcfi.impute(features, path_edges(4))
    assert result.values[1, 0] < 1.5 < result.values[2, 0]
    assert np.isinf(result.interval(0.9)[1][1, 0])


TABLES = [(40, 3, 0.3), (25, 2, 0.5), (60, 5, 0.2)]


def small_table(n_nodes, n_columns, rate, seed):
    graph = neighbour_graph(n_nodes, seed, 4)
    rng = np.random.default_rng(seed + 1)
    field = smooth_field(graph, seed + 2)
    truth = np.stack([field + 0.5 * rng.standard_normal(n_nodes) for _ in range(n_columns)], axis=1)
    return hide(truth, rate, seed + 3)[0], graph


@pytest.mark.parametrize("size", TABLES)
def test_the_order_of_nodes_and_columns_does_not_matter(size):
    for seed in range(5):
        features, graph = small_table(*size, seed)
        rng = np.random.default_rng(seed)
        rows, columns = rng.permutation(size[0]), rng.permutation(size[1])
        values = pcfi.impute(features, graph).values
        moved = pcfi.impute(features[np.ix_(rows, columns)], graph[rows][:, rows]).values
        np.testing.assert_allclose(moved, values[np.ix_(rows, columns)], rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("size", TABLES)
def test_scaling_and_shifting_a_column_changes_only_that_column(size):
    for seed in range(5):
        features, graph = small_table(*size, seed)
        values = pcfi.impute(features, graph).values
        moved = features.copy()
        moved[:, 0] = 1000 * features[:, 0] + 7
        again = pcfi.impute(moved, graph, bounds={0: (-np.inf, np.inf)}).values
        plain = pcfi.impute(features, graph, bounds={0: (-np.inf, np.inf)}).values
        np.testing.assert_allclose((again[:, 0] - 7) / 1000, plain[:, 0], rtol=1e-2, atol=2e-3)
        np.testing.assert_allclose(again[:, 1:], values[:, 1:], rtol=1e-2, atol=2e-3)


def test_a_constant_or_an_empty_column_changes_nothing():
    features, graph = small_table(50, 3, 0.3, 5)
    values = pcfi.impute(features, graph).values
    constant = np.where(np.isnan(features[:, :1]), np.nan, 4.0)
    wider = np.hstack([features, constant, np.full((50, 1), np.nan)])
    result = pcfi.impute(wider, graph)
    np.testing.assert_allclose(result.values[:, :3], values, rtol=1e-2, atol=1e-3)
    assert (result.values[:, 3] == 4).all()
    assert "constant" in result.columns[3].verdict
    assert "nothing is known" in result.columns[4].verdict


@pytest.mark.parametrize("alpha", ["auto", 0.4])
def test_the_parameters_of_a_result_reproduce_it(alpha):
    features, graph = small_table(60, 3, 0.3, 7)
    result = pcfi.impute(features, graph, alpha=alpha, random_state=3, bounds={1: (-1.0, 1.0)})
    again = pcfi.impute(features, graph, **result.parameters)
    np.testing.assert_array_equal(again.values, result.values)
    np.testing.assert_array_equal(again.expected_error, result.expected_error)


def test_known_cells_stay_and_the_input_is_not_written_to():
    features, graph = small_table(60, 3, 0.3, 8)
    features = np.exp(features)  # a log scale
    before = features.copy()
    values = pcfi.impute(features, graph).values
    known = ~np.isnan(features)
    assert values[known].tobytes() == features[known].tobytes()
    assert features.tobytes() == before.tobytes()
    assert np.isfinite(values).all()


def test_skewed_amounts_are_modelled_on_a_log_scale():
    graph = neighbour_graph(400, 30)
    rng = np.random.default_rng(31)
    truth = np.exp(smooth_field(graph, 32) + 0.3 * rng.standard_normal(400))[:, None]
    features, missing = hide(truth, 0.3, 33)
    result = pcfi.impute(features, graph)
    assert result.tuning.model.scale.logarithmic[0]
    low, high = result.interval(0.9)
    assert (low > 0).all()
    assert ((low <= truth) & (truth <= high))[missing].mean() > 0.8
    plain = pcfi.impute(features, graph, objective="representation", alpha=0.9, beta=0).values
    assert rmse(result.values, truth, missing) < rmse(plain, truth, missing)


def test_the_columns_print_as_a_table():
    features, graph = small_table(60, 3, 0.3, 9)
    columns = pcfi.impute(features, graph).columns
    assert repr(columns).splitlines()[0].split()[:2] == ["column", "missing"]
    assert [row["name"] for row in columns.to_rows()] == ["0", "1", "2"]
    assert columns.to_frame().loc["1", "n_missing"] == columns[1].n_missing


def test_a_table_that_nothing_explains_is_filled_with_its_means():
    rng = np.random.default_rng(40)
    truth = rng.standard_normal((12, 3))
    features, missing = hide(truth, 0.3, 41)
    result = pcfi.impute(features, path_edges(12))
    mean = np.broadcast_to(np.nanmean(features, axis=0), truth.shape)
    assert rmse(result.values, truth, missing) < 1.15 * rmse(mean, truth, missing)
    assert result.tuning.error <= 1.0001 * result.tuning.error_of_mean


def test_a_column_that_another_one_explains_does_not_run_against_the_graph():
    graph = neighbour_graph(500, 50)
    rng = np.random.default_rng(51)
    age = smooth_field(graph, 52) + 0.3 * rng.standard_normal(500)
    income = age + 0.5 * rng.standard_normal(500)
    features, _ = hide(np.stack([age, income], axis=1), 0.25, 53)
    verdict = pcfi.impute(features, graph).columns[1].verdict
    assert "explained by 0" in verdict
    assert "follows the graph" in verdict


def test_intervals_of_columns_of_rare_ones_include_the_zeros():
    graph = neighbour_graph(600, 60)
    rng = np.random.default_rng(61)
    truth = (rng.random((600, 12)) < 0.03 * np.exp(smooth_field(graph, 62))[:, None]).astype(float)
    for by_rows in (True, False):
        missing = np.repeat(rng.random((600, 1)) < 0.5, 12, axis=1) if by_rows else rng.random(truth.shape) < 0.5
        low, high = pcfi.impute(np.where(missing, np.nan, truth), graph).interval(0.9)
        assert ((low <= truth) & (truth <= high))[missing].mean() > 0.9


def test_a_categorical_column_counts_as_one_column_when_estimates_are_weighed():
    """A region of nine categories counted as nine columns, and made pay and test scores 6 % worse than alone."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"pay": rng.normal(size=40), "region": rng.choice(list("abc"), 40)})
    table = table.mask(rng.random(table.shape) < 0.2)
    path = [np.arange(39), np.arange(1, 40)]
    problem = read_problem(read_table(table, NodeColumns(categorical=["region"])), path)
    folds = make_folds(problem, 2, 0)
    shares = CellShares.of(problem, folds)
    for fold, share in zip(folds, shares.of_folds, strict=True):
        np.testing.assert_array_equal(share, np.where(fold.channels == 0, 1, 1 / 3))
    assert {0, 1, 2, 3} == {channel for fold in folds for channel in fold.channels.tolist()}


def test_a_category_of_many_values_does_not_switch_off_the_regressions_of_other_columns():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 15)) + 0.2 * rng.normal(size=(200, 15))
    table = pd.DataFrame(truth, columns=[f"c{number}" for number in range(15)]).mask(rng.random(truth.shape) < 0.2)
    table["state"] = [None if row % 9 == 4 else f"state {row % 55}" for row in range(200)]
    result = pcfi.impute(table, [np.arange(199), np.arange(1, 200)])
    assert result.cells.filled.shape[1] > 64
    assert result.tuning.model.cells.regression is not None
