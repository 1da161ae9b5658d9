"""Small real computations in place of the paper's systems: what the runner's tests let run."""

import os
import signal
import time

import numpy as np

from pcfi.experiments.run import Outcome, Run


def power_iteration(run: Run) -> Outcome:
    """The largest eigenvalue of a random symmetric matrix; `parameters` may ask for trouble on the way."""
    asked = dict(run.parameters)
    size = asked.get("size", 20)
    matrix = np.random.default_rng(run.seed).standard_normal((size, size))
    matrix = matrix @ matrix.T
    vector = np.ones(size)
    for _ in range(200):
        vector = matrix @ vector
        vector /= np.linalg.norm(vector)
    TROUBLE[asked.get("trouble", "none")]()
    time.sleep(asked.get("seconds", 0.0))
    value = float(vector @ matrix @ vector)
    return Outcome({"accuracy": value, "validation_accuracy": value / 2}, {"process": os.getpid()})


def fill_memory() -> None:
    held = []
    while True:
        held.append(np.ones(2_000_000))


def raise_error() -> None:
    raise ValueError("this system does not know what to do")


def run_out() -> None:
    np.ones(1 << 48)


KEPT: list[np.ndarray] = []
TROUBLE = {
    "none": lambda: None,
    "keeps memory": lambda: KEPT.append(np.ones(30_000_000)),
    "error": raise_error,
    "memory error": run_out,
    "fills memory": fill_memory,
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": lambda: os._exit(3),
}
