"""Tables without a graph: how well, and how fast, does PCFI fill hidden cells next to scikit-learn's imputers?"""

import time

import numpy as np
from common import answer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from pcfi.integrations.sklearn import PCFI

RATES = (0.1, 0.3, 0.5)
SEEDS = 3
SLOW_CELLS = 200_000  # tables from this size on: one seed, and IterativeImputer on nearest columns only


def generated(n_rows: int, n_columns: int, seed: int = 0) -> np.ndarray:
    """Six groups in four hidden dimensions, seen through bent directions, with noise."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(n_rows, 4)) + 2 * rng.normal(size=(6, 4))[rng.integers(0, 6, n_rows)]
    return np.tanh(hidden @ rng.normal(size=(4, n_columns)) / 2) + 0.2 * rng.normal(size=(n_rows, n_columns))


TABLES = {
    "wine": lambda: load_wine().data,
    "diabetes": lambda: load_diabetes().data,
    "breast cancer": lambda: load_breast_cancer().data,
    "digits": lambda: load_digits().data,
    "generated, 2,000 x 20": lambda: generated(2_000, 20),
    "generated, 10,000 x 50": lambda: generated(10_000, 50),
}


def imputers(large: bool) -> dict[str, object]:
    iterative = IterativeImputer(keep_empty_features=True, max_iter=5, n_nearest_features=10 if large else None)
    return {
        "PCFI": PCFI(keep_empty_features=True),
        "KNNImputer": KNNImputer(keep_empty_features=True),
        "IterativeImputer": iterative,
        "mean": SimpleImputer(keep_empty_features=True),
    }


def compare(name: str, rate: float) -> dict[str, object]:
    full = TABLES[name]()
    full = full / np.where(
        full.std(axis=0) > 0, full.std(axis=0), 1
    )  # kind to KNNImputer, which takes units as they are
    large = full.size >= SLOW_CELLS
    errors: dict[str, list[float]] = {}
    seconds: dict[str, float] = {}
    for seed in range(1 if large else SEEDS):
        hidden = np.random.default_rng(seed).random(full.shape) < rate
        masked = np.where(hidden, np.nan, full)
        for method, imputer in imputers(large).items():
            start = time.perf_counter()
            filled = imputer.fit_transform(masked)
            seconds[method] = min(seconds.get(method, np.inf), time.perf_counter() - start)
            errors.setdefault(method, []).append(float(np.sqrt(np.mean((filled - full)[hidden] ** 2))))
    return {
        "table": name,
        "missing": rate,
        **{f"error of {method}": float(np.mean(values)) for method, values in errors.items()},
        "seconds of PCFI": seconds["PCFI"],
        "PCFI vs KNNImputer": seconds["KNNImputer"] / seconds["PCFI"],
        "PCFI vs IterativeImputer": seconds["IterativeImputer"] / seconds["PCFI"],
        "seconds": seconds,
    }


if __name__ == "__main__":
    PCFI().fit_transform(np.where(np.random.default_rng(0).random((50, 4)) < 0.3, np.nan, 1.0))  # compiles
    rows = [compare(name, rate) for name in TABLES for rate in RATES]
    answer("tabular", rows, error="root mean square over the hidden cells, in units of each column's spread")
