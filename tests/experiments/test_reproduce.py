"""The command `pcfi reproduce` on a synthetic graph: every experiment, resuming, stopping, wrong usage."""

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
from pcfi.experiments.data import loading
from pcfi.experiments.run import Record, Run
from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.paper_experiments import EXPERIMENTS

pytestmark = pytest.mark.slow

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
    """A folder in which every experiment has run, and what the command output."""
    folder = tmp_path_factory.mktemp("everything")
    arguments = [*SMALL, *SHORT, *GRID, "--store", folder / "runs.jsonl", "--out", folder]
    output = subprocess.run(command("all", *arguments), capture_output=True, text=True, check=False)
    return folder, arguments, output


def test_every_experiment_runs_and_prints_its_results(everything):
    folder, _, output = everything
    assert output.returncode == 0, output.stderr
    store = RunStore(folder / "runs.jsonl")
    assert {record.run.system for record in store} >= {"zero", "lp", "srmgcnn", "gcnmf", "pagnn", "fp", "pcfi", "full"}
    assert all(record.done for record in store)
    assert f"[{len(store)}/{len(store)}]" in output.stderr
    assert re.search(
        rf"\| {GRAPH} \| structural \| PCFI \| accuracy \| \d+\.\d\d \| - \| - \| - \| 1 \|", output.stdout
    )


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "search"])
def test_stored_results_are_shown_again_without_running(everything, tmp_path, name):
    folder, arguments, _ = everything
    before = (folder / "runs.jsonl").read_bytes()
    output = invoke(name, *arguments[:-2], "--out", tmp_path)
    assert output.exit_code == 0
    assert "| system |" in output.stdout or "| alpha |" in output.stdout
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
    output = invoke(
        "search", *arguments[:-2], "--systems", "pcfi", "--out", tmp_path
    )  # the heatmap ran the same points
    assert output.exit_code == 0
    records = [record for record in RunStore(folder / "runs.jsonl") if dict(record.run.parameters).get("beta") == 0.01]
    best = max((r for r in records if r.run.task == "classification"), key=lambda r: r.metrics["validation_accuracy"])
    alpha = dict(best.run.parameters)["alpha"]
    assert f"| classification | {GRAPH} | structural | 0.5 | PCFI | alpha {alpha:g}, beta 0.01" in output.stdout


def test_a_dry_run_says_what_would_run_and_how_long(everything, tmp_path):
    _, arguments, _ = everything
    arguments = [argument for argument in arguments if argument != "1"]
    arguments.insert(arguments.index("--splits") + 1, "3")
    output = invoke("table1", *arguments, "--systems", "pcfi", "mean", "--jobs", "2", "--dry-run")
    assert output.exit_code == 0
    assert "table1: 6 runs, 5 of them to do: about " in output.stdout
    assert "unknown for 3 (no earlier run of the system on the data set)" in output.stdout
    assert "Total: 5 runs, 2 at a time" in output.stdout


def test_resuming_runs_only_what_is_missing(everything, tmp_path):
    folder = everything[0]
    lines = (folder / "runs.jsonl").read_text().splitlines(keepends=True)
    removed = [line for line in lines if '"system": "zero"' in line or '"system":"zero"' in line]
    assert len(removed) == 1
    store = tmp_path / "runs.jsonl"
    store.write_text("".join(line for line in lines if line not in removed))
    arguments = [*SMALL, *SHORT, "--store", store, "--out", tmp_path]
    output = subprocess.run(command("table1", *arguments), capture_output=True, text=True, check=True)
    assert re.findall(r"\[\d+/\d+\] classification \S+ structural 0.5 (\S+)", output.stderr) == ["zero"]
    again, first = RunStore(store), Record.from_line(removed[0])
    assert again.get(first.run).metrics["accuracy"] == first.metrics["accuracy"]  # equal runs give equal bits
    assert len(again) == len(lines)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_stops_cleanly_and_keeps_what_is_done(tmp_path):
    arguments = [*SMALL, "--systems", "lp", "mean", "--set", "epochs=100000", "patience=100000", "--jobs", "2"]
    process = subprocess.Popen(
        command("table1", *arguments, "--store", tmp_path / "runs.jsonl"),
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    first = process.stderr.readline()
    assert "[1/2]" in first, first
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    output = process.communicate()[1]
    assert process.returncode == 130
    assert "stopped; 1 of 2 runs are done and stored in" in output
    assert "Traceback" not in output
    assert not psutil.wait_procs(workers, timeout=5)[1]
    assert [record.run.system for record in RunStore(tmp_path / "runs.jsonl")] == ["lp"]


def test_a_damaged_line_is_named_and_failed_runs_are_counted(tmp_path):
    run = Run("classification", GRAPH, "structural", 0.5, "zero", (), 0)
    store = tmp_path / "runs.jsonl"
    store.write_text("half a li\n" + Record(run, "failed", message="no").to_line())
    output = invoke("table1", *SMALL, "--systems", "zero", "--store", store, "--out", tmp_path, "--no-run")
    assert output.exit_code == 0
    assert "line 1 is damaged and was skipped" in output.stderr
    assert "| 0, 1 failed |" in output.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table9"], "unknown experiment 'table9': choose from table1"),
        (["table1", "--systems", "pcfi", "magic"], "unknown system 'magic': choose from zero"),
        (["table1", "--datasets", "Coral"], "unknown data set 'Coral': choose from Cora"),
        (["table1", "--set", "epochs"], "--set takes NAME=VALUE"),
        (["table1", "--splits", "0"], "splits must be at least 1"),
        (["table1", "--jobs", "0", "--systems", "zero"], "jobs must be at least 1"),
        (["table1", "--rates", "2"], "rate must be"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(tmp_path, arguments, words):
    output = invoke(*arguments, "--store", tmp_path / "runs.jsonl", "--out", tmp_path)
    assert output.exit_code == 2
    assert words in output.stderr
    assert output.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_store_that_cannot_be_read_is_one_line_and_exit_code_1(tmp_path):
    output = invoke("table1", "--store", tmp_path)  # a folder
    assert output.exit_code == 1
    assert output.stderr.startswith("pcfi: ")
    assert output.stderr.count("\n") == 1


def test_lists_may_be_given_in_a_row_or_one_by_one(tmp_path):
    options = ["--splits", "1", "--dry-run", "--store", tmp_path / "runs.jsonl"]
    row = invoke("table1", "--datasets", "Cora", "CiteSeer", "--systems", "pcfi", "fp", *options)
    single = invoke(
        "table1", "--datasets", "Cora", "--datasets", "CiteSeer", "--systems", "pcfi", "--systems=fp", *options
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
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"pcfi {pcfi.__version__}" in output
    assert "--dry-run" in output
    loaded = set(output.splitlines()[-1].split())
    assert not loaded & {"torch", "torch_geometric", "matplotlib", "scipy", "numba", "jinja2", "sklearn", "psutil"}


def test_without_the_packages_of_the_command_line_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == 'the command pcfi needs more packages: pip install "pcfi[cli]"\n'


def test_without_the_required_packages_nothing_is_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr("pcfi.experiments.runs.preparation.find_spec", lambda _: None)
    output = invoke("table1", *SMALL, "--systems", "zero", "--store", tmp_path / "runs.jsonl", "--out", tmp_path)
    assert output.exit_code == 1
    assert 'pip install "pcfi[experiments]"' in output.stderr
    assert not list(tmp_path.iterdir())


def test_a_data_set_that_is_not_there_stops_before_anything_is_recorded(monkeypatch, tmp_path):
    monkeypatch.setenv("PCFI_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("pcfi.experiments.data.loading._read", missing_data)
    loading.load.cache_clear()
    output = invoke("table1", "--datasets", "Cora", "--splits", "1", "--store", tmp_path / "runs.jsonl")
    assert output.exit_code == 1
    assert "connect to the network" in output.stderr
    assert not Path(tmp_path / "runs.jsonl").exists()


def missing_data(name):
    from pcfi.errors import DatasetError

    raise DatasetError(f"{name} is not there: connect to the network once")
