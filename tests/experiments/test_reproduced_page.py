"""docs/reproduce.py writes the results of a store between the marks of a page, and writing twice changes nothing."""

import importlib.util
from pathlib import Path

import pytest

from pcfi.experiments.run import Record
from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.experiment import Selection
from pcfi.experiments.tables.paper_experiments import find_experiments

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "reproduce.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("reproduce_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_results_stand_between_the_marks_and_prose_stays(script, tmp_path):
    store = RunStore(tmp_path / "runs.jsonl")
    for run in find_experiments("table1", Selection(datasets=("Cora",), systems=("pcfi",), splits=2))[0].runs:
        accuracy = 75.0 + run.seed
        hops = [{"hops": 1, "nodes": 40, "cosine": 0.25, "tested": 20, "correct": 15}]
        store.append(Record(run, "done", {"accuracy": accuracy, "validation_accuracy": accuracy}, {"hops": hops}))
    summary = f"{script.SUMMARY_START}old\n{script.SUMMARY_END}\n"
    text = f"before\n\n{summary}{script.START}old\n{script.END}\n\nafter\n"
    once = script.page(text, store, tmp_path / "reproduced")
    assert once.startswith("before\n")
    assert once.endswith("\n\nafter\n")
    assert "old" not in once
    assert "75.50 ± 0.50 [2] (75.49)" in once
    assert "| Cora | structural | PCFI | accuracy | 75.50 ± 0.71 | 75.49 ± 2.10 | +0.01 | +0.0 | 2 |" in once
    assert "| Cora | structural | accuracy | 75.50 ± 0.50 [2] | - | 75.49 ± 0.70 | +0.0 | - |" in once
    assert "(reproduced/hops-accuracy.png)" in once
    assert (tmp_path / "reproduced" / "hops-accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert script.page(once, store, tmp_path / "reproduced") == once


def test_the_page_of_the_documentation_has_its_marks(script):
    text = script.PAGE.read_text()
    for mark in (
        script.START,
        script.END,
        script.SUMMARY_START,
        script.SUMMARY_END,
        script.DRAWS_START,
        script.DRAWS_END,
    ):
        assert text.count(mark) == 1
    assert text.index(script.SUMMARY_START) < text.index("## ")  # the page starts with it
