"""`pcfi impute --position`: position channels as columns of the filled table."""

import numpy as np
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import pcfi
from command_line import N_NODES, edge_table, features, node_table, ring
from pcfi.cli.app import app

pytestmark = pytest.mark.slow


@pytest.fixture
def files(tmp_path):
    parquet.write_table(node_table(features()), tmp_path / "nodes.parquet")
    parquet.write_table(edge_table(ring()), tmp_path / "edges.parquet")
    return tmp_path


def impute(files, *options, output="filled.parquet", nodes="nodes.parquet"):
    paths = [files / nodes, files / "edges.parquet", "-o", files / output, "--exclude", "label"]
    return CliRunner().invoke(app, list(map(str, ["impute", *paths, *options])))


REPRESENTATION = ("--objective", "representation", "--position", 3)


@pytest.mark.parametrize("output", ["filled.parquet", "filled.csv"])
def test_position_channels_are_further_columns(files, output):
    done = impute(files, *REPRESENTATION, "--seed", 5, output=output)
    assert done.exit_code == 0, done.stderr
    written = (csv.read_csv if output.endswith("csv") else parquet.read_table)(files / output)
    before = node_table(features())
    assert written.column_names == [*before.column_names, "position_1", "position_2", "position_3"]
    result = pcfi.impute(features(), ring(), objective="representation", position=3, random_state=5)
    for place in range(3):
        column = written[f"position_{place + 1}"].to_numpy()
        np.testing.assert_allclose(column, result.representation[:, 3 + place], rtol=1e-6)
    np.testing.assert_array_equal(written["age"].to_numpy(), result.values[:, 0])


def test_arrays_hold_channels_and_position(files):
    done = impute(files, *REPRESENTATION, output="filled.npy")
    assert done.exit_code == 0, done.stderr
    assert np.load(files / "filled.npy").shape == (N_NODES, 6)
    done = impute(files, *REPRESENTATION, "--confidence-columns", output="both.parquet")
    assert done.exit_code == 0, done.stderr
    names = parquet.read_table(files / "both.parquet").column_names
    assert names[-6:-3] == ["position_1", "position_2", "position_3"]
    assert names[-3:] == ["age_confidence", "income_confidence", "height_confidence"]


def test_reports_and_evaluation_go_on_without_position(files):
    done = impute(files, *REPRESENTATION, "--evaluate", "--report", files / "report.html")
    assert done.exit_code == 0, done.stderr
    assert "position_1" not in (files / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--position", 3), "--position must be 0 for values, because position channels belong to a representation"),
        (("--objective", "representation", "--position", -1), "--position must be an integer"),
        (("--objective", "representation", "--position", 10**6), "--position must be at most the number of nodes"),
    ],
)
def test_bad_input_is_one_line(files, options, message):
    done = impute(files, *options)
    assert done.exit_code in (1, 2)
    assert message in done.stderr
    assert not (files / "filled.parquet").exists()


def test_a_column_of_that_name_is_not_overwritten(files):
    table = node_table(features())
    parquet.write_table(table.append_column("position_2", table["age"]), files / "named.parquet")
    done = impute(files, *REPRESENTATION, nodes="named.parquet")
    assert done.exit_code != 0
    assert "already has a column 'position_2'" in done.stderr
