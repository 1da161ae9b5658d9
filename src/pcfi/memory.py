"""The memory model: estimated memory of an imputation, in memory and on disk.

Sizes are estimated from counts before allocation. In-memory and on-disk imputations allocate the same in the stages:
`diffusion_bytes` for stage 1, `propagation_bytes` for stage 2.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from pcfi.errors import ParameterError
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Problem
from pcfi.pipeline import propagation_of
from pcfi.settings import Settings
from pcfi.stages.diffusion.definition import MIN_CHANNELS_PER_SOURCE, needs_float64, varying_channels
from pcfi.stages.solvers import UntilSettled
from pcfi.system_memory import refuse_allocation, size_in_words

MAX_SHARE_OF_AVAILABLE = 0.7  # default budget as a share of the available memory; other programs need some
SUMS_IN_MEMORY = 2  # channels x channels arrays of stage 2 at a time: the scatter matrix, and a part of it

# bytes that tuning stores per hidden cell (position, truth, hops, mean, unit, and the estimate for each alpha), and
# bytes to divide the known cells into folds, per node of a pattern and per known node
CELL_BYTES, PATTERN_BYTES, UNIT_BYTES = 160, 7, 16
TRAINING_ARRAYS = 6  # float64 arrays of the size of the training rows of the value model
REGRESSION_ARRAYS = 16  # of float64, of all cells of the training rows, if columns are regressed on each other
POSITIONS_AT_A_TIME = 64  # position channels that stage 1 fills at a time
MAX_KEPT_BYTES = 1 << 26  # freed memory that glibc does not return: twice 32 MB, its largest threshold for mmap


@dataclass(frozen=True, kw_only=True)
class ProblemSize:
    """Counts that determine the memory.

    Attributes
    ----------
    n_nodes, n_channels, n_patterns : int
    n_entries : int
        Entries of the compressed rows of the graph: an undirected edge has two.
    itemsize : int
        Bytes of a filled value.
    width : int
        Bytes of a number during diffusion.
    code_bytes : int
        Bytes of a hop count.
    by_sweeps : bool
        Whether steady states are solved by sweeps, one pattern at a time (directed graphs).
    n_influence : int
        Number of sources of the largest influence matrix, 0 if there is none.
    n_propagating : int
        Channels of stage 2.
    threads : int
    """

    n_nodes: int
    n_channels: int
    n_patterns: int
    n_entries: int
    itemsize: int
    width: int
    code_bytes: int = 1
    by_sweeps: bool
    n_influence: int = 0
    n_propagating: int
    threads: int

    @classmethod
    def of_shape(
        cls,
        shape: tuple[int, int],
        itemsize: int,
        settings: Settings,
        *,
        graph: Graph | None = None,
        n_entries: int = 0,
        threads: int | None = None,
    ) -> "ProblemSize":
        """The largest size for this shape: every channel has its own pattern and takes part in stage 2."""
        from pcfi._kernels.threads import thread_count

        weight_range = (1.0, 1.0) if graph is None else graph.weight_range
        directed = settings.directed or (graph is not None and graph.directed)
        return cls(
            n_nodes=shape[0],
            n_channels=shape[1],
            n_patterns=shape[1],
            n_entries=n_entries if graph is None else len(graph.indices),
            itemsize=itemsize,
            width=8 if needs_float64(weight_range, settings.solver) else itemsize,
            by_sweeps=isinstance(settings.solver, UntilSettled) and directed,
            n_propagating=0 if propagation_of(settings) is None else shape[1],
            threads=thread_count() if threads is None else threads,
        )

    @classmethod
    def of_problem(cls, problem: Problem, settings: Settings) -> "ProblemSize":
        """The size of a problem in memory."""
        channels, settles = problem.channels, isinstance(settings.solver, UntilSettled)
        varying = varying_channels(channels, keeps_constants=settles and settings.method != "fp")
        size = cls.of_shape(problem.values.shape, problem.dtype.itemsize, settings, graph=problem.graph)
        n_known = channels.n_known[channels.representatives]
        n_channels = np.bincount(channels.patterns[varying], minlength=len(n_known))
        few_sources = (n_channels >= MIN_CHANNELS_PER_SOURCE * n_known) & (n_channels > 0)
        is_product = bool(few_sources.any() and n_channels.max() == len(varying))  # no channels x channels array
        return replace(
            size,
            n_patterns=len(n_known),
            n_influence=0 if size.by_sweeps else int(n_known[few_sources].max(initial=0)),
            n_propagating=0 if is_product or not size.n_propagating else len(varying),
        )


def diffusion_bytes(size: ProblemSize, settings: Settings) -> int:
    """Bytes of stage 1, besides values and hops: weights, blocks of each thread, the influence matrix."""
    from pcfi._kernels.csr_graph import MAX_CACHED_BLOCK_BYTES
    from pcfi._kernels.vectors import ROW_BYTES
    from pcfi.stages.diffusion.block_solver import BLOCKS_TO_SETTLE, BLOCKS_TO_STEP

    n, block = size.n_nodes, size.n_nodes * ROW_BYTES
    weights = n * (8 + 8 + size.width)
    if size.by_sweeps:
        at_once = min(size.threads, size.n_patterns, ROW_BYTES // size.width)
        return weights + at_once * (12 * size.n_entries + 2 * block + 3 * block // 2 + 24 * n)
    n_blocks = BLOCKS_TO_SETTLE if isinstance(settings.solver, UntilSettled) else BLOCKS_TO_STEP
    n_tasks = -(-max(size.n_channels, size.n_influence) * size.width // ROW_BYTES)
    at_once = 1 if block >= MAX_CACHED_BLOCK_BYTES else min(size.threads, n_tasks)
    influence = 3 * n * (size.n_influence + 1) * size.width if size.n_influence else 0
    return weights + at_once * (n_blocks * block + 16 * n) + influence


def propagation_bytes(size: ProblemSize, n_sums: int) -> int:
    """Bytes of stage 2, besides values and hops, with `n_sums` channels x channels arrays at a time."""
    return n_sums * 8 * size.n_propagating**2 if size.n_propagating > 1 else 0


def position_bytes(graph: Graph, n_channels: int) -> int:
    """Bytes of `n_channels` position channels: what is returned, and stage 1 of some of them at a time."""
    width = min(n_channels, POSITIONS_AT_A_TIME)
    settings = Settings(beta=0.0)
    size = ProblemSize.of_shape((graph.n_nodes, width), 4, settings, graph=graph)
    entries = 24 * len(graph.indices) if graph.directed else 0
    cells = graph.n_nodes * width * (2 * size.itemsize + size.code_bytes)
    diffusion = diffusion_bytes(size, settings)
    kept = min(MAX_KEPT_BYTES, diffusion)  # working memory of one part that is resident during the next one
    return 4 * graph.n_nodes * n_channels + entries + cells + 96 * graph.n_nodes + diffusion + kept


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that an imputation in memory allocates: values, hops, and working memory."""

    values: int
    hops: int
    working: int

    @property
    def total(self) -> int:
        """Total bytes."""
        return self.values + self.hops + self.working


def estimate_memory(problem: Problem, settings: Settings) -> MemoryEstimate:
    """Estimate the memory of an imputation; hop counts above 254 need more."""
    values = problem.values.nbytes
    if settings.method not in ("pcfi", "fp", "auto"):
        return MemoryEstimate(values, 0, 0)
    if settings.method == "auto":
        settings = replace(settings, method="pcfi")
    size = ProblemSize.of_problem(problem, settings)
    working = max(diffusion_bytes(size, settings), propagation_bytes(size, SUMS_IN_MEMORY))
    hops = size.n_nodes * size.n_patterns * size.code_bytes
    if settings.method == "pcfi" and settings.objective == "values":
        working = max(working, tuning_bytes(size, int(problem.channels.n_known.sum()), working) - values - hops)
    return MemoryEstimate(values, hops, working)


def tuning_bytes(size: ProblemSize, n_known: int, working: int) -> int:
    """Bytes that tuning allocates for its sample: folds with masks and hops, hidden cells, and one filled array.

    `n_known` is the number of known cells of the complete table, `working` the working memory of diffusion.
    """
    from pcfi.estimation.fitting import MAX_FOLDS, folds_of_size
    from pcfi.estimation.folds import MAX_HIDDEN, N_PARTS
    from pcfi.estimation.training import MAX_TRAINING_CELLS, MAX_TRAINING_ROWS, has_regression

    sampled = sample_size(size)
    n_known = n_known * sampled.n_nodes // size.n_nodes
    mask, patterns = sampled.n_nodes * size.n_channels, sampled.n_nodes * size.n_patterns
    n_units = n_known * size.n_patterns // size.n_channels
    is_sample = sampled.n_nodes < size.n_nodes  # cells are hidden at few of its nodes, so all folds are needed
    n_folds = MAX_FOLDS if is_sample else folds_of_size(n_units, n_known, size.n_channels, size.n_channels)
    n_hidden = n_folds * min(n_known // N_PARTS, MAX_HIDDEN)
    dividing = (n_folds + 1) * mask + PATTERN_BYTES * patterns + UNIT_BYTES * n_units
    # filled, on a log scale, divided by degrees
    trying = n_folds * (mask + patterns) + 3 * mask * size.itemsize + working
    training = TRAINING_ARRAYS * 8 * MAX_TRAINING_CELLS + 4 * min(mask, MAX_TRAINING_ROWS * size.n_channels)
    if has_regression(size.n_channels, size.n_channels):
        n_rows = max(64, min(MAX_TRAINING_ROWS, MAX_TRAINING_CELLS * sampled.n_nodes // max(n_known, 1)))
        training += REGRESSION_ARRAYS * 8 * min(n_rows, sampled.n_nodes) * size.n_channels
    return int(CELL_BYTES * n_hidden + max(dividing, trying) + training)


def sample_size(size: ProblemSize) -> ProblemSize:
    """The size of the sample of a table that the value model is fitted to."""
    from pcfi.estimation.sample import max_sample_nodes

    n_nodes = min(size.n_nodes, max_sample_nodes(size.n_channels))
    return replace(size, n_nodes=n_nodes, n_entries=size.n_entries * n_nodes // max(size.n_nodes, 1))


def private_memory() -> int:
    """Private memory of this process: resident, and not shared with a file or another process."""
    import psutil

    memory = psutil.Process().memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


def refuse_if_too_large(problem: Problem, settings: Settings) -> None:
    """Raise `TooLargeError` if the problem needs more memory than is available; on another device, torch checks."""
    if problem.on_device:
        return
    needed = estimate_memory(problem, settings)
    n_nodes, n_channels = problem.values.shape
    advice = "store the features as float32, or " if problem.values.itemsize == 8 else ""
    values, hops, working = map(size_in_words, (needed.values, needed.hops, needed.working))
    refuse_allocation(
        needed.total,
        f"filling {n_nodes:,} nodes x {n_channels:,} channels",
        f"{advice}fill files within a memory budget, with pcfi.scale.impute in Python or --memory on the command line "
        "(docs/scale.md)",
        details=f" ({values} for values, {hops} for hops, {working} for the computation)",
    )


def give_back() -> None:
    """Return freed memory that pyarrow and the C library have kept to the system."""
    import ctypes
    import sys

    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def size_in_bytes(size: object, name: str) -> int:
    """Number of bytes from a number or a text such as "4GB", "512 MB" or "1.5GiB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", str(size).lower())
    is_number = isinstance(size, Real) and not isinstance(size, bool)
    if not (isinstance(size, str) or is_number) or found is None or found[2] not in _UNITS:
        raise ParameterError(f'must be a number of bytes or a size such as "4GB", got {size!r}', parameter=name)
    n_bytes = int(float(found[1]) * _UNITS[found[2]])
    if n_bytes < 1:
        raise ParameterError(f"must be at least one byte, got {size!r}", parameter=name)
    return n_bytes
