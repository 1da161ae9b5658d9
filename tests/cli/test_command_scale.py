"""`pcfi impute --memory` and `--cluster`: processes on real files, the numbers of `pcfi.impute`, kills, refusals."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from examples import FENCE, PAGES
from pyarrow import csv, parquet
from typer.testing import CliRunner

import pcfi
from command_line import COMMAND, run
from pcfi.cli import requirements
from pcfi.cli.app import app

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="kills with a signal")]

N_NODES, N_CHANNELS = 2500, 20
PAPER = ["--alpha", "0.5", "--beta", "0.1", "--objective", "representation"]


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def problem():
    rng = np.random.default_rng(0)
    ring = np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES])
    index = np.concatenate([ring, rng.integers(0, N_NODES, size=(2, 3 * N_NODES))], axis=1)
    values = rng.normal(size=(N_NODES, N_CHANNELS)).astype(np.float32)
    values[rng.random(values.shape) < 0.7] = np.nan
    return values, index


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Nodes named 0007 in an order of their own; floats of both widths, integers, flags, a decimal, other columns."""
    folder = tmp_path_factory.mktemp("files")
    values, index = problem()
    rng = np.random.default_rng(1)
    ids = np.array([f"{k * 7919 % N_NODES:04d}" for k in range(N_NODES)])
    whole = pa.array(rng.integers(0, 9, N_NODES), mask=rng.random(N_NODES) < 0.5)
    flags = pa.array(rng.random(N_NODES) < 0.5, mask=rng.random(N_NODES) < 0.5)
    nodes = pa.table(
        {
            "code": ids,
            **{f"c{k}": pa.array(column, from_pandas=True) for k, column in enumerate(values.T)},
            "wide": pa.array(values[:, 0].astype(float), from_pandas=True),
            "whole": whole,
            "flag": flags,
            "price": pa.array(rng.integers(0, 99, N_NODES), mask=rng.random(N_NODES) < 0.5).cast(pa.decimal128(21, 2)),
            "complete": np.arange(N_NODES),
            "label": np.arange(N_NODES) % 3,
            "since": ["2020-01-01"] * N_NODES,
        }
    )
    edges = pa.table({"from": ids[index[0]], "to": ids[index[1]], "weight": np.arange(len(index.T)) % 3 + 1})
    parquet.write_table(nodes, folder / "nodes.parquet", row_group_size=600)
    parquet.write_table(edges, folder / "edges.parquet", row_group_size=3000)
    csv.write_csv(edges, folder / "edges.csv")
    (folder / "edges.csv.gz").write_bytes(gzip.compress((folder / "edges.csv").read_bytes()))
    np.save(folder / "x.npy", values)
    np.save(folder / "rows.npy", index)
    return folder


def assert_same_tables(left, right):
    assert left.schema.equals(right.schema)
    for name in left.column_names:
        if pa.types.is_floating(left.schema.field(name).type):
            np.testing.assert_allclose(left[name].to_numpy(), right[name].to_numpy(), rtol=1e-6, atol=1e-6)
        else:
            assert left[name].to_pylist() == right[name].to_pylist(), name


def outputs(folder, name):
    written = [folder / f"{name}.parquet", folder / f"{name}-c.parquet", folder / f"{name}-h.parquet"]
    return written, ["-o", written[0], "--confidence", written[1], "--hops", written[2]]


def test_a_budget_changes_nothing_but_the_way(files, tmp_path):
    budgeted, options = outputs(tmp_path, "budget")
    common = ["--exclude", "label", *PAPER]
    done = run("impute", "nodes.parquet", "edges.csv.gz", *options, *common, "--memory", "2GB", folder=files)
    assert done.returncode == 0, done.stderr
    said = done.stderr.decode()
    assert "2,500 nodes, ids in 'code', 25 channels (c0, c1, c2, c3, c4, c5, ... complete)" in said
    assert "'from' to 'to', weights in 'weight'" in said
    assert "If this run is interrupted, the same command resumes it" in said
    assert "diffuse: 3 tasks, " in said
    assert done.stdout.startswith(b"Filled ")
    whole, options = outputs(tmp_path, "whole")
    assert invoke("impute", files / "nodes.parquet", files / "edges.parquet", *options, *common).exit_code == 0
    for left, right in zip(budgeted, whole, strict=True):
        assert_same_tables(parquet.read_table(left), parquet.read_table(right))
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in (*budgeted, *whole)}


@pytest.mark.parametrize("suffix", ["npy", "zarr", "parquet"])
def test_arrays_go_in_and_every_format_out(files, tmp_path, suffix):
    values, index = problem()
    target = tmp_path / f"y.{suffix}"
    done = invoke("impute", files / "x.npy", files / "rows.npy", "-o", target, *PAPER, "--memory", "2GB", "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["outputs"] == {"values": str(target)}
    assert sum(one["n_missing"] for one in facts["channels"]) == int(np.isnan(values).sum())
    if suffix == "npy":
        found = np.load(target)
    elif suffix == "zarr":
        found = pytest.importorskip("zarr").open(str(target), mode="r")[:]
    else:
        table = parquet.read_table(target)
        assert table.column_names[:2] == ["channel_0", "channel_1"]
        found = np.stack([column.to_numpy() for column in table.columns], axis=1)
    expected = pcfi.impute(values, index, alpha=0.5, beta=0.1, objective="representation").values
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_commands_of_the_page_run_as_written(tmp_path):
    """A budget, then a cluster of real processes: both give the numbers of `pcfi.impute`."""
    pytest.importorskip("distributed")
    page = next(page for page in PAGES if page.name == "scale.md").read_text()
    code = "".join(code for language, code in FENCE.findall(page) if language == "sh")
    (tmp_path / "pcfi").write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    (tmp_path / "pcfi").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    shell = subprocess.Popen(
        ["bash", "-ec", code.replace("8786", str(free_port()))],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, said = shell.communicate(timeout=180)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, said
    assert "not needed; at least " in printed
    filled, shared = (parquet.read_table(tmp_path / name) for name in ("filled.parquet", "shared.parquet"))
    assert_same_tables(shared, filled)  # a worker's BLAS has other threads, which may move the last bit of stage 2
    nodes, edges = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("nodes", "edges"))
    assert_same_tables(filled, pcfi.frames.impute(nodes, edges, id="name").values)


def test_a_scheduler_that_is_not_there_is_one_line(files, tmp_path, monkeypatch):
    cluster = pytest.importorskip("pcfi.outofcore.cluster")
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT", "1s")
    done = invoke(
        "impute", files / "x.npy", files / "rows.npy", "-o", tmp_path / "y.npy", "--cluster", "tcp://127.0.0.1:9"
    )
    assert done.exit_code == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("pcfi: the scheduler at 'tcp://127.0.0.1:9' cannot be reached")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_killed_run_goes_on_with_the_same_command_to_the_same_bits(files, tmp_path, name):
    command = ["impute", files / "nodes.parquet", files / "edges.csv", *PAPER, "--exclude", "label", "--rtol", "1e-9"]
    target, whole = tmp_path / "killed.parquet", tmp_path / "whole.parquet"
    assert invoke(*command, "-o", whole, "--memory", "2GB").exit_code == 0
    command += ["-o", target, "--memory", "2GB"]
    journal = tmp_path / "killed.parquet.work" / "journal"
    started = subprocess.Popen([*COMMAND, *map(str, command)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not any(journal.glob("split-*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    started.send_signal(getattr(signal, name))
    said = started.communicate()[1]
    assert started.returncode != 0
    assert not target.exists()
    assert (b"The same command resumes the run" in said) == (name == "SIGTERM")
    done = run(*command)
    assert done.returncode == 0, done.stderr
    assert b"Resuming an interrupted run with " in done.stderr
    assert b"of them before" in done.stderr
    assert parquet.read_table(target).equals(parquet.read_table(whole))
    assert {path.name for path in tmp_path.iterdir()} == {"killed.parquet", "whole.parquet"}


def stopped(files, tmp_path, monkeypatch, *more):
    """A run that was interrupted after its first task, and its command."""
    from pcfi.outofcore.folder import WorkFolder

    command = ["impute", files / "nodes.parquet", files / "edges.csv", "-o", tmp_path / "y.parquet", "--memory=2GB"]
    record = WorkFolder.record

    def interrupted(self, stage, index, facts):
        record(self, stage, index, facts)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "record", interrupted)
        done = invoke(*command, *more)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (130, "pcfi: interrupted")
    return command


def test_a_run_that_was_stopped_is_not_mixed_up_with_another(files, tmp_path, monkeypatch):
    command = stopped(files, tmp_path, monkeypatch)
    done = invoke(*command, "--source", "to", "--target", "from")
    assert done.exit_code == 2
    assert "belongs to another run (other edges)" in done.stderr
    assert "--work" in done.stderr
    done = invoke(*command, "--alpha", "0.7")
    assert (done.exit_code, "belongs to another run (other settings)" in done.stderr) == (2, True)
    assert invoke(*command).exit_code == 0


def test_an_output_is_overwritten_only_by_force(files, tmp_path):
    target = tmp_path / "y.npy"
    target.write_bytes(b"precious")
    command = ["impute", files / "x.npy", files / "rows.npy", "-o", target, "--memory", "2GB"]
    done = invoke(*command)
    assert (done.exit_code, "exists already" in done.stderr, "--force" in done.stderr) == (1, True, True)
    assert target.read_bytes() == b"precious"
    assert invoke(*command, "--force").exit_code == 0
    assert np.load(target).shape == (N_NODES, N_CHANNELS)


def table_of_columns(done):
    lines = done.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("column "))
    return lines[first : lines.index("", first)]


@pytest.mark.parametrize("nodes", ["nodes.parquet", "marked.csv"])
def test_values_intervals_and_columns_are_those_without_a_budget(files, tmp_path, nodes):
    """Also of a table with markers, semicolons, decimal commas and categories."""
    more = ["--exclude", "label", "--categorical", "kind"] if nodes == "marked.csv" else ["--exclude", "label"]
    if nodes == "marked.csv":
        table = parquet.read_table(files / "nodes.parquet").select(["code", "c0", "c1", "whole", "label"]).to_pandas()
        table["kind"] = np.where(table["c1"].isna(), "?", np.where(table["c0"] > 0, "up", "down"))
        table["whole"] = table["whole"].fillna(-999).astype(int)
        table.to_csv(files / nodes, sep=";", decimal=",", index=False)
        more += ["--missing-value", "-999", "--missing-value", "?"]
    found = {}
    for name, budget in (("whole", []), ("budget", ["--memory", "2GB"])):
        paths = [tmp_path / f"{name}.parquet", tmp_path / f"{name}-i.parquet", tmp_path / f"{name}-h.parquet"]
        outputs = ["-o", paths[0], "--intervals", paths[1], "--coverage", "0.8", "--hops", paths[2]]
        done = invoke("impute", files / nodes, files / "edges.parquet", *outputs, *more, *budget)
        assert done.exit_code == 0, done.stderr
        found[name] = [parquet.read_table(path) for path in paths], table_of_columns(done)
    for left, right in zip(found["whole"][0], found["budget"][0], strict=True):
        assert_same_tables(right, left)
    assert found["whole"][1] == found["budget"][1]


@pytest.mark.parametrize("nodes", ["nodes.parquet", "x.npy"])
def test_files_that_do_not_fit_are_filled_from_disk_without_being_told_to(files, tmp_path, monkeypatch, nodes):
    edges = "edges.parquet" if nodes == "nodes.parquet" else "rows.npy"
    command = ["impute", files / nodes, files / edges, "-o"]
    assert invoke(*command, tmp_path / "whole.npy").exit_code == 0
    monkeypatch.setattr(requirements, "bytes_in_memory", lambda *_: 10**13)
    done = invoke(*command, tmp_path / "disk.npy")
    assert done.exit_code == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("Filling these files in memory takes about 10000.0 GB, and ")
    assert "they are processed on disk within " in first
    np.testing.assert_allclose(np.load(tmp_path / "disk.npy"), np.load(tmp_path / "whole.npy"), rtol=1e-6, atol=1e-6)
    # what only the table in memory gives is not refused for a reason that nobody asked for
    done = invoke(*command, tmp_path / "whole.csv", "--method", "mean")
    assert done.exit_code == 0, done.stderr
    assert "on disk" not in done.stderr


def test_a_run_from_disk_that_was_stopped_goes_on_there(files, tmp_path, monkeypatch):
    command = [word for word in stopped(files, tmp_path, monkeypatch) if word != "--memory=2GB"]
    done = invoke(*command)
    assert done.exit_code == 0, done.stderr
    assert "Resuming an interrupted run" in done.stderr
    assert not (tmp_path / "y.parquet.work").exists()


def test_edges_to_unknown_ids_are_refused_or_dropped(files, tmp_path):
    lines = (files / "edges.csv").read_text().splitlines()[:8]
    (tmp_path / "e.csv").write_text("\n".join([*lines, '"nobody","0001",1', ""]))
    command = ["impute", files / "nodes.parquet", tmp_path / "e.csv", "-o", tmp_path / "y.npy", "--memory", "2GB"]
    done = invoke(*command)
    assert done.exit_code == 1
    assert "edge 7 names 'nobody', which is not among the 2,500 ids" in done.stderr
    assert "--unknown-ids drop" in done.stderr
    assert not (tmp_path / "y.npy.work").exists()
    assert invoke(*command, "--unknown-ids", "drop").exit_code == 0


FILES = ["nodes.parquet", "edges.csv", "-o", "y.parquet", "--memory", "2GB"]
REFUSED = {
    "evaluate": ([*FILES, "--evaluate"], 2, "use pcfi evaluate"),
    "categories in arrays": (
        [*FILES[:3], "y.npy", *FILES[4:], "--categorical", "since"],
        2,
        "write categories to .parquet",
    ),
    "intervals of a representation": (
        [*FILES, "--objective", "representation", "--intervals", "i.parquet"],
        2,
        "--intervals needs --objective values",
    ),
    "similar rows": (["nodes.parquet", *FILES[2:], "--knn", "5"], 2, "--knn compares rows in memory"),
    "positions as Zarr": (
        [*FILES[:3], "y.zarr", *FILES[4:], "--position", "2", "--objective", "representation"],
        2,
        "can hold plain values only",
    ),
    "other methods": ([*FILES, "--method", "mean"], 2, "one of pcfi, fp, got mean"),
    "threads of workers": ([*FILES, "--cluster", "tcp://x:1", "--threads", "2"], 2, "dask worker --nthreads"),
    "stdin": (["-", *FILES[1:]], 2, "standard input and output"),
    "stdout": ([*FILES[:3], "-", *FILES[4:]], 2, "standard input and output"),
    "work alone": ([*FILES[:4], "--work", "w"], 2, "--work needs --memory or --cluster"),
    "no size": ([*FILES[:5], "much"], 2, 'a size such as "4GB"'),
    "too small": ([*FILES[:5], "1MB"], 1, "grant more"),
    "no such nodes": (["none.parquet", *FILES[1:]], 1, "none.parquet does not exist"),
    "no such folder": ([*FILES[:3], "no/y.parquet", *FILES[4:]], 1, "folder no does not exist"),
    "no such column": ([*FILES, "--columns", "x"], 2, "--columns names 'x'"),
    "no such end": ([*FILES, "--source", "x"], 2, "--source names 'x'"),
    "columns of arrays": (["x.npy", *FILES[1:], "--columns", "c1"], 2, "--columns names 'c1', but"),
    "no ids": (["x.npy", "named.csv", *FILES[2:]], 1, "name the column of the nodes that holds ids with --id"),
    "twice": ([*FILES, "--id", "since"], 1, "the id '2020-01-01' is duplicated"),
    "cut nodes": (["cut.parquet", *FILES[1:]], 1, "cannot be read as Parquet"),
    "cut edges": (["nodes.parquet", "cut.parquet", *FILES[2:]], 1, "cannot be read"),
    "noise": (["nodes.parquet", "noise.csv.gz", *FILES[2:]], 1, "noise.csv.gz' cannot be read"),
    "two outputs": ([*FILES, "--hops", "y.parquet"], 2, "two outputs have the path y.parquet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_with_a_budget_is_refused_in_one_line(files, monkeypatch, case):
    arguments, code, words = REFUSED[case]
    monkeypatch.chdir(files)
    (files / "named.csv").write_text("from,to\na,b\n")
    (files / "cut.parquet").write_bytes((files / "nodes.parquet").read_bytes()[:-200])
    (files / "noise.csv.gz").write_bytes(b"\x1f\x8b nonsense")
    before = sorted(files.iterdir())
    done = invoke("impute", *arguments)
    assert done.exit_code == code, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pcfi: ")
    assert words in last
    assert "Traceback" not in done.stderr
    assert sorted(files.iterdir()) == before


def test_info_says_what_a_job_will_take(files):
    done = invoke("info", files / "nodes.parquet", files / "edges.parquet", "--exclude", "label", "--json")
    job = json.loads(done.stdout)["job"]
    said = pcfi.scale.estimate(N_NODES, 10_000, 25, n_patterns=24, dtype=float, weighted=True)
    assert job["least"] == said.memory
    assert job["disk"] == pytest.approx(said.graph + said.work + said.result, rel=0.01)
    assert (job["advised"], job["seconds"] > 0) == (False, True)
    assert "not needed; at least 0.3 GB" in invoke("info", files / "nodes.parquet", files / "edges.parquet").stdout


@pytest.mark.parametrize("edges", ["edges.parquet", "edges.csv", "rows.npy"])
def test_info_on_files_larger_than_memory_reads_their_heads(files, monkeypatch, edges):
    monkeypatch.setattr("pcfi.cli.requirements.available", lambda: 2_000_000)
    done = invoke("info", files / "nodes.parquet", files / edges, "--exclude", "label")
    assert done.exit_code == 0, done.stderr
    assert "only their metadata was read" in done.stdout
    assert "--memory 1GB" in done.stdout
    found = json.loads(invoke("info", files / "nodes.parquet", files / edges, "--exclude", "label", "--json").stdout)
    assert (found["n_nodes"], found["n_channels"]) == (N_NODES, 25)
    assert found["n_edges"] == pytest.approx(10_000, rel=0.02)
    assert found["job"]["advised"]


def test_the_advice_names_a_budget_that_suffices():
    job = requirements.Requirements(10**11, 32 * 10**9, 2 * 10**9, 10**8, 10**10, 60.0, True)
    assert job.remarks() == ["Filling this in memory takes about 100.0 GB: use --memory 3GB."]
    larger = requirements.Requirements(10**11, 10**9, 2 * 10**9, 1, 1, 60.0, True)
    assert "This machine has too little memory" in larger.remarks()[0]
    assert requirements.Requirements(1, 10**9, 1, 1, 1, 1.0, False).remarks() == []
