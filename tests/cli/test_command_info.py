"""`pcfi info`: what is in the files, counted as the user counts it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from command_line import edge_table, features, node_table, ring
from pcfi.cli.app import app

pytestmark = pytest.mark.slow


def info(nodes, edges, *options):
    return CliRunner().invoke(app, ["info", str(nodes), str(edges), *options])


@pytest.fixture
def files(tmp_path):
    csv.write_csv(node_table(features()), tmp_path / "nodes.csv")
    csv.write_csv(edge_table(ring()), tmp_path / "edges.csv")
    return tmp_path


def test_info_says_what_is_in_the_files(files):
    done = info(files / "nodes.csv", files / "edges.csv", "--exclude=label", "--json")
    found = json.loads(done.stdout)
    missing = np.isnan(features()).sum(axis=0)
    assert [channel["n_missing"] for channel in found["channels"]] == missing.tolist()
    assert (found["graph"]["n_nodes"], found["graph"]["n_edges"], found["graph"]["n_components"]) == (40, 40, 1)
    assert sum(hop["n_cells"] for hop in found["hops"]) == missing.sum() == found["n_missing"]
    assert found["memory"]["filling"] > 0
    shown = info(files / "nodes.csv", files / "edges.csv", "--exclude=label").stdout
    assert "3 in 3 patterns" in shown


def test_info_notes_marks_of_missing_cells_and_different_ranges(tmp_path):
    (tmp_path / "n.csv").write_text("id,x,y,z\na,-999,1,-999\nb,-999,2000,5\nc,3,9999,6\nd,,9999,\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\n")
    remarks = json.loads(info(tmp_path / "n.csv", tmp_path / "e.csv", "--json").stdout)["remarks"]
    found = [remark for remark in remarks if "--missing-value" in remark]
    assert found == [
        "-999 is the smallest value of column 'x': if it means missing, add --missing-value -999.",
        "9999 is the largest value of column 'y': if it means missing, add --missing-value 9999.",
    ]
    (tmp_path / "n.csv").write_text("id,x,y\na,0,1\nb,1,2000\nc,,\n")
    remarks = json.loads(info(tmp_path / "n.csv", tmp_path / "e.csv", "--json").stdout)["remarks"]
    assert any("with --objective representation, add --standardize" in remark for remark in remarks)


def test_a_column_of_categories_counts_as_one(tmp_path):
    (tmp_path / "n.csv").write_text("id,kind,x,y\na,red,0,9999\nb,,1,9999\nc,blue,,1\nd,green,3,1\ne,,4,1\n")
    (tmp_path / "e.csv").write_text("source,target\na,b\nb,c\nc,d\nd,e\n")
    files = tmp_path / "n.csv", tmp_path / "e.csv"
    found = json.loads(info(*files, "--categorical", "kind", "--json").stdout)
    assert [(one["name"], one["n_known"], one["n_missing"]) for one in found["channels"]] == [
        ("kind", 3, 2),
        ("x", 4, 1),
        ("y", 5, 0),
    ]
    assert found["n_missing"] == sum(one["n_cells"] for one in found["hops"]) == 3
    assert [(one["low"], one["high"]) for one in found["channels"]] == [(None, None), (0, 4), (1, 9999)]
    shown = info(*files, "--categorical", "kind").stdout
    assert "3 in 3 patterns" in shown
    assert "3 of 15 cells (20.0%)" in shown
    assert any("9999 is the largest value of column 'y'" in remark for remark in found["remarks"])


def test_info_says_which_columns_can_be_estimated_before_anything_is_filled(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lines = [
        f"n{row},{'' if row % 3 == 0 else np.sin(row / 20)},{'' if row % 4 == 0 else rng.normal()},{row}"
        for row in range(300)
    ]
    (tmp_path / "n.csv").write_text("\n".join(["id,smooth,noise,whole", *lines]))
    edges = [f"n{row},n{row + 1}" for row in range(299)]
    (tmp_path / "e.csv").write_text("\n".join(["source,target", *edges]))
    files = tmp_path / "n.csv", tmp_path / "e.csv"
    found = {one["name"]: one for one in json.loads(info(*files, "--exclude", "whole", "--json").stdout)["columns"]}
    assert found["smooth"]["r2"] > 0.95
    assert found["smooth"]["verdict"] == "follows the graph"
    assert abs(found["noise"]["r2"]) < 4 * found["noise"]["standard_error"]
    assert "filled close to its mean" in found["noise"]["verdict"]
    shown = info(*files, "--exclude", "whole").stdout
    assert "follows the graph" in shown
    assert "+-" in shown
    monkeypatch.setattr("pcfi.cli.suitability.MAX_CELLS", 300)
    part = json.loads(info(*files, "--exclude", "whole", "--json").stdout)
    assert part["n_judged"] == 150
    assert part["columns"][0]["r2"] > 0.9
    assert "on 150 nodes" in info(*files, "--exclude", "whole").stdout
    assert json.loads(info(*files, "--columns", "whole", "--json").stdout)["columns"] == []  # complete


def test_an_advantage_within_two_standard_errors_is_called_unclear():
    from pcfi.cli.suitability import verdict
    from pcfi.estimation import ColumnReport

    numbers = dict.fromkeys(("rmse", "rmse_of_mean", "r2_graph", "r2_columns", "coverage"), 0.5)
    report = ColumnReport("x", 9, 9, 9, r2=0.3, verdict="follows the graph", standard_error=0.2, **numbers)
    assert verdict(report) == "not clearly better than the mean; if so, follows the graph"
    assert verdict(replace(report, standard_error=0.1)) == "follows the graph"
