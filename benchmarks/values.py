"""How good are values and intervals? Against the mean, KNNImputer, IterativeImputer (also with neighbour means) and FP.

On tables of scikit-learn with the graph of their nearest rows, on generated fields, on libpysal's tables if libpysal
and geopandas are installed (the graph: shared borders), and on the paper's graphs. Errors are in standard deviations of
the columns; the graph of a scikit-learn table is made from all of it, which favours every method that uses a graph.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import answer, load
from scipy import sparse

import pcfi

TABLES = ("diabetes", "wine", "digits", "field", "columbus", "us_income", "mexico", "Cora", "Photo")
CASES = (("cells", 0.1), ("cells", 0.3), ("cells", 0.5), ("cells", 0.9), ("rows", 0.3))
GRAPH_CASES = (("cells", 0.5), ("cells", 0.995), ("rows", 0.5), ("rows", 0.995))
SEEDS = (0, 1, 2)
MAX_ITERATIVE_COLUMNS = 30  # beyond, IterativeImputer takes minutes
LEVEL = 0.9

Table = tuple[np.ndarray, Any]


def nearest(points: np.ndarray, count: int) -> Any:
    from sklearn.neighbors import kneighbors_graph

    graph = sparse.csr_array(kneighbors_graph(points, count))
    return graph.maximum(graph.T)


def of_sklearn(name: str) -> Table:
    from sklearn import datasets

    features = getattr(datasets, f"load_{name}")().data.astype(np.float64)
    features = features[:, features.std(axis=0) > 0]
    return features, nearest((features - features.mean(axis=0)) / features.std(axis=0), 10)


def field(seed: int = 0, n_nodes: int = 1500) -> Table:
    """Smooth columns, sums of them, noise, a column that noise explains, and a skewed one."""
    from scipy.sparse.linalg import splu

    rng = np.random.default_rng(seed)
    graph = nearest(rng.random((n_nodes, 2)), 6)
    laplacian = sparse.diags_array(graph.sum(axis=1)) - graph
    solver = splu((laplacian + 0.05 * sparse.eye_array(n_nodes)).tocsc())
    smooth = solver.solve(rng.standard_normal((n_nodes, 2)))
    first, second = (smooth / smooth.std(axis=0)).T
    noise = rng.standard_normal((n_nodes, 8)).T
    columns = [
        first + 0.3 * noise[0],
        second + 0.5 * noise[1],
        first + second + 0.3 * noise[2],
        noise[3],
        noise[3] + 0.5 * noise[4],
        0.5 * first + noise[5],
        np.exp(first + 0.3 * noise[6]),
        np.abs(noise[7]),
    ]
    return np.stack(columns, axis=1), graph


def of_libpysal(name: str) -> Table:
    import geopandas
    import pandas as pd
    from libpysal import examples
    from libpysal.graph import Graph

    files = {"columbus": "columbus.shp", "mexico": "mexicojoin.shp", "us_income": "us48.shp"}
    shapes = geopandas.read_file(examples.get_path(files[name]))
    graph = Graph.build_contiguity(shapes.reset_index(drop=True), rook=False).sparse
    if name == "us_income":
        income = pd.read_csv(examples.get_path("usjoin.csv")).set_index("Name").drop(columns="STATE_FIPS")
        table = income.loc[shapes["STATE_NAME"]].iloc[:, ::8]
    else:
        kept = ("HOVAL", "INC", "CRIME", "OPEN", "PLUMB", "DISCBD", "PCGDP", "HANSON", "ESQUIV", "INEGI", "GR")
        table = shapes.drop(columns="geometry").select_dtypes("number")
        table = table[[column for column in table if column.startswith(kept)]]
    features = table.to_numpy(dtype=np.float64)
    return features[:, features.std(axis=0) > 0], sparse.csr_array(graph)


def table_of(name: str) -> Table:
    if name in ("diabetes", "wine", "digits"):
        return of_sklearn(name)
    if name == "field":
        return field()
    if name in ("columbus", "us_income", "mexico"):
        return of_libpysal(name)
    features, edges = load(name)
    graph = sparse.coo_array((np.ones(edges.shape[1]), tuple(edges)), shape=(len(features),) * 2).tocsr()
    return features.astype(np.float64), graph.maximum(graph.T)


def mean(features: np.ndarray, _: Any) -> np.ndarray:
    return np.where(np.isnan(features), np.nanmean(features, axis=0), features)


def knn(features: np.ndarray, _: Any) -> np.ndarray:
    from sklearn.impute import KNNImputer

    return KNNImputer().fit_transform(features)


def iterative(features: np.ndarray, _: Any) -> np.ndarray:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    return IterativeImputer(random_state=0).fit_transform(features)


def iterative_with_neighbours(features: np.ndarray, graph: Any) -> np.ndarray:
    known = ~np.isnan(features)
    weight = graph @ known.astype(np.float64)
    total = graph @ np.where(known, features, 0.0)
    means = np.divide(total, weight, out=np.full(features.shape, np.nan), where=weight > 0)
    return iterative(np.hstack([features, means[:, ~np.isnan(means).all(axis=0)]]), graph)[:, : features.shape[1]]


def propagation(features: np.ndarray, graph: Any) -> np.ndarray:
    return pcfi.impute(features, graph, method="fp").values


RIVALS: dict[str, Callable[[np.ndarray, Any], np.ndarray]] = {
    "mean": mean,
    "KNNImputer": knn,
    "IterativeImputer": iterative,
    "IterativeImputer, neighbour means": iterative_with_neighbours,
    "FP": propagation,
}


def hide(truth: np.ndarray, kind: str, rate: float, seed: int) -> np.ndarray:
    """Mask of the cells that are hidden; every column keeps at least three known cells."""
    rng = np.random.default_rng(1000 + seed)
    shape = truth.shape if kind == "cells" else (len(truth), 1)
    missing = np.broadcast_to(rng.random(shape) < rate, truth.shape).copy()
    for column in np.flatnonzero((~missing).sum(axis=0) < 3):
        missing[rng.choice(len(truth), 3, replace=False), column] = False
    return missing


def errors_of(truth: np.ndarray, graph: Any, missing: np.ndarray) -> dict[str, float]:
    """Root mean squared errors in standard deviations, and what the intervals of pcfi cover."""
    deviation = truth.std(axis=0)
    deviation[deviation == 0] = 1.0
    centre = truth.mean(axis=0)
    scaled = np.where(missing, np.nan, (truth - centre) / deviation)

    def error(filled: np.ndarray) -> float:
        return float(np.sqrt(np.mean(((filled * deviation + centre - truth) / deviation)[missing] ** 2)))

    row = {}
    for name, rival in RIVALS.items():
        wide = truth.shape[1] > MAX_ITERATIVE_COLUMNS and "Imputer" in name
        row[name] = float("nan") if wide else error(rival(scaled, graph))
    result = pcfi.impute(np.where(missing, np.nan, truth), graph)
    low, high = result.interval(LEVEL)
    row["pcfi"] = error((result.values - centre) / deviation)
    row["coverage"] = float(((low <= truth) & (truth <= high))[missing].mean())
    return row


def rows(names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        truth, graph = table_of(name)
        is_paper = name in ("Cora", "Photo")
        for kind, rate in GRAPH_CASES if is_paper else CASES:
            seeds = SEEDS[:1] if is_paper or name == "digits" else SEEDS
            each = [errors_of(truth, graph, hide(truth, kind, rate, seed)) for seed in seeds]
            row = {key: float(np.mean([one[key] for one in each])) for key in each[0]}
            best = min(row[rival] for rival in RIVALS if np.isfinite(row[rival]))
            yield {"table": name, "missing": kind, "rate": rate, **row, "pcfi over best": row["pcfi"] / best}
            print(name, kind, rate, {key: round(value, 3) for key, value in row.items()}, flush=True)


if __name__ == "__main__":
    answer("values", rows(sys.argv[1:] or list(TABLES)))
