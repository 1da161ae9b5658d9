"""Pictures of the value model, for docs/values.md. Run `python docs/value_pictures.py`; needs `pcfi[demo]`.

All come from `pcfi.impute`: on the incomes of US states, and on a generated field with three kinds of columns.
"""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import cKDTree

import pcfi

FOLDER = Path(__file__).parent / "pictures"
BLACK, ORANGE, BLUE, RED = "#000000", "#E69F00", "#0072B2", "#D55E00"


def main() -> None:
    plt.rcParams.update({"font.size": 11, "axes.titlesize": 12, "axes.spines.top": False, "axes.spines.right": False})
    plt.rcParams.update({"axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True, "legend.frameon": False})
    drawn_to_the_mean()
    sources_of_columns()
    intervals()


def save(figure: Any, name: str) -> None:
    """Write the figure, without a date or a version in the file."""
    figure.savefig(FOLDER / name, dpi=110, bbox_inches="tight", pad_inches=0.08, metadata={"Software": None})
    plt.close(figure)


def drawn_to_the_mean(n_nodes: int = 600) -> None:
    """Hidden truth and filled value against the graph's estimate: three columns, each filled alone."""
    rng = np.random.default_rng(0)
    places = rng.random((n_nodes, 2))
    nearest = cKDTree(places).query(places, k=5)[1][:, 1:]
    smooth = np.sin(6 * places[:, 0]) + np.cos(5 * places[:, 1]) + rng.normal(scale=0.3, size=n_nodes)
    side = rng.integers(0, 2, n_nodes)  # of a network whose edges join the two sides
    same = np.stack([np.repeat(np.arange(n_nodes), 4), nearest.ravel()])
    across = same[:, side[same[0]] != side[same[1]]]
    columns = {
        "follows the graph": (smooth, same),
        "ignores the graph": (rng.normal(size=n_nodes), same),
        "runs against the graph": (2.0 * side - 1 + rng.normal(scale=0.4, size=n_nodes), across),
    }
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), layout="constrained")
    for axis, (title, (truth, edges)) in zip(axes, columns.items(), strict=True):
        hidden = rng.random(n_nodes) < 0.5
        table = np.where(hidden, np.nan, truth)[:, None]
        result = pcfi.impute(table, edges, unreachable="nan")
        graph = pcfi.impute(table, edges, alpha=result.alpha, beta=0, objective="representation", unreachable="nan")
        shown = hidden & ~np.isnan(graph.values[:, 0])
        estimate, filled = graph.values[shown, 0], result.values[shown, 0]
        order = np.argsort(estimate)
        axis.plot(estimate, truth[shown], "o", color=BLUE, markersize=3.5, alpha=0.5, label="true value")
        axis.plot(estimate[order], filled[order], color=RED, linewidth=2.5, label="filled value")
        axis.axhline(np.nanmean(table), color=BLACK, linestyle="--", linewidth=1, label="mean of the column")
        axis.set(title=title, xlabel="the graph's estimate")
    axes[0].set_ylabel("value")
    axes[0].legend(loc="upper left", handlelength=1.2)
    save(figure, "drawn-to-the-mean.png")


def sources_of_columns() -> None:
    """What the graph alone, the other columns alone and all together explain, column by column."""
    states, borders = pcfi.datasets.load_states(missing=0.3)
    reports = pcfi.impute(states, borders).columns
    rows = np.arange(len(reports))
    figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
    parts = (
        ("graph alone", "r2_graph", ORANGE, "^"),
        ("other columns alone", "r2_columns", BLUE, "s"),
        ("together", "r2", RED, "o"),
    )
    for name, field, colour, marker in parts:
        shares = [getattr(report, field) for report in reports]
        axis.plot(rows, shares, marker, color=colour, markersize=9 if name == "together" else 7, label=name)
    axis.set_xticks(rows, [report.name for report in reports])
    axis.set(xlabel="column (year)", ylabel="share of the variance explained", ylim=(-0.05, 1.05))
    axis.legend(loc="lower left", ncols=3, bbox_to_anchor=(0, 1.0))
    save(figure, "sources-of-columns.png")


def intervals(year: str = "1999") -> None:
    """Filled cells of one column with their intervals, and the values that were removed."""
    truth = pcfi.datasets.load_states()[0]
    states, borders = pcfi.datasets.load_states(missing=0.3)
    result = pcfi.impute(states, borders)
    low, high = result.interval(0.9)
    missing = states.index[states[year].isna()]
    missing = result.values[year].loc[missing].sort_values().index
    rows = np.arange(len(missing))
    figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    ends = (end[year].loc[missing] / 1000 for end in (low, high))
    axis.hlines(rows, *ends, color=BLUE, linewidth=5, alpha=0.35)
    axis.plot(result.values[year].loc[missing] / 1000, rows, "o", color=BLUE, label="filled value, 90 % interval")
    axis.plot(truth[year].loc[missing] / 1000, rows, "D", color=RED, markersize=6, label="value that was removed")
    axis.axvline(states[year].mean() / 1000, color=BLACK, linestyle="--", linewidth=1, label="mean of the column")
    axis.set_yticks(rows, missing)
    axis.set_xlabel(f"income per person in {year}, thousand dollars")
    axis.legend(loc="upper left", ncols=3, bbox_to_anchor=(-0.25, 1.12), handletextpad=0.3, columnspacing=1.2)
    save(figure, "intervals.png")


if __name__ == "__main__":
    main()
