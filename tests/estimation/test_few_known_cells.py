"""Columns of which little or nothing is known: intervals have no end, and other columns do not notice."""

import numpy as np
import pytest

import pcfi
from smooth_features import hidden_at, ring, smooth

pytestmark = pytest.mark.filterwarnings("ignore::pcfi.PcfiWarning")

N_NODES = 40


def missing_but(**known):
    """A column that is missing but at some nodes."""
    column = np.full(N_NODES, np.nan)
    for node, value in known.items():
        column[int(node.removeprefix("node"))] = value
    return column[:, None]


@pytest.mark.parametrize("column", [missing_but(node0=-3.0, node5=4.0), missing_but(node3=-2.0), missing_but()])
def test_two_known_values_or_fewer_do_not_bound_the_others(column):
    low, high = pcfi.impute(column, ring(N_NODES)).interval()
    missing = np.isnan(column)
    assert np.isneginf(low[missing]).all()
    assert np.isposinf(high[missing]).all()


def test_two_values_of_many_known_cells_are_the_only_possible_ones():
    rng = np.random.default_rng(0)
    column = np.where(rng.random(200) < 0.5, -3.0, 4.0)[:, None]
    column[rng.random(200) < 0.3] = np.nan
    low, high = pcfi.impute(column, ring(200)).interval()
    assert (low.min(), high.max()) == (-3.0, 4.0)


def test_known_nodes_that_reach_nobody_give_the_mean():
    rng = np.random.default_rng(1)
    column = np.where(np.arange(N_NODES) < 20, rng.normal(size=N_NODES), np.nan)[:, None]
    result = pcfi.impute(column, pcfi.prepare_graph([[38], [39]], N_NODES))
    assert result.values[30:] == pytest.approx(np.nanmean(column))


@pytest.mark.parametrize("other", [np.nan, 7.0])
def test_a_column_that_tells_no_node_from_another_changes_nothing(other):
    rng = np.random.default_rng(2)
    features = hidden_at(rng, smooth(rng))
    alone = pcfi.impute(features, ring(200))
    beside = pcfi.impute(np.column_stack([features, np.full(200, other)]), ring(200))
    assert beside.values[:, :-1] == pytest.approx(alone.values, rel=1e-9)
    assert beside.expected_error[:, :-1] == pytest.approx(alone.expected_error, rel=1e-4)
