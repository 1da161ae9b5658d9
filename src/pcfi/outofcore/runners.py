"""Runners of the tasks of a run: this process, or the workers of a Dask cluster."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ClusterError
from pcfi.optional import load
from pcfi.outofcore import draw_tasks, estimation_tasks, interval_tasks, tasks, write_tasks
from pcfi.outofcore.cluster import does_tasks, idle_reason, thread_addresses, workers_of
from pcfi.outofcore.folder import WorkFolder
from pcfi.outofcore.partitioned import layout
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.progress import progress_bar

Node = TypeVar("Node")

TASKS: dict[str, Callable[[OutOfCoreRun, int], Any]] = {
    "survey": tasks.survey,
    "order": layout.order_nodes,
    "partition": layout.make_partition,
    "hops": tasks.hops,
    "sample": estimation_tasks.sample,
    "fit": estimation_tasks.fit,
    "prepare": estimation_tasks.prepare,
    "split": tasks.split,
    "diffuse": tasks.diffuse_panel,
    "sums": tasks.sums,
    "spread": interval_tasks.spread,
    "relate": draw_tasks.relate,
    "scale": draw_tasks.scale,
    "field": draw_tasks.field,
    "write": write_tasks.write,
}

# By Dask's defaults, calls with this prefix are never moved to an idle worker, which would take their blocks along
# (distributed.scheduler.default-task-durations)
STAYING = "split-shuffle"
SECONDS_BETWEEN_LOOKS = 2.0  # at the workers, while tasks run
MAX_SECONDS_WITHOUT_WORKERS = 60  # that do tasks; a scheduler that restarts its workers has some again by then


class Runner(Protocol):
    """Runs the tasks that are not in the journal yet, and adds them to it."""

    def run(self, stage: str, count: int, at_once: int = 1) -> None:
        """Run the tasks 0 to `count` of a stage; the memory of one process allows `at_once` at a time."""

    def total(self, stage: str, count: int) -> Array:
        """Sum the results of the tasks of a stage in a tree; these tasks are not added to the journal."""

    def place(self, share: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a pure function where other calls with this share (0 to 1) are made; its result stays there."""

    def fetch(self, result: Any) -> Any:
        """The result of a call that was placed."""


def tree(first: int, last: int, leaf: Callable[[int], Node], join: Callable[[Node, Node], Node]) -> Node:
    """Join leaves `first` to `last` in pairs, in an order that does not depend on which is ready first."""
    if last - first == 1:
        return leaf(first)
    middle = (first + last + 1) // 2
    return join(tree(first, middle, leaf, join), tree(middle, last, leaf, join))


def add(left: Array, right: Array) -> Array:
    """The sum of two arrays."""
    return left + right


def do_and_record(run: OutOfCoreRun, stage: str, index: int) -> None:
    """Run a task and add it to the journal, with its time."""
    begin = time.perf_counter()
    entry = TASKS[stage](run, index)
    run.folder.record(stage, index, {**entry, "seconds": time.perf_counter() - begin})


class LocalRunner:
    """Runs tasks in the calling process."""

    def __init__(self, run: OutOfCoreRun, *, progress: bool) -> None:
        self._run = run
        self._progress = progress

    def run(self, stage: str, count: int, at_once: int = 1) -> None:
        """Run the tasks in order."""
        finished = self._run.folder.finished(stage)
        waiting = [index for index in range(count) if index not in finished]
        with progress_bar(stage, count, show=self._progress) as advance:
            advance(count - len(waiting))

            def do(index: int) -> None:
                do_and_record(self._run, stage, index)
                advance(1)

            if at_once == 1 or len(waiting) < 2:
                for index in waiting:
                    do(index)
                return
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(do, waiting))

    def total(self, stage: str, count: int) -> Array:
        """Run the tasks in order and add their results; only a few sums are in memory at a time."""
        with progress_bar(stage, count, show=self._progress) as advance:

            def leaf(index: int) -> Array:
                part: Array = TASKS[stage](self._run, index)
                advance(1)
                return part

            return tree(0, count, leaf, add)

    def place(self, share: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function."""
        del share
        return function(*arguments)

    def fetch(self, result: Any) -> Any:
        """The result itself."""
        return result


_ONE_AT_A_TIME = threading.Lock()


@lru_cache(maxsize=1)
def opened_run(path: str, _token: str) -> OutOfCoreRun:
    """The run, opened once in each worker."""
    return OutOfCoreRun(WorkFolder(path))


def do_task(path: str, token: str, stage: str, index: int, *, record: bool) -> Any:
    """Run a task on a worker, one at a time, because a task uses all threads of its worker."""
    import numba
    from distributed import get_worker

    with _ONE_AT_A_TIME:
        numba.set_num_threads(max(1, min(get_worker().state.nthreads, numba.config.NUMBA_NUM_THREADS)))
        run = opened_run(path, token)
        return do_and_record(run, stage, index) if record else TASKS[stage](run, index)


class DaskRunner:
    """Runs tasks on the workers of a cluster, which must see the work folder under the same path as this process."""

    def __init__(self, run: OutOfCoreRun, client: Any, *, progress: bool) -> None:
        self._run = run
        self._client = client
        self._token = run.plan.token
        self._progress = progress
        self._deserted_since: float | None = None
        self._addresses: list[str] = []
        self._looked_up = 0.0

    def _submit(self, stage: str, index: int, *, record: bool) -> Any:
        path = str(self._run.folder.path)
        return self._client.submit(
            do_task,
            path,
            self._token,
            stage,
            index,
            record=record,
            key=f"pcfi-{stage}-{self._token}-{index}",
            pure=False,
            retries=0,
        )

    def run(self, stage: str, count: int, at_once: int = 1) -> None:  # noqa: ARG002  a worker runs one at a time
        """Submit the tasks and wait; if one fails, cancel the others."""
        finished = self._run.folder.finished(stage)
        futures: list[Any] = []
        with progress_bar(stage, count, show=self._progress) as advance, self._clear_errors(futures):
            futures += [self._submit(stage, index, record=True) for index in range(count) if index not in finished]
            advance(count - len(futures))
            waiting = set(futures)
            while waiting:
                for future in self._next(waiting):
                    waiting.remove(future)
                    if future.status in ("error", "cancelled"):
                        future.result()  # only then: results are in the journal, and that of a lost worker never comes
                    advance(1)

    def total(self, stage: str, count: int) -> Array:
        """Let the workers add their results in pairs, and fetch the total."""
        futures: list[Any] = []

        def keep(future: Any) -> Any:
            futures.append(future)
            return future

        with self._clear_errors(futures):
            result = tree(
                0,
                count,
                lambda index: keep(self._submit(stage, index, record=False)),
                lambda left, right: keep(self._client.submit(add, left, right, pure=False)),
            )
            return np.asarray(self._wait(result))

    def place(self, share: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Submit the function to the worker with this share of the work; if that one is lost, another one has it."""
        with self._clear_errors([]):
            addresses = self._threads_of_workers()
            chosen = addresses[min(int(share * len(addresses)), len(addresses) - 1)]
            key = f"{STAYING}-{uuid4().hex}"
            return self._client.submit(function, *arguments, key=key, workers=[chosen], allow_other_workers=True)

    def _threads_of_workers(self) -> list[str]:
        """The address of each thread of the workers, looked up every few seconds."""
        if not self._addresses or time.monotonic() - self._looked_up > SECONDS_BETWEEN_LOOKS:
            found = thread_addresses(self._client)
            self._addresses, self._looked_up = found or self._addresses, time.monotonic()
        if not self._addresses:
            raise ClusterError(f"{idle_reason([], 0)}. {self._kept}")
        return self._addresses

    def fetch(self, result: Any) -> Any:
        """Wait for the result; what was lost with a worker is computed again."""
        with self._clear_errors([]):
            return self._wait(result)

    def _wait(self, result: Any) -> Any:
        while True:
            if not self._next({result}):
                continue
            with suppress(TimeoutError):  # the worker that holds it is lost, so it is computed again
                return result.result(timeout=MAX_SECONDS_WITHOUT_WORKERS)

    def _next(self, waiting: set[Any]) -> set[Any]:
        """The tasks that have ended meanwhile, none after a while; an error if there are no workers to do them."""
        from distributed import wait

        try:
            with self._client.as_current():
                done: set[Any] = set(wait(waiting, timeout=SECONDS_BETWEEN_LOOKS, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            done = set()
        if done or self._client.status != "running":
            self._deserted_since = None
            return done
        workers = workers_of(self._client)
        if any(map(does_tasks, workers)):
            self._deserted_since = None
            return done
        self._deserted_since = self._deserted_since or time.monotonic()
        if time.monotonic() - self._deserted_since > MAX_SECONDS_WITHOUT_WORKERS:
            raise ClusterError(f"{idle_reason(workers, MAX_SECONDS_WITHOUT_WORKERS)}. {self._kept}")
        return done

    @property
    def _kept(self) -> str:
        return f"Finished tasks are kept in {str(self._run.folder.path)!r}: run it again to continue"

    def _is_lost(self, error: BaseException) -> bool:
        """Whether an error comes from the loss of the scheduler, which the client may not know of yet."""
        distributed = load("distributed", "a cluster", "scale")
        signs = (OSError, ClusterError, distributed.CancelledError, distributed.client.ClosedClientError)
        return isinstance(error, distributed.comm.CommClosedError) or (
            self._client.status != "running" and isinstance(error, signs)
        )

    @contextmanager
    def _clear_errors(self, futures: list[Any]) -> Iterator[None]:
        """Cancel the tasks if one of them fails, and raise an error that explains what happened to the cluster."""
        distributed = load("distributed", "a cluster", "scale")
        try:
            yield
        except BaseException as error:
            is_lost = self._is_lost(error)
            if not is_lost and self._client.status == "running":
                with suppress(OSError):
                    self._client.cancel(futures)
            if isinstance(error, distributed.KilledWorker):
                raise ClusterError(
                    f"workers died repeatedly during the same task ({error.task}), most likely because it "
                    "took more memory than they have: give workers more memory (pcfi info estimates it), or run "
                    f"fewer on a machine. {self._kept}"
                ) from error
            if is_lost:
                raise ClusterError(f"the connection to the scheduler is lost. {self._kept}") from error
            raise


def runner_of(run: OutOfCoreRun, cluster: Any, *, progress: bool) -> Runner:
    """The runner of a run: the workers of a cluster, or this process."""
    return LocalRunner(run, progress=progress) if cluster is None else DaskRunner(run, cluster, progress=progress)
