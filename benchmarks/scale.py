"""Larger than memory: four questions. `python benchmarks/scale.py [edges|budget|workers|draws]`, by default all.

edges     How fast does an edge file become a mapped graph, and in how much memory?
budget    What does the default call (tuned values, intervals) cost within a budget of memory, against `pcfi.impute`?
workers   How much faster are two single-threaded workers than one?
draws     What do draws cost beside it, within the same budget?

Files of some GB are made in a folder of the system's temporary directory and kept for the next time. To try it,
PCFI_SCALE_SIZE=0.1 makes the problems of "edges" and "budget" a tenth as large, and writes no result.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from common import answer, power_law_graph

FOLDER = Path(os.environ.get("PCFI_SCALE_DATA", Path(tempfile.gettempdir()) / "pcfi-scale"))
SIZE = float(os.environ.get("PCFI_SCALE_SIZE", "1"))
BUDGET = 2_500_000_000


class Watch:
    """The largest private memory of this process, seen every few milliseconds."""

    def __init__(self) -> None:
        self.peak = 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        from pcfi.memory import private_memory

        while True:
            self.peak = max(self.peak, private_memory())
            time.sleep(0.005)


def alone(question: str, **environment: str) -> dict:
    """What `measure_<question>` prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--measure", question],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


# edges


EDGE_PROBLEM = (int(SIZE * 100_000_000), int(SIZE * 10_000_000))


def edge_file(n_edges: int, n_nodes: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = FOLDER / f"edges-{n_edges}.parquet"
    if path.exists():
        return path
    rng = np.random.default_rng(0)
    schema = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    scratch = path.with_suffix(".partial")
    with pq.ParquetWriter(scratch, schema) as writer:
        for start in range(0, n_edges, 1 << 22):
            size = min(1 << 22, n_edges - start)
            # popular targets, so that rows differ in length as they do in real graphs
            target = (n_nodes * rng.random(size) ** 3).astype(np.int64)
            writer.write_table(pa.table({"source": rng.integers(0, n_nodes, size), "target": target}, schema=schema))
    scratch.rename(path)
    return path


def measure_edges() -> dict:
    from pcfi.scale import build_graph

    n_edges, n_nodes = EDGE_PROBLEM
    path = edge_file(n_edges, n_nodes)
    build_graph(edge_file(100_000, 1000), FOLDER / "warm", overwrite=True)  # loads the kernels
    resource.setrlimit(resource.RLIMIT_DATA, (2_000_000_000, resource.RLIM_INFINITY))
    watch = Watch()
    begin = time.perf_counter()
    graph = build_graph(path, FOLDER / "graph-100M", overwrite=True, memory="2GB")
    seconds = time.perf_counter() - begin
    return {
        "edges": n_edges,
        "nodes": graph.n_nodes,
        "seconds": seconds,
        "edges per second": n_edges / seconds,
        "private memory, MB": watch.peak / 1e6,
        "bar": "5,000,000 edges per second within 2 GB",
    }


# budget


def problem(n_nodes: int, n_edges: int, n_channels: int) -> tuple[Path, Path]:
    """Features that are alike at neighbours, 90 % of the cells missing, one pattern per channel; and a graph folder."""
    from pcfi.scale import build_graph, open_graph

    features, graph = FOLDER / f"values-{n_nodes}-{n_channels}.npy", FOLDER / f"graph-{n_nodes}"
    if not graph.exists():
        build_graph(power_law_graph(n_nodes, n_edges), graph, n_nodes=n_nodes)
    if not features.exists():
        rng = np.random.default_rng(1)
        scratch = features.with_suffix(".partial.npy")
        values = np.lib.format.open_memmap(scratch, mode="w+", dtype=np.float32, shape=(n_nodes, n_channels))
        adjacency = open_graph(graph).matrix()
        degree = np.maximum(np.asarray(adjacency.sum(axis=1)), 1).astype(np.float32)
        for channel in range(n_channels):
            noise = rng.normal(size=(2, n_nodes)).astype(np.float32)
            smooth = noise[0]
            for _ in range(8):  # what is left differs between the communities of the graph
                smooth = adjacency @ smooth / degree
                smooth /= smooth.std()
            values[:, channel] = smooth + 0.5 * noise[1]
            values[rng.random(n_nodes) < 0.9, channel] = np.nan
        values.flush()
        scratch.rename(features)
    return features, graph


def warm_up() -> None:
    """Load (or compile) the kernels that large graphs use."""
    import pcfi
    from pcfi.scale import build_graph, impute

    ring = np.stack([np.arange(70_000), (np.arange(70_000) + 1) % 70_000])
    values = np.random.default_rng(0).normal(size=(70_000, 2)).astype(np.float32)
    values[::3, 0] = values[::5, 1] = np.nan
    pcfi.impute(values, ring).interval()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "x.npy", values)
        build_graph(ring, folder / "g")
        impute(folder / "x.npy", folder / "g", folder / "y.npy", intervals=folder / "i.parquet")


BUDGET_PROBLEM = (int(SIZE * 2_000_000), int(SIZE * 30_000_000), 64)


def measure_in_memory() -> dict:
    import pyarrow as pa
    import pyarrow.parquet as pq

    import pcfi
    from pcfi.scale import open_graph

    features, graph = problem(*BUDGET_PROBLEM)
    warm_up()
    folder = open_graph(graph)
    values = np.load(features)
    prepared = pcfi.Graph(
        folder.n_nodes, *(np.array(array) for array in (folder.indptr, folder.indices)), folder.weights
    )
    watch = Watch()
    begin = time.perf_counter()
    filled = pcfi.impute(values, prepared)
    np.save(FOLDER / "in-memory.npy", filled.values)
    low, high = filled.interval()
    sides = {"low": low, "high": high, "error": filled.expected_error}
    columns = {f"channel_{k}_{name}": side[:, k] for k in range(values.shape[1]) for name, side in sides.items()}
    pq.write_table(pa.table(columns), FOLDER / "in-memory.parquet")
    return {"seconds": time.perf_counter() - begin, "peak": watch.peak, "steps": filled.steps}


def measure_streaming(draws: int = 0) -> dict:
    from pcfi.scale import impute

    features, graph = problem(*BUDGET_PROBLEM)
    warm_up()
    resource.setrlimit(resource.RLIMIT_DATA, (BUDGET, BUDGET))
    watch = Watch()
    begin = time.perf_counter()
    filled = impute(
        features,
        graph,
        FOLDER / "streamed.npy",
        intervals=FOLDER / "streamed.parquet",
        draws=draws,
        memory=BUDGET,
        overwrite=True,
    )
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "peak": watch.peak, "steps": filled.steps, "stages": filled.seconds}


def largest_differences() -> dict:
    """Largest difference of values, and of ends of intervals and expected errors, over the spread of the values."""
    from pyarrow import dataset

    left, right = (np.load(FOLDER / name, mmap_mode="r") for name in ("in-memory.npy", "streamed.npy"))
    rows = [slice(start, start + (1 << 16)) for start in range(0, len(left), 1 << 16)]
    spread = float(np.std(left[rows[0]]))
    values = max(float(np.abs(left[part] - right[part]).max()) for part in rows)
    one, other = (
        dataset.dataset(FOLDER / name, format="parquet") for name in ("in-memory.parquet", "streamed.parquet")
    )
    sides = 0.0
    for name in one.schema.names:
        two = [side.to_table(columns=[name])[name].to_numpy() for side in (one, other)]
        sides = max(sides, float(np.abs(two[0] - two[1]).max()))
    return {"largest difference": values / spread, "of intervals": sides / spread}


def budget() -> dict:
    problem(*BUDGET_PROBLEM)
    streaming, in_memory = alone("streaming"), alone("in_memory")
    n_nodes, n_edges, n_channels = BUDGET_PROBLEM
    return {
        "nodes": n_nodes,
        "edges": n_edges,
        "channels": n_channels,
        "features, MB": n_nodes * n_channels * 4 / 1e6,
        "budget, MB": BUDGET / 1e6,
        "private memory, MB": streaming["peak"] / 1e6,
        "private memory of pcfi.impute, MB": in_memory["peak"] / 1e6,
        "seconds": streaming["seconds"],
        "seconds of pcfi.impute": in_memory["seconds"],
        "ratio": streaming["seconds"] / in_memory["seconds"],
        **largest_differences(),
        "seconds by stage": streaming["stages"],
        "bar": "ratio at most 1.6, never above budget",
    }


# draws

N_DRAWS = 2


def draws() -> dict:
    problem(*BUDGET_PROBLEM)
    n_nodes, n_edges, n_channels = BUDGET_PROBLEM
    drawn = alone("draws")
    return {
        "nodes": n_nodes,
        "edges": n_edges,
        "channels": n_channels,
        "patterns": n_channels,
        "draws": N_DRAWS,
        "budget, MB": BUDGET / 1e6,
        "private memory, MB": drawn["peak"] / 1e6,
        "seconds": drawn["seconds"],
        "seconds by stage": drawn["stages"],
        "bar": "never above budget",
    }


# workers

WORKER_PROBLEM = (1_000_000, 10_000_000, 64)
ONE_THREAD = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def timed_cluster(n_workers: int) -> dict:
    """One run on single-threaded workers that have done a small run before."""
    import warnings

    from distributed import Client, LocalCluster

    from pcfi.scale import impute

    warnings.simplefilter("ignore")
    features, graph = problem(*WORKER_PROBLEM)
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, memory_limit=0, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(n_workers)
        client.run(warm_up)
        begin = time.perf_counter()
        filled = impute(
            features, graph, FOLDER / f"{n_workers}-workers.npy", client=client, memory="3GB", overwrite=True
        )
        return {"seconds": time.perf_counter() - begin, "stages": filled.seconds}


def count_up(_: int) -> None:
    total = 0
    for k in range(20_000_000):
        total += k


def gather(_: int) -> None:
    """Rows of a panel in random order: what diffusion does with memory."""
    rng = np.random.default_rng(0)
    panel, order = np.zeros((1_000_000, 16), dtype=np.float32), rng.integers(0, 1_000_000, size=4_000_000)
    rows = np.empty((len(order), 16), dtype=np.float32)
    for _ in range(10):
        np.take(panel, order, axis=0, out=rows, mode="clip")


def measure_machine() -> dict:
    """How much faster two processes are than one at bare arithmetic and at bare gathering: what there is to be had."""
    from concurrent.futures import ProcessPoolExecutor

    ratios = {}
    for name, work in (("arithmetic", count_up), ("gathering", gather)):
        seconds = {}
        for count in (1, 2):
            with ProcessPoolExecutor(count) as pool:
                list(pool.map(work, range(count)))
                begin = time.perf_counter()
                list(pool.map(work, range(4)))
                seconds[count] = time.perf_counter() - begin
        ratios[name] = seconds[1] / seconds[2]
    return ratios


def workers() -> dict:
    problem(*WORKER_PROBLEM)
    found = [[alone(f"{count}_workers", **ONE_THREAD) for count in (1, 2)] for _ in range(2)]
    best = [min(runs, key=lambda run: run["seconds"]) for runs in zip(*found, strict=True)]
    one, two = (run["seconds"] for run in best)
    left, right = (np.load(FOLDER / f"{count}-workers.npy", mmap_mode="r") for count in (1, 2))
    n_nodes, n_edges, n_channels = WORKER_PROBLEM
    return {
        "nodes": n_nodes,
        "edges": n_edges,
        "channels": n_channels,
        "seconds, one worker": one,
        "seconds, two workers": two,
        "ratio": one / two,
        **{f"ratio of bare {name}": ratio for name, ratio in alone("machine", **ONE_THREAD).items()},
        "seconds of all tasks by stage, one worker": best[0]["stages"],
        "seconds of all tasks by stage, two workers": best[1]["stages"],
        "same bits": bool(np.array_equal(left, right)),
        "bar": "1.7",
    }


MEASURES = {
    "draws": lambda: measure_streaming(N_DRAWS),
    "edges": measure_edges,
    "in_memory": measure_in_memory,
    "streaming": measure_streaming,
    "machine": measure_machine,
    "1_workers": lambda: timed_cluster(1),
    "2_workers": lambda: timed_cluster(2),
}
QUESTIONS = {"edges": lambda: alone("edges"), "budget": budget, "workers": workers, "draws": draws}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(MEASURES[sys.argv[2]]()))
        return
    for question in sys.argv[1:] or QUESTIONS:
        if question == "edges":
            edge_file(*EDGE_PROBLEM)
        rows = [QUESTIONS[question]()]
        if SIZE == 1:
            answer(f"scale_{question}", rows)
        else:
            print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
