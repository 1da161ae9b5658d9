"""The pool of workers: a failed run does not affect the others, and no run is executed twice."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import psutil
import pytest

from pcfi import system_memory
from pcfi.errors import ParameterError
from pcfi.experiments.run import Run
from pcfi.experiments.runs import worker
from pcfi.experiments.runs.pool import Resources, WorkerError, run_all
from pcfi.experiments.runs.store import RunStore
from small_systems import power_iteration

pytestmark = pytest.mark.slow

ONE = Resources(jobs=1, memory_mb=2000)


def toy_run(seed=0, **parameters):
    return Run("classification", "Toy", "structural", 0.5, "power", tuple(sorted(parameters.items())), seed)


def largest_eigenvalue(seed, size=20):
    matrix = np.random.default_rng(seed).standard_normal((size, size))
    return np.linalg.eigvalsh(matrix @ matrix.T)[-1]


def test_every_run_is_executed_once_and_small_runs_share_a_process():
    records = list(run_all([toy_run(seed) for seed in range(6)], power_iteration, ONE))
    assert [record.run.seed for record in records] == list(range(6))
    for record in records:
        assert record.status == "done"
        assert record.metrics["accuracy"] == pytest.approx(largest_eigenvalue(record.run.seed), rel=1e-3)
        assert record.versions["numpy"] == np.__version__
        assert record.peak_mb > 10
    assert len({record.details["process"] for record in records}) == 1


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_failures_are_recorded_and_the_next_run_is_executed():
    failures = {
        "error": ("failed", "ValueError: this system does not know what to do (small_systems.py, line"),
        "memory error": ("out of memory", "MemoryError"),
        "killed": ("out of memory", "SIGKILL"),
        "segfault": ("failed", "SIGSEGV"),
        "exit": ("failed", "exit code 3"),
    }
    runs = [run for fault in failures for run in (toy_run(fault=fault), toy_run(seed=len(fault)))]
    records = {record.run.key: record for record in run_all(runs, power_iteration, ONE)}
    assert len(records) == len(runs)
    for fault, (status, words) in failures.items():
        record = records[toy_run(fault=fault).key]
        assert (record.status, words in record.message) == (status, True), record.message
        assert records[toy_run(seed=len(fault)).key].status == "done"


def test_a_run_that_exceeds_its_memory_limit_is_killed_and_the_next_one_is_executed():
    limit = Resources(jobs=1, memory_mb=400)
    first, second = run_all([toy_run(fault="fills memory"), toy_run(seed=1)], power_iteration, limit)
    assert first.status == "out of memory"
    assert "400 MB are allowed" in first.message
    assert first.peak_mb > 400
    assert second.status == "done"


def test_a_worker_that_has_grown_large_is_replaced():
    limit = Resources(jobs=1, memory_mb=800)
    records = list(
        run_all([toy_run(0), toy_run(1, fault="keeps memory"), toy_run(2), toy_run(3)], power_iteration, limit)
    )
    assert all(record.done for record in records)
    first, large, third, last = (record.details["process"] for record in records)
    assert first == large != third == last
    assert records[1].peak_mb > records[0].peak_mb + 100
    assert records[2].peak_mb < records[1].peak_mb - 100


def test_two_jobs_run_at_the_same_time(tmp_path):
    # each run ends only after the other has started
    runs = [toy_run(seed, meet=(str(tmp_path / str(seed)), str(tmp_path / str(1 - seed)))) for seed in range(2)]
    records = list(run_all(runs, power_iteration, Resources(jobs=2, memory_mb=2000)))
    assert [record.status for record in records] == ["done", "done"]
    assert len({record.details["process"] for record in records}) == 2


def test_leaving_early_ends_the_workers():
    records = run_all([toy_run(0), toy_run(1, seconds=60.0)], power_iteration, ONE)
    next(records)
    children = psutil.Process().children(recursive=True)
    records.close()
    assert not [child for child in children if child.is_running() and "spawn_main" in " ".join(child.cmdline())]


def test_a_worker_that_cannot_start_is_an_error_and_not_a_failed_run(monkeypatch):
    only_here = types.ModuleType("only_here")
    exec("def execute(run): return None", vars(only_here))
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    with pytest.raises(WorkerError, match="could not start"):
        list(run_all([toy_run()], only_here.execute, ONE))


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"threads": 0}, {"memory_mb": 0}])
def test_resources_are_checked(wrong):
    with pytest.raises(ParameterError):
        Resources(**wrong)


def test_processes_share_what_the_container_leaves(monkeypatch):
    monkeypatch.setattr(system_memory, "_container_limit", lambda: 100 * 2**20)
    assert Resources(jobs=2).limit_mb == pytest.approx(45)
    monkeypatch.setattr(system_memory, "_container_limit", lambda: None)
    monkeypatch.setattr(system_memory, "_system_available", lambda: 200 * 2**20)
    assert Resources(jobs=2).limit_mb == pytest.approx(90)


PARENT = """
import sys
sys.path.insert(0, {tests!r})
from small_systems import power_iteration
from pcfi.experiments.runs.pool import Resources, run_all
from pcfi.experiments.run import Run
from pcfi.experiments.runs.store import RunStore

if __name__ == "__main__":
    store = RunStore(sys.argv[1])
    runs = [Run("classification", "Toy", "structural", 0.5, "power", (("seconds", 0.2),), seed) for seed in range(12)]
    for record in run_all([run for run in runs if run not in store], power_iteration, Resources(2, 1, 2000)):
        store.append(record)
        print(record.run.seed, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_a_killed_parent_loses_only_running_runs_and_resumes_with_the_rest(tmp_path, name):
    script, path = tmp_path / "runner.py", tmp_path / "runs.jsonl"
    script.write_text(PARENT.format(tests=str(Path(__file__).parents[1] / "helpers")))
    command = [sys.executable, str(script), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    output = [process.stdout.readline().strip() for _ in range(4)]
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(getattr(signal, name))
    output += process.communicate()[0].split()
    first = {int(seed) for seed in output}
    assert {record.run.seed for record in RunStore(path)} >= first
    assert not psutil.wait_procs(children, timeout=10)[1]  # the workers end with their parent
    done = {record.run.seed for record in RunStore(path)}
    second = {int(seed) for seed in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}
    assert second == set(range(12)) - done
    assert len(RunStore(path)) == 12


def test_peak_memory_without_proc_comes_from_resource_or_is_not_reported(monkeypatch):
    def absent(*_, **__):
        raise OSError("no /proc here")

    monkeypatch.setattr(Path, "read_text", absent)
    if importlib.util.find_spec("resource"):
        assert worker._peak_memory_mb() > 10
    monkeypatch.setitem(sys.modules, "resource", None)
    assert worker._peak_memory_mb() == 0.0


def test_threads_are_set_for_the_workers_only():
    before = os.environ.get("OMP_NUM_THREADS")
    with contextlib.closing(run_all([toy_run()], power_iteration, Resources(1, 2, 2000))) as records:
        assert next(records).threads == 2
    assert os.environ.get("OMP_NUM_THREADS") == before
