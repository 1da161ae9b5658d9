"""Several threads inside one kernel: each works on its part of the rows, with barriers between passes.

On a graph whose blocks do not fit into the cache, one block per thread would take much memory and gain nothing, so all
threads share one block. The result does not depend on the number of threads: sums are taken over pieces of fixed size,
and every thread adds up the sums of all pieces in the same order.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pcfi._kernels.compiling import inner
from pcfi._kernels.threads import StopFlag, run_rows, run_tasks, thread_count
from pcfi._typing import Array

Result = TypeVar("Result")

ROW_COST = 4  # cost of a row besides its edges, in edges


class ThreadTeam(NamedTuple):
    """The team of threads that work on a block, as one of them sees it."""

    rank: int
    size: int
    arrivals: Array  # shared: number of arrivals at barriers, of all threads together
    n_barriers: Array  # this thread's own: number of barriers so far
    stop: Array  # shared: nonzero when the run is interrupted

    def share(self, indptr: Array, rows: Array, group_size: int = 1) -> tuple[int, int]:
        """Return the first and last group of `group_size` rows of this thread; all threads get about as many edges."""
        n_groups = -(-len(rows) // group_size)
        if self.size == 1 or not n_groups:
            return 0, n_groups
        first = _boundary(indptr, rows, group_size, self.rank, self.size)
        return first, _boundary(indptr, rows, group_size, self.rank + 1, self.size)


@intrinsic
def _increment_atomically(typing: Any, counter: Any) -> Any:
    """Add 1 to `counter[0]` in one atomic operation."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.atomic_rmw("add", data, ir.Constant(ir.IntType(64), 1), "seq_cst")
        return context.get_dummy_value()

    return types.void(counter), build


@intrinsic
def _load_atomically(typing: Any, counter: Any) -> Any:
    """Return `counter[0]`; what other threads wrote before they incremented it is visible afterwards."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load_atomic(data, "seq_cst", 8)

    return types.int64(counter), build


@inner
def barrier(team):
    """Wait until every thread of the team has come this far, or the run is stopped."""
    if team.size > 1:
        team.n_barriers[0] += 1
        _increment_atomically(team.arrivals)
        while _load_atomically(team.arrivals) < team.n_barriers[0] * team.size and not team.stop[0]:
            pass


def _boundary(indptr: Array, rows: Array, group_size: int, rank: int, size: int) -> int:
    """Return the first group where the cost of all groups before it is at least rank / size of the total.

    Rows ascend but for the order within a small window; the boundaries are the same for all threads in any order.
    """
    if rank in (0, size):
        return -(-len(rows) // group_size) if rank else 0
    start = int(indptr[rows[0]])
    target = (int(indptr[rows[-1] + 1]) - start + ROW_COST * len(rows)) * rank // size
    low, high = 0, -(-len(rows) // group_size)
    while low < high:
        middle = (low + high) // 2
        row = middle * group_size
        if int(indptr[rows[row]]) - start + ROW_COST * row < target:
            low = middle + 1
        else:
            high = middle
    return low


class SerialExecutor:
    """Run all work on a block in the current thread."""

    def __init__(self, stop: StopFlag) -> None:
        self._team = ThreadTeam(0, 1, np.zeros(1, np.int64), np.zeros(1, np.int64), stop)

    def map_rows(self, n_rows: int, work: Callable[[int, int], Result]) -> list[Result]:
        """Return [work(0, n_rows)]."""
        return [work(0, n_rows)]

    def run_team(self, work: Callable[[ThreadTeam], Result]) -> list[Result]:
        """Return the result of `work(team)` for a team of one."""
        return [work(self._team)]


class TeamExecutor:
    """Run the work on a block on all threads."""

    def map_rows(self, n_rows: int, work: Callable[[int, int], Result]) -> list[Result]:
        """Return the results of `work(first, last)` on pieces of the rows, in order; rows must be independent."""
        return run_rows(n_rows, work)

    def run_team(self, work: Callable[[ThreadTeam], Result]) -> list[Result]:
        """Return the results of `work(team)` of all threads, which may use barriers."""
        size = thread_count()
        arrivals = np.zeros(1, np.int64)

        def thread(rank: int) -> Callable[[StopFlag], Result]:
            return lambda stop: work(ThreadTeam(rank, size, arrivals, np.zeros(1, np.int64), stop))

        return run_tasks([thread(rank) for rank in range(size)])


Executor = SerialExecutor | TeamExecutor
