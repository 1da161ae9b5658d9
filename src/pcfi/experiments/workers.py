"""A worker process: runs come in, reports go out; it outlives runs, and dies alone when one of them takes too much."""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pcfi.experiments.runs import Outcome, Run
from pcfi.experiments.store import Status

Execute = Callable[[Run], Outcome]
WarmUp = Callable[[], None]

READY = "ready"
_TORCH_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


@dataclass(frozen=True)
class Report:
    """What a worker says about a run."""

    status: Status
    outcome: Outcome = field(default_factory=lambda: Outcome({}))
    message: str = ""
    seconds: float = 0.0
    peak_mb: float = 0.0


def serve(connection: Connection, execute: Execute, warm_up: WarmUp | None) -> None:
    """Work on the runs that come through the connection, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent decides
    _offer_itself_when_memory_is_short()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if warm_up is not None:
        warm_up()
    connection.send(READY)
    while True:
        try:
            run = connection.recv()
        except (EOFError, ConnectionError):
            return
        connection.send(attempt(run, execute))


def attempt(run: Run, execute: Execute) -> Report:
    """Execute a run; whatever it raises becomes a report. Warnings become the message of a run that is done."""
    _forget_peak_memory()
    start = time.perf_counter()

    def report(status: Status, message: str, outcome: Outcome | None = None) -> Report:
        return Report(status, outcome or Outcome({}), message, time.perf_counter() - start, peak_memory())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            outcome = execute(run)
        except Exception as error:
            return report("out of memory" if _is_out_of_memory(error) else "failed", _described(error))
    return report("done", "; ".join(dict.fromkeys(str(warning.message) for warning in caught)), outcome)


def peak_memory() -> float:
    """The most memory, in MB, that this process held since it last forgot, or since its start."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return _peak_memory_since_start()  # pragma: no cover


def _peak_memory_since_start() -> float:
    try:
        import resource
    except ImportError:  # pragma: no cover
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024**2 if sys.platform == "darwin" else peak / 1024


def _forget_peak_memory() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _offer_itself_when_memory_is_short() -> None:
    """Linux then ends this process rather than the one that keeps the results."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _TORCH_OUT_OF_MEMORY)


def _described(error: Exception) -> str:
    """The error with the place where it was raised, without the folder: the store is read on other machines."""
    frames: list[Any] = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"
