"""Graphs that no worker holds: what is exchanged, how long it takes, and what a graph of 111 M nodes would take.

`python benchmarks/partitioned.py [--nodes 2000000]`. Four single-threaded workers on this machine fill 32 channels,
once with partitions of the graph and once with the complete graph in each worker. The results must agree. Then:

partitioned         bytes between workers, as the cost model has them and as Dask counts them; time; memory
partitioned_model   the model with the speeds that were measured here, for OGBN-papers100M on 8 and 64 workers
"""

import argparse
import logging
import os
import time
import warnings
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from common import answer
from scale import FOLDER, problem, warm_up

warnings.simplefilter("ignore")
EDGES_PER_NODE, N_CHANNELS, N_WORKERS = 15, 32, 4
SETTINGS = {"alpha": 0.5, "beta": 0, "objective": "representation"}
PAPERS = {"nodes": 111_059_956, "edges": 1_615_685_872, "channels": 128}
BANDWIDTH = 1.25e9  # bytes a second in and out of a worker: a network of 10 Gbit/s
WORKER_MEMORY = 48e9  # bytes: as many panels at a time as fit
ROW_BYTES, LANES = 64, 16
ONE_THREAD = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Exchanges:
    """Counts the exchanges of a run and the calls that are placed, as the caller makes them."""

    def __init__(self) -> None:
        from pcfi.outofcore.partitioned.exchange import Partitions
        from pcfi.outofcore.runners import DaskRunner

        self.blocks: dict[str, int] = {}
        self.calls = 0
        self.halos: list[list[int]] = []
        halos, place, outer = Partitions.halos, DaskRunner.place, self

        def counted_halos(parts: Any, blocks: Any, name: str, active: list[int]) -> Any:
            outer.blocks[name] = outer.blocks.get(name, 0) + len(active)
            return halos(parts, blocks, name, active)

        def counted_place(runner: Any, *arguments: Any) -> Any:
            outer.calls += 1
            return place(runner, *arguments)

        Partitions.halos, DaskRunner.place = counted_halos, counted_place

    @property
    def rows(self) -> int:
        """Blocks whose halos were exchanged in rows of 64 bytes."""
        return sum(count for name, count in self.blocks.items() if name != "gone")

    def model_bytes(self, n_halo: int) -> int:
        """Bytes that go between workers if `n_halo` rows of halos belong to another worker."""
        return n_halo * (ROW_BYTES * self.rows + self.blocks.get("gone", 0))


def sent(client: Any) -> int:
    """Bytes that workers have sent each other so far."""
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def peak(client: Any) -> float:
    """Largest resident memory of a worker so far, in GB; mapped files count."""
    import resource

    return max(client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).values()) * 1024 / 1e9


def halo_between(graph: Any, order: np.ndarray, positions: np.ndarray, n_partitions: int) -> int:
    """Rows in the halos of all partitions."""
    from pcfi.estimation.sample import row_portions
    from pcfi.inputs.graph_rows import row_entries
    from pcfi.outofcore.partitioned.layout import GROUP_ROWS, group_bounds, group_costs

    bounds, total = group_bounds(group_costs(graph, order), n_partitions) * GROUP_ROWS, 0
    for first, last in pairwise(bounds):
        is_near = np.zeros(graph.n_nodes, dtype=np.bool_)
        for part in row_portions(graph, order[first:last]):
            is_near[positions[graph.indices[row_entries(graph, part)[0]]]] = True
        is_near[first:last] = False
        total += int(is_near.sum())
    return total


def kernel_seconds(graph: Any) -> dict[str, float]:
    """Seconds of the passes of one thread over a panel: per entry of the graph, and per node and step besides."""
    from pcfi._kernels.blocks import aligned_block
    from pcfi.outofcore.partitioned import passes
    from pcfi.outofcore.partitioned.blocks import Blocks, PartSystem
    from pcfi.outofcore.partitioned.layout import GROUP_ROWS, Partition

    n_nodes, rng = graph.n_nodes, np.random.default_rng(0)
    indptr, indices = np.array(graph.indptr), np.array(graph.indices)
    nodes, rows = np.arange(n_nodes), np.arange(n_nodes, dtype=np.int32)
    none = np.empty(0, dtype=np.float32)
    partition = Partition(0, GROUP_ROWS, nodes, indptr, indices, none, np.zeros(2, dtype=np.int64), [rows[:0]])

    def block() -> np.ndarray:
        made = aligned_block(n_nodes, np.float32)
        made[:] = rng.random((n_nodes, LANES), dtype=np.float32)
        return made

    system = PartSystem(block(), block() + 30, rows, partition.group_starts(rows))
    blocks = Blocks(*([block()] for _ in range(5)), [], [], [none])
    vectors, seconds = [np.full((3, LANES), 0.01, dtype=np.float32)], {}
    timed = {
        "product": lambda: passes.product_pass(partition, [system], blocks, "residual", [], [0]),
        "direction": lambda: passes.direction_pass([system], blocks, vectors, [0]),
        "solution": lambda: passes.solution_pass(partition, [system], blocks, vectors, [0]),
    }
    for name, one in timed.items():
        one()
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            one()
            times.append(time.perf_counter() - begin)
        seconds[name] = min(times)
    return {
        "entry": seconds["product"] / len(indices),
        "node": (seconds["direction"] + seconds["solution"]) / 2 / n_nodes,
    }


def run(client: Any, size: tuple[int, int, int], partitions: int) -> tuple[Any, float]:
    from pcfi.scale import impute

    features, graph = problem(*size)
    begin = time.perf_counter()
    filled = impute(
        features,
        graph,
        FOLDER / f"{partitions}-partitions.npy",
        client=client,
        partitions=partitions,
        memory="4GB",
        overwrite=True,
        **SETTINGS,
    )
    return filled, time.perf_counter() - begin


def largest_difference(left: np.ndarray, right: np.ndarray) -> float:
    """In units of the range of all values."""
    size, low, high, most = 1 << 16, np.inf, -np.inf, 0.0
    for start in range(0, len(left), size):
        one, other = left[start : start + size], right[start : start + size]
        low, high, most = min(low, one.min()), max(high, one.max()), max(most, np.abs(one - other).max())
    return float(most / (high - low))


def measure(n_nodes: int) -> tuple[dict, dict]:
    """One row of figures, and what the model needs of it."""
    from distributed import Client, LocalCluster

    from pcfi.outofcore.partitioned.layout import locality_order
    from pcfi.scale import open_graph

    size = n_nodes, n_nodes * EDGES_PER_NODE, N_CHANNELS
    graph = open_graph(problem(*size)[1])
    problem(20_000, 20_000 * EDGES_PER_NODE, N_CHANNELS)
    counted = Exchanges()
    with (
        LocalCluster(
            n_workers=N_WORKERS,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address=":0",
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(N_WORKERS)
        client.run(warm_up)
        run(client, (20_000, 20_000 * EDGES_PER_NODE, N_CHANNELS), N_WORKERS)  # compiles what is left
        before = counted.calls
        small, _ = run(client, (20_000, 20_000 * EDGES_PER_NODE, N_CHANNELS), N_WORKERS)
        call_seconds = (small.seconds["hops"] + small.seconds["diffuse"]) / (counted.calls - before)
        counted.blocks, counted.calls, begin = {}, 0, sent(client)
        divided, seconds = run(client, size, N_WORKERS)
        n_bytes, memory = sent(client) - begin, peak(client)
        whole, whole_seconds = run(client, size, 1)
    order, positions, crossing = locality_order(graph)
    halo = {count: halo_between(graph, order, positions, count) for count in (N_WORKERS, 8, 64)}
    model_bytes = counted.model_bytes(halo[N_WORKERS])
    panels = N_CHANNELS // LANES
    row = {
        "nodes": n_nodes,
        "edges": size[1],
        "channels": N_CHANNELS,
        "workers": N_WORKERS,
        "steps": divided.steps,
        "exchanges of a panel": counted.rows / panels,
        "rows of halos per node": halo[N_WORKERS] / n_nodes,
        "MB per exchange, model": ROW_BYTES * halo[N_WORKERS] / 1e6,
        "GB in all, model": model_bytes / 1e9,
        "GB in all, measured": n_bytes / 1e9,
        "measured / model": n_bytes / model_bytes,
        "seconds": seconds,
        "seconds with the complete graph in each worker": whole_seconds,
        "memory of a worker, GB": memory,
        "largest difference": largest_difference(whole.open(), divided.open()),
        "same steps": divided.steps == whole.steps,
        "entries between 16 ranges": crossing,
    }
    degrees = np.diff(graph.indptr).astype(np.float64)
    facts = {
        "steps": divided.steps,
        "exchanges": counted.rows / panels,
        "calls per exchange": counted.calls / max(1, counted.rows / panels),
        "call": call_seconds,
        "halo per node": {count: halo[count] / n_nodes for count in (8, 64)},
        "random halo per node": {
            count: (count - 1) * float(1 - np.mean((1 - 1 / count) ** degrees)) for count in (8, 64)
        },
        **kernel_seconds(graph),
    }
    return row, facts


def predicted(facts: dict, n_workers: int, halo: str | None) -> dict:
    """What papers100M takes: with partitions whose halos are as on the generated graph or as at random, or without."""
    from pcfi.outofcore.plan import HALO_BLOCKS, OWN_BLOCKS, WORKER_BYTES
    from pcfi.scale import estimate

    n_nodes, entries, panels = PAPERS["nodes"], 2 * PAPERS["edges"], -(-PAPERS["channels"] // LANES)
    steps, graph_bytes = facts["steps"], 8 * n_nodes + 4 * entries
    work = panels * steps * (entries * facts["entry"] + n_nodes * facts["node"])
    row = {"workers": n_workers, "graph": "in each worker" if halo is None else f"divided, halos as {halo}"}
    if halo is None:
        memory = estimate(n_nodes, PAPERS["edges"], PAPERS["channels"], objective="representation").memory
        busy = min(n_workers, panels)
        return row | {
            "panels at a time": busy,
            "GB of memory per worker": (memory + graph_bytes) / 1e9,
            "GB exchanged per step": 0.0,
            "minutes of arithmetic": work / busy / 60,
            "minutes of exchange": 0.0,
            "minutes of Dask": 0.0,
            "minutes of diffusion": work / busy / 60,
        }
    per_node = facts["halo per node" if halo == "measured" else "random halo per node"][n_workers]
    n_halo = per_node * n_nodes
    exchange = ROW_BYTES * n_halo / n_workers / BANDWIDTH * panels * facts["exchanges"]
    fixed = WORKER_BYTES + graph_bytes / n_workers
    panel = ROW_BYTES * (OWN_BLOCKS * n_nodes + HALO_BLOCKS * n_halo) / n_workers
    at_once = min(panels, max(1, int((WORKER_MEMORY - fixed) / panel)))
    # calls for each pair of partitions, and for each partition: a pass, an update, and two for sums
    calls = facts["exchanges"] * (n_workers * (n_workers - 1) + 4 * n_workers) * -(-panels // at_once)
    minutes = [work / n_workers / 60, exchange / 60, calls * facts["call"] / 60]
    memory = fixed + at_once * panel
    return row | {
        "panels at a time": at_once,
        "GB of memory per worker": memory / 1e9,
        "GB exchanged per step": ROW_BYTES * n_halo * panels / 1e9,
        "minutes of arithmetic": minutes[0],
        "minutes of exchange": minutes[1],
        "minutes of Dask": minutes[2],
        "minutes of diffusion": sum(minutes),
    }


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2_000_000)
    parser.add_argument("--name", default="partitioned", help="of the results")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    found, speeds = measure(arguments.nodes)
    answer(arguments.name, [found])
    rows = [predicted(speeds, n_workers, halo) for n_workers in (8, 64) for halo in (None, "measured", "at random")]
    answer(f"{arguments.name}_model", rows, speeds=speeds, papers=PAPERS, bandwidth=BANDWIDTH)
    for scratch in FOLDER.glob("*-partitions.npy"):
        with suppress(OSError):
            Path(scratch).unlink()
