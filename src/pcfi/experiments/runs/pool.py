"""`run_all`: runs -> their records, computed by worker processes that are replaced when they die or grow too large."""

import contextlib
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from pcfi.errors import ParameterError, PcfiError
from pcfi.experiments.run import Record, Run, Status
from pcfi.experiments.runs.worker import Execute, WarmUp, attempt, completed, died, initialize
from pcfi.system_memory import available

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_POLL_SECONDS = 0.2  # between two looks at the memory of the workers
_MAX_IDLE_MEMORY_SHARE = 0.25  # of the memory limit: a worker that still holds more after a run is replaced


class WorkerError(PcfiError, RuntimeError):
    """A worker process could not be started."""


@dataclass(frozen=True)
class Resources:
    """Number of worker processes, and threads and memory of each.

    Parameters
    ----------
    jobs : int, default=1
        Number of processes.
    threads : int, default=1
        Threads of each process.
    memory_mb : float or None, default=None
        Memory limit of each process in MB; a run that exceeds it is killed. By default, 90 % of the memory that is
        available now, divided by `jobs`.
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
        """Return resources with one thread per core in total unless `jobs` is given."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return cls(max(1, cores // max(1, threads)) if jobs is None else jobs, threads, memory_mb)

    @property
    def limit_mb(self) -> float:
        """Memory limit of one process."""
        if self.memory_mb is not None:
            return self.memory_mb
        return 0.9 * available() / 2**20 / self.jobs


def run_all(
    runs: Iterable[Run], execute: Execute, resources: Resources, warm_up: WarmUp | None = None
) -> Generator[Record, None, None]:
    """Execute runs in their order; yield each record as soon as it is complete.

    `execute`, and `warm_up`, which a worker calls before its first run, are functions that a new process can import.
    Closing the iterator, or an exception such as a KeyboardInterrupt while it waits, kills the worker processes; only
    the runs that they were executing are lost.
    """
    waiting, limit_mb = deque(runs), resources.limit_mb
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.run for worker in workers):
            while waiting and len(workers) < resources.jobs:
                workers.append(_Worker(execute, warm_up, resources.threads))
            for worker in workers:
                if worker.run is None and waiting:
                    worker.submit(waiting.popleft())
            running = [worker.future for worker in workers if worker.run]
            wait(running, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for worker in list(workers):
                record = worker.poll(limit_mb)
                if worker.killed:
                    workers.remove(worker)
                if record is not None:
                    yield record
    finally:
        for worker in workers:
            worker.kill()


class _Worker:
    """A worker process, as its parent sees it: an executor with a single process, so that runs fail one at a time."""

    def __init__(self, execute: Execute, warm_up: WarmUp | None, threads: int) -> None:
        self._execute, self._threads = execute, threads
        self._executor = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initialize, (warm_up,))
        others = set(multiprocessing.active_children())
        with _environment({name: str(threads) for name in _THREAD_VARIABLES}):
            self._started = self._executor.submit(callable, execute)  # imports its module in the new process
        (self._process,) = set(multiprocessing.active_children()) - others
        self.future: Future[Record] = Future()
        self.run: Run | None = None
        self.killed = False

    def submit(self, run: Run) -> None:
        """Start a run."""
        self.run, self._start, self._peak_mb = run, time.perf_counter(), 0.0
        try:
            self.future = self._executor.submit(attempt, run, self._execute, self._threads)
        except BrokenProcessPool as error:  # the process died while idle
            self.future = Future()
            self.future.set_exception(error)

    def poll(self, limit_mb: float) -> Record | None:
        """Return the record of the current run if it has ended, one way or another."""
        if self.run is None:
            return None
        held_mb = self._memory_mb()
        self._peak_mb = max(self._peak_mb, held_mb)
        if self.future.done():
            record = self._result()
        elif held_mb > limit_mb:
            self.kill()
            record = self._failed(
                "out of memory", f"killed: it held {held_mb:,.0f} MB, and {limit_mb:,.0f} MB are allowed"
            )
        else:
            return None
        self.run = None
        if held_mb > _MAX_IDLE_MEMORY_SHARE * limit_mb:
            self.kill()
        return record

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.killed = True
        self._process.kill()
        self._executor.shutdown(cancel_futures=True)  # waits for the process, so that its exit code is known

    def _result(self) -> Record:
        try:
            return self.future.result()
        except BrokenProcessPool:
            self.kill()
            if self._started.exception() is not None:
                raise WorkerError(
                    f"a worker process could not start (exit code {self._process.exitcode}); see its error above"
                ) from None
            return self._failed(*died(self._process.exitcode))

    def _failed(self, status: Status, message: str) -> Record:
        assert self.run is not None
        seconds = time.perf_counter() - self._start
        return completed(Record(self.run, status, message=message), seconds, self._peak_mb, self._threads)

    def _memory_mb(self) -> float:
        import psutil

        try:
            return float(psutil.Process(self._process.pid).memory_info().rss / 2**20)
        except psutil.Error:
            return 0.0


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started in this context."""
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
