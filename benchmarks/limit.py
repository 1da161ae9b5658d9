"""How close to the limit of the memory: bytes that must move, at the measured bandwidth, against the time taken."""

import cProfile
import pstats
import warnings

import numba
import numpy as np
from common import answer, hide, interleave, load, power_law_graph

import pcfi
from pcfi._kernels.blocks import lane_count


def bandwidth(n_bytes: int) -> float:
    """Bytes per second that a copy reads and writes, on all threads, within a working set of `n_bytes`."""
    source = np.ones(n_bytes // 8 // 2)
    target = np.empty_like(source)

    @numba.njit(parallel=True)
    def copy(source, target):
        for _ in range(4):
            for k in numba.prange(len(source)):
                target[k] = source[k]

    best = interleave({"copy": lambda: copy(source, target)}, repeats=10)["copy"]
    return 4 * 2 * source.nbytes / best


ROWS_TO_STEP, ROWS_TO_SETTLE = 3, 15  # rows of a block that a step reads or writes per node, besides its neighbours


def measure(name: str, features: np.ndarray, graph: object) -> dict[str, object]:
    hidden = hide(features, "uniform", 0.995)
    prepared = pcfi.prepare_graph(graph, len(features))
    known = hidden == hidden
    active = int(((np.nan_to_num(hidden) != 0) & known).any(axis=0).sum())
    lanes = lane_count(np.float32)
    blocks, entries, block = -(-active // lanes), len(prepared.indices), len(features) * lanes * 4

    def seconds_per_step(few: object, many: object, steps: int) -> float:
        def run(solver: object) -> None:
            pcfi.impute(hidden, prepared, beta=0.0, solver=solver, alpha=0.5, objective="representation")

        seconds = interleave({"few": lambda: run(few), "many": lambda: run(many)})
        return (seconds["many"] - seconds["few"]) / steps

    def gigabytes(rows: int) -> float:
        """Gathered and streamed in a step."""
        return blocks * (entries * lanes * 4 + rows * block + entries * 4) / 1e9

    step = seconds_per_step(pcfi.FixedSteps(2), pcfi.FixedSteps(102), 100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pcfi.NotSettledWarning)  # no channel settles that far
        unsettled = [pcfi.UntilSettled(rtol=1e-30, max_steps=steps) for steps in (2, 22)]
        settling = seconds_per_step(*unsettled, 20)
    return {
        "graph": name,
        "active channels": active,
        "one block, MB": block / 1e6,
        "additions per second, all threads": active * entries / step,
        "GB per second of a plain step": gigabytes(ROWS_TO_STEP) / step,
        "GB per second of a step of conjugate gradients": gigabytes(ROWS_TO_SETTLE) / settling,
        "GB per second of a plain copy of that working set": bandwidth(3 * block * 2) / 1e9,
        "a step of conjugate gradients over a plain one": settling / step,
        **shares(hidden, prepared),
    }


def shares(hidden: np.ndarray, graph: object) -> dict[str, float]:
    """Shares of the default call: learning from hidden cells, kernels, and neither."""
    pcfi.impute(hidden, graph)
    profile = cProfile.Profile()
    profile.runcall(pcfi.impute, hidden, graph)
    stats = pstats.Stats(profile)

    def seconds(function: str) -> float:
        return sum(one[3] for key, one in stats.stats.items() if key[2] == function)

    kernels = seconds("run_tasks")
    return {
        "default call: share of learning from hidden cells": seconds("fit_value_model") / stats.total_tt,
        "default call: share of kernels on all threads": kernels / stats.total_tt,
        "default call: share of numpy and Python": 1 - kernels / stats.total_tt,
    }


def main() -> None:
    rows = [measure(name, *load(name)) for name in ("Cora", "PubMed", "Photo", "Computers")]
    features = np.random.default_rng(0).normal(size=(169_343, 128)).astype(np.float32)
    rows.append(measure("Arxiv-size", features, power_law_graph(169_343, 1_166_243)))
    answer("limit", rows, bandwidth_of_memory=bandwidth(1 << 29) / 1e9)


if __name__ == "__main__":
    main()
