"""Which nodes to measure next: `pcfi.suggest` against nodes drawn at random and nodes of the highest degree.

    python benchmarks/suggestions.py [NAME ...]     writes results/suggestions.json and docs/pictures/suggestions.png

A few nodes are known in all columns. A third of the others can not be measured: the error there says what measurements
elsewhere are worth. Each strategy names nodes among the rest; they become known, and the table is filled again, with
everything learned anew. Of the five graphs of the paper, the 100 columns with the largest variance are taken.
Strategies are compared start by start: the differences at the end have the standard errors of paired differences. The
random nodes of a start are drawn three times. Results of data sets that are not named are kept.
"""

import json
import sys
from itertools import chain

import numpy as np
from common import DATASETS, RESULTS, ROOT, answer, load_with_units

import pcfi

KNOWN = {"digits": 0.02}  # share of the nodes that are known at first; OTHERS for the rest
OTHERS = 0.05
BUDGETS = {"digits": (0.01, 0.02, 0.03, 0.05)}  # shares of the nodes to measure
OTHER_BUDGETS = (0.05,)
SEEDS = {"digits": 8, "Cora": 20, "CiteSeer": 12, "PubMed": 6, "Photo": 6, "Computers": 4}
UNMEASURED = 1 / 3
N_RANDOM = 3
MAX_COLUMNS = 100
STRATEGIES = ("random", "degree", "suggest")


def strategies(result, graph, possible, k, rng):
    """Rows in the order in which each strategy would measure them."""
    for _ in range(N_RANDOM):
        yield "random", rng.permutation(possible)[:k]
    yield "degree", possible[np.argsort(-graph.degree[possible], kind="stable")][:k]
    yield "suggest", pcfi.suggest(result, k, candidates=possible).rows


def outcomes(name, seed):
    """One row per strategy and budget."""
    features, graph, units = load_with_units(name)
    table = features.astype(np.float64) / units
    if table.shape[1] > MAX_COLUMNS:
        table = table[:, np.sort(np.argsort(-table.var(axis=0), kind="stable")[:MAX_COLUMNS])]
    n_nodes, rng = len(table), np.random.default_rng(seed)
    known = rng.random(n_nodes) < KNOWN.get(name, OTHERS)
    unmeasured = ~known & (rng.random(n_nodes) < UNMEASURED)
    of_mean = ((table - table.mean(axis=0))[unmeasured] ** 2).sum()

    def fill(known):
        return pcfi.impute(np.where(known[:, None], table, np.nan), graph)

    def errors(result):
        squared = ((result.values - table) ** 2).sum(axis=1)
        return float(squared[~known].sum()), float(1 - squared[unmeasured].sum() / of_mean)

    first = fill(known)
    total, explained = errors(first)
    start = {"data": name, "seed": seed, "budget": 0.0, "total": 1.0, "explained": explained}
    yield {**start, "strategy": "start"}
    budgets = BUDGETS.get(name, OTHER_BUDGETS)
    possible = np.flatnonzero(~known & ~unmeasured)
    for strategy, rows in strategies(first, graph, possible, int(max(budgets) * n_nodes), rng):
        for budget in budgets:
            measured = known.copy()
            measured[rows[: int(budget * n_nodes)]] = True
            left, explained = errors(fill(measured))
            now = {"budget": budget, "total": left / total, "explained": explained}
            yield {**start, **now, "strategy": strategy}


def by_start(rows, name, budget, measure):
    """Mean of each strategy in each start."""
    own = [row for row in rows if (row["data"], row["budget"]) == (name, budget)]
    seeds = sorted({row["seed"] for row in own})
    return {
        strategy: np.array(
            [
                np.mean([row[measure] for row in own if (row["strategy"], row["seed"]) == (strategy, seed)])
                for seed in seeds
            ]
        )
        for strategy in STRATEGIES
    }


def print_table(rows):
    """Explained variance and error by strategy, and paired differences, as a table in Markdown."""
    print(
        "| data | starts | measured | at first | random | degree | `suggest` | - random | - degree | error - random |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, budget in dict.fromkeys((row["data"], row["budget"]) for row in rows if row["budget"]):
        found, left = (by_start(rows, name, budget, measure) for measure in ("explained", "total"))
        first = np.mean([row["explained"] for row in rows if (row["data"], row["strategy"]) == (name, "start")])
        differences = [found["suggest"] - found[other] for other in ("random", "degree")]
        differences.append(left["suggest"] - left["random"])
        words = " | ".join(f"{one.mean():+.4f} ± {one.std(ddof=1) / np.sqrt(len(one)):.4f}" for one in differences)
        means = " | ".join(f"{found[strategy].mean():.3f}" for strategy in found)
        print(f"| {name} | {len(found['suggest'])} | {budget:.0%} | {first:.3f} | {means} | {words} |")


def draw(rows, target):
    """Explained variance of nodes that are never measured, by budget."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = plt.subplots(1, len(names), figsize=(2.6 * len(names), 2.7), layout="constrained", squeeze=False)
    for name, axis in zip(names, axes[0], strict=True):
        start = [row["explained"] for row in rows if row["data"] == name and row["strategy"] == "start"]
        for strategy, style in (("random", "o--"), ("degree", "s:"), ("suggest", "D-")):
            own = [row for row in rows if row["data"] == name and row["strategy"] == strategy]
            budgets = sorted({row["budget"] for row in own})
            means = [np.mean([row["explained"] for row in own if row["budget"] == one]) for one in budgets]
            axis.plot([0.0, *(100 * one for one in budgets)], [np.mean(start), *means], style, label=strategy, ms=4)
        axis.set(title=name, xlabel="measured nodes (%)")
    axes[0, 0].set_ylabel("explained variance\nof other nodes")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(target, dpi=110)


def main():
    chosen, target = sys.argv[1:] or ["digits", *DATASETS], RESULTS / "suggestions.json"
    before = json.loads(target.read_text(encoding="utf-8"))["rows"] if target.exists() else []
    kept = [row for row in before if row["data"] not in chosen]
    rows = (row for name in chosen for seed in range(SEEDS[name]) for row in outcomes(name, seed))
    answer("suggestions", chain(kept, rows))
    written = json.loads(target.read_text(encoding="utf-8"))["rows"]
    print_table(written)
    draw(written, ROOT / "docs" / "pictures" / "suggestions.png")


if __name__ == "__main__":
    main()
