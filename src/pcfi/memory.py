"""How much memory a problem takes, and whether it is there: told before anything large is allocated."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path

import numpy as np

from pcfi.errors import ParameterError, TooLargeError
from pcfi.inputs.problem import Problem
from pcfi.settings import Settings
from pcfi.stages.solvers import FixedSteps

WORTH_A_LOOK = 1 << 25  # bytes below which nobody runs out of memory

# what tuning keeps of a hidden cell (place, truth, hops, mean and unit, and what each alpha filled in), and what it
# takes to divide the known cells into parts, per node of a pattern and per known one
CELL_BYTES, PATTERN_BYTES, UNIT_BYTES = 160, 7, 16


@dataclass(frozen=True)
class Needs:
    """Bytes that an imputation allocates: what it hands back, and what it works in besides."""

    values: int
    hops: int
    working: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.values + self.hops + self.working


def needs(problem: Problem, settings: Settings) -> Needs:
    """An estimate from the sizes; hops deeper than 254 take more."""
    n_nodes, n_channels = problem.values.shape
    values = problem.values.nbytes
    if settings.method not in ("pcfi", "fp", "auto"):
        return Needs(values, 0, 0)
    from pcfi._kernels.blocks import MAX_CACHED_BLOCK_BYTES
    from pcfi._kernels.threads import thread_count
    from pcfi._kernels.vectors import ROW_BYTES
    from pcfi.stages.diffusion.block_solver import BLOCKS_TO_SETTLE, BLOCKS_TO_STEP

    n_patterns = len(problem.channels.representatives)
    block = n_nodes * ROW_BYTES
    n_tasks = -(-n_channels * problem.values.itemsize // ROW_BYTES)
    blocks = BLOCKS_TO_STEP if isinstance(settings.solver, FixedSteps) else BLOCKS_TO_SETTLE
    working = block * blocks * (1 if block >= MAX_CACHED_BLOCK_BYTES else min(thread_count(), n_tasks))
    if settings.method in ("pcfi", "auto") and settings.beta != 0 and n_patterns > 1:
        n_active = int(np.count_nonzero(~problem.channels.silent))
        working = max(working, n_active**2 * (8 + problem.values.itemsize))
    hops = n_nodes * n_patterns
    if settings.method in ("pcfi", "auto") and settings.aim == "values":
        working = max(working, _for_tuning(problem, working) - values - hops)
    return Needs(values, hops, working)


def _for_tuning(problem: Problem, working: int) -> int:
    """Bytes that tuning allocates: folds with masks and hops of their own, hidden cells, and one filled array."""
    from pcfi.estimation.folds import FEW_UNITS, MOST_CELLS, PARTS
    from pcfi.estimation.search import FOLDS

    channels, (n_nodes, n_channels) = problem.channels, problem.values.shape
    n_known = channels.n_known[channels.representatives]
    n_units = int(n_known.sum())
    n_folds = PARTS if n_units <= FEW_UNITS else FOLDS
    mask, patterns = n_nodes * n_channels, n_nodes * len(n_known)
    n_hidden = n_folds * min(int(channels.n_known.sum()) // PARTS, MOST_CELLS)
    dividing = (n_folds + 1) * mask + PATTERN_BYTES * patterns + UNIT_BYTES * n_units
    trying = n_folds * (mask + patterns) + 2 * problem.values.nbytes + working  # filled, and divided by degrees
    return int(CELL_BYTES * n_hidden + max(dividing, trying))


def available() -> int | None:
    """Bytes that can still be allocated, within the limit of the container if there is one; None if nobody says."""
    found = [limit for limit in (_of_system(), _of_container()) if limit is not None]
    return min(found, default=None)


def _of_system() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return None
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _of_container() -> int | None:
    group = Path("/sys/fs/cgroup")
    try:
        return int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def refuse_if_too_large(problem: Problem, settings: Settings) -> None:
    """Raise `TooLargeError` if the memory that the problem needs is not there; a device knows best itself."""
    if not isinstance(problem.values, np.ndarray):
        return
    needed = needs(problem, settings)
    if needed.total < WORTH_A_LOOK:
        return
    there = available()
    if there is None or needed.total <= there:
        return
    n_nodes, n_channels = problem.values.shape
    advice = "store the features as float32, or " if problem.values.itemsize == 8 else ""
    raise TooLargeError(
        f"filling {n_nodes:,} nodes x {n_channels:,} channels needs about {size_in_words(needed.total)} "
        f"({size_in_words(needed.values)} values, {size_in_words(needed.hops)} hops, "
        f"{size_in_words(needed.working)} to work in), but only {size_in_words(there)} of memory is available",
        remedy=f"{advice}fill it from files within a memory budget, with pcfi.scale.impute in Python or --memory on "
        "the command line (docs/scale.md)",
    )


def give_back() -> None:
    """Return freed memory to the system, as far as pyarrow and the C library keep some for later."""
    import ctypes
    import sys

    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def size_in_bytes(size: object, name: str) -> int:
    """Bytes of a number, or of words such as "4GB", "512 MB" or "1.5GiB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", str(size).lower())
    is_number = isinstance(size, Real) and not isinstance(size, bool)
    if not (isinstance(size, str) or is_number) or found is None or found[2] not in _UNITS:
        raise ParameterError(f'must be a number of bytes or a size such as "4GB", got {size!r}', parameter=name)
    n_bytes = int(float(found[1]) * _UNITS[found[2]])
    if n_bytes < 1:
        raise ParameterError(f"must be at least one byte, got {size!r}", parameter=name)
    return n_bytes


def size_in_words(n_bytes: int) -> str:
    """A number of bytes as people say it."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.0f} MB"
