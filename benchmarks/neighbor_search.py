"""A graph of similar rows: how long do the ways to search take, and what does the fill lose by the faster ones?"""

import time
from collections.abc import Callable

import numpy as np
import pynndescent
from common import answer
from sklearn.neighbors import NearestNeighbors
from tabular import generated

import pcfi
from pcfi.inputs.knn import RowSearch, link, local_scale, nan_aware_neighbors

SIZES = (2_000, 10_000, 30_000, 100_000)
NEIGHBORS = 15
MISSING = 0.3


def scikit_learn(rows: np.ndarray, algorithm: str) -> tuple[np.ndarray, np.ndarray]:
    distances, nearest = NearestNeighbors(n_neighbors=NEIGHBORS, algorithm=algorithm).fit(rows).kneighbors()
    return nearest, distances


def descent(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    nearest, distances = pynndescent.NNDescent(
        rows.astype("f4"), n_neighbors=NEIGHBORS + 1, random_state=0
    ).neighbor_graph
    return nearest[:, 1:].astype(np.int64), distances[:, 1:].astype(np.float64)


def compare(n_rows: int) -> dict[str, object]:
    full = generated(n_rows, 50)
    hidden = np.random.default_rng(0).random(full.shape) < MISSING
    masked = np.where(hidden, np.nan, full)
    search = RowSearch.fit(masked)
    rows = np.nan_to_num(search.rows)
    ways: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {}
    if n_rows <= 10_000:
        ways["NaN-aware"] = lambda: nan_aware_neighbors(search.rows, None, NEIGHBORS)
        ways["mean-filled, tree"] = lambda: scikit_learn(rows, "kd_tree")
    ways["mean-filled, brute force"] = lambda: scikit_learn(rows, "brute")
    ways["mean-filled, pynndescent"] = lambda: descent(rows)
    out: dict[str, object] = {"rows": n_rows}
    for name, way in ways.items():
        start = time.perf_counter()
        nearest, distances = way()
        out[f"{name}: seconds"] = time.perf_counter() - start
        if n_rows <= 10_000 and name in ("NaN-aware", "mean-filled, brute force"):
            first = fill(masked, nearest, distances)
            again = fill(masked, *search.search_filled(NEIGHBORS, first))
            out[f"{name}: error"] = error(first, full, hidden)
            out[f"{name}: error after one refinement"] = error(again, full, hidden)
    return out


def fill(masked: np.ndarray, nearest: np.ndarray, distances: np.ndarray) -> np.ndarray:
    return pcfi.impute(
        masked,
        link(nearest, distances, local_scale(distances), len(masked)),
        beta=0.0,
        alpha=0.5,
        objective="representation",
    ).values


def error(filled: np.ndarray, full: np.ndarray, hidden: np.ndarray) -> float:
    return float(np.sqrt(np.mean(((filled - full) / full.std(axis=0))[hidden] ** 2)))


if __name__ == "__main__":
    start = time.perf_counter()
    descent(generated(500, 50))
    compilation = time.perf_counter() - start
    rows = [compare(n_rows) for n_rows in SIZES]
    answer(
        "neighbor_search",
        [{"rows": "pynndescent, compilation", "mean-filled, pynndescent: seconds": compilation}, *rows],
    )
