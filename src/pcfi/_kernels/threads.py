"""Run tasks on as many threads as numba is set to use; interruptible at any time."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, TypeVar

import numba
import numpy as np

from pcfi.forks import GATE

StopFlag = np.ndarray[Any, Any]  # one byte, shared with kernels: nonzero means return early
Result = TypeVar("Result")

PIECES_PER_THREAD = 8  # an interrupt waits for the pieces that are running


def thread_count() -> int:
    """Return the number of threads that kernels may use: numba's setting."""
    return int(numba.get_num_threads())


def run_rows(n_rows: int, work: Callable[[int, int], Result], *, inline: bool = False) -> list[Result]:
    """Return the results of `work(first, last)` on pieces of `n_rows` rows; rows must be independent."""
    pieces = 1 if inline else thread_count() * PIECES_PER_THREAD
    edges = [n_rows * k // pieces for k in range(pieces + 1)]

    def piece(first: int, last: int) -> Callable[[StopFlag], Result]:
        return lambda _: work(first, last)

    return run_tasks([piece(*edge) for edge in pairwise(edges)], inline=inline)


def run_tasks(tasks: Sequence[Callable[[StopFlag], Result]], *, inline: bool = False) -> list[Result]:
    """Run the tasks and return their results in the order of the tasks.

    Each task gets a stop flag to pass to its kernels. When the run is interrupted or a task fails, the flag is set and
    the kernels return early. `inline` runs the tasks in the calling thread, for tasks too small to hand over.
    """
    stop = np.zeros(1, dtype=np.uint8)
    if inline:
        return [task(stop) for task in tasks]
    futures: list[Future[Result]] = []
    try:
        pool = _caller_pool.get(thread_count())
        futures += [pool.submit(task, stop) for task in tasks]
        with GATE.resting():
            wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        stop[0] = len(futures) < len(tasks) or not all(future.done() for future in futures)
        if stop[0]:
            _caller_pool.shut_down()
    return [future.result() for future in futures]


class _CallerPool(threading.local):
    """One thread pool per calling thread, kept because starting threads costs more than a small task.

    No other caller's tasks run on it, so the threads of a team all run at the same time, as barriers require. The pool
    ends with the calling thread.
    """

    _pool: ThreadPoolExecutor | None = None
    _size = 0

    def get(self, size: int) -> ThreadPoolExecutor:
        """Return a pool of `size` threads, all started."""
        if self._pool is None or self._size != size:
            self.shut_down()
            self._pool, self._size = ThreadPoolExecutor(size, thread_name_prefix="pcfi"), size
            started = threading.Barrier(size)
            wait([self._pool.submit(started.wait) for _ in range(size)])
        return self._pool

    def shut_down(self) -> None:
        """Cancel tasks that have not begun, wait for the others and end the threads."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def discard(self) -> None:
        """Drop the pool in the child of a fork, where its threads do not exist."""
        self._pool = None


_caller_pool = _CallerPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_caller_pool.discard)
