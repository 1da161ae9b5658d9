"""Does tuning without labels keep its promises? In pieces that can be run one by one, and go on where they stopped.

python benchmarks/tuning.py values Cora structural 0.995     errors, intervals (three seeds)
python benchmarks/tuning.py downstream Cora structural 5     accuracy of a GCN on the representation (five splits)
python benchmarks/tuning.py cost Cora structural 0.995       time of "auto" against that of numbers
python benchmarks/tuning.py                                  everything that is not there yet
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import DATASETS, RESULTS, ROOT, answer, interleave, load

import pcfi

TABLES = ("digits", "breast cancer")
KINDS, RATES, SEEDS = ("structural", "uniform"), (0.5, 0.9, 0.995), (0, 1, 2)
DOWNSTREAM = {("Cora", kind): 5 for kind in KINDS} | {("CiteSeer", kind): 5 for kind in KINDS}
DOWNSTREAM |= {("Photo", kind): 5 for kind in KINDS} | {("PubMed", "structural"): 3, ("Computers", "structural"): 3}
ORACLE_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
PLAIN = ("zero", "mean", "neighbors", "fp")
CALIBRATION = ("coverage", "where not all known is 0", "lowest of a hop", "rank correlation")


def data(name: str) -> tuple[np.ndarray, Any, np.ndarray]:
    """Features, graph, and the unit of each channel: its standard deviation where channels have units of their own."""
    if name not in TABLES:
        features, edges = load(name)
        return features, pcfi.prepare_graph(edges, len(features)), np.ones(features.shape[1])
    from sklearn import datasets
    from sklearn.neighbors import NearestNeighbors

    table = (datasets.load_digits() if name == "digits" else datasets.load_breast_cancer()).data.astype(np.float32)
    units = np.ones(table.shape[1]) if name == "digits" else table.std(axis=0)
    search = NearestNeighbors(n_neighbors=10, algorithm="kd_tree").fit(table / units)  # the same whatever the threads
    return table, pcfi.prepare_graph(search.kneighbors_graph(), len(table)), units


def known_cells(shape: tuple[int, int], kind: str, rate: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 7])
    drawn = rng.random((shape[0], 1) if kind == "structural" else shape)
    return np.broadcast_to(drawn >= rate, shape)


def oracle(hidden: np.ndarray, features: np.ndarray, graph: Any, units: np.ndarray) -> float:
    """RMSE of the best alpha, beta and reliability by hops for someone who sees the truth."""
    from pcfi.estimation.closed_form import LEVELS, Places, fit, moments_of
    from pcfi.estimation.means import shrunken_means, sums_of_squares
    from pcfi.inputs.problem import read_problem

    missing = np.isnan(hidden)
    problem = read_problem(hidden, graph)
    means = shrunken_means(problem.channels, sums_of_squares(problem)).values
    wanted = ((features - means) / units)[missing].astype(np.float64)
    best = np.inf
    for alpha in ORACLE_ALPHAS:
        plain = pcfi.impute(hidden, graph, alpha=alpha, beta=0.0)
        shared = pcfi.impute(hidden, graph, alpha=alpha, beta=1.0, standardize=True)
        levels = np.minimum(plain.hops[missing], LEVELS - 1).astype(np.int64)
        diffused = ((plain.values - means) / units)[missing].astype(np.float64)
        received = ((shared.values - plain.values) / units)[missing].astype(np.float64)
        found = fit(moments_of(Places.together(levels), diffused, received, wanted))
        error = wanted - found.kappa[levels] * (diffused + found.beta * received)
        best = min(best, float(np.sqrt(np.mean(error**2))))
    return best


def rivals_run(name: str, kind: str, rate: float, seed: int) -> dict[str, Any]:
    features, graph, units = data(name)
    hidden = np.where(known_cells(features.shape, kind, rate, seed), features, np.float32(np.nan))
    plain = {method: pcfi.impute(hidden, graph, method=method).values for method in PLAIN}
    errors = {method: rmse(values, features, np.isnan(hidden), units) for method, values in plain.items()}
    return {"oracle": oracle(hidden, features, graph, units), **errors}


def rmse(values: np.ndarray, truth: np.ndarray, cells: np.ndarray, units: np.ndarray) -> float:
    return float(np.sqrt(np.mean(((values - truth) / units)[cells].astype(np.float64) ** 2)))


def values_run(name: str, kind: str, rate: float, seed: int) -> dict[str, Any]:
    """What was tuned; what it is compared with, which changes less often, is kept apart."""
    from scipy.stats import spearmanr

    key = f"{name}, {kind}, {rate}, {seed}"
    if key not in kept("rivals"):
        keep("rivals", key, rivals_run(name, kind, rate, seed))
    features, graph, units = data(name)
    known = known_cells(features.shape, kind, rate, seed)
    hidden = np.where(known, features, np.float32(np.nan))
    missing = ~known
    result = pcfi.impute(hidden, graph)
    row = {"tuned": rmse(result.values, features, missing, units), **kept("rivals")[key]}
    row |= {"alpha": result.alpha, "beta": result.beta, "expected": result.tuning.error}
    row |= {"least trust": float(result.tuning.trust.min()), "most trust": float(result.tuning.trust.max())}
    if result.expected_error is None:
        return row | dict.fromkeys(CALIBRATION)
    low, high = result.interval(0.9)
    inside = ((low <= features) & (features <= high))[missing]
    hops = result.hops[missing]
    per_hop = [inside[hops == level].mean() for level in np.unique(hops) if (hops == level).sum() >= 1000]
    heard = np.broadcast_to((known & (features != 0)).any(axis=0), known.shape)[missing]
    actual = np.abs(result.values - features)[missing]
    rank = spearmanr(actual, result.expected_error[missing]).statistic
    found = (inside.mean(), inside[heard].mean(), min(per_hop, default=None), rank)
    return row | dict(zip(CALIBRATION, found, strict=True))


def downstream_run(name: str, kind: str, seed: int) -> dict[str, Any]:
    from pcfi.experiments.data.run_input import load_run_input
    from pcfi.experiments.paper import paper_parameters
    from pcfi.experiments.run import Run
    from pcfi.experiments.runs.execution import execute

    def accuracy(**parameters: Any) -> float:
        chosen = tuple(sorted(parameters.items()))
        return execute(Run("classification", name, kind, 0.995, "pcfi", chosen, seed)).metrics["accuracy"]

    run_input = load_run_input(Run("classification", name, kind, 0.995, "pcfi", (), seed))
    tuning = pcfi.tune(run_input.features, run_input.edges, objective="representation")
    paper = paper_parameters("classification", name, kind, 0.995)
    ours = {"alpha": tuning.alpha, "beta": tuning.beta, "center": tuning.center, "solver": "settled"}
    return {
        "paper's parameters, 100 steps": accuracy(**paper, solver="fixed", steps=100),
        "auto": accuracy(**ours),
        "alpha": tuning.alpha,
        "centred": tuning.center,
    }


def cost_run(name: str, kind: str, rate: float) -> dict[str, Any]:
    features, graph, _ = data(name)
    hidden = np.where(known_cells(features.shape, kind, rate, 0), features, np.float32(np.nan))
    times = interleave(
        {
            "numbers": lambda: pcfi.impute(hidden, graph, alpha=0.5, beta=0.1),
            "auto": lambda: pcfi.impute(hidden, graph),
        }
    )
    return {
        "numbers, s": times["numbers"],
        "auto, s": times["auto"],
        "times as long": times["auto"] / times["numbers"],
    }


# Keeping what was done


def kept(part: str) -> dict[str, Any]:
    path = RESULTS / f"tuning_{part}.json"
    return json.loads(path.read_text())["runs"] if path.exists() else {}


def keep(part: str, key: str, row: dict[str, Any]) -> None:
    runs = kept(part) | {key: row}
    runs = dict(sorted(runs.items(), key=lambda item: _order(item[0])))
    answer(f"tuning_{part}", SUMMARIES[part](runs), runs=json.loads(json.dumps(runs, default=float)))


def _order(key: str) -> tuple[Any, ...]:
    name, kind, *rest = key.split(", ")
    return ([*DATASETS, *TABLES].index(name), kind, *map(float, rest))


def _cells(runs: dict[str, Any], width: int) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    cells: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for key, row in runs.items():
        cells.setdefault(tuple(key.split(", ")[:width]), []).append(row)
    return cells


def summary_of_values(runs: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for (name, kind, rate), found in _cells(runs, 3).items():
        best = [min(row[method] for method in PLAIN) for row in found]
        against = [100 * (row["tuned"] / plain - 1) for row, plain in zip(found, best, strict=True)]
        rows.append(
            {
                "data": name,
                "missing": f"{kind} {float(rate):.1%}",
                "seeds": len(found),
                "RMSE tuned": np.mean([row["tuned"] for row in found]),
                "best plain": np.mean(best),
                "mean": np.mean([row["mean"] for row in found]),
                "oracle": np.mean([row["oracle"] for row in found]),
                "tuned vs best plain, %": np.mean(against),
                "worst seed, %": max(against),
                "tuned vs oracle, %": np.mean([100 * (row["tuned"] / row["oracle"] - 1) for row in found]),
                **{name: _mean(found, name) for name in CALIBRATION},
            }
        )
    return rows


def _mean(found: list[dict[str, Any]], name: str) -> Any:
    numbers = [row[name] for row in found if row[name] is not None]
    if not numbers:
        return "nothing learned"
    return min(numbers) if name.startswith("lowest") else float(np.mean(numbers))


def summary_of_downstream(runs: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for (name, kind), found in _cells(runs, 2).items():
        paper, auto = (np.mean([row[key] for row in found]) for key in ("paper's parameters, 100 steps", "auto"))
        rows.append(
            {
                "data": name,
                "missing": f"{kind} 99.5%",
                "splits": len(found),
                "paper's parameters, 100 steps": paper,
                "auto": auto,
                "difference": auto - paper,
                "alpha": found[0]["alpha"],
                "centred": str(found[0]["centred"]),
            }
        )
    return rows


def summary_of_cost(runs: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"data": name, "missing": f"{kind} {float(rate):.1%}", **found[0]}
        for (name, kind, rate), found in _cells(runs, 3).items()
    ]


def summary_of_rivals(runs: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"runs": len(runs)}]


SUMMARIES = {
    "values": summary_of_values,
    "rivals": summary_of_rivals,
    "downstream": summary_of_downstream,
    "cost": summary_of_cost,
}


def run_piece(part: str, name: str, kind: str, number: float | int) -> None:
    done = kept(part)
    keys: dict[str, Any]
    if part == "values":
        keys = {f"{name}, {kind}, {number}, {seed}": lambda s=seed: values_run(name, kind, number, s) for seed in SEEDS}
    elif part == "downstream":
        keys = {f"{name}, {kind}, {s}": lambda s=s: downstream_run(name, kind, s) for s in range(int(number))}
    else:
        keys = {f"{name}, {kind}, {number}": lambda: cost_run(name, kind, number)}
    for key, work in keys.items():
        if key not in done:
            start = time.perf_counter()
            keep(part, key, work())
            print(part, key, f"{time.perf_counter() - start:.0f} s", flush=True)


def main(arguments: list[str]) -> None:
    data_folder = Path(os.environ.get("PCFI_DATA", ROOT.parent / "shared" / "data"))
    os.environ.setdefault("PCFI_DATA", str(data_folder))
    if arguments:
        part, name, kind, number = arguments
        run_piece(part, name, kind, float(number))
        return
    for name in (*TABLES, *DATASETS):
        for kind in KINDS:
            for rate in RATES:
                run_piece("values", name, kind, rate)
                run_piece("cost", name, kind, rate)
    for (name, kind), splits in DOWNSTREAM.items():
        run_piece("downstream", name, kind, splits)


if __name__ == "__main__":
    main(sys.argv[1:])
