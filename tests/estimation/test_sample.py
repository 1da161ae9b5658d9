"""The sample of a large table that the value model is fitted to: complete surroundings, nearly the same model."""

import numpy as np
import pytest

import pcfi
from pcfi.estimation import sample
from pcfi.inputs.problem import read_problem
from spatial_fields import hide, neighbour_graph, rmse, smooth_field

pytestmark = pytest.mark.filterwarnings("ignore::pcfi.UnreachableWarning")

N_NODES = 3000


def field(n_channels: int = 3, rate: float = 0.4):
    graph = neighbour_graph(N_NODES, 0)
    rng = np.random.default_rng(1)
    truth = np.stack([smooth_field(graph, seed) + 0.3 * rng.standard_normal(N_NODES) for seed in range(n_channels)], 1)
    features, missing = hide(truth, rate, 2)
    return graph, truth, features, missing


def test_a_small_table_is_its_own_sample():
    graph, _, features, _ = field()
    problem = read_problem(features, graph)
    drawn = sample.draw_sample(problem)
    assert drawn.problem is problem
    assert drawn.core is None


def test_a_sample_holds_all_neighbours_of_its_core(monkeypatch):
    graph, _, features, _ = field()
    monkeypatch.setattr(sample, "MAX_NODES", 900)
    monkeypatch.setattr(sample, "MAX_NODES_PER_CORE", 90)
    problem = read_problem(np.column_stack([features, np.arange(N_NODES)]), graph)
    drawn = sample.draw_sample(problem)
    part, core = drawn.problem, drawn.core
    assert len(part.values) == 900
    assert 10 < len(core) < 900
    inside = np.diff(part.graph.indptr)
    assert (inside[core] == part.graph.degree[core]).all()  # degree is that in the complete graph
    assert (inside <= part.graph.degree).all()
    nodes = part.values[:, -1].astype(int)  # rows and edges are those of the complete table
    np.testing.assert_array_equal(part.values, problem.values[nodes])
    assert (part.graph.matrix() != problem.graph.matrix()[nodes][:, nodes]).nnz == 0
    np.testing.assert_array_equal(part.graph.degree, problem.graph.degree[nodes])


def test_only_the_core_is_hidden(monkeypatch):
    from pcfi.estimation.folds import make_folds

    graph, _, features, _ = field()
    monkeypatch.setattr(sample, "MAX_NODES", 900)
    monkeypatch.setattr(sample, "MAX_NODES_PER_CORE", 90)
    drawn = sample.draw_sample(read_problem(features, graph))
    folds = make_folds(drawn.problem, 5, 0, nodes=drawn.core, incomplete=drawn.incomplete)
    hidden = np.unique(np.concatenate([fold.nodes for fold in folds]))
    assert np.isin(hidden, drawn.core).all()
    assert len(hidden) > len(drawn.core) / 2


def test_the_largest_degrees_do_not_fill_the_sample(monkeypatch):
    monkeypatch.setattr(sample, "MAX_NODES", 400)
    monkeypatch.setattr(sample, "MAX_NODES_PER_CORE", 20)
    monkeypatch.setattr(sample, "MAX_NEIGHBOURS", 100)
    ring = np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES])
    hub = np.stack([np.zeros(N_NODES - 1, dtype=int), np.arange(1, N_NODES)])
    values = np.where(np.random.default_rng(0).random((N_NODES, 1)) < 0.5, np.arange(N_NODES)[:, None] * 1.0, np.nan)
    drawn = sample.draw_sample(read_problem(values, np.concatenate([ring, hub], axis=1)))
    inside = np.diff(drawn.problem.graph.indptr)
    assert len(drawn.core) >= 20
    assert (inside[drawn.core] == 3).mean() > 0.9  # both neighbours on the ring, and the hub


def test_a_model_of_a_sample_fills_nearly_as_well(monkeypatch):
    graph, truth, features, missing = field()
    complete = pcfi.impute(features, graph)
    monkeypatch.setattr(sample, "MAX_NODES", 1500)
    sampled = pcfi.impute(features, graph)
    assert not np.array_equal(sampled.values, complete.values)
    assert rmse(sampled.values, truth, missing) < 1.03 * rmse(complete.values, truth, missing)
    low, high = sampled.interval(0.9)
    assert abs(((low <= truth) & (truth <= high))[missing].mean() - 0.9) < 0.05
    # facts about the columns are those of the complete table
    assert [one.n_known for one in sampled.columns] == [one.n_known for one in complete.columns]
    np.testing.assert_array_equal(sampled.cells.model.scale.location, complete.cells.model.scale.location)


def test_values_that_only_the_rest_of_the_table_has_are_possible(monkeypatch):
    """Bounds are those of the complete table: a sample without negative values does not make 0 the least value."""
    graph, _, features, _ = field(2)
    features = np.abs(features)
    place = np.flatnonzero(~np.isnan(features[:, 0]))[-1]
    features[place, 0] = -50.0
    monkeypatch.setattr(sample, "MAX_NODES", 600)
    result = pcfi.impute(features, graph)
    assert result.cells.model.scale.least[0] == -np.inf
    assert result.cells.model.scale.low[0] < -50


@pytest.mark.parametrize("n_columns", [1, 3])
def test_half_of_a_single_fold_is_estimated_from_the_other_half(monkeypatch, n_columns):
    """The cells of one fold alone told the weight of the graph, so that large tables were said to ignore it."""
    monkeypatch.setattr("pcfi.estimation.fitting.ENOUGH_UNITS", 10)
    monkeypatch.setattr("pcfi.estimation.fitting.REGRESSION_UNITS", 10)
    rng = np.random.default_rng(0)
    n = 2_000
    table = np.sin(np.arange(n)[:, None] / rng.uniform(10, 30, n_columns)) + 0.1 * rng.normal(size=(n, n_columns))
    table[rng.random(table.shape) < 0.3] = np.nan
    result = pcfi.impute(table, [np.arange(n - 1), np.arange(1, n)])
    assert result.tuning.n_folds == 1
    assert all(column.r2 > 0.9 for column in result.columns)
    assert all("follows the graph" in column.verdict for column in result.columns)


def test_as_many_cells_of_a_sample_are_hidden_as_its_core_has(monkeypatch):
    """The known cells around the core counted as if they were hidden, so that too few folds were made."""
    from pcfi.estimation.fitting import number_of_folds

    graph, _, features, _ = field()
    monkeypatch.setattr(sample, "MAX_NODES", 900)
    monkeypatch.setattr("pcfi.estimation.fitting.REGRESSION_UNITS", 200)
    problem = read_problem(features, graph)
    drawn = sample.draw_sample(problem)
    assert number_of_folds(sample.Sample(drawn.problem)) < number_of_folds(drawn)
