"""Data errors planted into real tables: how many of them are among the most surprising known cells?

    python benchmarks/contradictions.py            prints a table in Markdown

Tables of scikit-learn, whose graph joins rows that are close in columns which are then left out of the table, and
handwritten digits, whose graph is the grid of pixels (a node is a pixel, a column an image). Errors are planted into
1 % of the known cells (at least 10): a decimal point shifted by one or two places, a value in another unit (inches
for centimetres), or the value of another node of the same column. 20 % of all cells are missing. Precision is the
share of planted errors among as many most surprising cells as were planted; 'by column' ranks by the distance from
the column's median instead.
"""

import sys
import warnings

import numpy as np
from sklearn import datasets
from sklearn.neighbors import kneighbors_graph

import pcfi

SHARE, MIN_PLANTED, SEEDS = 0.01, 10, range(3)


def tables():
    """Names, tables and graphs."""
    wine = datasets.load_wine().data
    yield "wine", wine[:, 4:], _near(wine[:, :4])
    cancer = datasets.load_breast_cancer().data
    yield "breast cancer", cancer[:, :10], _near(cancer[:, 10:])
    iris = datasets.load_iris().data
    yield "iris", iris[:, 1:], _near(iris[:, :1])
    diabetes = datasets.load_diabetes(scaled=False).data
    yield "diabetes", diabetes[:, [2, 3, 4, 5, 6, 7, 8, 9]], _near(diabetes[:, :1])
    images = datasets.load_digits().images[:100].reshape(100, 64).T
    grid = np.arange(64).reshape(8, 8)
    pairs = [(grid[:, :-1].ravel(), grid[:, 1:].ravel()), (grid[:-1].ravel(), grid[1:].ravel())]
    yield "digits", images, np.concatenate([np.stack(pair) for pair in pairs], axis=1)


def _near(columns):
    scaled = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    return kneighbors_graph(scaled, 8, include_self=False)


def plant(table, kind, rng):
    """The table with errors, and where they are."""
    cells = np.argwhere(np.isfinite(table) & (table != 0))
    count = max(MIN_PLANTED, int(SHARE * len(cells)))
    chosen = cells[rng.choice(len(cells), count, replace=False)]
    wrong, planted = table.copy(), np.zeros(table.shape, dtype=bool)
    for row, column in chosen:
        planted[row, column] = True
        if kind == "decimal point":
            wrong[row, column] = table[row, column] * rng.choice([0.01, 0.1, 10.0, 100.0])
        elif kind == "unit":
            wrong[row, column] = table[row, column] * rng.choice([2.54, 1 / 2.54])
        else:
            others = np.flatnonzero(np.isfinite(table[:, column]) & (table[:, column] != table[row, column]))
            wrong[row, column] = table[rng.choice(others), column]
    return wrong, planted


def precision(table, graph, kind, seed):
    """Shares of planted errors among the most surprising cells, and among those farthest from the median."""
    rng = np.random.default_rng(seed)
    full = table.astype(float).copy()
    full[rng.random(full.shape) < 0.2] = np.nan
    wrong, planted = plant(full, kind, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pcfi.impute(wrong, graph).surprise
    count = int(planted.sum())
    ours = planted[found.rows[:count], found.column_numbers[:count]].mean()
    middle = np.nanmedian(wrong, axis=0)
    spread = np.nanmedian(np.abs(wrong - middle), axis=0)
    distance = np.abs(wrong - middle) / np.where(spread > 0, spread, np.nanstd(wrong, axis=0))
    order = np.argsort(-np.nan_to_num(distance, nan=-1.0), axis=None)[:count]
    return ours, planted.flat[order].mean(), count


def main():
    print("| table | error | planted | precision | by column |\n|---|---|---|---|---|")
    chosen = sys.argv[1:]
    for name, table, graph in tables():
        if chosen and name not in chosen:
            continue
        for kind in ("decimal point", "unit", "swapped"):
            scores = np.array([precision(table, graph, kind, seed) for seed in SEEDS])
            ours, column, count = scores.mean(axis=0)
            print(f"| {name} | {kind} | {count:.0f} | {ours:.2f} | {column:.2f} |", flush=True)


if __name__ == "__main__":
    main()
