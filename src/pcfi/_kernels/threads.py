"""Tasks -> results, on as many threads as numba is set to use, interruptible at any time."""

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
    with ThreadPoolExecutor(max_workers=max(1, min(thread_count(), len(tasks)))) as pool:
        futures: list[Future[Result]] = []
        try:
            futures += [pool.submit(task, stop) for task in tasks]
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop[0] = len(futures) < len(tasks) or not all(future.done() for future in futures)
            if stop[0]:
                pool.shutdown(wait=True, cancel_futures=True)
        return [future.result() for future in futures]
