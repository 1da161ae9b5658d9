"""Panels in tables: long and wide, of every library, any order of rows, any times; clear errors."""

import geopandas
import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from libpysal import examples
from libpysal.graph import Graph

import pcfi

NAMES = ["a", "b", "c", "d", "e", "f"]
EDGES = pd.DataFrame({"source": NAMES[:-1], "target": NAMES[1:]})


def wide(n_times=120, seed=0):
    rng = np.random.default_rng(seed)
    common = np.cumsum(rng.standard_normal((n_times, 1)), axis=0)
    table = 20 + common + 0.3 * np.cumsum(rng.standard_normal((n_times, 6)), axis=0)
    table[rng.random(table.shape) < 0.1] = np.nan
    table[40:60, 2] = np.nan
    return pd.DataFrame(table, columns=NAMES, index=pd.date_range("2024-01-01", periods=n_times, freq="h"))


def long(table=None):
    table = wide() if table is None else table
    rows = table.rename_axis("when").reset_index().melt("when", var_name="sensor", value_name="speed")
    return rows.assign(note="x")[["sensor", "speed", "when", "note"]]


KEYS = {"node": "sensor", "time": "when"}


def test_long_and_wide_tables_and_arrays_have_the_same_numbers():
    expected = pcfi.panel.impute(wide(), EDGES).values
    assert expected.notna().all().all()
    assert expected.index.equals(wide().index)
    filled = pcfi.panel.impute(long(), EDGES, **KEYS).values
    assert list(filled.columns) == ["sensor", "speed", "when", "note"]
    np.testing.assert_allclose(filled.pivot(index="when", columns="sensor", values="speed"), expected)
    array = pcfi.panel.impute(wide().to_numpy(), [np.arange(5), np.arange(1, 6)]).values
    np.testing.assert_allclose(array, expected)


@pytest.mark.parametrize("convert", [pl.from_pandas, lambda table: pl.from_pandas(table).to_arrow()])
def test_polars_and_pyarrow_come_back_as_such(convert):
    table = convert(long())
    result = pcfi.panel.impute(table, EDGES, **KEYS)
    assert type(result.values) is type(table)
    assert type(result.interval()[0]) is type(table)
    assert type(result.gaps) is type(table)
    frame = result.values if isinstance(result.values, pl.DataFrame) else pl.from_arrow(result.values)
    np.testing.assert_allclose(frame["speed"].to_numpy(), pcfi.panel.impute(long(), EDGES, **KEYS).values["speed"])
    indexed = pl.from_pandas(wide().rename_axis("when").reset_index())
    both = pcfi.panel.impute(indexed, EDGES, time="when").values
    np.testing.assert_allclose(both.drop("when").to_numpy(), pcfi.panel.impute(wide(), EDGES).values)


def test_the_table_given_is_not_touched_and_known_cells_stay():
    table = long()
    before = table.copy()
    result = pcfi.panel.impute(table, EDGES, **KEYS)
    pd.testing.assert_frame_equal(table, before)
    known = table["speed"].notna()
    assert (result.values.loc[known, "speed"] == table.loc[known, "speed"]).all()
    assert set(result.gaps.loc[known, "speed"]) == {"known"}
    assert (result.expected_error.loc[known, "speed"] == 0).all()
    assert (result.expected_error.loc[~known, "speed"] > 0).all()


def test_the_order_of_rows_does_not_matter_nor_does_the_form_of_times():
    table = long()
    expected = pcfi.panel.impute(table, EDGES, **KEYS).values["speed"]
    shuffled = table.sample(frac=1, random_state=0)
    np.testing.assert_allclose(
        pcfi.panel.impute(shuffled, EDGES, nodes=None, **KEYS).values["speed"].loc[table.index].mean(),
        expected.mean(),
        rtol=0.02,
    )
    texts = table.assign(when=table["when"].astype(str))
    np.testing.assert_allclose(pcfi.panel.impute(texts, EDGES, **KEYS).values["speed"], expected)
    aware = table.assign(when=table["when"].dt.tz_localize("UTC"))
    np.testing.assert_allclose(pcfi.panel.impute(aware, EDGES, **KEYS).values["speed"], expected)


@pytest.mark.parametrize(
    "graph",
    [
        nx.path_graph(6),
        np.stack([np.arange(5), np.arange(1, 6)]),
        pcfi.prepare_graph([np.arange(5), np.arange(1, 6)]),
    ],
    ids=["networkx", "edge index", "Graph"],
)
def test_nodes_are_matched_by_name_or_number(graph):
    expected = pcfi.panel.impute(long(), EDGES, **KEYS).values["speed"]
    numbered = long().assign(sensor=lambda table: table["sensor"].map(NAMES.index))
    np.testing.assert_allclose(pcfi.panel.impute(numbered, graph, **KEYS).values["speed"], expected)
    if not isinstance(graph, nx.Graph):
        named = pcfi.panel.impute(long(), graph, nodes=NAMES, **KEYS).values["speed"]
        np.testing.assert_allclose(named, expected)
        with pytest.raises(pcfi.GraphError, match="pass the names in the order of the graph with nodes="):
            pcfi.panel.impute(long(), graph, **KEYS)


def test_sensors_of_the_graph_that_have_no_rows_get_them_if_wanted():
    table = long().query("sensor != 'c'")
    with pytest.warns(pcfi.PcfiWarning, match=r"1 node \('c'\) of the graph is not in the table"):
        plain = pcfi.panel.impute(table, EDGES, **KEYS)
    assert len(plain.values) == len(table)
    completed = pcfi.panel.impute(table, EDGES, complete=True, **KEYS)
    rows = completed.values.query("sensor == 'c'")
    assert len(rows) == 120
    assert rows["speed"].notna().all()
    assert set(completed.gaps.query("sensor == 'c'")["speed"]) == {"never reported"}


def test_sensors_that_the_graph_lacks_are_filled_without_neighbours():
    with pytest.warns(pcfi.PcfiWarning, match=r"1 node \('f'\) of the table is not in the graph"):
        result = pcfi.panel.impute(long(), EDGES.iloc[:-1], **KEYS)
    assert result.values["speed"].notna().all()
    with pytest.raises(pcfi.GraphError, match="none of them match"):
        pcfi.panel.impute(long(), pd.DataFrame({"source": ["x"], "target": ["y"]}), **KEYS)


def test_times_may_be_irregular():
    rng = np.random.default_rng(0)
    times = np.sort(rng.choice(2000, 300, replace=False)).astype(float)
    truth = np.sin(times / 60)[:, None] + np.array([0.0, 1.0, 2.0])
    table = pd.DataFrame(truth, columns=list("abc"), index=times)
    gone = rng.random(table.shape) < 0.15
    result = pcfi.panel.impute(table.mask(gone), EDGES.iloc[:2])
    linear = table.mask(gone).interpolate(method="index", limit_direction="both")
    assert (result.values - table).abs().to_numpy()[gone].mean() <= (linear - table).abs().to_numpy()[gone].mean()


def test_sensors_that_report_at_different_times_learn_from_each_other():
    rng = np.random.default_rng(0)
    times = np.arange(600)
    wave = np.cumsum(rng.standard_normal(600)) / 3
    rows = [{"s": name, "t": int(t), "v": wave[t]} for k, name in enumerate("abc") for t in times[k::3]]
    table = pd.DataFrame(rows)
    starts = rng.integers(0, 550, 4)
    gone = (table["s"] == "b") & np.any([(table["t"] >= s) & (table["t"] < s + 45) for s in starts], axis=0)
    result = pcfi.panel.impute(table.assign(v=table["v"].mask(gone)), EDGES.iloc[:2], node="s", time="t")
    own = table[(table["s"] == "b") & ~gone]
    linear = np.interp(table.loc[gone, "t"], own["t"], own["v"])
    error = (result.values["v"] - table["v"])[gone].abs().mean()
    assert error < 0.5 * np.abs(linear - table.loc[gone, "v"]).mean()


def test_several_columns_are_filled_each_by_itself():
    table = long().assign(flow=lambda one: 3 * one["speed"] + 1)
    result = pcfi.panel.impute(table, EDGES, **KEYS)
    np.testing.assert_allclose(
        pcfi.panel.impute(table, EDGES, columns=["speed"], **KEYS).values["speed"], result.values["speed"]
    )
    assert {report.column for report in result.columns} == {"speed", "flow"}
    assert "flow" in repr(result)
    assert len(result.columns.to_frame()) == len(result.columns)


def test_states_by_year_from_the_wheel_of_libpysal():
    shapes = geopandas.read_file(examples.get_path("us48.shp")).set_index("STATE_NAME")
    income = pd.read_csv(examples.get_path("usjoin.csv")).set_index("Name").drop(columns="STATE_FIPS").T
    income.index = income.index.astype(int)
    income = income[shapes.index].astype(float)
    gone = np.zeros(income.shape, dtype=bool)
    for state, start in zip(range(48), np.random.default_rng(0).integers(1, 65, 48), strict=True):
        gone[start : start + 15, state] = True
    result = pcfi.panel.impute(income.mask(gone), Graph.build_contiguity(shapes, rook=False))
    linear = income.mask(gone).interpolate()
    error, of_linear = ((one - income).abs().to_numpy()[gone].mean() for one in (result.values, linear))
    assert error < 0.5 * of_linear
    low, high = (end.to_numpy()[gone] for end in result.interval(0.9))
    assert 0.8 < ((low <= income.to_numpy()[gone]) & (income.to_numpy()[gone] <= high)).mean() < 0.99


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda table: pd.concat([table, table.iloc[:1]]), pcfi.FeatureError, "the node 'a' has 2 rows at the time"),
        (lambda table: table.assign(when="soon"), pcfi.FeatureError, "cannot be read as dates, first 'soon' in row 0"),
        (lambda table: table.assign(when=pd.NaT), pcfi.FeatureError, "missing in row 0"),
        (lambda table: table.assign(when=True), pcfi.FeatureError, "holds Boolean"),
        (lambda table: table.assign(sensor=None), pcfi.FeatureError, "'sensor' is missing in row 0"),
        (lambda table: table.assign(speed=np.inf), pcfi.FeatureError, "infinite"),
        (lambda table: table.assign(speed="fast"), pcfi.FeatureError, "no numeric column"),
        (lambda table: table.iloc[:0], pcfi.FeatureError, "no rows"),
        (lambda table: table.drop(columns="when"), pcfi.ParameterError, "time names 'when'"),
        (lambda table: table.to_dict(), pcfi.UnsupportedTypeError, "must be a table"),
    ],
)
def test_bad_tables_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        pcfi.panel.impute(change(long()), EDGES, **KEYS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"season": "month"}, "season must be"),
        ({"season": -3}, "season must be"),
        ({"columns": "speed"}, r"use \['speed'\]"),
        ({"columns": ["no"]}, "columns names 'no'"),
        ({"time": None}, "needs a time column"),
        ({"complete": 1}, "complete must be"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(pcfi.ParameterError, match=message):
        pcfi.panel.impute(long(), EDGES, **{**KEYS, **options})


def test_intervals_need_a_probability():
    result = pcfi.panel.impute(wide(), EDGES)
    with pytest.raises(pcfi.ParameterError, match="between 0 and 1"):
        result.interval(90)


NUMBERED = [np.arange(5), np.arange(1, 6)]


@pytest.mark.parametrize(
    ("table", "graph", "text"),
    [
        (long(), EDGES, "pass node='sensor', time='when'"),
        (long(), None, "pass node='sensor', time='when'"),
        (long().assign(sensor=long()["sensor"].map(NAMES.index)), NUMBERED, "pass node='sensor', time='when'"),
        (pl.from_pandas(long()), EDGES, "pass node='sensor', time='when'"),
        (long().set_index(["sensor", "when"]), EDGES, "levels 'sensor', 'when', as that of a long table"),
        (wide().T, EDGES, r"pass table\.T"),
        (wide().T.rename_axis("sensor").reset_index(), EDGES, r"pass table\.set_index\('sensor'\)\.T"),
        (wide().set_axis(range(6), axis=1).T, NUMBERED, r"pass table\.T"),
        (wide().to_numpy().T, NUMBERED, r"pass array\.T"),
    ],
)
def test_a_table_in_another_form_is_told_from_a_wide_one(table, graph, text):
    with pytest.raises(pcfi.FeatureError, match=text):
        pcfi.panel.impute(table, graph)


def test_dates_in_a_column_are_not_passed_over():
    with pytest.raises(pcfi.ParameterError, match="time='when'"):
        pcfi.panel.impute(wide().rename_axis("when").reset_index(), EDGES)


def test_texts_with_offsets_keep_the_local_clock_where_it_changes():
    times = pd.date_range("2024-03-29", periods=120, freq="h", tz="Europe/Berlin")  # the clock changes on 31 March
    table = long(wide().set_axis(times))
    texts = table.assign(when=table["when"].astype(str))
    assert texts["when"].str[-6:].nunique() == 2
    expected, result = (pcfi.panel.impute(one, EDGES, **KEYS) for one in (table, texts))
    np.testing.assert_allclose(result.values["speed"], expected.values["speed"])
    assert result.seasons == expected.seasons
    mixed = texts.assign(when=texts["when"].where(texts.index < len(texts) - 1, "2024-03-29"))
    with pytest.raises(pcfi.FeatureError, match="'2024-03-29' without a UTC offset"):
        pcfi.panel.impute(mixed, EDGES, **KEYS)


def test_numbers_and_texts_as_names_are_told_apart():
    table = wide().set_axis([str(number) for number in range(10, 16)], axis=1)
    graph = nx.path_graph(range(10, 16))
    with pytest.raises(pcfi.GraphError, match="one has numbers and the other text"):
        pcfi.panel.impute(table, graph)


@pytest.mark.parametrize("form", ["long", "wide", "array"])
def test_readings_that_mean_missing_are_filled(form):
    table = {"long": long(), "wide": wide(), "array": wide().to_numpy()}[form]
    marked = np.where(np.isnan(table), -1.0, table) if form == "array" else table.fillna(-1.0)
    graph, keys = (NUMBERED, {}) if form == "array" else (EDGES, KEYS if form == "long" else {})
    expected = pcfi.panel.impute(table, graph, **keys)
    result = pcfi.panel.impute(marked, graph, missing_values=[-1], **keys)
    assert result.n_missing == expected.n_missing
    np.testing.assert_array_equal(
        *(one["speed"] if form == "long" else one for one in (result.values, expected.values))
    )
    with pytest.raises(pcfi.ParameterError, match="missing_values must be a list of numbers"):
        pcfi.panel.impute(table, graph, missing_values=["-"], **keys)
