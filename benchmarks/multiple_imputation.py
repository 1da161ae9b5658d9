"""Does the 95 % confidence interval of a regression on multiply imputed tables cover the true slope?

    python benchmarks/multiple_imputation.py [N_SIMULATIONS] [N_DRAWS]        prints a table in Markdown

Each simulation has 200 nodes in the unit square, joined with their 6 nearest, x = a smooth field + noise, and
y = 1 + 0.5 x + noise. 30 % of the cells of both columns are missing. The slope of y on x is estimated from the
complete table (before cells were removed), from rows without missing cells, from the filled table as if it were
complete (single imputation), and from draws, pooled by Rubin's rules.
"""

import sys
import warnings

import numpy as np
from sklearn.neighbors import kneighbors_graph

import pcfi

N_NODES, SLOPE, RATE, COVERAGE = 200, 0.5, 0.3, 0.95
FIRST_SEED = 10_000  # seeds from 0 on were looked at while draws were designed


def simulate(seed, noise):
    """A complete table, its graph, and the table with missing cells."""
    rng = np.random.default_rng(seed)
    places = rng.random((N_NODES, 2))
    waves = rng.normal(size=(6, 2)) * 4
    field = np.sin(places @ waves.T + 2 * np.pi * rng.random(6)).sum(axis=1) / np.sqrt(3)
    x = field + noise * rng.normal(size=N_NODES)
    y = 1 + SLOPE * x + 0.5 * rng.normal(size=N_NODES)
    table = np.stack([x, y], axis=1)
    return table, kneighbors_graph(places, 6), np.where(rng.random(table.shape) < RATE, np.nan, table)


def slope(table):
    """Slope of y on x and its squared standard error."""
    x, y = table.T
    x = x - x.mean()
    estimate = (x @ y) / (x @ x)
    residual = y - y.mean() - estimate * x
    return estimate, residual @ residual / (len(x) - 2) / (x @ x)


def covers(estimate, variance, degrees):
    """Whether the interval covers the truth, its width, and the error."""
    from scipy.stats import t

    half = t.ppf((1 + COVERAGE) / 2, degrees) * np.sqrt(variance)
    return abs(estimate - SLOPE) <= half, 2 * half, estimate - SLOPE


def outcomes(seed, noise, n_draws):
    """Coverage, width and error of the four analyses."""
    complete, graph, table = simulate(seed, noise)
    rows = table[np.isfinite(table).all(axis=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = pcfi.impute(table, graph)
        parts = np.array([slope(drawn) for drawn in result.draws(n_draws, random_state=seed)])
    pooled = pcfi.pool(parts[:, 0], parts[:, 1], complete_degrees_of_freedom=N_NODES - 2)
    return [
        covers(*slope(complete), N_NODES - 2),
        covers(*slope(rows), len(rows) - 2),
        covers(*slope(result.values), N_NODES - 2),
        covers(pooled.estimate, pooled.variance, pooled.degrees_of_freedom),
    ]


def main():
    given = [int(word) for word in sys.argv[1:3]]
    n_simulations, n_draws = [*given, *(1500, 20)[len(given) :]]
    names = ("complete table", "complete rows", "single imputation", f"{n_draws} draws, pooled")
    print("| noise of x | analysis | coverage of 95 % | mean width | bias |\n|---|---|---|---|---|")
    for noise in (0.3, 1.0):
        found = np.array(
            [outcomes(seed, noise, n_draws) for seed in FIRST_SEED + np.arange(n_simulations)], dtype=float
        )
        for name, (coverage, width, bias) in zip(names, found.mean(axis=0), strict=True):
            print(f"| {noise} | {name} | {coverage:.1%} | {width:.3f} | {bias:+.3f} |", flush=True)


if __name__ == "__main__":
    main()
