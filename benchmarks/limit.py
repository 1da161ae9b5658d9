"""How close to the limit of the memory is diffusion, and where does a call spend its time?

Bytes that a step must move, against a plain copy of the same working set. Then, for a settled call with given
parameters and for the default call: the share of the time that stage 1 would need at the bandwidth of that copy, the
share of tasks on all threads, of numpy and Python between them, and of learning from hidden cells.
"""

import cProfile
import pstats
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from common import answer, hide, interleave, load, power_law_graph

import pcfi
from pcfi._kernels.blocks import lane_count
from pcfi._kernels.vectors import ROW_BYTES
from pcfi.stages.diffusion import block_solver

# rows of a block that a step reads or writes per node, besides its neighbours; see the passes of the kernels
ROWS_TO_STEP, ROWS_TO_SETTLE = 3, 8
RESIDUALS = 2  # products of a settled block that are not steps: at the start and at the end
RTOL = 1e-5  # the smallest that is computed in float32: hardly a channel settles that far in 22 steps
GIVEN = {"alpha": 0.5, "objective": "representation"}


def bandwidth(n_bytes: int) -> float:
    """Bytes per second that a copy reads and writes, on all threads, within a working set of `n_bytes`."""
    source = np.ones(n_bytes // 8 // 2)
    target = np.empty_like(source)
    repeats = max(4, (1 << 29) // n_bytes)  # some milliseconds, so that starting threads does not count

    @numba.njit(parallel=True)
    def copy(source, target, repeats):
        for part in numba.prange(numba.get_num_threads()):
            first = len(source) * part // numba.get_num_threads()
            last = len(source) * (part + 1) // numba.get_num_threads()
            for _ in range(repeats):
                target[first:last] = source[first:last]

    best = interleave({"copy": lambda: copy(source, target, repeats)}, repeats=10)["copy"]
    return repeats * 2 * source.nbytes / best


def step_bytes(n_entries: int, n_rows: int, rows_per_node: int) -> int:
    """Bytes that a step of one block gathers and streams."""
    return n_entries * (ROW_BYTES + 4) + rows_per_node * n_rows * ROW_BYTES


def measure(name: str, features: np.ndarray, edges: np.ndarray) -> dict[str, object]:
    hidden = hide(features, "uniform", 0.995)
    graph = pcfi.prepare_graph(edges, len(features))
    active = int(((np.nan_to_num(hidden) != 0) & (hidden == hidden)).any(axis=0).sum())
    n_blocks, entries = -(-active // lane_count(np.float32)), len(graph.indices)
    block = len(features) * ROW_BYTES
    copied = bandwidth(6 * block)
    step = seconds_per_step(hidden, graph, pcfi.FixedSteps, 102)
    settling = seconds_per_step(hidden, graph, lambda steps: pcfi.UntilSettled(rtol=RTOL, max_steps=steps), 22)
    per_step, per_settling = (
        n_blocks * step_bytes(entries, len(features), rows) for rows in (ROWS_TO_STEP, ROWS_TO_SETTLE)
    )
    return {
        "graph": name,
        "active channels": active,
        "one block, MB": block / 1e6,
        "additions per second, all threads": active * entries / step,
        "GB per second of a plain step": per_step / step / 1e9,
        "GB per second of a step of conjugate gradients": per_settling / settling / 1e9,
        "GB per second of a plain copy of that working set": copied / 1e9,
        "a step of conjugate gradients over a plain one": settling / step,
        **shares("settled call", copied, lambda: pcfi.impute(hidden, graph, beta=0.1, **GIVEN)),
        **shares("default call", copied, lambda: pcfi.impute(hidden, graph)),
    }


def seconds_per_step(hidden: np.ndarray, graph: object, solver: Callable[[int], Any], many: int) -> float:
    def run(steps: int) -> None:
        pcfi.impute(hidden, graph, beta=0.0, solver=solver(steps), **GIVEN)

    seconds = interleave({"few": lambda: run(2), "many": lambda: run(many)}, repeats=7)
    return (seconds["many"] - seconds["few"]) / (many - 2)


def shares(call_name: str, copied: float, call: Callable[[], object]) -> dict[str, float]:
    """Shares of the wall-clock time of a call."""
    seconds = interleave({"call": call})["call"]
    with settled_bytes() as n_bytes:
        call()
    profile = cProfile.Profile()
    profile.runcall(call)
    stats = pstats.Stats(profile)

    def share(function: str) -> float:
        return sum(one[3] for key, one in stats.stats.items() if key[2] == function) / stats.total_tt

    return {
        f"{call_name}: seconds": seconds,
        f"{call_name}: share of stage 1 at the bandwidth of the copy": sum(n_bytes) / copied / seconds,
        f"{call_name}: share of tasks on all threads": share("run_tasks"),
        f"{call_name}: share of numpy and Python": 1 - share("run_tasks"),
        f"{call_name}: share of learning from hidden cells": share("fit_value_model"),
    }


@contextmanager
def settled_bytes() -> Iterator[list[int]]:
    """Bytes that the conjugate gradients of each block must move, as they are solved."""
    usual, lock = block_solver.solve_steady_state, threading.Lock()
    found: list[int] = []

    def counting(
        graph: Any, rows: Any, work: Any, reductions: Any, rule: Any, team: Any, pieces: Any, state: Any
    ) -> None:
        usual(graph, rows, work, reductions, rule, team, pieces, state)
        if team.rank == 0:
            n_products = int(state.steps.max()) + RESIDUALS
            with lock:
                found.append(n_products * step_bytes(len(graph.indices), len(rows), ROWS_TO_SETTLE))

    block_solver.solve_steady_state = counting
    try:
        yield found
    finally:
        block_solver.solve_steady_state = usual


def main() -> None:
    rows = [measure(name, *load(name)) for name in ("Cora", "PubMed", "Photo", "Computers")]
    features = np.random.default_rng(0).normal(size=(169_343, 128)).astype(np.float32)
    rows.append(measure("Arxiv-size", features, power_law_graph(169_343, 1_166_243)))
    answer("limit", rows, bandwidth_of_memory=bandwidth(1 << 29) / 1e9)


if __name__ == "__main__":
    main()
