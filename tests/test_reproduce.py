"""The command `pcfi reproduce` on real systems and a synthetic graph: every plan, resuming, stopping, wrong usage."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

import pcfi
from pcfi.cli import main
from pcfi.cli.app import app
from pcfi.experiments.data import loading as datasets
from pcfi.experiments.tables.experiment import PLANS
from pcfi.experiments.run import Run
from pcfi.experiments.runs.store import Record, Store

GRAPH = "homophily-0.5-scale-0.1"
SMALL = ["--datasets", GRAPH, "--missing", "structural", "--rates", "0.5", "--splits", "1"]
SHORT = ["--set", "epochs=2", "patience=1", "completion_steps=2", "gamma=1e-6"]
GRID = ["--grid", "alpha=0.5,0.9", "beta=0.01"]


def command(*arguments, **options):
    return [sys.executable, "-m", "pcfi.cli", "reproduce", *map(str, arguments)]


def invoke(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A folder in which every plan has run, and what the command said."""
    folder = tmp_path_factory.mktemp("everything")
    arguments = [*SMALL, *SHORT, *GRID, "--store", folder / "runs.jsonl", "--out", folder]
    said = subprocess.run(command("all", *arguments), capture_output=True, text=True, check=False)
    return folder, arguments, said


def test_every_plan_runs_and_says_what_came_out(everything):
    folder, _, said = everything
    assert said.returncode == 0, said.stderr
    store = Store(folder / "runs.jsonl")
    assert {record.run.system for record in store} >= {"zero", "lp", "srmgcnn", "gcnmf", "pagnn", "fp", "pcfi", "full"}
    assert all(record.done for record in store)
    assert f"[{len(store)}/{len(store)}]" in said.stderr
    assert re.search(rf"\| {GRAPH} \| structural \| PCFI \| accuracy \| \d+\.\d\d \| - \| - \| 1 \|", said.stdout)


@pytest.mark.parametrize("name", [name for name in PLANS if name not in ("all", "search")])
def test_a_plan_that_has_run_is_shown_again_without_running(everything, tmp_path, name):
    folder, arguments, _ = everything
    before = (folder / "runs.jsonl").read_bytes()
    said = invoke(name, *arguments[:-2], "--out", tmp_path)
    assert said.exit_code == 0
    assert "| system |" in said.stdout or "| alpha |" in said.stdout
    assert (folder / "runs.jsonl").read_bytes() == before
    page = (tmp_path / "index.html").read_text()
    assert f'<section id="{name}">' in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)  # nothing is fetched from elsewhere
    for suffix in ("md", "tex", "html"):
        assert (tmp_path / f"{name}.{suffix}").stat().st_size > 100
    assert not list(tmp_path.glob(".*part*"))


def test_figures_are_drawn(everything):
    folder = everything[0]
    drawn = {path.name for path in folder.glob("*.png")}
    assert drawn == {
        "rates-average.png",
        "rates-by-setting.png",
        "hops-accuracy.png",
        "hops-cosine.png",
        f"heatmap-classification-{GRAPH}-structural.png",
        f"heatmap-links-{GRAPH}-structural.png",
        "homophily.png",
        "cost.png",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))


def test_search_reuses_runs_and_names_what_validation_chose(everything, tmp_path):
    folder, arguments, _ = everything
    said = invoke("search", *arguments[:-2], "--systems", "pcfi", "--out", tmp_path)  # the heatmap ran the same points
    assert said.exit_code == 0
    records = [record for record in Store(folder / "runs.jsonl") if dict(record.run.parameters).get("beta") == 0.01]
    best = max((r for r in records if r.run.task == "classification"), key=lambda r: r.metrics["validation_accuracy"])
    alpha = dict(best.run.parameters)["alpha"]
    assert f"| classification | {GRAPH} | structural | 0.5 | PCFI | alpha {alpha:g}, beta 0.01" in said.stdout


def test_a_dry_run_says_what_would_run_and_how_long(everything, tmp_path):
    _, arguments, _ = everything
    wanted = [argument for argument in arguments if argument != "1"]
    wanted.insert(wanted.index("--splits") + 1, "3")
    said = invoke("table1", *wanted, "--systems", "pcfi", "mean", "--jobs", "2", "--dry-run")
    assert said.exit_code == 0
    assert "table1: 6 runs, 5 of them still to do: about " in said.stdout
    assert "unknown for 3 (no earlier run of the system on the data set)" in said.stdout
    assert "In all 5 runs with 2 at a time" in said.stdout


def test_resuming_runs_only_what_is_missing(everything, tmp_path):
    folder = everything[0]
    lines = (folder / "runs.jsonl").read_text().splitlines(keepends=True)
    removed = [line for line in lines if '"system": "zero"' in line or '"system":"zero"' in line]
    assert len(removed) == 1
    store = tmp_path / "runs.jsonl"
    store.write_text("".join(line for line in lines if line not in removed))
    wanted = [*SMALL, *SHORT, "--store", store, "--out", tmp_path]
    said = subprocess.run(command("table1", *wanted), capture_output=True, text=True, check=True)
    assert re.findall(r"\[\d+/\d+\] classification \S+ structural 0.5 (\S+)", said.stderr) == ["zero"]
    again, first = Store(store), Record.from_line(removed[0])
    assert again.get(first.run).metrics["accuracy"] == first.metrics["accuracy"]  # equal runs give equal bits
    assert len(again) == len(lines)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_stops_cleanly_and_keeps_what_is_done(tmp_path):
    wanted = [*SMALL, "--systems", "lp", "mean", "--set", "epochs=100000", "patience=100000", "--jobs", "2"]
    process = subprocess.Popen(
        command("table1", *wanted, "--store", tmp_path / "runs.jsonl"), stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    first = process.stderr.readline()
    assert "[1/2]" in first, first
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130
    assert "stopped; 1 of 2 runs are done and kept in" in said
    assert "Traceback" not in said
    assert not psutil.wait_procs(workers, timeout=5)[1]
    assert [record.run.system for record in Store(tmp_path / "runs.jsonl")] == ["lp"]


def test_a_damaged_line_is_named_and_failed_runs_are_counted(tmp_path):
    run = Run("classification", GRAPH, "structural", 0.5, "zero", (), 0)
    store = tmp_path / "runs.jsonl"
    store.write_text("half a li\n" + Record(run, "failed", message="no").to_line())
    said = invoke("table1", *SMALL, "--systems", "zero", "--store", store, "--out", tmp_path, "--no-run")
    assert said.exit_code == 0
    assert "line 1 is damaged and was skipped" in said.stderr
    assert "| 0, 1 failed |" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table9"], "unknown plan 'table9': choose from table1"),
        (["table1", "--systems", "pcfi", "magic"], "unknown system 'magic': choose from zero"),
        (["table1", "--datasets", "Coral"], "unknown data set 'Coral': choose from Cora"),
        (["table1", "--set", "epochs"], "--set takes NAME=VALUE"),
        (["table1", "--splits", "0"], "splits must be at least 1"),
        (["table1", "--jobs", "0", "--systems", "zero"], "jobs must be at least 1"),
        (["table1", "--rates", "2"], "rate must be"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(tmp_path, arguments, words):
    said = invoke(*arguments, "--store", tmp_path / "runs.jsonl", "--out", tmp_path)
    assert said.exit_code == 2
    assert words in said.stderr
    assert said.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_store_that_cannot_be_read_is_one_line_and_exit_code_1(tmp_path):
    said = invoke("table1", "--store", tmp_path)  # a folder
    assert said.exit_code == 1
    assert said.stderr.startswith("pcfi: ")
    assert said.stderr.count("\n") == 1


def test_lists_may_be_given_in_a_row_or_one_by_one(tmp_path):
    told = ["--splits", "1", "--dry-run", "--store", tmp_path / "runs.jsonl"]
    row = invoke("table1", "--datasets", "Cora", "CiteSeer", "--systems", "pcfi", "fp", *told)
    single = invoke(
        "table1", "--datasets", "Cora", "--datasets", "CiteSeer", "--systems", "pcfi", "--systems=fp", *told
    )
    assert row.exit_code == single.exit_code == 0
    assert row.stdout == single.stdout
    assert "12 runs" in row.stdout


def test_version_and_help_load_nothing_heavy():
    code = (
        "import sys\nfrom pcfi.cli.app import app\n"
        "app(['--version'], standalone_mode=False); app(['reproduce', '--help'], standalone_mode=False)\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"pcfi {pcfi.__version__}" in said
    assert "--dry-run" in said
    loaded = set(said.splitlines()[-1].split())
    assert not loaded & {"torch", "torch_geometric", "matplotlib", "scipy", "numba", "jinja2", "sklearn", "psutil"}


def test_without_the_packages_of_the_command_line_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == 'the command pcfi needs more packages: pip install "pcfi[cli]"\n'


def test_without_the_packages_of_the_laboratory_nothing_is_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr("pcfi.experiments.runs.preparation.find_spec", lambda _: None)
    said = invoke("table1", *SMALL, "--systems", "zero", "--store", tmp_path / "runs.jsonl", "--out", tmp_path)
    assert said.exit_code == 1
    assert 'pip install "pcfi[experiments]"' in said.stderr
    assert not list(tmp_path.iterdir())


def test_a_data_set_that_is_not_there_stops_before_anything_is_recorded(monkeypatch, tmp_path):
    monkeypatch.setenv("PCFI_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("pcfi.experiments.data.loading._read", missing_data)
    datasets.load.cache_clear()
    said = invoke("table1", "--datasets", "Cora", "--splits", "1", "--store", tmp_path / "runs.jsonl")
    assert said.exit_code == 1
    assert "connect to the network" in said.stderr
    assert not Path(tmp_path / "runs.jsonl").exists()


def missing_data(name):
    from pcfi.errors import DatasetError

    raise DatasetError(f"{name} is not there: connect to the network once")
