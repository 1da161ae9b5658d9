"""Plans and their records -> the paper's figures, drawn by matplotlib."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from io import BytesIO
from itertools import groupby
from typing import Any

from pcfi.experiments.cells import Cell, Condition, Summary, chosen, summary
from pcfi.experiments.distances import AtHops, by_hops
from pcfi.experiments.plans import Plan
from pcfi.experiments.store import Store
from pcfi.experiments.tables import METRIC_TITLES

Figure = Any
Drawing = Callable[[Plan, Store], Iterator[tuple[str, Figure]]]

# Colours that the colour-blind tell apart (Okabe and Ito), with a marker each so that print does as well.
_STYLES = {
    "PCFI": ("#D55E00", "o"),
    "PCFI without sharing": ("#E69F00", "s"),
    "FP": ("#0072B2", "^"),
    "FP, 40 steps": ("#0072B2", "^"),
    "FP, 100 steps": ("#56B4E9", "v"),
    "PaGNN": ("#009E73", "D"),
    "Label propagation": ("#CC79A7", "P"),
    "Zero": ("#777777", "X"),
    "sRMGCNN": ("#000000", "*"),
    "GCNMF": ("#8A6D00", "p"),
}
_SMALLEST_GROUP = 10  # nodes over all splits; a point of fewer would mean nothing


def figures(plan: Plan, store: Store) -> dict[str, bytes]:
    """The figures of a plan for which there are results, by name, as PNG."""
    drawing = DRAWINGS.get(plan.name)
    return {name: _png(figure) for name, figure in drawing(plan, store)} if drawing else {}


def _png(figure: Figure) -> bytes:
    import matplotlib.pyplot as plt

    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    plt.close(figure)
    return buffer.getvalue()


def _axes(rows: int, columns: int, *, width: float = 4.2, height: float = 3.2) -> tuple[Figure, Any]:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
        axis.set_axisbelow(True)
    return figure, axes


def _legend(figure: Figure, axes: Any) -> None:
    found: dict[str, Any] = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=min(len(found), 6), frameon=False)


def _style(label: str) -> dict[str, Any]:
    colour, marker = _STYLES.get(label, (None, "."))
    return {"label": label, "marker": marker, "markersize": 5, **({"color": colour} if colour else {})}


def _results(plan: Plan, store: Store, metric: str) -> dict[tuple[Condition, str], Summary]:
    found = {(cell.condition, cell.label): summary(chosen(cell, store), metric) for cell in plan.cells}
    return {place: one for place, one in found.items() if one is not None}


def _in_order(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))


def draw_rates(plan: Plan, store: Store) -> Iterator[tuple[str, Figure]]:
    """Accuracy against the missing rate: averaged over the data sets that are complete, and per setting."""
    found = _results(plan, store, "accuracy")
    if not found:
        return
    kinds, labels = _in_order(place.missing for place, _ in found), _in_order(label for _, label in found)
    datasets, rates = _in_order(place.dataset for place, _ in found), sorted({place.rate for place, _ in found})

    def curve(dataset: str, missing: str, label: str) -> list[float | None]:
        cells = [found.get((Condition("classification", dataset, missing, rate), label)) for rate in rates]
        return [None if one is None else one.mean for one in cells]

    complete = [
        name for name in datasets if all(None not in curve(name, kind, label) for kind in kinds for label in labels)
    ]
    if complete:
        figure, axes = _axes(1, len(kinds))
        for axis, kind in zip(axes[0], kinds, strict=True):
            for label in labels:
                curves = [curve(dataset, kind, label) for dataset in complete]
                _draw_rates(axis, rates, [sum(at) / len(at) for at in zip(*curves, strict=True)], label)
            axis.set(title=f"{kind} missing", xlabel="missing rate", ylabel="average accuracy (%)")
        figure.suptitle(f"Average over {', '.join(complete)}", fontsize="medium")
        _legend(figure, axes)
        yield "rates-average", figure
    figure, axes = _axes(len(datasets), len(kinds), height=2.4)
    for (row, dataset), (column, kind) in ((a, b) for a in enumerate(datasets) for b in enumerate(kinds)):
        for label in labels:
            _draw_rates(axes[row, column], rates, curve(dataset, kind, label), label)
        axes[row, column].set(title=f"{dataset}, {kind} missing", ylabel="accuracy (%)")
    for axis in axes[-1]:
        axis.set_xlabel("missing rate")
    _legend(figure, axes)
    yield "rates-by-setting", figure


def _draw_rates(axis: Any, rates: Sequence[float], values: Sequence[float | None], label: str) -> None:
    points = [(place, value) for place, value in enumerate(values) if value is not None]
    axis.plot(*zip(*points, strict=True), **_style(label)) if points else None
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])


def draw_heatmaps(plan: Plan, store: Store) -> Iterator[tuple[str, Figure]]:
    """The metric by alpha and beta, one panel per metric, one figure per setting; the best is framed."""
    cells = [cell for cell in plan.cells if cell.axis]
    for condition, group in groupby(cells, key=lambda cell: cell.condition):
        part = list(group)
        metrics = [name for name in part[0].metrics if any(summary(chosen(cell, store), name) for cell in part)]
        if metrics:
            figure, axes = _axes(1, len(metrics), width=5.6, height=4.2)
            for axis, metric in zip(axes[0], metrics, strict=True):
                _draw_heatmap(figure, axis, part, metric, store)
            figure.suptitle(str(condition), fontsize="medium")
            yield f"heatmap-{condition.task}-{condition.dataset}-{condition.missing}", figure


def _draw_heatmap(figure: Figure, axis: Any, cells: list[Cell], metric: str, store: Store) -> None:
    alphas = sorted({cell.axis["alpha"] for cell in cells})
    betas = sorted({cell.axis["beta"] for cell in cells})
    values = [[math.nan] * len(betas) for _ in alphas]
    best = (-math.inf, 0, 0)
    for cell in cells:
        row, column = alphas.index(cell.axis["alpha"]), betas.index(cell.axis["beta"])
        if found := summary(chosen(cell, store), metric):
            values[row][column] = found.mean
            best = max(best, (found.mean, row, column))
    image = axis.imshow(values, origin="lower", aspect="auto", cmap="viridis")
    axis.grid(visible=False)
    axis.plot(best[2], best[1], marker="s", markersize=14, fillstyle="none", color="white", markeredgewidth=2)
    axis.set_xticks(range(len(betas)), [f"{math.log10(beta):g}" if beta else "-inf" for beta in betas])
    axis.set_yticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axis.set(xlabel="log10 of beta", ylabel="alpha", title=f"{METRIC_TITLES[metric]} (%), best {best[0]:.2f}")
    figure.colorbar(image, ax=axis)


def draw_accuracy_by_hops(plan: Plan, store: Store) -> Iterator[tuple[str, Figure]]:
    """Accuracy of test nodes against their hops to the nearest source."""
    yield from _draw_by_hops(
        plan, store, lambda at: at.accuracy if at.tested >= _SMALLEST_GROUP else None, "accuracy (%)"
    )


def draw_cosine_by_hops(plan: Plan, store: Store) -> Iterator[tuple[str, Figure]]:
    """Cosine similarity of original and filled features against hops."""
    yield from _draw_by_hops(
        plan, store, lambda at: at.cosine if at.nodes >= _SMALLEST_GROUP else None, "cosine similarity"
    )


def _draw_by_hops(
    plan: Plan, store: Store, value: Callable[[AtHops], float | None], title: str
) -> Iterator[tuple[str, Figure]]:
    curves: dict[Condition, dict[str, list[tuple[int, float]]]] = {}
    for cell in plan.cells:
        points = [(at.hops, found) for at in by_hops(chosen(cell, store)) if (found := value(at)) is not None]
        if points:
            curves.setdefault(cell.condition, {})[cell.label] = points
    if not curves:
        return
    figure, axes = _axes(1, len(curves))
    for axis, (condition, lines) in zip(axes[0], curves.items(), strict=True):
        for label, points in lines.items():
            axis.plot(*zip(*points, strict=True), **_style(label))
        axis.set(title=str(condition), xlabel="hops to the nearest source", ylabel=title)
        axis.xaxis.get_major_locator().set_params(integer=True)
    _legend(figure, axes)
    yield plan.name, figure


def draw_homophily(plan: Plan, store: Store) -> Iterator[tuple[str, Figure]]:
    """Accuracy on the synthetic graphs against -log of the Dirichlet energy of their features."""
    found = _results(plan, store, "accuracy")
    homophilies = sorted({_homophily(condition.dataset) for condition, _ in found})
    if not homophilies:
        return
    figure, axes = _axes(1, len(homophilies))
    for axis, homophily in zip(axes[0], homophilies, strict=True):
        for label in _in_order(label for _, label in found):
            points = sorted(
                (_feature_homophily(condition.dataset), one.mean, one.std or 0.0)
                for (condition, of), one in found.items()
                if of == label and _homophily(condition.dataset) == homophily
            )
            if points:
                x, y, error = zip(*points, strict=True)
                axis.errorbar(x, y, yerr=error, capsize=2, **_style(label))
        axis.set(title=f"class homophily {homophily}", ylabel="accuracy (%)")
        axis.set_xlabel("-log of the Dirichlet energy (right: more homophily)")
    _legend(figure, axes)
    yield "homophily", figure


def _homophily(dataset: str) -> str:
    from pcfi.experiments.catalog import SYNTHETIC

    match = SYNTHETIC.fullmatch(dataset)
    return match["homophily"] if match else dataset


@cache
def _feature_homophily(dataset: str) -> float:
    from pcfi.experiments.datasets import load
    from pcfi.experiments.synthetic import dirichlet_energy

    data = load(dataset)
    return -math.log(dirichlet_energy(data.features, data.edges))


def draw_cost(plan: Plan, store: Store) -> Iterator[tuple[str, Figure]]:
    """Time of imputation and training together, fastest at the top."""
    times: dict[Condition, list[tuple[float, float, str]]] = {}
    for cell in plan.cells:
        parts = [summary(chosen(cell, store), metric) for metric in plan.metrics or ()]
        if any(parts):
            imputing, training = (0.0 if part is None else part.mean for part in parts)
            times.setdefault(cell.condition, []).append((imputing + training, imputing, cell.label))
    if not times:
        return
    figure, axes = _axes(1, len(times), width=6.4, height=1 + 0.36 * max(map(len, times.values())))
    for axis, (condition, rows) in zip(axes[0], times.items(), strict=True):
        rows.sort(reverse=True)
        totals = [total for total, _, _ in rows]
        bars = axis.barh([label for _, _, label in rows], totals, color="#0072B2")
        texts = [f" {total:.3g} s, imputation {part:.2g} s" for total, part, _ in rows]
        axis.bar_label(bars, texts, fontsize="small")
        axis.set(title=str(condition), xlabel="seconds per split", xscale="log", xlim=(None, max(totals) * 20))
    yield "cost", figure


DRAWINGS: dict[str, Drawing] = {
    "rates": draw_rates,
    "hops-accuracy": draw_accuracy_by_hops,
    "hops-cosine": draw_cosine_by_hops,
    "heatmap": draw_heatmaps,
    "homophily": draw_homophily,
    "cost": draw_cost,
}
