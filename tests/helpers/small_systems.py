"""Small computations in place of the paper's systems, for the tests of the pool."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from pcfi.experiments.run import Record, Run


def power_iteration(run: Run) -> Record:
    """The largest eigenvalue of a random symmetric matrix; the parameter "fault" makes the run fail."""
    parameters = dict(run.parameters)
    size = parameters.get("size", 20)
    matrix = np.random.default_rng(run.seed).standard_normal((size, size))
    matrix = matrix @ matrix.T
    vector = np.ones(size)
    for _ in range(200):
        vector = matrix @ vector
        vector /= np.linalg.norm(vector)
    FAULTS[parameters.get("fault", "none")]()
    if "meet" in parameters:
        wait_for_each_other(*map(Path, parameters["meet"]))
    time.sleep(parameters.get("seconds", 0.0))
    value = float(vector @ matrix @ vector)
    return Record(run, "done", {"accuracy": value, "validation_accuracy": value / 2}, {"process": os.getpid()})


def wait_for_each_other(own: Path, other: Path) -> None:
    own.touch()
    for _ in range(1200):
        if other.exists():
            return
        time.sleep(0.05)
    raise TimeoutError("the other run has not started")


def fill_memory() -> None:
    held = []
    while True:
        held.append(np.ones(2_000_000))


def raise_error() -> None:
    raise ValueError("this system does not know what to do")


def run_out() -> None:
    np.ones(1 << 48)


KEPT: list[np.ndarray] = []
FAULTS = {
    "none": lambda: None,
    "keeps memory": lambda: KEPT.append(np.ones(30_000_000)),
    "error": raise_error,
    "memory error": run_out,
    "fills memory": fill_memory,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(3),
}
