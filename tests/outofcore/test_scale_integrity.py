"""Runs that were killed while they wrote, whose work files changed meanwhile, or that another run works on."""

import os
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import pcfi
from pcfi import scale
from pcfi.cli.app import app
from pcfi.files.paths import remove
from pcfi.outofcore import plan
from pcfi.outofcore.backend import OutOfCoreBackend
from pcfi.outofcore.folder import WorkFolder
from pcfi.outofcore.run_lock import run_lock
from pcfi.outofcore.sinks import ResultSink

PAPER = {"alpha": 0.5, "beta": 0.1, "objective": "representation"}
impute = partial(scale.impute, **PAPER)

N_NODES, N_CHANNELS = 4000, 40
SUFFIXES = ["npy", "zarr", "parquet"]


class Killed(BaseException):
    """Ends a run as a kill would: nothing in the library catches it."""


@pytest.fixture(autouse=True)
def several_ranges(monkeypatch):
    monkeypatch.setattr(plan, "MIN_RANGE_ROWS", 1000)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    values = np.where(rng.random((N_NODES, N_CHANNELS)) < 0.5, rng.normal(size=(N_NODES, N_CHANNELS)), np.nan)
    np.save(tmp_path / "x.npy", values)
    scale.build_graph(np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES]), tmp_path / "g")
    return tmp_path / "x.npy", tmp_path / "g"


def content(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".zarr":
        return pytest.importorskip("zarr").open(str(path), mode="r")[:]
    return np.stack([column.to_numpy() for column in parquet.read_table(path).columns], axis=1)


def kill_after(monkeypatch, owner, name, n_calls):
    """Let a method run `n_calls` times, and end the process, as it were, at the next call."""
    original, calls = getattr(owner, name), []

    def method(self, *arguments, **options):
        calls.append(1)
        if len(calls) > n_calls:
            raise Killed
        return original(self, *arguments, **options)

    monkeypatch.setattr(owner, name, method)


def stopped(monkeypatch, files, result, owner, name, n_calls, **options):
    with monkeypatch.context() as patch:
        kill_after(patch, owner, name, n_calls)
        with pytest.raises(Killed):
            impute(*files, result, **options)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("moment", ["between two ranges", "before the rename", "before the second rename"])
def test_a_run_that_is_killed_while_it_writes_goes_on_to_the_same_bits(files, tmp_path, monkeypatch, suffix, moment):
    expected = impute(*files, tmp_path / "expected.npy").open()
    result, hops = tmp_path / f"y.{suffix}", tmp_path / f"h.{suffix}"
    owner, name, n_calls = {
        "between two ranges": (WorkFolder, "record", 4 + 1 + 4 + 5 + 1 + 2),
        "before the rename": (ResultSink, "finish", 0),
        "before the second rename": (ResultSink, "finish", 1),
    }[moment]
    if suffix == "zarr":
        pytest.importorskip("zarr")
    stopped(monkeypatch, files, result, owner, name, n_calls, hops=hops)
    assert (tmp_path / f"h.{suffix}.partial").exists()
    command = ["impute", *files, "-o", result, "--hops", hops, "--memory", "2GB"]
    command += [word for name, value in PAPER.items() for word in (f"--{name}", value)]
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 0, done.stderr
    assert "Resuming an interrupted run" in done.stderr
    assert "changed while" not in done.stderr
    np.testing.assert_array_equal(content(result), expected)
    assert hops.exists()
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob("*.work*"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_result_that_was_deleted_before_it_had_its_name_is_written_again(files, tmp_path, monkeypatch, suffix):
    if suffix == "zarr":
        pytest.importorskip("zarr")
    expected = impute(*files, tmp_path / "expected.npy").open()
    result = tmp_path / f"y.{suffix}"
    stopped(monkeypatch, files, result, ResultSink, "finish", 0)
    remove(tmp_path / f"y.{suffix}.partial")
    with pytest.warns(pcfi.PcfiWarning, match=r"1 file of the work folder changed .*computed again: .*partial"):
        impute(*files, result)
    np.testing.assert_array_equal(content(result), expected)


def test_an_earlier_result_is_not_taken_for_that_of_the_run(files, tmp_path, monkeypatch):
    expected = impute(*files, tmp_path / "expected.npy").open()
    result = tmp_path / "y.npy"
    np.save(result, np.zeros((N_NODES, N_CHANNELS)))
    stopped(monkeypatch, files, result, ResultSink, "finish", 0, overwrite=True)
    remove(tmp_path / "y.npy.partial")
    with pytest.warns(pcfi.PcfiWarning, match="computed again"):
        impute(*files, result, overwrite=True)
    np.testing.assert_array_equal(np.load(result), expected)


def test_a_part_that_vanishes_during_the_run_is_an_error_and_the_next_run_writes_it(files, tmp_path, monkeypatch):
    check = OutOfCoreBackend._check_results

    def vanished(self):
        next((tmp_path / "y.parquet.partial").glob("part-*")).unlink()
        check(self)

    with monkeypatch.context() as patch:
        patch.setattr(OutOfCoreBackend, "_check_results", vanished)
        with pytest.raises(scale.StorageError, match="was removed while the run was going on: run it again"):
            impute(*files, tmp_path / "y.parquet")
    assert not (tmp_path / "y.parquet").exists()
    impute(*files, tmp_path / "y.parquet")
    assert content(tmp_path / "y.parquet").shape == (N_NODES, N_CHANNELS)


def overwritten(path, n_bytes=4096):
    """Overwrite a part in the middle of a file, as a failing disk or another program would."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    part = slice(max(0, middle - n_bytes // 2), middle + n_bytes // 2)
    data[part] = bytes(byte ^ 0x5A for byte in data[part])
    path.write_bytes(data)


STAGES = {
    "known.raw": 4,  # tasks that are finished before the kill: 4 ranges surveyed
    "survey-2.npy": 3,  # before the ranges are gathered
    "channels-mean.npy": 5,  # and one group of hops
    "hops-0.raw": 5,
    "hops.json": 9,  # and 4 ranges split
    "layout.json": 9,
    "panel-1.raw": 11,  # and two panels diffused
    "panel-4.raw": 11,
    "journal/diffuse-000001.json": 11,
    "propagation.npy": 16,
}


@pytest.mark.parametrize("name", STAGES)
def test_damaged_work_files_are_made_again(files, tmp_path, monkeypatch, name):
    expected = impute(*files, tmp_path / "expected.npy").open()
    result = tmp_path / "y.npy"
    stopped(monkeypatch, files, result, WorkFolder, "record", STAGES[name])
    overwritten(tmp_path / "y.npy.work" / name, 4096 if name.endswith(".raw") else 8)
    if name.startswith("journal"):
        impute(*files, result)  # an entry that cannot be read is a task that is not finished
    else:
        with pytest.warns(pcfi.PcfiWarning, match=f"changed while the run was stopped.*{name}"):
            impute(*files, result)
    np.testing.assert_array_equal(np.load(result), expected)


@pytest.mark.parametrize("suffix", ["npy", "parquet"])
def test_damaged_results_are_written_again(files, tmp_path, monkeypatch, suffix):
    expected = impute(*files, tmp_path / "expected.npy").open()
    result = tmp_path / f"y.{suffix}"
    stopped(monkeypatch, files, result, ResultSink, "finish", 0)
    partial = tmp_path / f"y.{suffix}.partial"
    overwritten(partial if suffix == "npy" else partial / "part-00002.parquet")
    with pytest.warns(pcfi.PcfiWarning, match="partial"):
        impute(*files, result)
    np.testing.assert_array_equal(content(result), expected)


@pytest.fixture
def tables(tmp_path):
    """A node table that has to be converted, because of its category, and an edge table."""
    rng = np.random.default_rng(2)
    kinds = [None if row % 3 == 0 else "ab"[row % 2] for row in range(N_NODES)]
    x = pa.array(rng.normal(size=N_NODES), mask=rng.random(N_NODES) < 0.5)
    parquet.write_table(pa.table({"id": np.arange(N_NODES), "x": x, "kind": kinds}), tmp_path / "n.parquet")
    edges = {"source": np.arange(N_NODES), "target": (np.arange(N_NODES) + 1) % N_NODES}
    parquet.write_table(pa.table({**edges, "weight": rng.random(N_NODES) + 0.5}), tmp_path / "e.parquet")
    return tmp_path / "n.parquet", tmp_path / "e.parquet"


MADE_FIRST = ["graph/graph.json", "graph/indices.npy", "graph/weights.npy", "graph/degree.npy", "nodes.parquet"]


@pytest.mark.parametrize("name", MADE_FIRST)
@pytest.mark.parametrize("place", ["begin", "middle", "all"])
def test_a_damaged_graph_or_converted_table_is_made_again(tables, tmp_path, monkeypatch, name, place):
    options, result = {"categorical": ["kind"], "directed": True}, tmp_path / "y.parquet"
    impute(*tables, tmp_path / "expected.parquet", **options)
    stopped(monkeypatch, tables, result, WorkFolder, "record", 5, **options)
    damaged = tmp_path / f"y.parquet.work.{name}"
    if place == "middle":
        overwritten(damaged, 8)
    else:
        damaged.write_bytes(b"" if place == "all" else b"?" * 8 + damaged.read_bytes()[8:])
    with pytest.warns(pcfi.PcfiWarning, match=r"changed while the run was stopped, and is (built|made) again"):
        impute(*tables, result, **options)
    assert parquet.read_table(result).equals(parquet.read_table(tmp_path / "expected.parquet"))
    assert not list(tmp_path.glob("*.work*"))


def test_the_command_line_says_that_a_converted_table_is_made_again(tables, tmp_path, monkeypatch):
    result = tmp_path / "y.parquet"
    command = ["impute", *tables, "-o", result, "--memory", "2GB", "--categorical", "kind"]
    with monkeypatch.context() as patch:
        kill_after(patch, WorkFolder, "record", 5)
        with pytest.raises(Killed):
            CliRunner().invoke(app, list(map(str, command)))
    overwritten(tmp_path / "y.parquet.work.nodes.parquet")
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 0, done.stderr
    assert "nodes.parquet' changed while the run was stopped, and is made again" in done.stderr
    assert result.exists()


@pytest.mark.parametrize("n_removed", range(5))
def test_a_run_that_is_killed_while_it_removes_its_files_is_completed_by_the_same_call(
    tables, tmp_path, monkeypatch, n_removed
):
    # the graph and the converted table stayed for ever, beside complete results
    from pcfi.outofcore import folder

    removed = []

    def killed(path):
        if str(path).startswith(str(tmp_path / "y.parquet.work")):
            removed.append(path)
        if len(removed) > n_removed:
            raise Killed
        remove(path)

    options, result = {"categorical": ["kind"]}, tmp_path / "y.parquet"
    with monkeypatch.context() as patch:
        patch.setattr(folder, "remove", killed)
        with pytest.raises(Killed):
            scale.impute(*tables, result, **options)
    assert parquet.read_table(result).num_rows == N_NODES
    left = sorted(path.name for path in tmp_path.glob("*.work*"))
    if n_removed == 4:  # beyond the last moment at which there is a run to go on with
        assert left == ["y.parquet.work.retired"]
        return
    assert "y.parquet.work" in left
    scale.impute(*tables, result, **options)
    assert parquet.read_table(result).num_rows == N_NODES
    assert not list(tmp_path.glob("*.work*"))


@pytest.mark.parametrize("name", ["graph.json", "indptr.npy", "indices.npy"])
def test_a_damaged_graph_folder_is_refused_and_the_run_goes_on_with_one_built_again(files, tmp_path, monkeypatch, name):
    expected = impute(*files, tmp_path / "expected.npy").open()
    stopped(monkeypatch, files, tmp_path / "y.npy", WorkFolder, "record", 5)
    overwritten(files[1] / name, 8)
    for result in ("y.npy", "z.npy"):
        with pytest.raises(scale.StorageError, match=f"is damaged .{name}.: build it again"):
            impute(*files, tmp_path / result)
    ring = np.stack([np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES])
    scale.build_graph(ring, files[1], overwrite=True)
    np.testing.assert_array_equal(impute(*files, tmp_path / "y.npy").open(), expected)


@pytest.mark.parametrize("content", [None, b"", b"?" * 500])
def test_a_graph_folder_whose_arrays_cannot_be_read_does_not_open(files, content):
    array = files[1] / "indices.npy"
    array.unlink()
    if content is not None:
        array.write_bytes(content)
    with pytest.raises(scale.StorageError, match=r"is damaged .indices.npy."):
        scale.open_graph(files[1])


def test_a_damaged_description_is_refused_in_words(files, tmp_path, monkeypatch):
    stopped(monkeypatch, files, tmp_path / "y.npy", WorkFolder, "record", 3)
    overwritten(tmp_path / "y.npy.work" / "job.json", 8)
    with pytest.raises(scale.StorageError, match=r"job.json' is damaged.*remove the folder .*y.npy.work"):
        impute(*files, tmp_path / "y.npy")


def test_one_run_at_a_time_works_in_a_folder(files, tmp_path):
    work = tmp_path / "y.npy.work"
    code = (
        "import sys, time; from pathlib import Path; from pcfi.outofcore.run_lock import run_lock\n"
        "with run_lock(Path(sys.argv[1])):\n    print('locked', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(work)], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(scale.StorageError, match="another run is working in"):
            impute(*files, tmp_path / "y.npy")
    finally:
        other.kill()
        other.communicate()
    impute(*files, tmp_path / "y.npy")  # the lock of a killed process is free
    assert not list(tmp_path.glob("*.lock"))


def test_threads_of_a_process_take_turns_but_a_thread_may_take_its_lock_twice(tmp_path):
    refused = []

    def attempt():
        try:
            with run_lock(tmp_path / "work"):
                pass
        except scale.StorageError as error:
            refused.append(str(error))

    with run_lock(tmp_path / "work"), run_lock(tmp_path / "work"):
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    assert len(refused) == 1
    attempt()
    assert len(refused) == 1


def test_a_full_disk_before_any_task_names_no_folder_that_is_not_there(files, tmp_path, monkeypatch):
    import errno
    import os

    def fails(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(scale.StorageError, match=r"job\.json") as refused:
        impute(*files, tmp_path / "y.npy")
    assert "Finished tasks" not in str(refused.value)


@pytest.mark.skipif(os.name == "nt", reason="files have no modes, and links need a privilege")
def test_results_follow_links_and_are_private_until_they_are_published(files, tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    real, link = tmp_path / "disk" / "real.npy", tmp_path / "y.npy"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    stopped(monkeypatch, files, link, ResultSink, "finish", 0, overwrite=True)
    assert (tmp_path / "disk" / "real.npy.partial").stat().st_mode & 0o077 == 0
    assert (tmp_path / "disk" / "real.npy.work").stat().st_mode & 0o077 == 0
    impute(*files, link, overwrite=True)
    assert link.is_symlink()
    assert np.load(real).shape == (N_NODES, N_CHANNELS)
    assert real.stat().st_mode & 0o777 == 0o640


def test_truth_values_stay_truth_values(tmp_path):
    rng = np.random.default_rng(1)
    flags = pa.array(rng.random(60) < 0.5, mask=rng.random(60) < 0.4)
    parquet.write_table(pa.table({"id": np.arange(60), "member": flags}), tmp_path / "n.parquet")
    np.save(tmp_path / "e.npy", np.stack([np.arange(60), (np.arange(60) + 1) % 60]))
    impute(tmp_path / "n.parquet", tmp_path / "e.npy", tmp_path / "y.parquet")
    filled = parquet.read_table(tmp_path / "y.parquet")["member"]
    assert filled.type == pa.bool_()
    assert filled.null_count == 0
    assert all(old is None or old == new for old, new in zip(flags.to_pylist(), filled.to_pylist(), strict=True))
