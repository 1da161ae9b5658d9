"""What a worker process of the pool does: prepare itself, then turn a run into a record, whatever happens."""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from multiprocessing import parent_process
from pathlib import Path
from platform import python_version

from pcfi.experiments.run import Record, Run, Status

Execute = Callable[[Run], Record]
WarmUp = Callable[[], None]

_PACKAGES = ("pcfi", "numpy", "scipy", "numba", "torch", "torch-geometric", "scikit-learn")
_TORCH_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


def initialize(warm_up: WarmUp | None) -> None:
    """Prepare a new worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent handles it
    with contextlib.suppress(OSError):  # let Linux kill a worker before the parent, which writes the records
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if warm_up is not None:
        warm_up()


def attempt(run: Run, execute: Execute, threads: int) -> Record:
    """Execute a run; an exception becomes the record of a failed run, warnings the message of one that is done."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak memory
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            record = execute(run)
        except Exception as error:
            record = Record(run, "out of memory" if _is_out_of_memory(error) else "failed", message=_description(error))
        else:
            record = replace(record, message="; ".join(dict.fromkeys(str(warning.message) for warning in caught)))
    return completed(record, time.perf_counter() - start, _peak_memory_mb(), threads)


def completed(record: Record, seconds: float, peak_mb: float, threads: int) -> Record:
    """Return the record with the cost of the run, the date and the versions."""
    return replace(
        record,
        seconds=round(seconds, 3),
        peak_mb=round(peak_mb, 1),
        threads=threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=installed_versions(),
    )


def died(exit_code: int | None) -> tuple[Status, str]:
    """Return status and message of a run whose process died."""
    if exit_code is None or exit_code >= 0:
        return "failed", f"its process ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    if name == "SIGKILL":
        return "out of memory", "its process was killed (SIGKILL), most likely by the operating system, short of memory"
    return "failed", f"its process ended by {name}"


@cache
def installed_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect the numbers."""
    versions = {"python": python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _peak_memory_mb() -> float:
    """Peak memory of this process: of the current run on Linux, since its start elsewhere."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    try:  # pragma: no cover
        import resource
    except ImportError:  # pragma: no cover
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # pragma: no cover
    return peak / 1024**2 if sys.platform == "darwin" else peak / 1024  # pragma: no cover


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _TORCH_OUT_OF_MEMORY)


def _description(error: Exception) -> str:
    """The error and the line that raised it, without its folder: the store is read on other machines."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"
