"""Text columns with missing cells are filled if their values repeat, and mentioned if not."""

import warnings

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app

SIZE = 60
REGION = np.array(["north", "west", "south"])[np.arange(SIZE) // 20]
EDGES = pd.DataFrame({"source": range(SIZE - 1), "target": range(1, SIZE)})
GONE = np.arange(SIZE) % 7 == 3


def people(**more):
    """A table of a number, a region with gaps, and further columns."""
    age = np.where(np.arange(SIZE) % 5 == 2, np.nan, 20.0 + np.arange(SIZE))
    region = pd.Series(REGION).where(~GONE, None)
    return pd.DataFrame({"node_id": range(SIZE), "age": age, "region": region, **more})


FORMS = {
    "pandas": lambda table: table,
    "pandas category": lambda table: table.astype({"region": "category"}),
    "polars": pl.from_pandas,
    "pyarrow": lambda table: pl.from_pandas(table).to_arrow(),
}


@pytest.mark.parametrize("form", FORMS)
def test_text_whose_values_repeat_is_filled_without_being_named(form):
    result = pcfi.impute(FORMS[form](people()), EDGES)
    filled = np.array(result.values["region"].to_pylist() if form == "pyarrow" else list(result.values["region"]))
    assert (filled == REGION).mean() > 0.95
    assert (filled[~GONE] == REGION[~GONE]).all()
    named = pcfi.frames.impute(FORMS[form](people()), EDGES, categorical=["region"])
    assert list(filled) == list(named.values["region"].to_pylist() if form == "pyarrow" else named.values["region"])
    assert [report.name for report in result.columns] == ["age", "region"]


def test_an_empty_list_of_categories_leaves_text_as_it_is_and_says_so():
    with pytest.warns(pcfi.ColumnWarning, match="9 missing cells of the column 'region' stay missing: name it with"):
        result = pcfi.impute(people(), EDGES, categorical=())
    assert result.values["region"].isna().sum() == GONE.sum()
    assert result.parameters["categorical"] == ()


def test_names_dates_and_notes_stay_missing_and_are_mentioned():
    gaps = pd.Series(GONE)
    more = {
        "name": pd.Series([f"person {number}" for number in range(SIZE)]).where(~gaps, None),
        "joined": pd.Series(pd.date_range("2020-01-01", periods=SIZE)).where(~gaps),
    }
    with pytest.warns(pcfi.ColumnWarning, match="18 missing cells of the columns 'name', 'joined' stay missing"):
        result = pcfi.impute(people(**more), EDGES)
    assert result.values["name"].isna().sum() == result.values["joined"].isna().sum() == GONE.sum()
    assert not result.values["region"].isna().any()


def test_text_without_missing_cells_is_not_a_channel():
    table = people().assign(region=REGION)
    plain = table.drop(columns="region")
    result, alone = pcfi.impute(table, EDGES), pcfi.impute(plain, EDGES)
    assert list(result.values["region"]) == list(REGION)
    np.testing.assert_array_equal(result.values["age"], alone.values["age"])


def test_numbers_stored_as_text_are_not_categories():
    price = pd.Series(np.where(np.arange(SIZE) % 2, "12,50", "1,234.00")).where(~pd.Series(GONE), None)
    with pytest.warns(pcfi.ColumnWarning, match="the column 'price' is not filled, because '1,234.00' is text"):
        result = pcfi.impute(people(price=price), EDGES)
    assert result.values["price"].isna().sum() == GONE.sum()


@pytest.mark.parametrize("options", [{"method": "zero"}, {"unreachable": "zero"}, {"objective": "representation"}])
def test_zeros_and_representations_have_no_categories_unless_they_are_named(options):
    with pytest.warns(pcfi.ColumnWarning, match="of the column 'region' stay missing"):
        result = pcfi.impute(people(), EDGES, **options)
    assert result.column_names == ("age",)


def test_categories_of_an_array_are_refused():
    with pytest.raises(pcfi.ParameterError, match="categorical names columns, but features is not a table"):
        pcfi.impute(np.array([[1.0], [np.nan]]), [[0], [1]], categorical=["city"])


def test_the_parameters_of_a_result_reproduce_its_categories():
    result = pcfi.impute(people(), EDGES, categorical=["region"])
    again = pcfi.impute(people(), EDGES, **result.parameters)
    pd.testing.assert_frame_equal(again.values, result.values)


def test_the_order_of_rows_and_columns_does_not_decide_what_is_a_category():
    order = np.random.default_rng(0).permutation(SIZE)
    table = people()[["region", "node_id", "age"]].iloc[order].reset_index(drop=True)
    result, moved = pcfi.impute(people(), EDGES), pcfi.impute(table, EDGES)
    assert list(moved.values["region"]) == list(result.values["region"].iloc[order])
    np.testing.assert_allclose(moved.values["age"], result.values["age"].iloc[order], rtol=1e-6)


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def files(tmp_path):
    people(note=[f"n{number}" if number % 2 else None for number in range(SIZE)]).to_csv(
        tmp_path / "nodes.csv", index=False
    )
    EDGES.to_csv(tmp_path / "edges.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--memory", "4GB"]], ids=["memory", "disk"])
def test_the_command_line_fills_the_same_categories_and_mentions_the_rest(files, options):
    filled = files / "filled.csv"
    outcome = run("impute", files / "nodes.csv", files / "edges.csv", "-o", filled, *options)
    assert outcome.exit_code == 0, outcome.output
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.ColumnWarning)
        expected = pcfi.impute(pd.read_csv(files / "nodes.csv"), EDGES)
    assert list(pd.read_csv(filled)["region"]) == list(expected.values["region"])
    np.testing.assert_allclose(pd.read_csv(filled)["age"], expected.values["age"], rtol=1e-9)
    assert "30 missing cells of the column 'note' stay missing" in " ".join(outcome.output.split())


def test_arrays_hold_no_categories_so_none_are_looked_for(files):
    filled = files / "filled.npy"
    outcome = run("impute", files / "nodes.csv", files / "edges.csv", "-o", filled)
    assert outcome.exit_code == 0, outcome.output
    assert np.load(filled).shape == (SIZE, 1)


def test_text_attributes_of_a_networkx_graph_are_filled_if_they_are_named():
    G = nx.path_graph(SIZE)
    for node in G:
        if not GONE[node]:
            G.nodes[node]["region"] = str(REGION[node])
        if node % 5 != 2:
            G.nodes[node]["age"] = 20.0 + node
    filled = pcfi.networkx.impute(G, ["region", "age"], confidence=True, alpha=0.5)
    assert np.mean([filled.nodes[node]["region"] == REGION[node] for node in G]) > 0.95
    assert filled.nodes[2]["age"] == pytest.approx(22.0, abs=0.5)
    assert filled.nodes[3]["region_confidence"] < 1 == filled.nodes[4]["region_confidence"]
    assert "region" not in G.nodes[3]
    with pytest.warns(pcfi.ColumnWarning, match="9 missing cells of the attribute 'region' stay missing"):
        pcfi.networkx.impute(G)


@pytest.mark.parametrize("has_gap", [False, True])
def test_numbers_stored_as_text_beside_a_marker_are_mentioned_and_are_no_categories(has_gap):
    """What pandas reads from a column of numbers and "n.a." was left alone in silence, or filled with categories."""
    amount = pd.Series([f"{number % 7}.5" if number % 6 else "n.a." for number in range(SIZE)])
    amount = amount.where(~(pd.Series(GONE) & has_gap), None)
    with pytest.warns(pcfi.ColumnWarning, match="'amount' is not filled, because it holds numbers and the text 'n.a.'"):
        result = pcfi.impute(people(amount=amount), EDGES)
    assert result.column_names == ("age", "region")


def test_booleans_stored_as_objects_are_filled_and_stay_booleans():
    """What pandas reads from a column of True, False and blanks stopped the call."""
    member = pd.Series(np.arange(SIZE) < 30, dtype=object).where(~pd.Series(GONE), None)
    filled = pcfi.impute(people(member=member), EDGES).values["member"]
    assert all(type(value) is bool for value in filled)
    assert (filled == (np.arange(SIZE) < 30)).mean() > 0.95


def test_a_graph_with_another_name_is_refused_with_the_one_there_is():
    with pytest.raises(pcfi.UnsupportedTypeError, match="graph is 'KNN': the only graph with a name is 'knn'"):
        pcfi.impute(np.array([[1.0], [np.nan]]), "KNN")
