"""Divide a run into tasks that fit into a memory budget, and check that the budget is sufficient."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pcfi.errors import StorageError, TooLargeError
from pcfi.files.paths import is_address
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import working_dtype
from pcfi.memory import (
    MAX_SHARE_OF_AVAILABLE,
    ProblemSize,
    diffusion_bytes,
    private_memory,
    propagation_bytes,
    sample_size,
    size_in_bytes,
    tuning_bytes,
)
from pcfi.outofcore import file_names
from pcfi.outofcore.cluster import thread_addresses, workers_of
from pcfi.outofcore.feature_stores import FeatureStore
from pcfi.outofcore.run import OutOfCoreRun, RunPlan, patterns_at_a_time
from pcfi.outofcore.run_settings import needs_fit
from pcfi.outofcore.run_sinks import sinks_of
from pcfi.settings import Settings
from pcfi.stages.solvers import UntilSettled
from pcfi.system_memory import available, size_in_words, two_sizes_in_words

MAX_RANGES = 64  # of rows, each a task: more would only add to the journal
MIN_RANGE_BYTES = 1 << 24  # of features in a task: smaller tasks cost more than they gain
MIN_RANGES = 8  # so that workers have something to share
MIN_RANGE_ROWS = 1024  # rows; ranges begin at multiples of it, so that no two share a page of a panel
MAX_CHUNK_BYTES = 1 << 26  # of rows held at a time: larger chunks are not faster
PROCESS_BYTES = 260_000_000  # Python, numpy, numba and the compiled kernels, with some room
WORKER_BYTES = 360_000_000  # the same in a Dask worker
READ_COPIES = 3  # of a row group: as it stands in the file, decoded, and as rows
ROW_BYTES = 64  # of a node in a block, as in `pcfi._kernels.vectors`
OWN_BLOCKS, HALO_BLOCKS = 10, 6  # of a panel alive at a time in partitions, of own rows and of rows of halos
MAX_TREE_SUMS = 7  # channels x channels sums alive at a time: a path of the tree, the part being added, its product


def row_bytes(size: ProblemSize) -> int:
    """Bytes that a row takes while it passes through: as read, as values, filled, deviations, received, codes."""
    values, propagation = size.n_channels * (8 + 4 * size.itemsize + 2), size.n_propagating * 3 * size.itemsize
    return values + propagation + size.n_patterns * 9


def drawn_row_bytes(size: ProblemSize, n_draws: int) -> int:
    """Bytes that a row takes besides, if there are draws: errors of all of them, and one table being made."""
    return size.n_channels * (12 * n_draws + 96) if n_draws else 0


def field_task_bytes(size: ProblemSize) -> int:
    """Bytes of the random fields of some channels: four blocks, the errors, and random numbers."""
    return size.n_nodes * (5 * ROW_BYTES + 24)


def hops_task_bytes(size: ProblemSize) -> int:
    """Bytes of one search: flags and hops of its patterns, the rows of the search, or its queues."""
    known = min(size.n_patterns, patterns_at_a_time())
    return size.n_nodes * (known + known * size.code_bytes + 64)


def diffuse_task_bytes(size: ProblemSize, settings: Settings) -> int:
    """Bytes of the diffusion of a panel, whose values are mapped: stage 1, and the hops of its patterns."""
    from pcfi._kernels.vectors import ROW_BYTES

    codes = size.n_nodes * size.code_bytes * min(size.n_patterns, ROW_BYTES // size.width)
    return codes + diffusion_bytes(size, settings)


def fit_task_bytes(size: ProblemSize, settings: Settings) -> int:
    """Bytes of the fit of the value model: its sample, twice while it is read, and what it works in."""
    if not needs_fit(settings) or settings.objective != "values":
        return 0
    sampled = sample_size(size)
    n_cells = sampled.n_nodes * sampled.n_channels
    working = diffusion_bytes(sampled, settings)
    return 2 * n_cells * (size.itemsize + 1) + tuning_bytes(size, size.n_nodes * size.n_channels // 2, working)


def sums_task_bytes(size: ProblemSize, chunk_rows: int) -> int:
    """Bytes of the sums of stage 2, and of the rows that are added up."""
    return propagation_bytes(size, MAX_TREE_SUMS) + chunk_rows * row_bytes(size)


def make_plan(run: OutOfCoreRun, memory: Any, cluster: Any = None, partitions: int = 1) -> dict[str, Any]:
    """The plan of a run as facts; raises `TooLargeError` if the budget does not suffice."""
    budget, base, threads = _budget(memory, cluster), _base(cluster), _threads(cluster)
    first, workers = size_of(run, threads), 1 if cluster is None else len(workers_of(cluster))
    refuse_small_budget(run.store, first, run.settings, budget, base, workers if partitions > 1 else 0)
    reading = READ_COPIES * run.store.largest_read
    spare = budget - base - reading
    refuse_draws(first, run.n_draws, budget, base)
    chunk = max(64, min(MAX_CHUNK_BYTES, spare // 4) // (row_bytes(first) + drawn_row_bytes(first, run.n_draws)))
    searches = max(1, min(threads, spare // max(1, hops_task_bytes(first))))
    plan = RunPlan(_range_rows(run), int(min(chunk, run.n_nodes)), int(searches), uuid4().hex)
    facts = {"budget": budget, "base": base, "threads": threads, "partitions": partitions, "workers": workers}
    return {**asdict(plan), **facts}


def partition_count(store: FeatureStore, graph: Graph, settings: Settings, memory: Any, cluster: Any) -> int:
    """Number of partitions of a graph on a cluster: 1 if a worker can hold it, else one for each thread."""
    if cluster is None or not _can_divide(graph.directed, settings):
        return 1
    itemsize = working_dtype(store.dtype).itemsize
    size = ProblemSize.of_shape(store.shape, itemsize, settings, graph=graph, threads=_threads(cluster))
    budget, n_bytes = _budget(memory, cluster), graph.indptr.nbytes + graph.indices.nbytes
    n_bytes += 0 if graph.weights is None else graph.weights.nbytes
    if _base(cluster) + whole_graph_bytes(size, settings) <= budget and n_bytes <= budget:
        return 1
    return max(2, len(thread_addresses(cluster)))


def _can_divide(directed: bool, settings: Settings) -> bool:
    """Whether stage 1 can go through partitions: all but steady states of directed graphs."""
    return not directed or not isinstance(settings.solver, UntilSettled)


def whole_graph_bytes(size: ProblemSize, settings: Settings) -> int:
    """Bytes of hops and stage 1 in a process that has the complete graph."""
    return max(diffuse_task_bytes(size, settings), hops_task_bytes(size))


def partition_bytes(n_own: Any, n_halo: Any) -> Any:
    """Bytes of the blocks of a panel in a partition."""
    return ROW_BYTES * (OWN_BLOCKS * n_own + HALO_BLOCKS * n_halo)


def _range_rows(run: OutOfCoreRun) -> int:
    """Rows of a range, from the size of the features alone: a call that resumes must find the same ranges."""
    n_ranges = min(MAX_RANGES, max(MIN_RANGES, run.n_nodes * run.n_channels * run.dtype.itemsize // MIN_RANGE_BYTES))
    return max(1, -(-run.n_nodes // n_ranges // MIN_RANGE_ROWS)) * MIN_RANGE_ROWS


def check_budget(store: FeatureStore, settings: Settings, memory: Any, cluster: Any, partitions: Any) -> None:
    """Raise `TooLargeError` if the budget does not suffice whatever the graph is."""
    threads = _threads(cluster)
    itemsize = working_dtype(store.dtype).itemsize
    size = ProblemSize.of_shape(store.shape, itemsize, settings, threads=threads)
    divided = (cluster is not None or partitions != "auto") and partitions != 1
    n_workers = 0 if not divided else 1 if cluster is None else len(workers_of(cluster))
    refuse_small_budget(store, size, settings, _budget(memory, cluster), _base(cluster), n_workers)


def refuse_small_budget(
    store: FeatureStore, size: ProblemSize, settings: Settings, budget: int, base: int, n_workers: int = 0
) -> None:
    """Raise `TooLargeError` if reading, hops or diffusion take more than the budget.

    `n_workers` can divide the graph among them; 0 if each needs all of it.
    """
    fitting = fit_task_bytes(size, settings)
    if fitting and base + fitting > budget:
        words = two_sizes_in_words(base + fitting, budget)
        raise TooLargeError(
            f"fitting the value model to a sample of {sample_size(size).n_nodes:,} nodes and {size.n_channels:,} "
            f"channels needs about {words[0]} of private memory, but memory is {words[1]}",
            remedy="grant more, or choose {objective='representation'}",
        )
    needed = whole_graph_bytes(size, settings)
    if n_workers:
        needed = min(needed, partition_bytes(size.n_nodes, 0) // n_workers)
    if base + needed > budget:
        words = two_sizes_in_words(base + needed, budget)
        raise TooLargeError(
            f"{size.n_nodes:,} nodes need about {words[0]} of private memory, whatever the number of channels, but "
            f"memory is {words[1]}",
            remedy=_remedy(settings),
        )
    reading = READ_COPIES * store.largest_read
    if reading and base + reading > budget:
        raise TooLargeError(
            f"the row groups or chunks of {store.path!r} take {size_in_words(reading)} to read, too much for a "
            f"memory of {size_in_words(budget)}: grant more, or write the file in smaller ones"
        )


def refuse_draws(size: ProblemSize, n_draws: int, budget: int, base: int) -> None:
    """Raise `TooLargeError` if the random fields of draws take more than the budget."""
    if n_draws and base + field_task_bytes(size) > budget:
        words = two_sizes_in_words(base + field_task_bytes(size), budget)
        raise TooLargeError(
            f"draws for {size.n_nodes:,} nodes need about {words[0]} of private memory, but memory is {words[1]}: "
            "grant more, or leave out draws"
        )


def _remedy(settings: Settings) -> str:
    if isinstance(settings.solver, UntilSettled):
        return "grant more, or fix the number of steps with {solver=FixedSteps(100)}, which needs half as much"
    return "grant more"


def _budget(memory: Any, cluster: Any) -> int:
    if memory is not None:
        return size_in_bytes(memory, "memory")
    if cluster is not None:
        limits = [worker["memory_limit"] for worker in workers_of(cluster)]
        granted = min((limit for limit in limits if limit), default=0)
        if granted:
            return int(granted * MAX_SHARE_OF_AVAILABLE)
    return int(available() * MAX_SHARE_OF_AVAILABLE)


def _base(cluster: Any) -> int:
    """Bytes that a process takes before it runs a task."""
    return WORKER_BYTES if cluster is not None else max(PROCESS_BYTES, private_memory() + PROCESS_BYTES // 2)


def _threads(cluster: Any) -> int:
    if cluster is not None:
        return max((int(worker["nthreads"]) for worker in workers_of(cluster)), default=1)
    from pcfi._kernels.threads import thread_count

    return thread_count()


def size_of(run: OutOfCoreRun, threads: int) -> ProblemSize:
    """The size of a run; the largest possible one where patterns and channels of stage 2 are not known yet."""
    surveyed, searched = (run.folder.has(name) for name in (file_names.channels("n_known"), file_names.LAYOUT))
    through = run.layout.panels[: run.layout.n_through_influence] if searched else []
    size = ProblemSize.of_shape(run.store.shape, run.dtype.itemsize, run.settings, graph=run.graph, threads=threads)
    return replace(
        size,
        n_patterns=run.n_patterns if surveyed else size.n_patterns,
        code_bytes=run.hops.codes.itemsize if run.folder.has(file_names.HOPS) else size.code_bytes,
        n_influence=max((int(run.channels.n_known[panel[0]]) for panel in through), default=0),
        n_propagating=len(run.layout.propagating) if searched else size.n_propagating,
    )


def check_layout(run: OutOfCoreRun) -> None:
    """Raise `TooLargeError` if the panels or the channels of stage 2 do not fit into the budget."""
    plan = run.folder.read(file_names.PLAN)
    size = size_of(run, plan["threads"])
    spare = plan["budget"] - plan["base"]
    needed = diffuse_task_bytes(size, run.chosen)
    if needed > spare and plan["partitions"] == 1:
        words = two_sizes_in_words(plan["base"] + needed, plan["budget"])
        raise TooLargeError(f"diffusion needs about {words[0]} of private memory, but memory is {words[1]}: raise it")
    sums = 0 if run.layout.is_product else sums_task_bytes(size, plan["chunk_rows"])
    if sums > spare:
        words = two_sizes_in_words(plan["base"] + sums, plan["budget"])
        most = int((max(0, spare - plan["chunk_rows"] * row_bytes(size)) / (8 * MAX_TREE_SUMS)) ** 0.5)
        raise TooLargeError(
            f"channel propagation between {size.n_propagating:,} channels needs about {words[0]} of private memory, "
            f"but memory is {words[1]}, enough for {most:,} channels",
            remedy="grant more, or leave out channel propagation with {beta=0}",
        )


def disk_bytes(run: OutOfCoreRun) -> int:
    """Bytes of the work folder: panels, hops, errors, fields and bits of known cells.

    As many as there are if every channel has its own pattern.
    """
    spread = (8 if run.has_errors else 0) + (8 + 4 * run.n_draws if run.n_draws else 0)
    # the graph once more, its order, and of one panel its rows by partitions and two checkpoints
    divided = run.graph.indices.nbytes + run.n_nodes * (16 + 7 * ROW_BYTES) if run.partitioned else 0
    return (
        divided + run.n_nodes * run.n_channels * (run.dtype.itemsize + 1 + spread) + run.n_nodes * run.n_channels // 8
    )


def check_space(run: OutOfCoreRun) -> None:
    """Raise `StorageError` if the work folder will not fit on its disk."""
    results, home = (
        [Path(sink.path).parent for sink in sinks_of(run).values() if not is_address(sink.path)],
        run.folder.path,
    )
    beside = sum(path.stat().st_dev == home.stat().st_dev for path in results)
    needed = disk_bytes(run) + beside * run.n_nodes * run.n_channels * run.dtype.itemsize
    free = shutil.disk_usage(home).free
    if needed > free:
        words = two_sizes_in_words(needed, free)
        raise StorageError(
            f"the work folder and what is written beside it take up to {words[0]}, but the disk of {str(home)!r} has "
            f"{words[1]} left",
            remedy="make room, or choose another disk with {work}",
        )
