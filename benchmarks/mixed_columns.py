"""Does a column that follows the graph suffer from columns beside it that do not?"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from common import answer

import pcfi

SIZE, WAVES, MISSING, SEEDS = 1500, 10, 0.3, 5
EDGES = pd.DataFrame({"source": np.arange(SIZE), "target": (np.arange(SIZE) + 1) % SIZE})

Rng = np.random.Generator


def categories(count: int) -> Callable[[Rng], dict[str, Any]]:
    names = np.array([f"c{number}" for number in range(count)], dtype=object)
    return lambda rng: {"category": rng.choice(names, SIZE)}


def several(count: int, draw: Callable[[Rng], Any]) -> Callable[[Rng], dict[str, Any]]:
    return lambda rng: {f"column {number}": draw(rng) for number in range(count)}


BESIDE: dict[str, Callable[[Rng], dict[str, Any]]] = {
    "nothing": lambda _: {},
    "1 column of noise": several(1, lambda rng: rng.normal(size=SIZE)),
    "20 columns of noise": several(20, lambda rng: rng.normal(size=SIZE)),
    "20 columns of rare ones": several(20, lambda rng: (rng.random(SIZE) < 0.05) * 1.0),
    "1 column of coins": several(1, lambda rng: (rng.random(SIZE) < 0.5) * 1.0),
    "40 columns of coins": several(40, lambda rng: (rng.random(SIZE) < 0.5) * 1.0),
    "3 columns that run against the graph": several(3, lambda _: np.arange(SIZE) % 2 * 1.0),
    "5 constant columns": several(5, lambda _: np.full(SIZE, 2024.0)),
    "a random category of 2": categories(2),
    "a random category of 100": categories(100),
}


def judged(columns: Callable[[Rng], dict[str, Any]], seed: int) -> tuple[float, float, float]:
    """RMSE of the column, what its intervals for 90 % cover, and RMSE of Feature Propagation."""
    rng = np.random.default_rng(seed)
    wave = np.sin(2 * np.pi * np.arange(SIZE) / SIZE * WAVES)
    truth, gone = 40 + 30 * wave + rng.normal(0, 3, SIZE), rng.random(SIZE) < MISSING
    table = pd.DataFrame({"age": np.where(gone, np.nan, truth)})
    for name, values in columns(rng).items():
        table[name] = pd.Series(values).where(rng.random(SIZE) >= MISSING)
    categorical = [name for name in table if name == "category"]

    def error(**options: Any) -> tuple[float, pcfi.Imputation]:
        result = pcfi.frames.impute(table, EDGES, categorical=categorical, **options)
        return float(np.sqrt(np.mean((result.values["age"] - truth)[gone] ** 2))), result

    tuned, result = error()
    low, high = (end["age"].to_numpy() for end in result.interval(0.9))
    return tuned, float(((low <= truth) & (truth <= high))[gone].mean()), error(method="fp")[0]


def rows() -> Iterator[dict[str, Any]]:
    for beside, columns in BESIDE.items():
        tuned, covered, fp = np.mean([judged(columns, seed) for seed in range(SEEDS)], axis=0)
        yield {"beside it": beside, "RMSE tuned": tuned, "RMSE fp": fp, "covered by 90 % intervals": covered}


if __name__ == "__main__":
    answer("mixed_columns", rows(), seeds=SEEDS)
