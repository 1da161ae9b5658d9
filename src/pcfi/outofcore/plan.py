"""How a run is cut so that it stays within its budget of memory, and whether it can."""

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from pcfi.errors import ParameterError, StorageError, TooLargeError
from pcfi.files.paths import is_address
from pcfi.inputs.problem import working_dtype
from pcfi.memory import available, size_in_bytes, size_in_words
from pcfi.outofcore import file_names
from pcfi.outofcore.feature_stores import FeatureStore
from pcfi.outofcore.run import OutOfCoreRun, RunPlan, patterns_at_a_time
from pcfi.pipeline import propagation_of
from pcfi.settings import Settings
from pcfi.stages.solvers import FixedSteps, UntilSettled

RANGES = 64  # of rows, at most
RANGE_BYTES = 1 << 24  # of features that are worth a task of their own
FEW_RANGES = 8
SMALLEST_RANGE = 1024  # rows; ranges begin at multiples of it, so that no two share a page of a panel
CHUNK_BYTES = 1 << 26  # of rows held at a time
PROCESS_BYTES = 260_000_000  # Python, numpy, numba and the compiled kernels, with some room
WORKER_BYTES = 360_000_000  # the same in a Dask worker
READING = 3  # times a row group: as it stands in the file, decoded, and as rows
SHARE_OF_AVAILABLE = 0.7
TREE_SUMS = 7  # channels x channels sums alive at a time: a path of the tree, the part being added, its product


@dataclass(frozen=True)
class Size:
    """What the need for memory follows from."""

    n_nodes: int
    n_entries: int  # of the compressed rows: an undirected edge has two
    n_channels: int
    n_patterns: int
    itemsize: int  # of a filled value
    width: int  # bytes of a number that diffusion calculates with
    code: int  # bytes of a number of hops
    by_sweeps: bool  # whether steady states are found pattern by pattern (directed graphs)
    n_influence: int  # sources of the pattern that goes through the largest influence matrix, 0 if none does
    n_sharers: int
    threads: int


def row_bytes(size: Size) -> int:
    """Bytes that a row takes while it passes through: as read, as values, filled, deviations, received, codes."""
    return size.n_channels * (8 + 4 * size.itemsize + 2) + size.n_sharers * 3 * size.itemsize + size.n_patterns * 9


def hops_bytes(size: Size) -> int:
    """Bytes of one search: flags and hops of its patterns, the rows of the search, or its queues."""
    known = min(size.n_patterns, patterns_at_a_time())
    return size.n_nodes * (known + known * size.code + 64)


def diffuse_bytes(size: Size, settings: Settings) -> int:
    """Bytes of the diffusion of a panel."""
    from pcfi._kernels.blocks import MAX_CACHED_BLOCK_BYTES
    from pcfi._kernels.vectors import ROW_BYTES
    from pcfi.stages.diffusion.block_solver import BLOCKS_TO_SETTLE, BLOCKS_TO_STEP

    n, block = size.n_nodes, size.n_nodes * ROW_BYTES
    codes = n * size.code * min(size.n_patterns, ROW_BYTES // size.width)
    weighting = n * (8 + 8 + size.width)
    if size.by_sweeps:
        at_once = min(size.threads, ROW_BYTES // size.width)
        return codes + weighting + at_once * (12 * size.n_entries + 2 * block + 3 * block // 2 + 24 * n)
    blocks = BLOCKS_TO_STEP if isinstance(settings.solver, FixedSteps) else BLOCKS_TO_SETTLE
    sets = 1 if block >= MAX_CACHED_BLOCK_BYTES else size.threads
    influence = 3 * n * (size.n_influence + 1) * size.width if size.n_influence else 0
    return codes + weighting + sets * (blocks * block + 16 * n) + influence


def sharing_bytes(size: Size) -> int:
    """Bytes of the sums that sharing needs."""
    return TREE_SUMS * 8 * size.n_sharers**2 if size.n_sharers > 1 else 0


def private_memory() -> int:
    """Bytes of memory that are this process's own, as far as the system says."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def make_plan(run: OutOfCoreRun, memory: Any, cluster: Any = None) -> dict[str, Any]:
    """The plan of a run as facts; raises `TooLargeError` if the budget does not suffice."""
    budget, base, threads = _budget(memory, cluster), _base(cluster), _threads(cluster)
    first = size_of(run, threads)
    refuse_small_budget(run.store, first, run.settings, budget, base)
    reading = READING * run.store.largest_read
    spare = budget - base - reading
    chunk = max(64, min(CHUNK_BYTES, spare // 4) // row_bytes(first))
    searches = max(1, min(threads, spare // max(1, hops_bytes(first))))
    plan = RunPlan(_range_rows(run), int(min(chunk, run.n_nodes)), int(searches), uuid4().hex)
    return {**asdict(plan), "budget": budget, "base": base, "threads": threads}


def _range_rows(run: OutOfCoreRun) -> int:
    """Rows of a range, from the size of the features alone: a call that resumes must find the same ranges."""
    n_ranges = min(RANGES, max(FEW_RANGES, run.n_nodes * run.n_channels * run.dtype.itemsize // RANGE_BYTES))
    return max(1, -(-run.n_nodes // n_ranges // SMALLEST_RANGE)) * SMALLEST_RANGE


def check_budget(store: FeatureStore, settings: Settings, memory: Any, cluster: Any) -> None:
    """Raise `TooLargeError` if the budget does not suffice whatever the graph is."""
    threads = _threads(cluster)
    size = first_size(store.shape, working_dtype(store.dtype), settings, 0, settings.directed, threads)
    refuse_small_budget(store, size, settings, _budget(memory, cluster), _base(cluster))


def refuse_small_budget(store: FeatureStore, size: Size, settings: Settings, budget: int, base: int) -> None:
    """Raise `TooLargeError` if reading, hops or diffusion take more than the budget."""
    needed = max(diffuse_bytes(size, settings), hops_bytes(size))
    if base + needed > budget:
        raise TooLargeError(
            f"{size.n_nodes:,} nodes need about {size_in_words(base + needed)} of private memory, whatever the number "
            f"of channels, but memory is {size_in_words(budget)}",
            remedy=_remedy(settings),
        )
    reading = READING * store.largest_read
    if reading and base + reading > budget:
        raise TooLargeError(
            f"the row groups or chunks of {store.path!r} take {size_in_words(reading)} to read, too much for a "
            f"memory of {size_in_words(budget)}: grant more, or write the file in smaller ones"
        )


def _remedy(settings: Settings) -> str:
    if isinstance(settings.solver, UntilSettled):
        return "grant more, or fix the number of steps with {solver=FixedSteps(100)}, which needs half as much"
    return "grant more"


def _budget(memory: Any, cluster: Any) -> int:
    if memory is not None:
        return size_in_bytes(memory, "memory")
    if cluster is not None:
        limits = [worker["memory_limit"] for worker in cluster.scheduler_info(n_workers=-1)["workers"].values()]
        granted = min((limit for limit in limits if limit), default=0)
        if granted:
            return int(granted * SHARE_OF_AVAILABLE)
    there = available()
    if there is None:
        raise ParameterError('this system does not say how much memory is available: pass memory=, such as "4GB"')
    return int(there * SHARE_OF_AVAILABLE)


def _base(cluster: Any) -> int:
    """Bytes that a process takes before it does anything."""
    return WORKER_BYTES if cluster is not None else max(PROCESS_BYTES, private_memory() + PROCESS_BYTES // 2)


def _threads(cluster: Any) -> int:
    if cluster is not None:
        workers = cluster.scheduler_info(n_workers=-1)["workers"].values()
        return max((int(worker["nthreads"]) for worker in workers), default=1)
    from pcfi._kernels.threads import thread_count

    return thread_count()


def size_of(run: OutOfCoreRun, threads: int) -> Size:
    """The size of a run as far as it is known: as many patterns and sharing channels as there can be before that."""
    surveyed, searched = run.folder.has(file_names.channels("n_known")), run.folder.has(file_names.LAYOUT)
    through = run.layout.panels[: run.layout.n_through_influence] if searched else []
    size = first_size(
        run.store.shape, run.dtype, run.settings, len(run.graph.indices), bool(run.graph.directed), threads
    )
    return replace(
        size,
        n_patterns=run.n_patterns if surveyed else size.n_patterns,
        code=run.hops.codes.itemsize if run.folder.has(file_names.HOPS) else size.code,
        n_influence=max((int(run.channels.n_known[panel[0]]) for panel in through), default=0),
        n_sharers=len(run.layout.propagating) if searched else size.n_sharers,
    )


def first_size(
    shape: tuple[int, int], dtype: np.dtype[Any], settings: Settings, n_entries: int, directed: bool, threads: int
) -> Size:
    """The size of a run of which nothing is known but its shape: every channel has its own pattern, and shares."""
    settles = isinstance(settings.solver, UntilSettled)
    wide = isinstance(settings.solver, UntilSettled) and settings.solver.rtol < 1e-5
    return Size(
        n_nodes=shape[0],
        n_entries=n_entries,
        n_channels=shape[1],
        n_patterns=shape[1],
        itemsize=dtype.itemsize,
        width=8 if wide else dtype.itemsize,
        code=1,
        by_sweeps=settles and directed,
        n_influence=0,
        n_sharers=shape[1] if propagation_of(settings) is not None else 0,
        threads=threads,
    )


def check_layout(run: OutOfCoreRun) -> None:
    """Raise `TooLargeError` if what is known by now, panels and sharing channels, does not fit into the budget."""
    plan = run.folder.read(file_names.PLAN)
    size = size_of(run, plan["threads"])
    spare = plan["budget"] - plan["base"]
    needed = diffuse_bytes(size, run.settings)
    if needed > spare:
        raise TooLargeError(
            f"diffusion needs about {size_in_words(plan['base'] + needed)} of private memory, but memory is "
            f"{size_in_words(plan['budget'])}: grant more"
        )
    sums = 0 if run.layout.is_product else sharing_bytes(size) + plan["chunk_rows"] * row_bytes(size)
    if sums > spare:
        most = int((max(0, spare - plan["chunk_rows"] * row_bytes(size)) / (8 * TREE_SUMS)) ** 0.5)
        raise TooLargeError(
            f"sharing between {size.n_sharers:,} channels needs about {size_in_words(plan['base'] + sums)} of private "
            f"memory, but memory is {size_in_words(plan['budget'])}, enough for {most:,} channels",
            remedy="grant more, or leave out the exchange between channels with {beta=0}",
        )


def disk_bytes(run: OutOfCoreRun) -> int:
    """Bytes of the work folder: panels, hops, and bits of known cells, if every channel has its own pattern."""
    return run.n_nodes * run.n_channels * (run.dtype.itemsize + 1) + run.n_nodes * run.n_channels // 8


def check_space(run: OutOfCoreRun) -> None:
    """Raise `StorageError` if the work folder will not fit on its disk."""
    results, home = (
        [Path(sink.path).parent for sink in run.sinks().values() if not is_address(sink.path)],
        run.folder.path,
    )
    beside = sum(path.stat().st_dev == home.stat().st_dev for path in results)
    needed = disk_bytes(run) + beside * run.n_nodes * run.n_channels * run.dtype.itemsize
    free = shutil.disk_usage(home).free
    if needed > free:
        raise StorageError(
            f"the work folder and what is written beside it take up to {size_in_words(needed)}, but the disk of "
            f"{str(home)!r} has {size_in_words(free)} left",
            remedy="make room, or choose another disk with {work}",
        )
