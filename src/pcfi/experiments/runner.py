"""Many runs -> their records, from a few worker processes that are replaced when one dies or has grown large."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from multiprocessing.connection import wait
from platform import python_version

from pcfi.errors import ParameterError, PcfiError
from pcfi.experiments.runs import Run
from pcfi.experiments.store import Record, Status, Store
from pcfi.experiments.workers import READY, Execute, Report, WarmUp, serve
from pcfi.memory import available

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_PACKAGES = ("pcfi", "numpy", "scipy", "numba", "torch", "torch-geometric", "scikit-learn")
_LOOK_SECONDS = 0.2
_SHARE_KEPT = 0.25  # of its memory limit: a worker that still holds more after a run is replaced


class WorkerError(PcfiError, RuntimeError):
    """A worker process could not be started."""


@dataclass(frozen=True)
class Resources:
    """How many processes work at once, with how many threads and how much memory each.

    Parameters
    ----------
    jobs : int, default=1
        Number of processes.
    threads : int, default=1
        Threads of each.
    memory_mb : float or None, default=None
        Memory of each in MB; a run that holds more is ended. By default 90 % of what is available now,
        shared evenly.
    """

    jobs: int = 1
    threads: int = 1
    memory_mb: float | None = None

    def __post_init__(self) -> None:
        for name in ("jobs", "threads"):
            if getattr(self, name) < 1:
                raise ParameterError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.memory_mb is not None and not self.memory_mb > 0:
            raise ParameterError(f"memory must be greater than 0, got {self.memory_mb}")

    @classmethod
    def of_this_machine(cls, jobs: int | None, threads: int, memory_mb: float | None) -> "Resources":
        """Resources with as many jobs as cores allow where no number is given."""
        return cls(max(1, _cores() // max(1, threads)) if jobs is None else jobs, threads, memory_mb)

    @property
    def limit_mb(self) -> float:
        """Memory that one process may hold."""
        if self.memory_mb is not None:
            return self.memory_mb
        there = available()
        return float("inf") if there is None else 0.9 * there / 2**20 / self.jobs


def remaining(runs: Iterable[Run], store: Store, *, retry: bool = False) -> list[Run]:
    """The runs that the store has no record of; with `retry`, also those that are not done."""
    records = ((run, store.get(run)) for run in runs)
    return [run for run, record in records if record is None or (retry and not record.done)]


def run_all(
    runs: Iterable[Run], execute: Execute, resources: Resources, warm_up: WarmUp | None = None
) -> Generator[Record, None, None]:
    """Work on runs in their order; yield the record of each as soon as it is there.

    `execute`, and `warm_up`, which a worker does before its first run, are functions that a new process can import.
    Closing the iterator, or an exception such as a KeyboardInterrupt while it waits, ends the worker processes; what
    they were working on is lost, nothing else.
    """
    waiting, limit_mb, versions = deque(runs), resources.limit_mb, installed_versions()
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.run for worker in workers):
            for worker in workers:
                if worker.run is None and waiting:
                    worker.give(waiting.popleft())
            while waiting and len(workers) < resources.jobs:
                workers.append(_Worker(execute, warm_up, resources.threads))
                workers[-1].give(waiting.popleft())
            wait([worker.connection for worker in workers if worker.run], timeout=_LOOK_SECONDS)
            for worker in list(workers):
                run, report = worker.run, worker.look(limit_mb)
                if worker.spent:
                    workers.remove(worker)
                if run is not None and report is not None:
                    yield _record(run, report, resources.threads, versions)
    finally:
        for worker in workers:
            worker.stop()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed_versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    versions = {"python": python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _record(run: Run, report: Report, threads: int, versions: dict[str, str]) -> Record:
    return Record(
        run,
        report.status,
        report.outcome.metrics,
        report.outcome.details,
        message=report.message,
        seconds=round(report.seconds, 3),
        peak_mb=round(report.peak_mb, 1),
        threads=threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=versions,
    )


class _Worker:
    """The parent's side of a worker process."""

    def __init__(self, execute: Execute, warm_up: WarmUp | None, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, execute, warm_up), daemon=True)
        with _environment({name: str(threads) for name in _THREAD_VARIABLES}):
            self.process.start()
        theirs.close()
        self.run: Run | None = None
        self.spent = False
        self._ready = False
        self._started, self._peak_mb = 0.0, 0.0

    def give(self, run: Run) -> None:
        """Hand over a run."""
        self.run, self._started, self._peak_mb = run, time.perf_counter(), 0.0
        with contextlib.suppress(ConnectionError):  # a worker that died meanwhile is found when next looked at
            self.connection.send(run)

    def look(self, limit_mb: float) -> Report | None:
        """The report on the current run if it has ended, one way or another."""
        if self.run is None:
            return None
        report = self._ended() if self.connection.poll() else self._watched(limit_mb)
        if report is not None:
            self.run = None
            if not self.spent and self._memory_mb() > _SHARE_KEPT * limit_mb:
                self.stop()
        return report

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.spent = True
        self.process.kill()
        self.process.join()
        self.connection.close()

    def _ended(self) -> Report | None:
        try:
            message = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            self.stop()
            if not self._ready:
                raise WorkerError(
                    f"a worker process could not start (exit code {self.process.exitcode}); it said why above"
                ) from None
            return self._dead(*_cause(self.process.exitcode))
        if message == READY:
            self._ready = True
            return None
        report: Report = message
        return report

    def _watched(self, limit_mb: float) -> Report | None:
        held = self._memory_mb()
        self._peak_mb = max(self._peak_mb, held)
        if held <= limit_mb:
            return None
        self.stop()
        return self._dead("out of memory", f"ended: it held {held:,.0f} MB, and {limit_mb:,.0f} MB are allowed")

    def _dead(self, status: Status, message: str) -> Report:
        seconds = time.perf_counter() - self._started
        return Report(status, message=message, seconds=seconds, peak_mb=self._peak_mb)

    def _memory_mb(self) -> float:
        import psutil

        try:
            return float(psutil.Process(self.process.pid).memory_info().rss / 2**20)
        except psutil.Error:
            return 0.0


def _cause(exitcode: int | None) -> tuple[Status, str]:
    """What the end of a process means."""
    if exitcode is None or exitcode >= 0:
        return "failed", f"its process ended with exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    if name == "SIGKILL":
        return "out of memory", "its process was killed (SIGKILL), most likely by the operating system, short of memory"
    return "failed", f"its process ended by {name}"


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables for processes that start meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
