"""The demo runs, PCFI comes out best on the digits, and the files it leaves give the same result."""

import json

import numpy as np
import pytest
from pyarrow import csv
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from pcfi import demo
from pcfi.cli.app import app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    said = CliRunner().invoke(app, ["demo", "--out", str(folder), "--write", str(folder / "files")])
    assert said.exit_code == 0, said.stderr
    return folder, said.stdout


def test_demo_prints_the_table_and_leaves_a_picture_and_a_report(shown):
    folder, said = shown
    assert all(f"│ {method:<9} │" in said for method in demo.DEFAULT_METHODS)
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "demo.html").read_text()
    assert len(page) < 6_000_000
    assert "103,360 of 115,008 cells (89.9%) were missing" in page


def test_the_command_that_the_demo_prints_does_the_same_on_files(shown):
    _, said = shown
    command = next(line.split()[1:] for line in said.splitlines() if line.strip().startswith("pcfi impute"))
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.stderr
    outputs = json.loads(done.stdout)["outputs"]
    table = csv.read_csv(outputs["values"])
    filled = np.stack([table[name].to_numpy() for name in demo.channel_names()], axis=1)
    _, results = demo.compare(demo.load_digits())
    assert np.allclose(filled, results["pcfi"].values, atol=2e-2)  # the demo computes in float32, and both stop at rtol


def test_pcfi_has_the_smallest_error_on_the_removed_pixels():
    rows, results = demo.compare(demo.load_digits())
    errors = {method: error for method, error, _ in rows}
    assert min(errors, key=errors.get) == "pcfi"
    assert results["pcfi"].converged
    assert np.isfinite(results["pcfi"].values).all()


def test_the_graph_of_the_digits_does_not_depend_on_the_number_of_threads():
    usual = demo.load_digits().edges
    with threadpool_limits(1, user_api="openmp"):
        alone = demo.load_digits().edges
    assert (usual != alone).nnz == 0
