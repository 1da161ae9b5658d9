"""Tasks -> results, on as many threads as numba is set to use, interruptible at any time."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, TypeVar

import numba
import numpy as np

Stop = np.ndarray[Any, Any]
Result = TypeVar("Result")


def thread_count() -> int:
    """How many threads kernels may use: numba's own setting."""
    return int(numba.get_num_threads())


PIECES_PER_THREAD = 8  # an interrupt waits for the pieces under way


def run_rows(n_rows: int, work: Callable[[int, int], Result], *, inline: bool = False) -> list[Result]:
    """Results of `work(first, last)` on pieces of `n_rows` rows; rows must not depend on each other."""
    pieces = 1 if inline else thread_count() * PIECES_PER_THREAD
    edges = [n_rows * k // pieces for k in range(pieces + 1)]

    def piece(first: int, last: int) -> Callable[[Stop], Result]:
        return lambda _: work(first, last)

    return run([piece(*edge) for edge in pairwise(edges)], inline=inline)


def run(tasks: Sequence[Callable[[Stop], Result]], *, inline: bool = False) -> list[Result]:
    """Run the tasks and return their results in order, whatever the number of threads.

    Each task gets a flag that it hands to its kernels: when the run is interrupted, or one task fails, the flag is
    raised and the kernels return early. `inline` runs tasks too small for a thread in the caller's own.
    """
    stop = np.zeros(1, dtype=np.uint8)
    if inline:
        return [task(stop) for task in tasks]
    futures: list[Future[Result]] = []
    try:
        pool = _own.threads(thread_count())
        futures += [pool.submit(task, stop) for task in tasks]
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        stop[0] = len(futures) < len(tasks) or not all(future.done() for future in futures)
        if stop[0]:
            _own.dismiss()
    return [future.result() for future in futures]


class _Own(threading.local):
    """The threads that work for one thread of the caller: kept, since starting them costs more than many a task.

    Nobody else's tasks run on them, so all members of a team are at work at once. They end with the caller's thread.
    """

    _pool: ThreadPoolExecutor | None = None
    _size = 0

    def threads(self, size: int) -> ThreadPoolExecutor:
        """So many threads, all of them started."""
        if self._pool is None or self._size != size:
            self.dismiss()
            self._pool, self._size = ThreadPoolExecutor(size, thread_name_prefix="pcfi"), size
            started = threading.Barrier(size)
            wait([self._pool.submit(started.wait) for _ in range(size)])
        return self._pool

    def dismiss(self) -> None:
        """Let the threads go once their tasks have ended; those that have not begun never do."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def forget(self) -> None:
        """In the child of a fork: the threads stayed with the parent."""
        self._pool = None


_own = _Own()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own.forget)
