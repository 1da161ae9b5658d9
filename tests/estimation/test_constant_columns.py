"""Columns whose known values are all equal: how wrong a filled value may be, in the unit of the column."""

import numpy as np
import pytest

import pcfi


def ring(n_nodes):
    nodes = np.arange(n_nodes)
    return np.stack([nodes, (nodes + 1) % n_nodes])


def table(constant, n_known, n_nodes=60):
    rng = np.random.default_rng(0)
    features = np.column_stack([np.full(n_nodes, constant), np.sin(np.arange(n_nodes) / 5) + rng.normal(size=n_nodes)])
    features[n_known:, 0] = np.nan
    features[rng.random(n_nodes) < 0.3, 1] = np.nan
    return features


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_expected_error_follows_the_rule_of_succession_and_the_unit(unit):
    result = pcfi.impute(table(7.0 * unit, 20), ring(60))
    np.testing.assert_allclose(result.expected_error[20:, 0], 7.0 * unit / 22)
    low, high = result.interval(0.9)
    np.testing.assert_array_equal(low[20:, 0], 7.0 * unit)
    np.testing.assert_array_equal(high[20:, 0], 7.0 * unit)


def test_few_equal_values_do_not_promise_that_all_are():
    _, high = pcfi.impute(table(7.0, 5), ring(60)).interval(0.9)
    assert np.isinf(high[5:, 0]).all()


def test_rare_ones_make_columns_of_zeros_nearly_but_not_quite_sure():
    rng = np.random.default_rng(1)
    truth = (rng.random((400, 200)) < 0.01).astype(float)
    missing = rng.random(truth.shape) < 0.95
    result = pcfi.impute(np.where(missing, np.nan, truth), ring(400))
    known = np.where(missing, 0, truth).sum(axis=0)
    of_zeros = missing & (known == 0)
    assert 0.003 < result.expected_error[of_zeros].mean() < 0.03
    assert result.expected_error[missing & (known > 0)].mean() > 2 * result.expected_error[of_zeros].mean()
