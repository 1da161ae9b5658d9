"""The results of the benchmarks -> docs/benchmarks.md, one table per question."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "benchmarks.md"
SCALE = DOCS / "scale.md"
README = DOCS.parent / "README.md"
SCALE_QUESTIONS = ("edges", "budget", "workers", "cost")
BEGIN, END = "<!-- measured: written by benchmarks/tables.py -->\n", "<!-- end -->\n"

INTRODUCTION = """# Benchmarks

This page is made by `make bench` from `benchmarks/results/*.json`; do not edit it. Each script answers one question.
It first checks that the candidates give equal results, then times them alternately in one run and takes the best of
the repeats. A ratio above 1 means that the first candidate is faster. Machine: {cores} cores ({processor}),
{threads} threads, Python {python}, numpy {numpy}, numba {numba}, torch {torch}.
"""

QUESTIONS = {
    "default_call": "How long does `pcfi.impute(features, graph)` take, against given parameters and against PyG's "
    "`FeaturePropagation`?",
    "files": "`pcfi impute` on files: 1 M nodes with string ids, 32 channels, 10 M edges, stage by stage",
    "against_pyg": "How much faster than PyG's `FeaturePropagation`, which diffuses without confidence weights?",
    "against_pseudocode": "How much faster than the paper's pseudo-code?",
    "settled_against_fixed": "What does the steady state cost compared with 100 steps, and how far are these from it?",
    "large_graphs": "Large graphs: time and memory",
    "growth": "Do time and memory grow linearly?",
    "limit": "How close is diffusion to the memory bandwidth, and where does a call spend its time?",
    "node_order": "Does renumbering the nodes pay on graphs larger than the cache?",
    "lanes": "Would blocks finish sooner if channels that need similar numbers of steps shared a block?",
    "deflation": "How many steps would a coarse space save in the preconditioner of the steady state?",
    "hops": "How fast is counting the hops of many patterns?",
    "vector_kernels": "How much faster are kernels on vector registers than the same loops in plain numba? (one block "
    "of 16 channels, one thread)",
    "ids": "Which hash table maps 20 M string ids of edges to the rows of 1 M nodes fastest, and in how much memory?",
    "first_call": "How long does the first call take?",
    "training": "How much faster is the training of the common GCN than the same loop on PyG's `GCNConv` layers?",
    "arxiv": "`pcfi reproduce` on generated files of the size and format of OGBN-Arxiv (accuracy means nothing; "
    "training stops early)",
    "tabular": "Tables without a graph: error on hidden cells and time, next to scikit-learn's imputers",
    "tabular_held_out": "Tables without a graph that were not used to choose the defaults: error on hidden cells",
    "neighbor_search": "Tables without a graph: which search for similar rows is fastest?",
    "scale_edges": "Larger than memory: how fast is building a mapped graph from an edge file?",
    "scale_budget": "Larger than memory: time within a budget of memory, and is the budget kept?",
    "scale_workers": "Larger than memory: how much faster are two single-threaded workers than one?",
    "scale_draws": "Larger than memory: what do draws cost, with one pattern of missing cells per channel?",
    "scale_cost": "Larger than memory: how accurate are the estimates on sizes that they were not fitted to?",
    "partitioned": "A graph divided among four workers: bytes sent, by the cost model and measured; time and memory",
    "partitioned_model": "The cost model for OGBN-papers100M: diffusion with a graph in each worker, and divided",
    "sample_size": "Large tables: how do the model and its errors move with the size of the sample it is fitted to?",
    "values": "Values of tables: how far from the truth (in standard deviations), and do 90 % intervals cover it?",
    "values_ablation": "Which parts of the value model pay, and how much does each constant matter? (error relative to "
    "the model as it is, 40 cases of five small tables)",
    "maps": "Maps: how far from the truth (in standard deviations), and do 90 % intervals cover it?",
    "map_sizes": "Maps: time and memory of many points",
    "map_memory": "Maps: one million points on the command line within a budget of memory",
    "panel": "Panels: mean absolute error on removed readings, and what 90 % intervals cover in each kind of gap",
    "mixed_columns": "Does a column that follows the graph suffer from columns beside it that do not? (1,500 nodes, "
    "30 % of the cells missing)",
    "degrees": "Do values grow with the degree, and what is gained by dividing them by a power of it? (RMSE, 90 % of "
    "the nodes missing, alpha 0.9, what is kept at each number of hops fits the truth best)",
    "position": "Representation: label-free inputs of a GCN at 99.5 % missing, scores (%), also less "
    "those of the filled features alone on the same splits",
    "position_cost": "Position channels of large graphs: time, and memory taken and announced",
    "representation": "Representation: accuracy of a GCN with what `auto` chooses, against the paper's parameters",
}


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(rows: list[dict[str, Any]]) -> str:
    rows = [{key: value for key, value in row.items() if not isinstance(value, dict)} for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(shown(row.get(name, "")) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def scale_table(results: dict[str, Any]) -> str:
    """The targets of `pcfi.scale`, and what was measured."""
    edges, budget, workers, cost = (results[f"scale_{name}"]["rows"] for name in SCALE_QUESTIONS)
    one, two, three = edges[0], budget[0], workers[0]
    size = f"{two['nodes'] / 1e6:g} M nodes, {two['edges'] / 1e6:g} M edges, {two['channels']} channels"
    ratios = " and ".join(f"{row['ratio']:.2f}" for row in cost)
    rows = [
        {
            "what": f"an edge file of {one['edges'] / 1e6:g} M edges to a mapped graph",
            "target": "5 M edges a second, within 2 GB",
            "measured": f"{one['edges per second'] / 1e6:.1f} M a second, {one['private memory, MB'] / 1e3:.2f} GB",
        },
        {
            "what": f"time within a budget against `pcfi.impute` ({size})",
            "target": "at most 1.6 times",
            "measured": f"{two['ratio']:.2f} times "
            f"({two['seconds']:.0f} s against {two['seconds of pcfi.impute']:.0f} s)",
        },
        {
            "what": f"private memory of that run, with a budget of {two['budget, MB'] / 1e3:g} GB",
            "target": "never above",
            "measured": f"{two['private memory, MB'] / 1e3:.2f} GB "
            f"({two['private memory of pcfi.impute, MB'] / 1e3:.2f} GB for `pcfi.impute`)",
        },
        {
            "what": f"two single-threaded workers against one, {three['nodes'] / 1e6:g} M nodes",
            "target": "1.7 times as fast",
            "measured": f"{three['ratio']:.2f} times; on this machine "
            + " and ".join(
                f"{name.removeprefix('ratio of ')} gets {value:.2f}"
                for name, value in three.items()
                if name.startswith("ratio of ")
            ),
        },
        {
            "what": "estimated time against measured, on sizes not fitted to",
            "target": "",
            "measured": f"{ratios} times",
        },
    ]
    return table(rows)


REAL_TABLES = {
    "us_income": "incomes of 48 US states",
    "columbus": "49 districts of Columbus",
    "mexico": "incomes of 32 Mexican states",
}
REMOVED = {("cells", 0.3): "30 % of the cells", ("rows", 0.3): "30 % of the rows"}
IMPUTERS = {"mean": "mean", "KNNImputer": "KNN", "IterativeImputer": "iterative", "FP": "FP", "pcfi": "pcfi"}


def readme_table(results: dict[str, Any]) -> str:
    """Errors on the real tables whose graph was not made from the removed values; the smallest of a row is bold."""
    rows = []
    for row in results["values"]["rows"]:
        removed = REMOVED.get((row["missing"], row["rate"]))
        if row["table"] in REAL_TABLES and removed:
            least = min(row[name] for name in IMPUTERS)
            errors = {title: f"{row[name]:.2f}" for name, title in IMPUTERS.items()}
            bold = {title: f"**{text}**" if text == f"{least:.2f}" else text for title, text in errors.items()}
            rows.append({"table": REAL_TABLES[row["table"]], "removed": removed, **bold})
            rows[-1]["in the 90 % interval"] = f"{row['coverage']:.0%}"
    return table(rows)


def map_table(rows: list[dict[str, Any]]) -> str:
    """Errors relative to the best rival of each case, by table."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_table.setdefault(row["table"], []).append(row)
    return table(
        [
            {
                "table": name,
                "cases": len(part),
                "error over that of the best rival, mean": f"{sum(r['pcfi over best'] for r in part) / len(part):.3f}",
                "worst": f"{max(r['pcfi over best'] for r in part):.3f}",
                "90 % intervals cover": f"{sum(r['coverage'] for r in part) / len(part):.1%}",
            }
            for name, part in by_table.items()
        ]
    )


def panel_table(rows: list[dict[str, Any]]) -> str:
    rivals = ("panel", "linear", "last value", "neighbour mean", "both")
    names = (*rivals, "pcfi, one call per column", "pcfi", "pcfi over best")
    return table([{name: row.get(name, row["pcfi"]) for name in names} for row in rows if "linear" in row])


PARTITIONED_COLUMNS = {
    "nodes": "nodes",
    "edges": "edges",
    "channels": "channels",
    "steps": "steps",
    "exchanges of a panel": "exchanges of a panel",
    "rows of halos per node": "rows of halos per node",
    "GB in all, model": "GB sent, model",
    "GB in all, measured": "GB sent, measured",
    "seconds": "seconds",
    "seconds with the complete graph in each worker": "seconds, graph in each worker",
    "largest difference": "largest difference",
    "workers": "workers",
    "graph": "graph",
    "panels at a time": "panels at a time",
    "GB of memory per worker": "GB per worker",
    "GB exchanged per step": "GB sent per step",
    "minutes of arithmetic": "minutes: arithmetic",
    "minutes of exchange": "exchange",
    "minutes of Dask": "Dask",
    "minutes of diffusion": "in all",
}


def partitioned_table(rows: list[dict[str, Any]]) -> str:
    """The figures of graphs divided among workers that the page on them shows."""
    return table([{title: row[name] for name, title in PARTITIONED_COLUMNS.items() if name in row} for row in rows])


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two markers of a page."""
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}")


def main() -> None:
    results = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    machine = next(iter(results.values()))["machine"]
    parts = [INTRODUCTION.format(**machine, **machine["versions"])]
    parts += [f"## {QUESTIONS[name]}\n\n{table(results[name]['rows'])}\n" for name in QUESTIONS if name in results]
    PAGE.write_text("\n".join(parts))
    if {f"scale_{name}" for name in SCALE_QUESTIONS} <= set(results):
        write_between(SCALE, BEGIN, END, scale_table(results))
    write_between(README, BEGIN, END, readme_table(results))
    for name in ("partitioned", "partitioned_model"):
        if name in results:
            text = partitioned_table(results[name]["rows"])
            write_between(DOCS / "partitioned.md", f"<!-- {name} -->\n", f"<!-- /{name} -->\n", text)
    for name, summary in (("maps", map_table), ("panel", panel_table)):
        if name in results:
            page = DOCS / "howto" / f"{name}.md"
            write_between(page, f"<!-- {name} -->\n", f"<!-- /{name} -->\n", summary(results[name]["rows"]))


if __name__ == "__main__":
    main()
