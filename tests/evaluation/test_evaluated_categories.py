"""Columns of categories in an evaluation: judged by whether the right one is chosen, beside the errors of numbers."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pcfi
from pcfi.cli.app import app

NODES = 120
CITIES = np.array(["Bonn", "Oslo", "Rome", "Zug"])
EDGES = pd.DataFrame({"source": np.arange(NODES - 1), "target": np.arange(1, NODES)})


def people(**gaps):
    """Ages that change slowly along a path, and cities in four stretches of it; `gaps`: the rows without a column."""
    rows = np.arange(NODES)
    table = pd.DataFrame({"age": 40 + 15 * np.sin(rows / 12), "city": CITIES[rows // 30]})
    for name, missing in gaps.items():
        table.loc[missing, name] = None
    return table


EVERY_FOURTH, OTHERS = np.arange(0, NODES, 4), np.arange(1, NODES, 3)


def evaluated(table, **options):
    return pcfi.frames.evaluate(table, EDGES, categorical=["city"], methods=["mean", "fp", "pcfi"], **options)


def test_categories_count_as_found_and_numbers_by_their_error():
    table = people(age=EVERY_FOURTH, city=OTHERS)
    found = evaluated(table)
    mean, fp, tuned = found.methods
    assert tuned.scores["accuracy"] > 0.9 > 0.5 > mean.scores["accuracy"]
    assert fp.scores["accuracy"] > 0.9
    assert "accuracy" in repr(found)
    known = table.notna().sum()
    assert found.n_hidden == pytest.approx(3 / 5 * known.sum(), abs=3)  # a category is one cell
    hidden_numbers = sum(row.cells for row in found.by_hops if row.method == "pcfi")
    assert hidden_numbers == pytest.approx(3 / 5 * known["age"], abs=30)
    assert np.isnan(found.by_channel["pcfi"][1:]).all()
    assert found.by_channel["pcfi"][0] == pytest.approx(tuned.scores["rmse"])
    (reliability,) = found.reliability
    assert sum(row.cells for row in reliability.by_hops) == hidden_numbers


def test_complete_categories_have_no_part_in_the_scores_of_numbers():
    table = people(age=EVERY_FOURTH)
    alone = pcfi.evaluate(table[["age"]], EDGES, methods=["mean", "fp"])
    beside = pcfi.frames.evaluate(table, EDGES, categorical=["city"], methods=["mean", "fp"])
    assert (beside.n_hidden, beside.n_categories) == (alone.n_hidden, 0)
    for one in beside.methods:
        assert one.scores["rmse"] == pytest.approx(beside.by_channel[one.method][0])
        assert np.isnan(beside.by_channel[one.method][1:]).all()
        assert "accuracy" not in one.scores


@pytest.mark.parametrize("columns", [["age", "city"], ["city"]])
def test_where_only_categories_are_hidden_their_shares_have_the_errors(columns):
    found = evaluated(people(city=EVERY_FOURTH)[columns])
    assert found.best != "mean"
    assert found.n_hidden == pytest.approx(3 / 5 * 90, abs=1)
    shares = sum(row.cells for row in found.by_hops if row.method == "pcfi")
    assert shares == 4 * found.n_hidden
    assert all(np.isfinite(one.scores["rmse"]) for one in found.methods)
    assert found.reliability == ()  # categories have no intervals


def test_a_zero_is_no_choice():
    found = pcfi.frames.evaluate(people(city=EVERY_FOURTH), EDGES, categorical=["city"], methods=["zero"])
    assert found.methods[0].scores["accuracy"] == 0


def test_accuracy_is_what_imputing_the_hidden_table_gives():
    """Five folds hide each known category once."""
    table = people(city=np.setdiff1d(np.arange(NODES), np.arange(0, NODES, 5)))[["city"]]
    methods = {"fp": {"method": "fp"}}
    found = pcfi.frames.evaluate(table, EDGES, categorical=["city"], methods=methods, folds=5, random_state=4)
    assert found.n_folds == 5
    assert found.n_hidden == 24
    share = found.methods[0].scores["accuracy"]
    assert share == pytest.approx(round(24 * share) / 24)
    one_by_one = []
    for row in np.flatnonzero(table["city"].notna()):
        without = table.copy()
        without.loc[row, "city"] = None
        filled = pcfi.frames.impute(without, EDGES, categorical=["city"], method="fp").values
        one_by_one.append(filled.loc[row, "city"] == table.loc[row, "city"])
    assert abs(share - np.mean(one_by_one)) < 0.15


def test_the_commands_count_categories_too(tmp_path):
    people(age=EVERY_FOURTH, city=OTHERS).to_csv(tmp_path / "nodes.csv", index_label="id")
    EDGES.to_csv(tmp_path / "edges.csv", index=False)
    files = [str(tmp_path / "nodes.csv"), str(tmp_path / "edges.csv"), "--categorical", "city"]
    shown = CliRunner().invoke(app, ["evaluate", *files, "--methods", "mean,fp"])
    assert "categories" in shown.stdout + shown.stderr
    said = CliRunner().invoke(app, ["evaluate", *files, "--methods", "mean,fp", "--json"])
    assert said.exit_code == 0, said.stderr
    mean, fp = json.loads(said.stdout)["methods"]
    assert fp["accuracy"] > 0.9 > mean["accuracy"]
    page = tmp_path / "report.html"
    outputs = ["-o", str(tmp_path / "o.csv"), "--report", str(page), "--evaluate", "--quiet"]
    said = CliRunner().invoke(app, ["impute", *files, *outputs])
    assert said.exit_code == 0, said.stderr
    assert "correct categories" in page.read_text()
    assert "of the hidden categories." in page.read_text()
