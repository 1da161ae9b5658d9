"""Columns that may have another meaning than assumed, and parameters that contradict the table."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import pcfi


def path_table(n_nodes=60):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"height": np.sin(np.arange(n_nodes) / 5), "income": 20_000.0 + 100 * np.arange(n_nodes)})
    table[rng.random(table.shape) < 0.3] = np.nan
    return table, np.stack([np.arange(n_nodes - 1), np.arange(1, n_nodes)])


def test_a_marker_of_missing_cells_that_is_taken_for_a_value_is_mentioned():
    table, path = path_table()
    table.loc[:3, "income"] = -999.0
    with pytest.warns(pcfi.ColumnWarning, match=r"-999 is the smallest value of column 'income'.*missing_values"):
        pcfi.impute(table, path)


@pytest.mark.parametrize("form", ["${:,.0f}", "{:.0f} %", "{:.0f}", "{:,.2f}"])
def test_incomplete_columns_of_numbers_stored_as_text_are_mentioned(form):
    table, path = path_table()
    table["income"] = [None if np.isnan(value) else form.format(value) for value in table["income"]]
    with pytest.warns(pcfi.ColumnWarning, match="the column 'income' is not filled, because .* is text"):
        pcfi.impute(table, path)


@pytest.mark.parametrize("text", ["007", "2020-01-05", "10.0.0.1", "A12"])
def test_codes_and_dates_are_not_taken_for_numbers(text):
    table, path = path_table()
    table["name"] = [None, *[text] * 59]
    pcfi.impute(table, path)  # warnings are errors


def test_bounds_that_exclude_known_values_are_refused():
    table, path = path_table()
    with pytest.raises(
        pcfi.ParameterError, match=r"bounds of the column 'income' are \(0, 1\), but all of its known values"
    ):
        pcfi.impute(table, path, bounds={"income": (0, 1)})


def test_booleans_of_a_networkx_graph_stay_booleans():
    graph = nx.path_graph(40)
    nx.set_node_attributes(graph, {node: node >= 20 for node in graph if node % 4}, "late")
    filled = pcfi.networkx.impute(graph, confidence=True)
    assert all(type(value) is bool for _, value in filled.nodes(data="late"))
    assert [filled.nodes[node]["late"] for node in (4, 36)] == [False, True]
    assert isinstance(filled.nodes[4]["late_confidence"], float)


def test_a_verdict_says_how_many_missing_cells_are_unreachable():
    table, path = path_table()
    lonely = pd.concat([table, pd.DataFrame(np.nan, index=range(30), columns=table.columns)], ignore_index=True)
    with pytest.warns(pcfi.UnreachableWarning):
        reports = pcfi.impute(lonely, path).columns
    assert [report.n_unreachable for report in reports] == [30, 30]
    assert f"30 of {reports[0].n_missing} missing cells are unreachable" in reports[0].verdict


def test_a_graph_made_from_complete_columns_is_not_suspected():
    rng = np.random.default_rng(0)
    places = rng.random((200, 2))
    order = np.argsort(np.linalg.norm(places[:, None] - places, axis=2), axis=1)[:, 1:6]
    edges = np.stack([np.repeat(np.arange(200), 5), order.ravel()])
    height = np.where(rng.random(200) < 0.3, np.nan, np.sin(6 * places[:, 0]) + 0.3 * rng.normal(size=200))
    pcfi.impute(pd.DataFrame({"x": places[:, 0], "y": places[:, 1], "height": height}), edges)  # warnings are errors


def states_table(**columns):
    nodes = pd.DataFrame({"state": [f"s{row}" for row in range(30)], "income": np.arange(30.0) ** 2})
    nodes.loc[4, "income"] = np.nan
    ends = nodes["state"].tolist()
    return nodes.assign(**columns), pd.DataFrame({"source": ends[:-1], "target": ends[1:]})


@pytest.mark.parametrize("text", [False, True], ids=["Python objects", "strings"])
def test_a_text_among_numbers_is_named(text):
    """The column was left as it was in silence, or with advice to name it as categorical."""
    numbers = ["n/a", *(None if row % 5 == 0 else row / 2 for row in range(29))]
    cells = [str(one) if text and one is not None else one for one in numbers]
    nodes, edges = states_table(rate=pd.Series(cells, dtype=object))
    with pytest.warns(pcfi.ColumnWarning, match="'rate' is not filled, because it holds numbers and the text 'n/a'"):
        result = pcfi.impute(nodes, edges)
    assert result.values["rate"].tolist()[:3] == nodes["rate"].tolist()[:3]


def test_numbers_with_a_percent_sign_are_named():
    cells = [None if row % 5 == 0 else f"{row}.0%" for row in range(30)]
    nodes, edges = states_table(rate=cells)
    with pytest.warns(pcfi.ColumnWarning, match="'rate' is not filled, because '1.0%' is text"):
        pcfi.impute(nodes, edges)


def test_the_repeated_id_is_named_after_rows_were_joined():
    """The error named row 3 of the index, which the edges do not use."""
    nodes, edges = states_table()
    with pytest.raises(pcfi.PcfiError, match="'state' of the nodes probably holds the ids, but 's3' is duplicated"):
        pcfi.impute(pd.concat([nodes, nodes.iloc[3:4]]), edges)


def test_a_missing_id_of_an_edge_is_named():
    """pandas turns integers with a gap into floats; the error spoke only of Float64."""
    nodes = pd.DataFrame({"id": [10, 11, 12], "x": [1.0, np.nan, 3.0]})
    edges = pd.DataFrame({"source": [10, np.nan], "target": [11, 12]})
    with pytest.raises(pcfi.PcfiError, match="'source' holds 1 missing id, first in edge 1"):
        pcfi.impute(nodes, edges)


def test_exchanged_tables_are_pointed_out():
    nodes, edges = states_table(age=1.0, height=2.0)
    with pytest.raises(pcfi.PcfiError, match="the nodes come first, then the edges"):
        pcfi.impute(edges, nodes)


def test_a_graph_without_edges_is_called_so():
    """The warning spoke of cells that cannot be reached, as in a graph of several parts."""
    features = np.arange(20.0).reshape(10, 2)
    features[3, 0] = np.nan
    with pytest.warns(
        pcfi.UnreachableWarning, match="the graph has no edges, so 1 of 1 missing cell cannot be reached"
    ):
        pcfi.impute(features, np.empty((2, 0), dtype=int))


def test_rows_without_a_known_value_are_mentioned_for_graphs_of_similar_rows():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 3))
    features[7] = np.nan
    with pytest.warns(pcfi.UnreachableWarning, match="rows without a known value are similar to none"):
        pcfi.impute(features, "knn")
