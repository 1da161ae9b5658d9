"""Columns of a panel inform each other where hidden cells say that it pays, and nowhere else."""

import numpy as np
import pandas as pd
import pytest

import pcfi
from pcfi.panels.gaps import CopiedCells

N_NODES, N_TIMES = 25, 240
PATH = np.stack([np.arange(N_NODES - 1), np.arange(1, N_NODES)])
KEYS = {"node": "sensor", "time": "hour"}


def walks(seed):
    return np.cumsum(np.random.default_rng(seed).standard_normal((N_TIMES, N_NODES)), axis=0)


def outages(seed, length=30, per_node=2):
    rng = np.random.default_rng(seed)
    missing = np.zeros((N_TIMES, N_NODES), dtype=bool)
    for column in missing.T:
        for start in rng.integers(1, N_TIMES - length - 1, per_node):
            column[start : start + length] = True
    return missing


def long_table(columns):
    hour, sensor = np.indices((N_TIMES, N_NODES))
    rows = {"sensor": sensor.ravel(), "hour": hour.ravel().astype(float)}
    return pd.DataFrame(rows | {name: values.ravel() for name, values in columns.items()})


def filled(columns, **options):
    return pcfi.panel.impute(long_table(columns), PATH, **KEYS, **options)


def error(result, name, truth, missing):
    return np.abs(result.values[name].to_numpy().reshape(truth.shape) - truth)[missing].mean()


def related(seed=0):
    """Speed falls as flow rises, on another scale, with deviations of its own."""
    flow = walks(seed)
    speed = 80 - 3 * flow + walks(seed + 100) + 5 * np.random.default_rng(seed).standard_normal(N_NODES)
    return flow, speed


def test_a_column_that_was_read_in_the_outage_of_another_one_corrects_it():
    flow, speed = related()
    missing = outages(1)
    table = {"speed": np.where(missing, np.nan, speed), "flow": flow}
    together, alone = filled(table), filled({"speed": table["speed"]})
    assert error(together, "speed", speed, missing) < 0.5 * error(alone, "speed", speed, missing)
    (report,) = [one for one in together.columns if one.column == "speed"]
    assert report.verdict.endswith("other columns")
    assert report.other_columns > 0.5
    low, high = (end["speed"].to_numpy().reshape(speed.shape) for end in together.interval(0.9))
    assert 0.8 < ((low <= speed) & (speed <= high))[missing].mean() < 0.98


def test_a_column_that_has_nothing_to_say_changes_nothing():
    _, speed = related()
    missing = outages(1)
    table = {"speed": np.where(missing, np.nan, speed), "lottery": walks(50)}
    together, alone = filled(table), filled({"speed": table["speed"]})
    np.testing.assert_array_equal(together.values["speed"], alone.values["speed"])
    assert all(report.other_columns == 0 for report in together.columns)


def test_columns_that_fail_together_do_not_count_as_known():
    flow, speed = related()
    missing = outages(1)
    table = {"speed": np.where(missing, np.nan, speed), "flow": np.where(missing, np.nan, flow)}
    together, alone = filled(table), filled({"speed": table["speed"]})
    np.testing.assert_allclose(together.values["speed"], alone.values["speed"])


def test_where_columns_fail_together_or_alone_each_has_its_own_intervals():
    flow, speed = related()
    both, alone = outages(1), outages(2)
    missing = both | alone
    result = filled({"speed": np.where(missing, np.nan, speed), "flow": np.where(both, np.nan, flow)})
    low, high = (end["speed"].to_numpy().reshape(speed.shape) for end in result.interval(0.9))
    width, inside = high - low, (low <= speed) & (speed <= high)
    assert width[both].mean() > 1.5 * width[missing & ~both].mean()
    for part in (both, missing & ~both):
        assert 0.75 < inside[part].mean() < 0.99
    kinds = [report.kind for report in result.columns if report.column == "speed"]
    assert len(kinds) > len(set(kinds))


def test_the_level_of_a_sensor_that_never_reported_follows_from_another_column():
    rng = np.random.default_rng(0)
    level = 10 * rng.standard_normal(N_NODES)
    flow = level + 0.1 * walks(3)
    speed = 2 * level + 0.1 * walks(4)
    missing = np.zeros(speed.shape, dtype=bool)
    missing[:, [4, 9, 17, 20]] = True
    table = {"speed": np.where(missing, np.nan, speed), "flow": flow}
    together, alone = filled(table), filled({"speed": table["speed"]})
    assert error(together, "speed", speed, missing) < 0.3 * error(alone, "speed", speed, missing)


def test_columns_help_each_other_on_different_times_and_keep_what_is_known():
    flow, speed = related(5)
    missing = {"speed": outages(1, length=8), "flow": outages(2, length=8)}
    table = long_table(
        {name: np.where(missing[name], np.nan, one) for name, one in {"speed": speed, "flow": flow}.items()}
    ).sample(frac=0.8, random_state=0)
    before = table.copy()
    result = pcfi.panel.impute(table, PATH, **KEYS)
    pd.testing.assert_frame_equal(table, before)
    assert result.values.notna().all().all()
    for name in missing:
        known = table[name].notna()
        assert (result.values.loc[known, name] == table.loc[known, name]).all()


def test_copied_cells_are_missing_where_their_source_is():
    gone = np.zeros((2, 5), dtype=bool)
    gone[0, 1] = True
    copied = CopiedCells(np.array([0, 1, 2]), np.array([7, 8, 9])).copied(gone)
    assert np.argwhere(copied).tolist() == [[1, 3]]


@pytest.mark.parametrize("name", ["other_columns", "space", "shared"])
def test_factors_of_what_others_say_are_in_the_report(name):
    flow, speed = related()
    result = filled({"speed": np.where(outages(1), np.nan, speed), "flow": flow})
    assert name in result.columns.to_frame()
