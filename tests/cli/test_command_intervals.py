"""`pcfi impute --intervals`: what the result knows about its errors, in a file of its own."""

import numpy as np
import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

import pcfi
from command_line import edge_table, features, node_table, ring
from pcfi.cli.app import app

pytestmark = pytest.mark.slow

CHANNELS = ["age", "income", "height"]


@pytest.fixture
def files(tmp_path):
    parquet.write_table(node_table(features()), tmp_path / "nodes.parquet")
    parquet.write_table(edge_table(ring()), tmp_path / "edges.parquet")
    return tmp_path


def impute(files, *options, nodes="nodes.parquet"):
    paths = [files / nodes, files / "edges.parquet", "-o", files / "filled.parquet", "--exclude", "label"]
    return CliRunner().invoke(app, list(map(str, ["impute", *paths, *options])))


def column_of(table, ending):
    return np.stack([table[name + ending].to_numpy() for name in CHANNELS], axis=1)


@pytest.mark.parametrize(("coverage", "parameters"), [(0.9, {}), (0.5, {}), (0.9, {"alpha": 0.5, "beta": 0.1})])
def test_intervals_and_expected_errors_are_those_of_the_result(files, coverage, parameters):
    options = [word for name, number in parameters.items() for word in (f"--{name}", number)]
    done = impute(files, "--intervals", files / "intervals.parquet", "--coverage", coverage, *options)
    assert done.exit_code == 0, done.stderr
    written = parquet.read_table(files / "intervals.parquet")
    result = pcfi.impute(features(), ring(), **parameters)
    for ending, wanted in zip(("_low", "_high"), result.interval(coverage), strict=True):
        assert np.array_equal(column_of(written, ending), wanted)
    assert np.array_equal(column_of(written, "_error"), result.expected_error)
    assert written["id"].to_pylist() == node_table(features())["id"].to_pylist()
    assert written.num_columns == 1 + 3 * len(CHANNELS)
    assert "Wrote" in done.stdout
    assert "intervals.parquet" in done.stdout


def test_intervals_go_to_text_as_well(files):
    impute(files, "--intervals", files / "intervals.csv")
    assert np.allclose(
        column_of(csv.read_csv(files / "intervals.csv"), "_high"), pcfi.impute(features(), ring()).interval()[1]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--coverage", 1], "--coverage must be a number between 0 and 1 (both excluded), got 1"),
        (["--method", "fp"], "the method fp has no intervals"),
        (["--objective", "representation"], "--intervals needs --objective values"),
    ],
)
def test_what_has_no_intervals_is_refused_before_any_work(files, options, message):
    done = impute(files, "--intervals", files / "intervals.parquet", *options)
    assert done.exit_code != 0
    assert message in done.stderr
    assert sorted(path.name for path in files.iterdir()) == ["edges.parquet", "nodes.parquet"]


def test_intervals_are_no_arrays_since_their_columns_need_names(files):
    assert "use one of .parquet" in impute(files, "--intervals", files / "intervals.npy").stderr


def test_intervals_have_no_end_if_nothing_can_be_learned_about_errors(files):
    few = features()
    few[3:] = np.nan
    parquet.write_table(node_table(few), files / "few.parquet")
    done = impute(files, "--intervals", files / "intervals.parquet", nodes="few.parquet")
    assert done.exit_code == 0, done.stderr
    assert "warning: values are halfway between the graph's estimate and the column's mean" in done.stderr
    written, missing = parquet.read_table(files / "intervals.parquet"), np.isnan(few)
    assert np.isinf(column_of(written, "_high")[:, 1][missing[:, 1]]).all()  # the others are between 0 and 1
    assert np.array_equal(column_of(written, "_low")[~missing], few[~missing])
