"""The model of panels: interpolation where the graph says nothing, neighbours where they do, honest intervals."""

import numpy as np
import pandas as pd
import pytest

import pcfi
from pcfi._kernels import reference
from pcfi.panels.column_model import regress
from pcfi.panels.gaps import KINDS, NEVER, OPEN, hide_gaps, hide_sensors, kinds_of_cells, typical_step
from pcfi.panels.time_models import LINEAR, TimeModel

GRID = 6


def grid_edges():
    nodes = np.arange(GRID * GRID).reshape(GRID, GRID)
    return np.concatenate([np.stack([nodes[:, :-1].ravel(), nodes[:, 1:].ravel()]),
                           np.stack([nodes[:-1].ravel(), nodes[1:].ravel()])], axis=1)  # fmt: skip


def spatial_walks(n_times=300, seed=0, noise=0.1):
    """Random walks whose steps are neighbours' means of noise: neighbours move alike."""
    rng = np.random.default_rng(seed)
    adjacency = pcfi.prepare_graph(grid_edges()).matrix().toarray()
    smoother = np.linalg.inv(np.eye(len(adjacency)) + 3 * (np.diag(adjacency.sum(axis=1)) - adjacency))
    steps = smoother @ rng.standard_normal((len(adjacency), n_times))
    return (np.cumsum(steps, axis=1) + noise * rng.standard_normal(steps.shape)).T


def with_gaps(truth, seed=1, lengths=(1, 6, 30), per_node=4, never=()):
    rng = np.random.default_rng(seed)
    missing = np.zeros(truth.shape, dtype=bool)
    for column in range(truth.shape[1]):
        for _ in range(per_node):
            length = int(rng.choice(lengths))
            start = int(rng.integers(1, len(truth) - length - 1))
            missing[start : start + length, column] = True
    missing[:, list(never)] = True
    return missing


def linear(table):
    filled = table.copy()
    for column in filled.T:
        known = ~np.isnan(column)
        column[~known] = np.interp(np.flatnonzero(~known), np.flatnonzero(known), column[known])
    return filled


@pytest.mark.parametrize("model", [LINEAR, TimeModel(3, 0.0), TimeModel(10, 0.7), TimeModel(np.inf, 2.0)])
def test_the_smoother_is_the_gaussian_conditional_mean(model):
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.uniform(0.2, 3, 25))
    known = rng.random((3, 25)) < 0.5
    known[:, 0] = True
    series = np.where(known, rng.standard_normal((2, 3, 25)), 0.0)
    smoothed, variance = model.smooth(series, known, steps)
    for node in range(3):
        mean, spread = reference.smooth_series(
            series[:, node], known[node], steps, model.length, model.noise, model.variance
        )
        np.testing.assert_allclose(smoothed[:, node], mean, atol=1e-4)
        np.testing.assert_allclose(variance[node], spread, atol=1e-4, rtol=1e-4)


def test_without_forgetting_and_noise_the_smoother_is_linear_interpolation():
    rng = np.random.default_rng(0)
    table = rng.standard_normal((40, 4))
    table[rng.random(table.shape) < 0.5] = np.nan
    table[[0, -1]] = 1.0
    series = np.nan_to_num(table.T)[None]
    smoothed, _ = LINEAR.smooth(series, ~np.isnan(table.T), np.arange(40.0))
    np.testing.assert_allclose(smoothed[0].T, linear(table), atol=1e-6)


def test_regression_estimates_each_group_from_the_others():
    rng = np.random.default_rng(0)
    features, group = rng.standard_normal((2, 60)), np.repeat(np.arange(6), 10)
    target = np.array([0.5, -1.0]) @ features + 0.1 * rng.standard_normal(60)
    unseen, trust = regress(target, features, group)
    np.testing.assert_allclose(trust, np.linalg.lstsq(features.T, target, rcond=None)[0], atol=5e-3)
    others = group != 3
    without = np.linalg.lstsq(features[:, others].T, target[others], rcond=None)[0]
    np.testing.assert_allclose(unseen[~others], without @ features[:, ~others], atol=2e-2)


def test_kinds_of_gaps_are_those_of_the_readings_around_them():
    known = np.ones((4, 90), dtype=bool)
    known[0, 5] = known[1, 10:14] = known[2, 20:60] = known[1, 88:] = known[3] = False
    kinds = kinds_of_cells(known, np.arange(90.0))
    assert KINDS[kinds[0, 5]] == "single reading"
    assert KINDS[kinds[1, 12]] == "short gap"
    assert KINDS[kinds[2, 30]] == "outage"
    assert kinds[1, 89] == OPEN
    assert (kinds[3] == NEVER).all()
    assert (kinds[known] == -1).all()


def test_hidden_gaps_are_like_the_missing_ones():
    known = np.ones((50, 400), dtype=bool)
    known[:10, 100:130] = False
    known[20:25, 390:] = False
    copies, _ = hide_gaps(known, ~known, np.arange(400.0), np.random.default_rng(0))
    hidden = copies.mask
    assert not (hidden & ~known).any()
    assert 0.02 < hidden.sum() / known.sum() < 0.25
    kinds = kinds_of_cells(known & ~hidden, np.arange(400.0))[hidden]
    assert {KINDS[kind] for kind in np.unique(kinds)} == {"outage", "open end"}
    assert (known & ~hidden).any(axis=1).all()
    assert not known.flat[copies.cells.source].any()
    assert (copies.cells.copied(~known) >= hidden).all()
    masks = [one.mask for one in hide_sensors(known, np.random.default_rng(0))]
    assert sum(mask.any(axis=1) for mask in masks).max() == 1
    assert sum(mask.any(axis=1).sum() for mask in masks) == 20
    assert all((mask | ~known)[mask.any(axis=1)].all() for mask in masks)


def test_the_typical_step_is_that_of_one_nodes_readings():
    known = np.zeros((2, 10), dtype=bool)
    known[0, ::2] = known[1, 1::2] = True
    assert typical_step(known, np.arange(10.0)) == 2.0


def test_neighbours_that_move_alike_beat_interpolation_and_intervals_hold_in_each_kind_of_gap():
    truth = spatial_walks()
    missing = with_gaps(truth)
    table = np.where(missing, np.nan, truth)
    result = pcfi.panel.impute(table, grid_edges())
    error, of_linear = (np.abs(filled - truth)[missing].mean() for filled in (result.values, linear(table)))
    assert error < 0.6 * of_linear
    low, high = result.interval(0.9)
    for kind in ("short gap", "outage"):
        cells = result.gaps == kind
        assert 0.8 < ((low <= truth) & (truth <= high))[cells].mean() < 0.98
    np.testing.assert_array_equal(result.values[~missing], truth[~missing])
    np.testing.assert_array_equal(low[~missing], truth[~missing])


@pytest.mark.parametrize("seed", range(3))
def test_where_the_graph_says_nothing_values_are_as_good_as_linear_interpolation(seed):
    truth = np.cumsum(np.random.default_rng(seed).standard_normal((400, 36)), axis=0)
    missing = with_gaps(truth, seed)
    table = np.where(missing, np.nan, truth)
    error, of_linear = (
        np.abs(filled - truth)[missing].mean()
        for filled in (pcfi.panel.impute(table, grid_edges()).values, linear(table))
    )
    assert error <= 1.02 * of_linear


def test_a_sensor_that_never_reported_moves_with_its_neighbours():
    truth = spatial_walks()
    missing = with_gaps(truth, per_node=0, never=(14, 21))
    result = pcfi.panel.impute(np.where(missing, np.nan, truth), grid_edges())
    filled, level = result.values[:, [14, 21]], truth[:, [14, 21]]
    assert np.abs(filled - level).mean() < 0.5 * np.abs(level - np.where(missing, np.nan, truth)[:, :14].mean()).mean()
    assert np.corrcoef(filled.ravel(), level.ravel())[0, 1] > 0.9
    assert set(result.gaps[:, 14]) == {"never reported"}
    assert result.columns[-1].verdict == "filled from neighbours"


def test_intervals_of_sensors_that_never_reported_hold_over_many_such_sensors():
    covered = []
    for seed in range(4):
        truth = spatial_walks(150, seed) + 3 * np.random.default_rng(seed).standard_normal(36)
        missing = with_gaps(truth, per_node=0, never=np.random.default_rng(seed).choice(36, 5, replace=False))
        low, high = pcfi.panel.impute(np.where(missing, np.nan, truth), grid_edges()).interval(0.9)
        covered.append(((low <= truth) & (truth <= high))[missing].mean())
    assert np.mean(covered) > 0.75


def test_a_season_is_found_and_bridges_long_outages_of_all_sensors():
    hours = np.arange(24 * 40)
    truth = np.stack([np.sin(2 * np.pi * hours / 24) * size for size in (1.0, 2.0, 3.0)], axis=1)
    truth += 0.05 * np.random.default_rng(0).standard_normal(truth.shape)
    table = truth.copy()
    table[300:380] = np.nan
    plain = pcfi.panel.impute(table, [[0, 1], [1, 2]], season=None)
    seasonal = pcfi.panel.impute(table, [[0, 1], [1, 2]], season=24)
    cells = slice(300, 380)
    assert np.abs(seasonal.values - truth)[cells].mean() < 0.2 * np.abs(plain.values - truth)[cells].mean()


def test_a_column_that_grows_by_a_factor_is_filled_on_a_log_scale():
    rng = np.random.default_rng(0)
    truth = np.exp(
        np.linspace(0, 5, 80)[:, None] + 0.3 * rng.standard_normal(20) + 0.02 * rng.standard_normal((80, 20))
    )
    missing = with_gaps(truth, lengths=(5, 15), per_node=1)
    result = pcfi.panel.impute(np.where(missing, np.nan, truth), None)
    assert result._cells[""].model.logarithmic
    assert (result.interval(0.9)[0] > 0).all()


def test_the_same_seed_gives_the_same_bits_and_another_order_of_nodes_the_same_size_of_error():
    truth = spatial_walks(200)
    table = np.where(with_gaps(truth), np.nan, truth)
    first, second = (pcfi.panel.impute(table, grid_edges(), random_state=3).values for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_constant_and_empty_panels():
    table = np.full((30, 4), 7.0)
    table[3:6, 1] = np.nan
    np.testing.assert_allclose(pcfi.panel.impute(table, [[0, 1], [1, 2]]).values, 7.0, atol=1e-6)
    complete = np.random.default_rng(0).random((5, 3))
    result = pcfi.panel.impute(complete, None)
    np.testing.assert_array_equal(result.values, complete)
    assert result.n_missing == 0
    with pytest.raises(pcfi.FeatureError, match="no known reading"):
        pcfi.panel.impute(np.full((4, 2), np.nan), None)


def test_times_beyond_the_last_reading_of_all_nodes_have_no_intervals():
    rng = np.random.default_rng(0)
    readings = (3 * np.cumsum(rng.standard_normal(120)))[:, None] + rng.standard_normal((120, 12))
    readings[30:34, 2] = readings[60:63, 5] = readings[110:] = np.nan
    path = np.stack([np.arange(11), np.arange(1, 12)])
    with pytest.warns(pcfi.PcfiWarning, match="before the first or after the last reading of all nodes, 120 cells got"):
        result = pcfi.panel.impute(pd.DataFrame(readings), path)
    low, high = (np.asarray(end) for end in result.interval(0.9))
    assert np.isinf(high[110:]).all()
    assert np.isinf(low[110:]).all()
    assert np.isfinite(high[30:34, 2]).all()
    assert "without intervals where no node has a reading" in repr(result)


@pytest.mark.parametrize("seed", [3, 4])
def test_a_verdict_admits_that_the_mean_is_as_good(seed):
    """A column whose estimates were worse than the mean was called "interpolated in time alone"."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(60, 4))
    noise[rng.random(noise.shape) < 0.2] = np.nan
    report = pcfi.panel.impute(noise, [[0, 1, 2], [1, 2, 3]]).columns[0]
    assert (report.mae >= report.mae_of_mean) == (seed == 4)
    assert ("no better than the node's mean" in report.verdict) == (seed == 4)
