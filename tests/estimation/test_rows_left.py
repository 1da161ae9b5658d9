"""A row says of a hidden cell what it says of a missing one: by all known cells but those of its pattern."""

import numpy as np
import pytest

from pcfi.estimation.factor_model import FactorModel
from pcfi.estimation.folds import make_folds
from pcfi.estimation.graph_link import GraphLink, combine
from pcfi.estimation.rows_left import RowsLeft
from pcfi.inputs.problem import read_problem
from spatial_fields import hide, neighbour_graph


def rows_of_factors(n_rows=40, n_columns=6, rank=2, seed=0):
    rng = np.random.default_rng(seed)
    factors = FactorModel(rng.normal(size=(n_columns, rank)), rng.uniform(0.01, 0.5, n_columns))
    link = GraphLink(
        rng.uniform(-0.2, 0.9, n_columns), rng.uniform(0.1, 1.0, n_columns), 0.2 * rng.normal(size=(n_columns, rank))
    )
    values, _ = hide(rng.normal(size=(n_rows, n_columns)), 0.3, seed)
    values[:, 1] = np.where(np.isnan(values[:, 0]), np.nan, 0.5)  # columns 0 and 1 are missing together
    graph = rng.normal(size=values.shape)
    graph[rng.random(graph.shape) < 0.1] = np.nan
    return values, graph, factors, link


@pytest.mark.parametrize("columns", [[0, 1], [3]])
def test_rows_without_a_pattern_are_rows_that_never_knew_it(columns):
    values, graph, factors, link = rows_of_factors()
    [(own, moments)] = RowsLeft(values, [np.array(columns)], factors, link).moments()
    without = values.copy()
    without[:, columns] = np.nan
    posterior = factors.posterior(np.nan_to_num(without), (~np.isnan(without)).astype(float))
    expected = combine(graph, posterior, factors, link)
    estimate = moments.updated(graph)
    assert own.tolist() == columns
    for name in ("value", "variance", "from_row"):
        np.testing.assert_allclose(getattr(estimate, name), getattr(expected, name), rtol=1e-9, atol=1e-12)


def test_predictors_of_a_column_do_not_depend_on_it():
    """Missing predictors were estimated from the column that they were to predict."""
    values, graph, factors, link = rows_of_factors()
    changed = values.copy()
    changed[:, 3] += 5.0
    [one], [other] = (
        [rows.values for rows in RowsLeft(table, [np.array([3])], factors, link).completed(graph)]
        for table in (values, changed)
    )
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    known = ~np.isnan(values)
    known[:, 3] = False
    np.testing.assert_array_equal(one[known], values[known])


def test_nodes_that_lose_all_cells_at_once_are_marked():
    graph = neighbour_graph(200, 0)
    table = np.random.default_rng(0).normal(size=(200, 4))
    single, whole = table.copy(), table.copy()
    single[np.random.default_rng(1).random(table.shape) < 0.3] = np.nan
    whole[:60] = np.nan
    whole[60, 0] = np.nan  # so that no two columns have one pattern
    whole[61, 1] = whole[62, 2] = np.nan
    of_single, of_whole = (make_folds(read_problem(one, graph), 5, 0)[0].joint for one in (single, whole))
    assert of_single.mean() < 0.1
    assert of_whole[60:].mean() > 0.8
