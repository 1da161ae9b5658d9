"""Which nodes to measure next: `pcfi.suggest` against nodes drawn at random and nodes of the highest degree.

    python benchmarks/suggestions.py [NAME ...]     writes results/suggestions.json and docs/pictures/suggestions.png

A few nodes are known in all columns. A third of the others can not be measured: the error there says what measurements
elsewhere are worth. Each strategy names nodes among the rest; they become known, and the table is filled again, with
everything learned anew. For digits, other values of the persistence of the field are compared as well. Strategies are
compared start by start: the differences at the end have the standard errors of paired differences.
"""

import json
import sys

import numpy as np
from common import DATASETS, RESULTS, ROOT, answer, load_with_units

import pcfi
from pcfi.explanation import node_field

KNOWN = {"digits": 0.02}  # share of the nodes that are known at first; OTHERS for the rest
OTHERS = 0.05
BUDGETS = {
    "digits": (0.01, 0.02, 0.03, 0.05),
    "Cora": (0.02, 0.05),
    "CiteSeer": (0.02, 0.05),
}  # shares of the nodes to measure
OTHER_BUDGETS = (0.05,)
SEEDS = {"digits": 5, "Cora": 10, "CiteSeer": 10}  # OTHER_SEEDS for the rest
OTHER_SEEDS = 3
UNMEASURED = 1 / 3
PERSISTENCES = (0.9, 0.98)  # besides the default


def strategies(result, graph, possible, k, rng, *, compare):
    """Rows in the order in which each strategy would measure them."""
    yield "random", rng.permutation(possible)[:k]
    yield "degree", possible[np.argsort(-graph.degree[possible], kind="stable")][:k]
    yield "suggest", pcfi.suggest(result, k, candidates=possible).rows
    usual = node_field.PERSISTENCE
    for persistence in PERSISTENCES if compare else ():
        node_field.PERSISTENCE = persistence
        yield f"persistence {persistence:g}", pcfi.suggest(result, k, candidates=possible).rows
    node_field.PERSISTENCE = usual


def outcomes(name, seed):
    """One row per strategy and budget."""
    features, graph, units = load_with_units(name)
    table = features.astype(np.float64) / units
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
    orders = strategies(first, graph, possible, int(max(budgets) * n_nodes), rng, compare=name == "digits")
    for strategy, rows in orders:
        for budget in budgets:
            measured = known.copy()
            measured[rows[: int(budget * n_nodes)]] = True
            left, explained = errors(fill(measured))
            now = {"budget": budget, "total": left / total, "explained": explained}
            yield {**start, **now, "strategy": strategy}


def print_table(rows):
    """Explained variance by strategy, and paired differences, as a table in Markdown."""
    print("| data | starts | measured | at first | random | degree | `suggest` | - random | - degree |")
    print("|---|---|---|---|---|---|---|---|---|")
    cells = {(row["data"], row["budget"], row["strategy"], row["seed"]): row for row in rows}
    for name, budget in dict.fromkeys((row["data"], row["budget"]) for row in rows if row["budget"]):
        seeds = sorted({key[3] for key in cells if key[:3] == (name, budget, "suggest")})
        found = {
            strategy: np.array([cells[name, budget, strategy, seed]["explained"] for seed in seeds])
            for strategy in ("random", "degree", "suggest")
        }
        first = np.mean([cells[name, 0.0, "start", seed]["explained"] for seed in seeds])
        differences = [found["suggest"] - found[other] for other in ("random", "degree")]
        words = [f"{one.mean():+.4f} ± {one.std(ddof=1) / np.sqrt(len(one)):.4f}" for one in differences]
        means = " | ".join(f"{found[strategy].mean():.3f}" for strategy in found)
        print(f"| {name} | {len(seeds)} | {budget:.0%} | {first:.3f} | {means} | {words[0]} | {words[1]} |")


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
    chosen = sys.argv[1:] or ["digits", *DATASETS]
    rows = (row for name in chosen for seed in range(SEEDS.get(name, OTHER_SEEDS)) for row in outcomes(name, seed))
    answer("suggestions", rows)
    written = json.loads((RESULTS / "suggestions.json").read_text(encoding="utf-8"))["rows"]
    print_table(written)
    draw(written, ROOT / "docs" / "pictures" / "suggestions.png")


if __name__ == "__main__":
    main()
