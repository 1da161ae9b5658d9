"""`pcfi explain` and `pcfi check`: what the library says, on files."""

import json

import numpy as np
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
