"""`pcfi explain` and `pcfi check`: what the library says, on files."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import pcfi
from command_line import edge_table, features, node_table, ring
from pcfi.cli.app import app

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path):
    parquet.write_table(node_table(features()), tmp_path / "nodes.parquet")
    parquet.write_table(edge_table(ring()), tmp_path / "edges.parquet")
    return tmp_path


def run(files, command, *options):
    paths = [files / "nodes.parquet", files / "edges.parquet", "--exclude", "label"]
    return CliRunner().invoke(app, list(map(str, [command, *paths, *options])))


def test_an_explanation_is_that_of_the_result(files):
    row = int(np.flatnonzero(np.isnan(features()[:, [0, 2]]).all(axis=1))[0])
    name = str(node_table(features())["id"][row])
    done = run(files, "explain", "--node", name, "--column", "age", "--json")
    assert done.exit_code == 0, done.stderr
    (said,) = json.loads(done.stdout)
    result = pcfi.impute(features(), ring())
    assert said["value"] == pytest.approx(result.values[row, 0])
    assert sum(part["contribution"] for part in said["parts"]) == pytest.approx(said["value"])
    text = run(files, "explain", "--node", name, "--column", "age,height", "-q")
    assert text.stdout.count("the mean of the column") == 2


def test_a_wrong_name_is_an_error_with_the_closest_one_before_anything_is_filled(files):
    name = str(node_table(features())["id"][0])
    done = run(files, "explain", "--node", name, "--column", "agge")
    assert (done.exit_code, done.stderr.strip().splitlines()[-1]) == (
        2,
        "pcfi: --column 'agge' is not a filled column: the closest is 'age'",
    )
    done = run(files, "explain", "--node", name + "x", "--column", "age")
    assert done.exit_code == 2
    assert f"the closest is '{name}'" in done.stderr


def test_a_wrong_value_is_printed_first_and_written(files):
    values = features()
    row = int(np.flatnonzero(np.isfinite(values[:, 1]))[3])
    values[row, 1] *= 10
    parquet.write_table(node_table(values), files / "nodes.parquet")
    done = run(files, "check", "--most", 3, "-o", files / "found.csv")
    assert done.exit_code == 0, done.stderr
    written = csv.read_csv(files / "found.csv")
    assert written["value"][0].as_py() == pytest.approx(values[row, 1])
    assert written.num_rows == np.isfinite(values).sum()
    assert "income" in done.stdout.splitlines()[0]
    assert run(files, "check", "-o", files / "found.csv").exit_code == 1  # exists already
    assert run(files, "check", "--most", 0).exit_code == 2


def test_an_audit_tells_what_follows_the_graph_from_what_does_not(tmp_path):
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=120))
    town = np.where(np.arange(120) < 60, "A", "B")
    columns = {"income": 4000 * walk, "noise": rng.normal(size=120)}
    hidden = {name: pa.array(part, mask=rng.random(120) < 0.3) for name, part in columns.items()}
    names = [f"p{row}" for row in range(120)]
    parquet.write_table(
        pa.table({"id": names, **hidden, "age": rng.normal(size=120), "town": town}), tmp_path / "n.parquet"
    )
    parquet.write_table(pa.table({"source": names[:-1], "target": names[1:]}), tmp_path / "e.parquet")

    def audit(*options):
        paths = [tmp_path / "n.parquet", tmp_path / "e.parquet"]
        return CliRunner().invoke(app, list(map(str, ["audit", *paths, *options])))

    income, noise = (
        json.loads(audit("--column", name, "--group", "town", "--json").stdout) for name in ("income", "noise")
    )
    assert [one["group"] for one in income["recovery"]] == ["all nodes", "A", "B"]
    assert income["recovery"][0]["explained"] > 0.8
    assert abs(noise["recovery"][0]["explained"]) < 0.15
    assert income["interval_width"] < income["usual_width"] / 2
    assert noise["interval_width"] > noise["usual_width"] / 2
    assert income["n_withheld"] == hidden["income"].null_count
    assert len(income["most_exposed"]) == 10
    assert "not clearly better than the baseline" in audit("--column", "noise", "-q").stdout
    assert "nothing to recover" in audit("--column", "age").stderr
    assert audit("--column", "income", "--group", "village").exit_code == 2
    assert audit("--column", "incom").exit_code == 2


def test_suggestions_are_those_of_the_library_and_written(files):
    done = run(files, "suggest", "--most", 4, "--json", "-o", files / "measure.csv")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    expected = pcfi.suggest(pcfi.impute(features(), ring()), 4)
    names = node_table(features())["id"].to_pylist()
    assert [row["node"] for row in said] == [names[row] for row in expected.rows]
    assert [row["total"] for row in said] == pytest.approx([row["total"] for row in expected.to_rows()])
    assert csv.read_csv(files / "measure.csv").column_names == ["node", "own", "others", "total"]
    assert "off the expected squared error" in run(files, "suggest", "-q").stdout
    assert run(files, "suggest", "-o", files / "measure.csv").exit_code == 1  # exists already
    assert run(files, "suggest", "--most", 0).exit_code == 2
