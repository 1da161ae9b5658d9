"""Tables without a graph: what do other settings of PCFI change? Error on hidden cells, relative to the defaults."""

from unittest.mock import patch

import numpy as np
from common import answer
from tabular import RATES, TABLES, generated

from pcfi import knn
from pcfi.estimator import PCFI

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
    "alpha auto": {"alpha": "auto"},
    "alpha and beta auto": {"alpha": "auto", "beta": "auto"},
    "no refinement": {"n_refinements": 0},
    "2 refinements": {"n_refinements": 2},
}


def uniform(distances: np.ndarray, _own: np.ndarray, _others: np.ndarray) -> np.ndarray:
    return np.isfinite(distances).astype(float)


def inverse(distances: np.ndarray, _own: np.ndarray, _others: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(distances), 1 / (distances + 1e-3), 0.0)


def errors(**settings: object) -> np.ndarray:
    found = []
    for full in SMALL.values():
        spread = np.where(full.std(axis=0) > 0, full.std(axis=0), 1)
        for rate in RATES:
            hidden = np.random.default_rng(7).random(full.shape) < rate
            filled = PCFI(keep_empty_features=True, **settings).fit_transform(np.where(hidden, np.nan, full))
            found.append(np.sqrt(np.mean(((filled - full) / spread)[hidden] ** 2)))
    return np.array(found)


if __name__ == "__main__":
    results = {name: errors(**settings) for name, settings in SETTINGS.items()}
    with patch.object(knn, "similarity", uniform):
        results["all weights 1"] = errors()
    with patch.object(knn, "similarity", inverse):
        results["weights 1 / distance"] = errors()
    with patch.object(knn, "EXACT_ROWS", 0):
        results["first search with means in missing cells"] = errors()
        results["the same, no refinement"] = errors(n_refinements=0)
    relative = {name: found / results["defaults"] for name, found in results.items()}
    rows = [
        {"setting": name, "error, mean over tables": float(np.exp(np.log(r).mean())), "best": r.min(), "worst": r.max()}
        for name, r in relative.items()
    ]
    answer("tabular_settings", rows)
