"""Tables without a graph: what do other settings of PCFI change? Error on hidden cells, relative to the defaults."""

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
from common import answer
from tabular import RATES, TABLES, generated

import pcfi
from pcfi.integrations import knn
from pcfi.integrations.sklearn import PCFI

SMALL = {name: TABLES[name]() for name in ("wine", "diabetes", "breast cancer", "digits")}
SMALL["generated"] = generated(1_500, 50)

SETTINGS = {
    "defaults": {},
    "5 neighbours": {"n_neighbors": 5},
    "10 neighbours": {"n_neighbors": 10},
    "30 neighbours": {"n_neighbors": 30},
    "alpha 0.1": {"alpha": 0.1},
    "alpha 0.9": {"alpha": 0.9},
    "beta 0.01": {"beta": 0.01},
    "beta 0.1": {"beta": 0.1},
    "no refinement": {"n_refinements": 0},
    "2 refinements": {"n_refinements": 2},
}


def uniform(distances: np.ndarray, _own: np.ndarray, _others: np.ndarray) -> np.ndarray:
    return np.isfinite(distances).astype(float)


def inverse(distances: np.ndarray, _own: np.ndarray, _others: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(distances), 1 / (distances + 1e-3), 0.0)


def problems() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Tables in units of each column's spread, and what to hide of them."""
    for full in SMALL.values():
        for rate in RATES:
            hidden = np.random.default_rng(7).random(full.shape) < rate
            yield full / np.where(full.std(axis=0) > 0, full.std(axis=0), 1), hidden


def errors(**settings: object) -> np.ndarray:
    found = []
    for full, hidden in problems():
        filled = PCFI(keep_empty_features=True, **settings).fit_transform(np.where(hidden, np.nan, full))
        found.append(np.sqrt(np.mean((filled - full)[hidden] ** 2)))
    return np.array(found)


def tuned() -> tuple[np.ndarray, np.ndarray]:
    """Errors if the cells that tuning hides had a part in the graph, and how many cells the 90 % intervals cover."""
    found, covered = [], []
    for full, hidden in problems():
        masked = np.where(hidden, np.nan, full)
        result = pcfi.impute(masked, PCFI(keep_empty_features=True).fit(masked).graph_)
        low, high = result.interval(0.9)
        found.append(np.sqrt(np.mean((result.values - full)[hidden] ** 2)))
        covered.append(((low <= full) & (full <= high))[hidden].mean())
    return np.array(found), np.array(covered)


if __name__ == "__main__":
    results = {name: errors(**settings) for name, settings in SETTINGS.items()}
    with patch.object(knn, "similarity", uniform):
        results["all weights 1"] = errors()
    with patch.object(knn, "similarity", inverse):
        results["weights 1 / distance"] = errors()
    with patch.object(knn, "MAX_EXACT_ROWS", 0):
        results["first search with means in missing cells"] = errors()
        results["the same, no refinement"] = errors(n_refinements=0)
    results["tuned on cells that the graph has seen"], covered = tuned()
    relative = {name: found / results["defaults"] for name, found in results.items()}
    rows = [
        {"setting": name, "error, mean over tables": float(np.exp(np.log(r).mean())), "best": r.min(), "worst": r.max()}
        for name, r in relative.items()
    ]
    rows[-1] |= {"intervals for 90 % cover": float(covered.mean()), "at least": covered.min(), "at most": covered.max()}
    answer("tabular_settings", rows)
