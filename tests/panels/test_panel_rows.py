"""Panels as long tables: the order of rows does not matter, and dates that can be read in two ways are named."""

import warnings

import numpy as np
import pandas as pd
import pytest

import pcfi


def long_table(dates):
    rng = np.random.default_rng(0)
    names = [f"s{number}" for number in range(6)]
    level = np.cumsum(rng.normal(size=(len(dates), 1)), axis=0) + rng.normal(size=(1, 6))
    readings = np.where(rng.random(level.shape) < 0.2, np.nan, level + 0.1 * rng.normal(size=level.shape))
    return pd.DataFrame(
        {"sensor": np.tile(names, len(dates)), "time": np.repeat(dates, 6), "speed": readings.ravel()}
    ), pd.DataFrame({"source": names[:-1], "target": names[1:]})


def test_the_order_of_the_rows_does_not_matter():
    table, roads = long_table(pd.date_range("2026-01-05", periods=120, freq="h"))
    shuffled = table.sample(frac=1, random_state=1)
    first, second = (pcfi.panel.impute(one, roads, node="sensor", time="time").values for one in (table, shuffled))
    assert second.index.equals(shuffled.index)
    np.testing.assert_allclose(second.sort_index()["speed"], first["speed"])


@pytest.mark.parametrize(("form", "warns"), [("%d/%m/%Y %H:%M", True), ("%Y-%m-%d %H:%M", False)])
def test_days_and_months_that_could_change_places_are_named(form, warns):
    table, roads = long_table(pd.date_range("2026-01-05", periods=100, freq="h").strftime(form))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pcfi.panel.impute(table, roads, node="sensor", time="time")
    said = [str(one.message) for one in caught if "ambiguous" in str(one.message)]
    assert len(said) == warns
    if warns:
        assert "'05/01/2026 00:00' is read as 01 May 2026" in said[0]


def test_one_node_is_singular():
    table, roads = long_table(pd.date_range("2026-01-05", periods=60, freq="h"))
    with pytest.warns(pcfi.PcfiWarning, match=r"1 node \('s3'\) of the graph is not in the table and gets no rows"):
        pcfi.panel.impute(table[table["sensor"] != "s3"], roads, node="sensor", time="time")
