"""A run in files whose graph is divided among the workers, as a backend: hops and stage 1 go through partitions."""

import time
from typing import Any

import numpy as np

from pcfi.errors import ParameterError, TooLargeError, counted
from pcfi.files.paths import remove
from pcfi.outofcore import file_names
from pcfi.outofcore.backend import LOG, OutOfCoreBackend
from pcfi.outofcore.interval_tasks import spread_groups
from pcfi.outofcore.partitioned import checkpoints, part_tasks
from pcfi.outofcore.partitioned.blocks import joined_sums
from pcfi.outofcore.partitioned.exchange import Partitions
from pcfi.outofcore.partitioned.layout import PartitionLayout, divide
from pcfi.outofcore.partitioned.solver import BatchSolver
from pcfi.outofcore.plan import partition_bytes
from pcfi.outofcore.run import OutOfCoreRun, patterns_at_a_time
from pcfi.outofcore.runners import Runner
from pcfi.progress import progress_bar
from pcfi.stages.diffusion import DiffusionOutcome, Route
from pcfi.system_memory import two_sizes_in_words

MAX_HOPS = 253  # that a byte holds for certain


class PartitionedBackend(OutOfCoreBackend):
    """See `OutOfCoreBackend`; no worker needs more of the graph than its partitions."""

    def __init__(self, run: OutOfCoreRun, runner: Runner) -> None:
        super().__init__(run, runner)
        self._parts: tuple[Any, Partitions] | None = None

    def _partitions(self, dtype: Any) -> Partitions:
        """The partitions with weights of `dtype`, made if they are not there."""
        run = self._run
        if self._parts is None or self._parts[0] != dtype:
            self._do("order", 1)
            self._once(file_names.PARTITIONS, lambda: divide(run, run.folder.read(file_names.PLAN)["partitions"]))
            self._do("partition", PartitionLayout.of_run(run).n_partitions)
            n_halo = _halo_rows(run)
            LOG.info("the graph is divided: halos have %s, %.2f per node", counted(n_halo, "row"), n_halo / run.n_nodes)
            self._parts = None  # the graphs with other weights are not needed any more
            self._parts = dtype, Partitions(run, self._runner, dtype)
        return self._parts[1]

    def _panels_at_a_time(self) -> int:
        """Panels whose blocks fit into the memory of every worker, besides its share of the graph."""
        run, plan = self._run, self._run.folder.read(file_names.PLAN)
        finished, bounds = run.folder.finished("partition"), PartitionLayout.of_run(run).bounds
        n_own, count = np.diff(bounds), len(bounds) - 1
        n_halo = np.array([finished[number]["halo_starts"][-1] for number in range(count)])
        graph = np.array([sum(part[2] for part in finished[number]["checksums"]) for number in range(count)])
        workers = np.arange(count) * plan["workers"] // count
        panels, graphs = (
            np.bincount(workers, weights=one) for one in (partition_bytes(n_own, n_halo), graph + 4 * (n_own + n_halo))
        )
        spare = plan["budget"] - plan["base"] - graphs
        if (spare < panels).any():
            words = two_sizes_in_words(int(plan["base"] + (graphs + panels).max()), plan["budget"])
            raise TooLargeError(
                f"a worker needs about {words[0]} for its share of the graph and of the channels, but memory is "
                f"{words[1]}: start more workers, or grant more memory"
            )
        return int((spare // panels).min())

    def _count_hops_of_groups(self, count: int) -> None:
        run = self._run
        waiting = [group for group in range(count) if group not in run.folder.finished("hops")]
        if not waiting:
            return
        parts, size = self._partitions(run.dtype), self._panels_at_a_time()
        with progress_bar("hops", count, show=run.settings.progress) as advance:
            advance(count - len(waiting))
            for first in range(0, len(waiting), size):
                self._count_batch(parts, waiting[first : first + size])
                advance(len(waiting[first : first + size]))

    def _count_batch(self, parts: Partitions, groups: list[int]) -> None:
        run, begin = self._run, time.perf_counter()
        blocks = parts.on_each(part_tasks.first_hops, parts.graphs, parts.where, groups)
        active = list(range(len(groups)))
        while active:
            pieces = parts.halos(blocks, "solution", active)
            blocks = parts.on_each(part_tasks.hops_pass, parts.graphs, blocks, pieces, active)
            counts = parts.joined(joined_sums, blocks, active)
            active = [place for place, one in zip(active, counts, strict=True) if one[0]]
        parts.fetch(parts.on_each(part_tasks.write_hops, parts.graphs, parts.where, groups, blocks))
        for group in groups:
            run.folder.create(file_names.hops(group), (run.n_nodes, run.width(group)), np.uint8)
        ranges = parts.on_ranges(part_tasks.collect_hops, run.n_ranges, groups)
        for place, group in enumerate(groups):
            entry = _hops_entry(run, group, [entries[place] for entries in ranges])
            run.folder.record("hops", group, {**entry, "seconds": time.perf_counter() - begin})
            self._remove_parts(file_names.hops(group))

    def _remove_parts(self, name: str) -> None:
        for number in range(PartitionLayout.of_run(self._run).n_partitions):
            remove(self._run.folder.path / file_names.filled_part(name, number))

    def _routes(self) -> list[tuple[Route, Any]]:
        """Every channel goes in a block of channels: the other routes need all nodes."""
        diffusion = self._run.diffusion
        if any(route is Route.SWEEPS for route, _ in diffusion.routes):
            raise ParameterError(
                "steady states of directed graphs, and of graphs so deep that confidence underflows, cannot be divided "
                "among workers",
                remedy="fix the number of steps with {solver=FixedSteps(100)}, choose a larger {alpha}, or let each "
                "worker hold the graph with {partitions=1}",
            )
        return [(Route.BLOCKS, diffusion.active)] if len(diffusion.active) else []

    def _diffuse_panels(self, count: int) -> None:
        run = self._run
        waiting = [panel for panel in range(count) if panel not in run.folder.finished("diffuse")]
        if not waiting:
            return
        parts, size = self._partitions(run.diffusion.dtype), self._panels_at_a_time()
        found = checkpoints.load(run, waiting)
        resumed = [] if found is None else found["panels"]
        rest = [panel for panel in waiting if panel not in resumed]
        batches = [resumed] if resumed else []
        batches += [rest[first : first + size] for first in range(0, len(rest), size)]
        with progress_bar("diffuse (steps)", 0, show=run.settings.progress) as advance:
            for panels in batches:
                begin = time.perf_counter()
                outcomes = BatchSolver(run, parts, panels, advance).fill(found if panels is resumed else None)
                self._collect(parts, panels, outcomes, begin)
                checkpoints.discard(run)

    def _collect(self, parts: Partitions, panels: list[int], outcomes: list[DiffusionOutcome], begin: float) -> None:
        run = self._run
        for panel in panels:
            run.folder.mark(file_names.begun(panel))
        ranges = parts.on_ranges(part_tasks.collect_panels, run.n_ranges, panels)
        seconds = (time.perf_counter() - begin) / len(panels)
        for place, (panel, outcome) in enumerate(zip(panels, outcomes, strict=True)):
            entries = [one[place] for one in ranges]
            entry: dict[str, Any] = {"steps": outcome.steps, "residual": outcome.residual, "seconds": seconds}
            if run.propagation is not None:
                entry |= {name: np.sum([one[name] for one in entries], axis=0).tolist() for name in ("sums", "counts")}
            entry["checksums"] = [one["checksums"] for one in entries]
            run.folder.record("diffuse", panel, entry)
            self._remove_parts(file_names.panel(panel))

    def _spread_errors(self, count: int) -> None:
        run, begin = self._run, time.perf_counter()
        finished = run.folder.finished("spread")
        parts = self._partitions(np.dtype(np.float64))
        with progress_bar("spread", count, show=run.settings.progress) as advance:
            for index in range(count):
                if index not in finished:
                    written = parts.on_each(part_tasks.spread_part, parts.graphs, parts.where, index)
                    parts.fetch(written)
                    name, shape = file_names.spread(index), (run.n_nodes, len(spread_groups(run)[index]))
                    run.folder.create(name, shape, np.float64)
                    checksums = parts.on_ranges(part_tasks.collect_spread, run.n_ranges, index)
                    seconds = time.perf_counter() - begin
                    run.folder.record("spread", index, {"checksums": checksums, "seconds": seconds})
                    self._remove_parts(name)
                    begin = time.perf_counter()
                advance(1)


def _halo_rows(run: OutOfCoreRun) -> int:
    """Number of rows of the halos of all partitions."""
    return sum(int(entry["halo_starts"][-1]) for entry in run.folder.finished("partition").values())


def _hops_entry(run: OutOfCoreRun, group: int, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """What the journal says about a group of patterns."""
    levels = np.sum([entry["levels"] for entry in entries], axis=0)
    deepest = int(np.flatnonzero(levels[:, :-1].any(axis=0)).max(initial=0))
    if deepest > MAX_HOPS:
        raise ParameterError(
            f"some nodes are more than {MAX_HOPS} hops from the next known one: such a graph cannot be divided among "
            "workers",
            remedy="let each worker hold the graph with {partitions=1}",
        )
    first = group * patterns_at_a_time()
    sizes = np.bincount(run.channels.patterns)[first : first + len(levels)]
    return {
        "dtype": "uint8",
        "n_levels": deepest,
        "n_unreachable": levels[:, -1].tolist(),
        "levels": (sizes @ levels[:, : deepest + 1]).tolist(),
        "checksums": [entry["checksums"] for entry in entries],
    }
