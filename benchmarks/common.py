"""What every benchmark needs: data sets, masks, interleaved timing, peak memory, and a JSON file for the answer."""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results"
DATASETS = ("Cora", "CiteSeer", "PubMed", "Photo", "Computers")
TABLES = ("digits", "breast cancer")

warnings.simplefilter("ignore")


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and edge index of the largest connected component; from a copy of the folder beside the repo if any."""
    from pcfi.experiments.data import loading as datasets

    shared = ROOT.parent / "shared" / "data"
    if "PCFI_DATA" not in os.environ and shared.exists():
        copy = Path(tempfile.gettempdir()) / "pcfi-data"
        if not copy.exists():
            shutil.copytree(shared, copy)
        os.environ["PCFI_DATA"] = str(copy)
    data = datasets.load(name)
    return data.features, data.edges


def hide(features: np.ndarray, kind: str, rate: float, seed: int = 0) -> np.ndarray:
    """The features with NaN: whole nodes ("structural") or single cells ("uniform") go missing at `rate`."""
    rng = np.random.default_rng(seed)
    shape = (len(features), 1) if kind == "structural" else features.shape
    return np.where(rng.random(shape) >= rate, features, np.float32(np.nan))


def load_with_units(name: str) -> tuple[np.ndarray, Any, np.ndarray]:
    """Features and graph of a data set or a table, and the unit of each channel: 1 where all channels are alike."""
    import pcfi

    if name not in TABLES:
        features, edges = load(name)
        return features, pcfi.prepare_graph(edges, len(features)), np.ones(features.shape[1])
    from sklearn import datasets
    from sklearn.neighbors import NearestNeighbors

    table = (datasets.load_digits() if name == "digits" else datasets.load_breast_cancer()).data.astype(np.float32)
    units = np.ones(table.shape[1]) if name == "digits" else table.std(axis=0)
    search = NearestNeighbors(n_neighbors=10, algorithm="kd_tree").fit(table / units)  # the same whatever the threads
    return table, pcfi.prepare_graph(search.kneighbors_graph(), len(table)), units


def power_law_graph(n_nodes: int, n_edges: int, *, n_communities: int = 40, seed: int = 0) -> np.ndarray:
    """Different undirected edges, power-law degrees, communities: ends drawn by popularity, 80 % in one community."""
    rng = np.random.default_rng(seed)
    popularity = rng.permutation((np.arange(n_nodes) + 10.0) ** -0.7)
    community = rng.integers(0, n_communities, size=n_nodes)
    order = np.argsort(community, kind="stable")
    cumulative = np.cumsum(popularity[order])
    bounds = np.searchsorted(community[order], np.arange(n_communities + 1))
    starts = np.concatenate([[0.0], cumulative])[bounds]

    def draw(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        places = low + rng.random(len(low)) * (high - low)
        return order[np.minimum(np.searchsorted(cumulative, places), n_nodes - 1)]

    def draw_edges(count: int) -> np.ndarray:
        everywhere = np.zeros(count), np.full(count, cumulative[-1])
        source = draw(*everywhere)
        inside = community[source]
        target = np.where(rng.random(count) < 0.8, draw(starts[inside], starts[inside + 1]), draw(*everywhere))
        codes = np.minimum(source, target) * n_nodes + np.maximum(source, target)
        return codes[source != target]

    codes = np.empty(0, dtype=np.int64)
    while len(codes) < n_edges:
        codes = np.sort(np.concatenate([codes, draw_edges(n_edges // 4)]))
        codes = codes[np.append(True, codes[1:] != codes[:-1])]
    codes = rng.permutation(codes)[:n_edges]
    return np.stack(np.divmod(codes, n_nodes)).astype(np.int32)


def interleave(candidates: dict[str, Callable[[], Any]], repeats: int = 3, seconds: float = 60.0) -> dict[str, float]:
    """Best time of each candidate; they take turns, so that a slow moment of the machine hits all alike."""
    for run in candidates.values():
        if repeats > 1:
            run()
    best = dict.fromkeys(candidates, np.inf)
    begin = time.perf_counter()
    for _ in range(repeats):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
        if time.perf_counter() - begin > seconds:
            break
    return best


def peak_memory(code: str) -> dict[str, float]:
    """Run `code` in a process of its own; it must print a JSON object as its last line."""
    places = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    import numba
    import torch

    import pcfi

    return {
        "cores": os.cpu_count(),
        "processor": next(
            (
                line.split(":")[1].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if "model name" in line
            ),
            platform.processor(),
        ),
        "threads": numba.get_num_threads(),
        "versions": {
            "pcfi": pcfi.__version__,
            "numpy": np.__version__,
            "numba": numba.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def answer(name: str, rows: Iterable[dict[str, Any]], **facts: Any) -> None:
    """Write the result of a benchmark to results/<name>.json, row by row as they come, and print it."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{name}.json"
    scratch = target.with_suffix(".tmp")
    found: list[dict[str, Any]] = []
    for row in rows:
        found.append(row)
        text = json.dumps({"machine": machine(), **facts, "rows": found}, indent=1, default=float)
        scratch.write_text(text + "\n")
        scratch.replace(target)
        print(name, row, flush=True)
