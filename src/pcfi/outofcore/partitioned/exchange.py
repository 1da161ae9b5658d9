"""Calls on all partitions of a run, and what goes between them: rows of halos, sums and maxima."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.outofcore.partitioned import part_tasks
from pcfi.outofcore.partitioned.blocks import halo_rows, reduced_of
from pcfi.outofcore.partitioned.layout import PartitionLayout
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.runners import Runner


class PerPartition(list[Any]):
    """One item for each partition: results that stay with the workers."""


class Partitions:
    """The partitions of a run. Blocks stay with the workers that have them; `fetch` brings small results here."""

    def __init__(self, run: OutOfCoreRun, runner: Runner, dtype: Any) -> None:
        self.where = (str(run.folder.path), run.plan.token)
        self._runner = runner
        self.count = PartitionLayout.of_run(run).n_partitions
        finished = run.folder.finished("partition")
        starts = [finished[number]["halo_starts"] for number in range(self.count)]
        self._origins = [np.flatnonzero(np.diff(one)).tolist() for one in starts]
        numbers = PerPartition(range(self.count))
        self.graphs = self.on_each(part_tasks.read_partition, self.where, numbers, np.dtype(dtype).name)

    def on_each(self, function: Callable[..., Any], *arguments: Any) -> PerPartition:
        """Call a function for each partition, with its items of the arguments that have one for each."""

        def of(argument: Any, number: int) -> Any:
            return argument[number] if isinstance(argument, PerPartition) else argument

        return PerPartition(
            self._runner.place(number / self.count, function, *(of(one, number) for one in arguments))
            for number in range(self.count)
        )

    def halos(self, blocks: PerPartition, name: str, active: list[int]) -> PerPartition:
        """The rows of some blocks that each partition has in its halo, in pieces."""
        return PerPartition(
            [
                self._runner.place(
                    other / self.count, halo_rows, self.graphs[other], blocks[other], name, number, active
                )
                for other in self._origins[number]
            ]
            for number in range(self.count)
        )

    def joined(self, join: Callable[..., Any], blocks: PerPartition, active: list[int]) -> list[Array]:
        """The small results of the last call, joined over all partitions, for each active panel."""
        parts = self.on_each(reduced_of, blocks, active)
        return list(self._runner.fetch(self._runner.place(0.0, join, list(parts))))

    def fetch(self, results: list[Any]) -> list[Any]:
        """Small results of calls that were placed."""
        return list(self._runner.fetch(self._runner.place(0.0, list, list(results))))

    def on_ranges(self, function: Callable[..., Any], n_ranges: int, *arguments: Any) -> list[Any]:
        """Call a function for each range of rows, and fetch the results."""
        return self.fetch(
            [self._runner.place(index / n_ranges, function, self.where, *arguments, index) for index in range(n_ranges)]
        )
