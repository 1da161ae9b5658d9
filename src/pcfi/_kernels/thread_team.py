"""Several threads on one block: each runs the same kernel on its part of the rows, and they meet between passes.

On a graph whose blocks outgrow the cache a block for every thread would take much memory and gain nothing, so all
threads share one. What a kernel computes does not depend on how many there are: sums are taken over pieces of fixed
size and added up in the order of the pieces, by every thread for itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from pcfi._kernels.compiling import compiled
from pcfi._kernels.threads import Stop, run, run_rows, thread_count
from pcfi._typing import Array

Result = TypeVar("Result")

ROW_COST = 4  # what a row costs besides its edges, in edges


class Team(NamedTuple):
    """One member's view of the threads that work on a block."""

    rank: int
    size: int
    arrived: Array  # shared: how often anybody arrived at a meeting
    meetings: Array  # own: how many there were
    stop: Array  # shared: raised when the run is interrupted


@intrinsic
def _arrive(typing: Any, arrived: Any) -> Any:
    """Count one more arrival, as one indivisible step."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.atomic_rmw("add", data, ir.Constant(ir.IntType(64), 1), "seq_cst")
        return context.get_dummy_value()

    return types.void(arrived), build


@intrinsic
def _arrivals(typing: Any, arrived: Any) -> Any:
    """How many arrivals there are by now; what others wrote before they arrived can be read afterwards."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load_atomic(data, "seq_cst", 8)

    return types.int64(arrived), build


@compiled
def meet(team):
    """Wait until every member has come this far, or the run is stopped."""
    if team.size > 1:
        team.meetings[0] += 1
        _arrive(team.arrived)
        while _arrivals(team.arrived) < team.meetings[0] * team.size and not team.stop[0]:
            pass


@compiled
def part_of(n_items, team):
    """First and last of the items that are this member's."""
    return n_items * team.rank // team.size, n_items * (team.rank + 1) // team.size


@compiled
def part_by_edges(indptr, rows, grain, team):
    """First and last of this member's groups of `grain` rows: every member has about as many edges to follow."""
    n_groups = -(-len(rows) // grain)
    if team.size == 1 or not n_groups:
        return 0, n_groups
    return _boundary(indptr, rows, grain, team.rank, team.size), _boundary(
        indptr, rows, grain, team.rank + 1, team.size
    )


@compiled
def _boundary(indptr, rows, grain, rank, size):
    """The first group at which the work done is at least `rank` out of `size` parts of all; rows ascend."""
    start = indptr[rows[0]]
    wanted = (indptr[rows[-1] + 1] - start + ROW_COST * len(rows)) * rank // size
    low, high = 0, -(-len(rows) // grain)
    while low < high:
        middle = (low + high) // 2
        row = middle * grain
        if indptr[rows[row]] - start + ROW_COST * row < wanted:
            low = middle + 1
        else:
            high = middle
    return low


class Solo:
    """One thread does all the work on a block."""

    def __init__(self, stop: Stop) -> None:
        self._team = Team(0, 1, np.zeros(1, np.int64), np.zeros(1, np.int64), stop)

    def rows(self, n_rows: int, work: Callable[[int, int], Result]) -> list[Result]:
        """Results of `work(first, last)`: all rows at once."""
        return [work(0, n_rows)]

    def together(self, work: Callable[[Team], Result]) -> list[Result]:
        """Results of `work(team)`: just one."""
        return [work(self._team)]


class Crew:
    """All threads share the work on a block."""

    def rows(self, n_rows: int, work: Callable[[int, int], Result]) -> list[Result]:
        """Results of `work(first, last)` on pieces of the rows, in their order; they must not depend on each other."""
        return run_rows(n_rows, work)

    def together(self, work: Callable[[Team], Result]) -> list[Result]:
        """Results of `work(team)` of all members, who may meet while they work."""
        size = thread_count()
        arrived = np.zeros(1, np.int64)

        def member(rank: int) -> Callable[[Stop], Result]:
            return lambda stop: work(Team(rank, size, arrived, np.zeros(1, np.int64), stop))

        return run([member(rank) for rank in range(size)])


Workers = Solo | Crew
