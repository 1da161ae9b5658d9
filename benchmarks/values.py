"""How good are values and intervals? Against the mean, KNNImputer, IterativeImputer (also with neighbour means) and FP.

On tables of scikit-learn with the graph of their nearest rows, and without a graph ("knn"), on generated fields, on
libpysal's tables if libpysal and geopandas are installed (the graph: shared borders, or near houses), and on the
paper's graphs. Errors are in standard deviations of the columns; the graph of a scikit-learn table is made from all of
it, which favours every method that uses a graph. `HELD_OUT` are tables that had no part in designing the model.

`--stored-rivals` runs pcfi alone on the tables that are named; the errors of the others, which do not change, and the
standard errors are those of the stored run, and so are rows of tables that are not named.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import RESULTS, answer, load
from scipy import sparse

import pcfi

PAPER = ("Cora", "CiteSeer", "PubMed", "Photo", "Computers")
SKLEARN = ("diabetes", "wine", "digits", "breast_cancer", "iris")
LIBPYSAL = ("columbus", "us_income", "mexico", "baltim", "sids2")
HELD_OUT = ("baltim", "sids2", "breast_cancer", "iris")
WITHOUT_GRAPH = ("diabetes, knn", "wine, knn", "breast_cancer, knn", "iris, knn")
TABLES = (*LIBPYSAL, *SKLEARN, "field", *WITHOUT_GRAPH, *PAPER)
CASES = (("cells", 0.1), ("cells", 0.3), ("cells", 0.5), ("cells", 0.9), ("rows", 0.3))
GRAPH_CASES = (("cells", 0.5), ("cells", 0.995), ("rows", 0.5), ("rows", 0.995))
DRAWS = ((50, 40), (250, 10), (1_600, 3))  # most rows of a table, and draws of its missing cells; else one
MAX_ITERATIVE_COLUMNS = 30  # beyond, IterativeImputer takes minutes
LEVEL = 0.9
MIN_GROUP = 300  # cells of a column, hop or fifth whose coverage is looked at
LEAST = 0.85  # coverage that such a group should have

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

    files = {"us_income": "us48.shp", "mexico": "mexicojoin.shp"}
    shapes = geopandas.read_file(examples.get_path(files.get(name, f"{name}.shp")))
    if name == "baltim":
        houses = ["PRICE", "NROOM", "NBATH", "AGE", "LOTSZ", "SQFT", "NSTOR", "GAR", "CITCOU"]
        return shapes[houses].to_numpy(float), nearest(shapes[["X", "Y"]].to_numpy(float), 6)
    graph = Graph.build_contiguity(shapes.reset_index(drop=True), rook=False).sparse
    if name == "us_income":
        income = pd.read_csv(examples.get_path("usjoin.csv")).set_index("Name").drop(columns="STATE_FIPS")
        table = income.loc[shapes["STATE_NAME"]].iloc[:, ::8]
    elif name == "sids2":
        table = shapes.loc[:, "BIR74":"NWBIR79"]
    else:
        kept = ("HOVAL", "INC", "CRIME", "OPEN", "PLUMB", "DISCBD", "PCGDP", "HANSON", "ESQUIV", "INEGI", "GR")
        table = shapes.drop(columns="geometry").select_dtypes("number")
        table = table[[column for column in table if column.startswith(kept)]]
    features = table.to_numpy(dtype=np.float64)
    return features[:, features.std(axis=0) > 0], sparse.csr_array(graph)


def table_of(name: str) -> Table:
    if name in SKLEARN:
        return of_sklearn(name)
    if name in WITHOUT_GRAPH:
        return of_sklearn(name.removesuffix(", knn"))[0], "knn"
    if name == "field":
        return field()
    if name in LIBPYSAL:
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


def neighbour_spread(features: np.ndarray, graph: Any) -> np.ndarray:
    """Standard deviation of the known neighbours of each cell, NaN with fewer than two."""
    known = ~np.isnan(features)
    count, total, squares = (
        graph @ np.where(known, part, 0.0) for part in (np.ones(features.shape), features, features**2)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 1, np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0.0)), np.nan)


def least_coverage(covered: np.ndarray, groups: np.ndarray) -> float:
    """Least share of covered cells in a group of at least 300; NaN if there is none."""
    counts = np.bincount(groups)
    shares = np.bincount(groups, weights=covered)[counts >= MIN_GROUP] / counts[counts >= MIN_GROUP]
    return float(shares.min()) if len(shares) else float("nan")


def columns_below(covered: np.ndarray, missing: np.ndarray) -> dict[str, float]:
    """Columns of at least 300 cells that are covered too little, and how many would be by chance.

    By chance: if intervals cover 90 % in every column, but for the noise of the missing cells and of a quantile that is
    taken from the known cells of the column, whose coverage has a beta distribution.
    """
    from scipy.stats import betabinom

    columns = np.nonzero(missing)[1]
    n_cells, n_known = missing.sum(axis=0), (~missing).sum(axis=0)
    shares = np.bincount(columns, weights=covered, minlength=len(n_cells)) / np.maximum(n_cells, 1)
    large = n_cells >= MIN_GROUP
    chances = betabinom.cdf(np.ceil(LEAST * n_cells) - 1, n_cells, LEVEL * (n_known + 1), (1 - LEVEL) * (n_known + 1))[
        large
    ]
    return {
        "columns": float(large.sum()),
        "below 85 %": float((shares[large] < LEAST).sum()),
        "below by chance": float(chances.sum()),
    }


def least_possible(truth: np.ndarray, missing: np.ndarray) -> float:
    """Coverage of intervals that cover 90 % and include the most frequent value of each column."""
    shares = [max(LEVEL, np.unique(column, return_counts=True)[1].max() / len(column)) for column in truth.T]
    return float(np.average(shares, weights=missing.sum(axis=0)))


def errors_of(
    truth: np.ndarray, graph: Any, missing: np.ndarray, rivals: "tuple[str, ...] | None" = None
) -> dict[str, float]:
    """Root mean squared errors in standard deviations, and what the intervals of pcfi cover."""
    deviation = truth.std(axis=0)
    deviation[deviation == 0] = 1.0
    centre = truth.mean(axis=0)
    scaled = np.where(missing, np.nan, (truth - centre) / deviation)

    def error(filled: np.ndarray) -> float:
        return float(np.sqrt(np.mean(((filled * deviation + centre - truth) / deviation)[missing] ** 2)))

    row = {}
    for name, rival in RIVALS.items():
        if rivals is not None and name not in rivals:
            continue
        wide = truth.shape[1] > MAX_ITERATIVE_COLUMNS and "Imputer" in name
        needs_graph = isinstance(graph, str) and name in ("IterativeImputer, neighbour means", "FP")
        row[name] = float("nan") if wide or needs_graph else error(rival(scaled, graph))
    result = pcfi.impute(np.where(missing, np.nan, truth), graph)
    row["pcfi"] = error((result.values - centre) / deviation)
    return row | reliability(result, truth, scaled, graph, missing, deviation)


def reliability(
    result: pcfi.Imputation, truth: np.ndarray, scaled: np.ndarray, graph: Any, missing: np.ndarray, unit: np.ndarray
) -> dict[str, float]:
    """Coverage of the intervals, overall and in the worst group, and rank correlation of expected and true errors."""
    from scipy.stats import spearmanr

    low, high = result.interval(LEVEL)
    covered = ((low <= truth) & (truth <= high))[missing].astype(float)
    expected, actual = (result.expected_error / unit)[missing], np.abs((result.values - truth) / unit)[missing]
    known_unit = np.nanstd(np.where(missing, np.nan, truth), axis=0)
    predicted = (result.expected_error / np.where(known_unit > 0, known_unit, 1.0))[missing]
    fifths = np.digitize(predicted, np.quantile(predicted, [0.2, 0.4, 0.6, 0.8]))
    hops = np.where(result.unreachable, 0, result.hops)[missing]
    row = {
        "coverage": float(covered.mean()),
        "least possible": least_possible(truth, missing),
        **columns_below(covered, missing),
        "least, column": least_coverage(covered, np.nonzero(missing)[1]),
        "least, hop": least_coverage(covered, hops),
        "least, fifth": least_coverage(covered, fifths),
        "rank correlation": float(spearmanr(expected, actual)[0]),
        "the same, two known neighbours": float("nan"),
        "of neighbours' spread": float("nan"),
    }
    if not isinstance(graph, str):
        spread = neighbour_spread(scaled, graph)[missing]
        has_spread = ~np.isnan(spread)
        if has_spread.sum() > 10:
            row["the same, two known neighbours"] = float(spearmanr(expected[has_spread], actual[has_spread])[0])
            row["of neighbours' spread"] = float(spearmanr(spread[has_spread], actual[has_spread])[0])
    return row


def draws_of(truth: np.ndarray) -> range:
    """Seeds of the missing cells of a table."""
    return range(next((count for most, count in DRAWS if len(truth) <= most), 1))


def rows(names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        truth, graph = table_of(name)
        is_paper = name in PAPER
        for kind, rate in GRAPH_CASES if is_paper else CASES:
            n_draws = len(draws_of(truth))
            each = [errors_of(truth, graph, hide(truth, kind, rate, seed)) for seed in draws_of(truth)]
            row = {key: float(np.mean([one[key] for one in each])) for key in each[0]}
            best = min((rival for rival in RIVALS if np.isfinite(row[rival])), key=row.__getitem__)
            differences = [one["pcfi"] - one[best] for one in each]
            noise = np.std(differences, ddof=1) / np.sqrt(n_draws) if n_draws > 1 else float("nan")
            row |= {"pcfi over best": row["pcfi"] / row[best], "standard error": float(noise) / row[best]}
            yield {"table": name, "missing": kind, "rate": rate, **row}
            print(name, kind, rate, {key: round(value, 3) for key, value in row.items()}, flush=True)


def rows_with_stored_rivals(names: list[str]) -> Iterator[dict[str, Any]]:
    for stored in json.loads((RESULTS / "values.json").read_text())["rows"]:
        if stored["table"] in names:
            truth, graph = table_of(stored["table"])
            each = [
                errors_of(truth, graph, hide(truth, stored["missing"], stored["rate"], seed), rivals=())
                for seed in draws_of(truth)
            ]
            row = stored | {key: float(np.mean([one[key] for one in each])) for key in each[0]}
            best = min(row[rival] for rival in RIVALS if row[rival] is not None and np.isfinite(row[rival]))
            stored = row | {"pcfi over best": row["pcfi"] / best}
        yield stored


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--stored-rivals", action="store_true")
    chosen = parser.parse_args()
    answer("values", (rows_with_stored_rivals if chosen.stored_rivals else rows)(chosen.tables))
