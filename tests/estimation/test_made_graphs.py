"""Graphs that are made from the features: as a function, by name, and found out when they are passed as they are."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import pcfi
from spatial_fields import hide, neighbour_graph, rmse, smooth_field

pytestmark = pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")


def mean_filled_neighbours(features):
    from sklearn.neighbors import kneighbors_graph

    filled = np.where(np.isnan(features), np.nanmean(features, axis=0), features)
    return sparse.csr_array(kneighbors_graph(filled, 8))


def correlated_table(n_rows=250, n_columns=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, n_columns)) + 0.7 * rng.normal(size=(n_rows, n_columns))


def test_a_graph_that_has_seen_the_hidden_cells_is_found_out():
    features, _ = hide(correlated_table(), 0.3, 1)
    with pytest.warns(pcfi.GraphWarning, match="probably built from the table"):
        pcfi.impute(features, mean_filled_neighbours(features))
    with pytest.warns(pcfi.GraphWarning):
        pcfi.impute(features, pcfi.knn_graph(features))


def test_a_graph_of_other_origin_is_not_suspected():
    graph = neighbour_graph(300, 0)
    features, _ = hide(np.stack([smooth_field(graph, seed) for seed in (1, 2)], axis=1), 0.3, 3)
    pcfi.impute(features, graph)  # warnings are errors


def test_neighbours_of_one_region_are_not_suspected():
    """Regions of a few places each: neighbours are the rows of the same category, whatever the graph was made from."""
    region = np.repeat([f"region {number}" for number in range(12)], 6).astype(object)
    pairs = [(a, b) for a in range(72) for b in range(a) if region[a] == region[b] or a - b == 1]
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"pay": rng.normal(size=72), "region": region})
    table = table.mask(rng.random(table.shape) < 0.15)
    pcfi.frames.impute(table, np.array(pairs).T, categorical=["region"])  # warnings are errors


def test_a_function_of_the_features_gives_errors_and_intervals_that_hold():
    errors, expected, covered = [], [], []
    for seed in range(4):
        truth = correlated_table(seed=seed)
        features, missing = hide(truth, 0.3, seed + 10)
        result = pcfi.impute(features, mean_filled_neighbours)
        low, high = result.interval(0.9)
        covered.append(((low <= truth) & (truth <= high))[missing].mean())
        errors.append(rmse(result.values / truth.std(axis=0), truth / truth.std(axis=0), missing))
        expected.append(result.tuning.error)
    assert 0.87 < np.mean(covered) < 0.95
    assert 0.9 < np.mean(expected) / np.mean(errors) < 1.2


def test_the_function_gets_the_channels_in_their_own_unit_and_never_the_hidden_cells():
    truth = np.exp(correlated_table(120, 3))  # positive and skewed: modelled on a log scale
    features, _ = hide(truth, 0.3, 2)
    seen = []

    def build(table):
        seen.append(table.copy())
        return pcfi.knn_graph(table, 5)

    result = pcfi.impute(features, build)
    assert result.tuning.model.scale.logarithmic.all()
    np.testing.assert_array_equal(seen[0], features)
    assert len(seen) > result.tuning.n_folds
    known = ~np.isnan(features)
    for table in seen[1:]:
        assert np.isnan(table).sum() > np.isnan(features).sum()
        still = ~np.isnan(table)
        assert (known | ~still).all()
        np.testing.assert_allclose(table[still], features[still], rtol=1e-9)


def test_knn_may_be_named_for_arrays_and_tables():
    features, _ = hide(correlated_table(), 0.2, 4)
    by_name = pcfi.impute(features, "knn").values
    np.testing.assert_array_equal(by_name, pcfi.impute(features, lambda table: pcfi.knn_graph(table, 15)).values)
    table = pd.DataFrame(features, columns=list("abcdef"))
    np.testing.assert_array_equal(pcfi.impute(table, "knn").values.to_numpy(), by_name)
    assert pcfi.evaluate(features, "knn", methods=("mean", "pcfi")).best == "pcfi"


@pytest.mark.parametrize(
    ("graph", "message"),
    [("nearest", "'knn', or a function features -> graph"), (lambda table: [[0], [len(table)]], "refers to node 250")],
)
def test_what_is_no_graph_is_refused(graph, message):
    with pytest.raises(pcfi.PcfiError, match=message):
        pcfi.impute(correlated_table(), graph)


def test_probabilities_of_categories_are_calibrated():
    confidence, correct = [], []
    for seed in range(3):
        graph = neighbour_graph(500, seed)
        rng = np.random.default_rng(seed)
        field = smooth_field(graph, seed + 10)
        noisy = field + 0.4 * rng.standard_normal(500)
        kind = np.where(noisy > 0.5, "red", np.where(noisy < -0.5, "blue", "green"))
        missing = rng.random(500) < 0.3
        table = pd.DataFrame({"age": field + 0.5 * rng.standard_normal(500), "kind": kind})
        table.loc[missing, "kind"] = None
        result = pcfi.frames.impute(table, graph, categorical=["kind"])
        shares = result.probabilities("kind")
        assert list(shares.columns) == ["blue", "green", "red"]
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        assert (shares.to_numpy()[~missing].max(axis=1) == 1).all()
        confidence.append(shares[missing].max(axis=1).mean())
        correct.append((shares[missing].idxmax(axis=1) == kind[missing]).mean())
    assert abs(np.mean(confidence) - np.mean(correct)) < 0.06
    with pytest.raises(pcfi.ParameterError, match="a categorical column"):
        result.probabilities("age")


def test_a_verdict_calls_a_graph_made_from_the_table_similar_rows():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, 120)
    table = 5 * rng.standard_normal((3, 4))[group] + rng.standard_normal((120, 4))
    table[rng.random(table.shape) < 0.2] = np.nan
    verdicts = [report.verdict for report in pcfi.impute(table, "knn").columns]
    assert all("similar rows" in verdict and "graph" not in verdict for verdict in verdicts)


def curved_table(seed, n_rows=500):
    """Columns that are functions of one number, hardly any of them linear in the others, with 2 % noise."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(-1, 1, n_rows)
    table = np.stack([t, t**2, np.sin(3 * t), np.cos(3 * t), np.exp(2 * t)], axis=1)
    return table + 0.02 * table.std(axis=0) * rng.standard_normal(table.shape)


def test_intervals_hold_where_similar_rows_say_nearly_all():
    """Folds hid a fifth of the cells, so the graph was worse there than in the call, and errors grew less with the
    spread of the neighbours than they differed by it: 90 % intervals covered 0.93, 0.72 and 0.89 of these tables."""
    covered = []
    for seed in range(3):
        truth = curved_table(seed)
        features, missing = hide(truth, 0.1, seed + 10)
        low, high = pcfi.impute(features, "knn").interval(0.9)
        covered.append(((low <= truth) & (truth <= high))[missing].mean())
    assert 0.87 < np.mean(covered) < 0.94
    assert min(covered) > 0.84
