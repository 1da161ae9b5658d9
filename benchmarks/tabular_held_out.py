"""Does PCFI stay ahead of KNNImputer, tuned as well, on tables that had no part in choosing PCFI's defaults?"""

import numpy as np
from common import answer
from sklearn.datasets import load_iris, load_linnerud, make_friedman1, make_low_rank_matrix, make_s_curve
from sklearn.impute import KNNImputer
from tabular import RATES, SEEDS

from pcfi.integrations.sklearn import PCFI


def joined(table: np.ndarray, target: np.ndarray) -> np.ndarray:
    return np.column_stack([table, target])


TABLES = {
    "iris": lambda: load_iris().data,
    "linnerud": lambda: joined(load_linnerud().data, load_linnerud().target),
    "Friedman 1": lambda: joined(*make_friedman1(1_000, 10, random_state=0)),
    "S-curve": lambda: joined(*make_s_curve(1_000, noise=0.05, random_state=0)),
    "low rank": lambda: make_low_rank_matrix(1_000, 30, effective_rank=5, random_state=0),
    "independent columns": lambda: np.random.default_rng(0).normal(size=(1_000, 10)),
}
IMPUTERS = {
    "PCFI": lambda: PCFI(),
    "KNNImputer, 5": lambda: KNNImputer(n_neighbors=5),
    "KNNImputer, 15": lambda: KNNImputer(n_neighbors=15),
    "KNNImputer, 15, by distance": lambda: KNNImputer(n_neighbors=15, weights="distance"),
}


def compare(name: str, rate: float) -> dict[str, object]:
    full = TABLES[name]()
    full = full / full.std(axis=0)
    errors: dict[str, list[float]] = {method: [] for method in [*IMPUTERS, "mean"]}
    for seed in range(100, 100 + SEEDS):
        hidden = np.random.default_rng(seed).random(full.shape) < rate
        masked = np.where(hidden, np.nan, full)
        for method, make in IMPUTERS.items():
            filled = make().fit_transform(masked)
            errors[method].append(float(np.sqrt(np.mean((filled - full)[hidden] ** 2))))
        means = np.broadcast_to(np.nanmean(masked, axis=0), full.shape)
        errors["mean"].append(float(np.sqrt(np.mean((means - full)[hidden] ** 2))))
    return {"table": name, "missing": rate, **{method: float(np.mean(found)) for method, found in errors.items()}}


if __name__ == "__main__":
    answer("tabular_held_out", [compare(name, rate) for name in TABLES for rate in RATES])
