"""The runner: troubles of one run stay its own, and what was done is never done again."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import psutil
import pytest

from pcfi import memory
from pcfi.errors import ParameterError
from pcfi.experiments.runs.pool import Resources, WorkerError, run_all
from pcfi.experiments.run import Run
from pcfi.experiments.runs.store import Store
from small_systems import power_iteration

ONE = Resources(jobs=1, memory_mb=2000)


def asked(seed=0, **parameters):
    return Run("classification", "Toy", "structural", 0.5, "power", tuple(sorted(parameters.items())), seed)


def largest_eigenvalue(seed, size=20):
    matrix = np.random.default_rng(seed).standard_normal((size, size))
    return np.linalg.eigvalsh(matrix @ matrix.T)[-1]


def test_every_run_is_worked_on_once_and_light_runs_share_a_process():
    records = list(run_all([asked(seed) for seed in range(6)], power_iteration, ONE))
    assert [record.run.seed for record in records] == list(range(6))
    for record in records:
        assert record.status == "done"
        assert record.metrics["accuracy"] == pytest.approx(largest_eigenvalue(record.run.seed), rel=1e-3)
        assert record.versions["numpy"] == np.__version__
        assert record.peak_mb > 10
    assert len({record.details["process"] for record in records}) == 1


def test_troubles_are_recorded_and_the_next_run_goes_on():
    troubles = {
        "error": ("failed", "ValueError: this system does not know what to do (small_systems.py, line"),
        "memory error": ("out of memory", "MemoryError"),
        "killed": ("out of memory", "SIGKILL"),
        "segfault": ("failed", "SIGSEGV"),
        "exit": ("failed", "exit code 3"),
    }
    runs = [run for trouble in troubles for run in (asked(trouble=trouble), asked(seed=len(trouble)))]
    records = {record.run.key: record for record in run_all(runs, power_iteration, ONE)}
    assert len(records) == len(runs)
    for trouble, (status, words) in troubles.items():
        record = records[asked(trouble=trouble).key]
        assert (record.status, words in record.message) == (status, True), record.message
        assert records[asked(seed=len(trouble)).key].status == "done"


def test_a_run_that_holds_more_than_its_memory_is_ended_and_the_next_one_runs():
    limit = Resources(jobs=1, memory_mb=400)
    first, second = run_all([asked(trouble="fills memory"), asked(seed=1)], power_iteration, limit)
    assert first.status == "out of memory"
    assert "400 MB are allowed" in first.message
    assert first.peak_mb > 400
    assert second.status == "done"


def test_a_worker_that_has_grown_large_is_replaced():
    limit = Resources(jobs=1, memory_mb=800)
    records = list(run_all([asked(0), asked(1, trouble="keeps memory"), asked(2), asked(3)], power_iteration, limit))
    assert all(record.done for record in records)
    first, large, third, last = (record.details["process"] for record in records)
    assert first == large != third == last
    assert records[1].peak_mb > records[0].peak_mb + 100
    assert records[2].peak_mb < records[1].peak_mb - 100


def test_two_jobs_work_at_the_same_time():
    runs = [asked(seed, seconds=1.0) for seed in range(2)]
    started = None
    for record in run_all([*runs, asked(7)], power_iteration, Resources(jobs=2, memory_mb=2000)):
        started = started or time.perf_counter()
        assert record.done
    assert time.perf_counter() - started < 0.9  # the second of the two did not wait for the first


def test_leaving_early_ends_the_workers():
    records = run_all([asked(0), asked(1, seconds=60.0)], power_iteration, ONE)
    next(records)
    children = psutil.Process().children(recursive=True)
    records.close()
    assert not [child for child in children if child.is_running() and "spawn_main" in " ".join(child.cmdline())]


def test_a_worker_that_cannot_start_is_an_error_and_not_a_failed_run(monkeypatch):
    only_here = types.ModuleType("only_here")
    exec("def execute(run): return None", vars(only_here))
    monkeypatch.setitem(sys.modules, "only_here", only_here)
    with pytest.raises(WorkerError, match="could not start"):
        list(run_all([asked()], only_here.execute, ONE))


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"threads": 0}, {"memory_mb": 0}])
def test_resources_are_checked(wrong):
    with pytest.raises(ParameterError):
        Resources(**wrong)


def test_processes_share_what_the_container_leaves(monkeypatch):
    monkeypatch.setattr(memory, "_of_container", lambda: 100 * 2**20)
    assert Resources(jobs=2).limit_mb == pytest.approx(45)
    monkeypatch.setattr(memory, "_of_container", lambda: None)
    monkeypatch.setattr(memory, "_of_system", lambda: None)
    assert Resources(jobs=2).limit_mb == float("inf")


RUNNER = """
import sys
sys.path.insert(0, {tests!r})
from small_systems import power_iteration
from pcfi.experiments.runs.pool import Resources, run_all
from pcfi.experiments.run import Run
from pcfi.experiments.runs.store import Store

if __name__ == "__main__":
    store = Store(sys.argv[1])
    runs = [Run("classification", "Toy", "structural", 0.5, "power", (("seconds", 0.2),), seed) for seed in range(12)]
    for record in run_all([run for run in runs if run not in store], power_iteration, Resources(2, 1, 2000)):
        store.append(record)
        print(record.run.seed, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_runner_loses_only_what_was_in_flight_and_resumes_with_the_rest(tmp_path, number):
    script, path = tmp_path / "runner.py", tmp_path / "runs.jsonl"
    script.write_text(RUNNER.format(tests=str(Path(__file__).parent)))
    command = [sys.executable, str(script), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = [process.stdout.readline().strip() for _ in range(4)]
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    said += process.communicate()[0].split()
    first = {int(seed) for seed in said}
    assert {record.run.seed for record in Store(path)} >= first
    assert not psutil.wait_procs(children, timeout=10)[1]  # the workers end with their parent
    done = {record.run.seed for record in Store(path)}
    second = {int(seed) for seed in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}
    assert second == set(range(12)) - done
    assert len(Store(path)) == 12


def test_threads_are_set_for_the_workers_only():
    before = os.environ.get("OMP_NUM_THREADS")
    with contextlib.closing(run_all([asked()], power_iteration, Resources(1, 2, 2000))) as records:
        assert next(records).threads == 2
    assert os.environ.get("OMP_NUM_THREADS") == before
