"""Estimates of the memory, disk space and time of a job, from its size alone.

Memory and disk follow from what the stages allocate. Time is a sum over stages, with factors that
`benchmarks/scale_cost.py` fitted to measurements on the machine named in `cost.json`; expect a factor of two either way
on another one.
"""

import json
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.errors import ParameterError
from pcfi.inputs.problem import working_dtype
from pcfi.memory import ProblemSize
from pcfi.outofcore.plan import (
    MAX_CHUNK_BYTES,
    PROCESS_BYTES,
    diffuse_task_bytes,
    fit_task_bytes,
    hops_task_bytes,
    row_bytes,
    sums_task_bytes,
)
from pcfi.outofcore.run import patterns_at_a_time
from pcfi.settings import Settings
from pcfi.stages.solvers import FixedSteps, Solver, UntilSettled
from pcfi.system_memory import size_in_words

DEFAULT_STEPS = 15  # to a steady state at alpha = 0.5, on the graphs of the benchmarks


@dataclass(frozen=True)
class Estimate:
    """Estimated memory, disk space and time of a job.

    Attributes
    ----------
    memory : int
        Bytes of private memory of each process: what `memory=` must grant at least.
    graph : int
        Bytes of the graph folder. It is mapped; a machine should have this much memory besides, shared by its workers.
    work : int
        Bytes of the work folder.
    result : int
        Bytes of the filled features.
    build_seconds, seconds : float
        Rough time to build the graph folder, and to impute, with two threads.
    """

    memory: int
    graph: int
    work: int
    result: int
    build_seconds: float
    seconds: float

    def __str__(self) -> str:
        disk = self.graph + self.work + self.result
        return (
            f"{size_in_words(self.memory)} of memory per process, {size_in_words(self.graph)} more for the mapped "
            f"graph, {size_in_words(disk)} of disk, about {in_words(self.build_seconds)} to build the graph and "
            f"{in_words(self.seconds)} to impute"
        )


def estimate(
    n_nodes: int,
    n_edges: int,
    n_channels: int,
    *,
    n_patterns: int | None = None,
    dtype: npt.DTypeLike = np.float32,
    weighted: bool = False,
    directed: bool = False,
    objective: str = "values",
    beta: float = 0.0,
    solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
    steps: int | None = None,
    threads: int = 2,
) -> Estimate:
    """Estimate the memory, disk space and time of `pcfi.scale.impute` for a job of this size.

    Parameters
    ----------
    n_nodes, n_edges, n_channels : int
        An undirected edge counts once.
    n_patterns : int, default=None
        Number of different sets of known nodes. None: every channel has its own.
    dtype : dtype, default=np.float32
        Of the features.
    weighted, directed : bool, default=False
        Of the graph.
    objective : {"values", "representation"}, default="values"
        Values need memory to fit their model in; the time of the fit, which depends on the sample that the model is
        fitted to and not on the size of the job, is not estimated.
    beta : float, default=0
        0 means that there is no stage 2.
    solver : FixedSteps or UntilSettled, default=UntilSettled()
        How long to diffuse.
    steps : int, default=None
        Steps to the steady state. None: the usual 15 or so at alpha = 0.5; 0.9 takes about three times as many.
    threads : int, default=2
        Threads of a process; they matter to memory on small graphs and on directed ones.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> estimate(169_343, 1_166_243, 128, objective="representation").memory < 600_000_000
    True
    """
    if min(n_nodes, n_edges + 1, n_channels) < 1:
        raise ParameterError("n_nodes and n_channels must be at least 1, and n_edges at least 0")
    settings = Settings(alpha=0.5, beta=beta, solver=solver, directed=directed, objective=objective)
    n_entries = n_edges * (1 if directed else 2)
    itemsize = working_dtype(np.dtype(dtype)).itemsize
    size = ProblemSize.of_shape((n_nodes, n_channels), itemsize, settings, n_entries=n_entries, threads=threads)
    if n_patterns is not None:
        size = replace(size, n_patterns=n_patterns)
    sums = sums_task_bytes(size, min(MAX_CHUNK_BYTES // row_bytes(size), n_nodes))
    taken = solver.steps if isinstance(solver, FixedSteps) else DEFAULT_STEPS if steps is None else steps
    cost = costs()
    return Estimate(
        memory=PROCESS_BYTES
        + max(diffuse_task_bytes(size, settings), hops_task_bytes(size), fit_task_bytes(size, settings), sums),
        graph=(n_nodes + 1) * 8 + n_entries * (16 if weighted else 4) + (n_nodes * 8 if weighted else 0),
        work=n_nodes * (n_channels * size.itemsize + size.n_patterns + n_channels // 8),
        result=n_nodes * n_channels * size.itemsize,
        build_seconds=n_edges * cost["build"],
        seconds=_seconds(size, taken, cost),
    )


def costs() -> dict[str, float]:
    """Seconds per unit of work, fitted by `benchmarks/scale_cost.py`."""
    found: dict[str, Any] = json.loads(resources.files("pcfi.outofcore").joinpath("cost.json").read_text())
    return {name: float(value) for name, value in found["seconds per"].items()}


def _seconds(size: ProblemSize, steps: int, cost: dict[str, float]) -> float:
    from pcfi._kernels.vectors import ROW_BYTES

    panels = -(-size.n_channels * size.width // ROW_BYTES)
    searches = -(-size.n_patterns // patterns_at_a_time())
    cells = size.n_nodes * size.n_channels
    propagation = cost["sharing, cell and channel"] * cells * size.n_propagating
    return (
        panels * steps * (cost["step, entry"] * size.n_entries + cost["step, node"] * size.n_nodes)
        + panels * (cost["panel, entry"] * size.n_entries + cost["panel, node"] * size.n_nodes)
        + searches * (cost["search, entry"] * size.n_entries + cost["search, node"] * size.n_nodes)
        + cost["rows, cell"] * cells
        + propagation
    )


def in_words(seconds: float) -> str:
    """A rounded time in words."""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds" if seconds >= 2 else "a second or two"
