"""How close to the limit of the memory: bytes that must move, at the measured bandwidth, against the time taken."""

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


def measure(name: str, features: np.ndarray, graph: object) -> dict[str, object]:
    hidden = hide(features, "uniform", 0.995)
    prepared = pcfi.prepare_graph(graph, len(features))
    steps = 100

    def run(count: int) -> None:
        pcfi.impute(hidden, prepared, beta=0.0, solver=pcfi.FixedSteps(count), alpha=0.5, objective="representation")

    seconds = interleave({"few": lambda: run(2), "many": lambda: run(steps + 2)})
    taken = (seconds["many"] - seconds["few"]) / steps
    known = hidden == hidden
    active = int(((np.nan_to_num(hidden) != 0) & known).any(axis=0).sum())
    lanes = lane_count(np.float32)
    blocks = -(-active // lanes)
    entries = len(prepared.indices)
    gathered = blocks * entries * lanes * 4
    streamed = blocks * len(features) * lanes * 4 * 3 + blocks * entries * 4
    block = len(features) * lanes * 4
    return {
        "graph": name,
        "active channels": active,
        "one block, MB": block / 1e6,
        "additions per second, all threads": active * entries / taken,
        "GB gathered and streamed per second": (gathered + streamed) / taken / 1e9,
        "GB per second of a plain copy of that working set": bandwidth(3 * block * 2) / 1e9,
    }


def main() -> None:
    rows = [measure(name, *load(name)) for name in ("Cora", "PubMed", "Photo", "Computers")]
    features = np.random.default_rng(0).normal(size=(169_343, 128)).astype(np.float32)
    rows.append(measure("Arxiv-size", features, power_law_graph(169_343, 1_166_243)))
    answer("limit", rows, bandwidth_of_memory=bandwidth(1 << 29) / 1e9)


if __name__ == "__main__":
    main()
