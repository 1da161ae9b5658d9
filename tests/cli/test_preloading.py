"""Libraries that load beside the readers change nothing that is written, and leave no thread behind."""

import subprocess
import sys
import threading

import pytest
from typer.testing import CliRunner

from pcfi.cli import preloading
from pcfi.cli.app import app

EDGES = "source,target\na,b\nb,c\n"


def impute(folder, nodes, name):
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(EDGES)
    files = [str(folder / one) for one in ("nodes.csv", "edges.csv")]
    options = ["--alpha=0.5", "--beta=0", "--objective=representation"]
    return CliRunner().invoke(app, ["impute", *files, "-o", str(folder / name), *options])


@pytest.fixture
def _always(monkeypatch):
    monkeypatch.setattr(preloading, "MIN_BYTES", 0)


@pytest.mark.usefixtures("_always")
def test_the_result_is_the_same_with_preloading(tmp_path, monkeypatch):
    nodes = "id,x\na,1.0\nb,\nc,3.0\n"
    assert impute(tmp_path, nodes, "with.csv").exit_code == 0
    monkeypatch.setattr(preloading, "MIN_BYTES", 1 << 40)
    assert impute(tmp_path, nodes, "without.csv").exit_code == 0
    assert (tmp_path / "with.csv").read_bytes() == (tmp_path / "without.csv").read_bytes()


@pytest.mark.usefixtures("_always")
def test_no_thread_is_left_when_a_file_is_refused(tmp_path):
    done = impute(tmp_path, "id,x\na,1.0\na,2.0\n", "filled.csv")
    assert done.exit_code == 1
    assert "preloading" not in " ".join(thread.name for thread in threading.enumerate())


@pytest.mark.slow
def test_numba_is_ready_after_preloading():
    code = (
        "import sys\nfrom pcfi.cli import preloading\npreloading.MIN_BYTES = 0\n"
        "with preloading.preloading(): pass\nprint({'numba', 'scipy.linalg', 'narwhals'} <= set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n", done.stderr
