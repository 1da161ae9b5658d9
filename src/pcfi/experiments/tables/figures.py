"""Experiments and their records -> the paper's figures, drawn with matplotlib."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from io import BytesIO
from itertools import groupby, product
from typing import Any

from pcfi.experiments.paper import Score
from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.cells import Condition, TableCell
from pcfi.experiments.tables.experiment import Experiment
from pcfi.experiments.tables.hops import HopScores, pooled_by_hops
from pcfi.experiments.tables.text_tables import METRIC_TITLES

Figure = Any
Drawing = Callable[[Experiment, RunStore], Iterator[tuple[str, Figure]]]

# Colours that colour-blind readers can distinguish (Okabe and Ito), and markers for black-and-white print.
_STYLES = {
    "PCFI": ("#D55E00", "o"),
    "PCFI without stage 2": ("#E69F00", "s"),
    "FP, steady state": ("#003B5C", "<"),
    "FP, 40 steps": ("#0072B2", "^"),
    "FP, 100 steps": ("#56B4E9", "v"),
    "PaGNN, 2 layers": ("#009E73", "D"),
    "PaGNN, 3 layers": ("#66C2A5", "d"),
    "Label propagation": ("#CC79A7", "P"),
    "Zero": ("#777777", "X"),
    "sRMGCNN": ("#000000", "*"),
    "sRMGCNN without rescaling": ("#999999", "*"),
    "GCNMF": ("#8A6D00", "p"),
}
_MIN_NODES = 10  # over all splits; fewer nodes do not give a meaningful point


def figures(experiment: Experiment, store: RunStore) -> dict[str, bytes]:
    """Return the figures of an experiment for which there are records, as PNG by name."""
    drawing = DRAWINGS.get(experiment.name)
    return {name: _png(figure) for name, figure in drawing(experiment, store)} if drawing else {}


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
    entries: dict[str, Any] = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    columns = max(1, min(len(entries), int(figure.get_figwidth() / 2.1)))  # inches for a long label
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=columns, frameon=False)


def _style(label: str) -> dict[str, Any]:
    colour, marker = _STYLES.get(label, (None, "."))
    return {"label": label, "marker": marker, "markersize": 5, **({"color": colour} if colour else {})}


def _scores(experiment: Experiment, store: RunStore, metric: str) -> dict[tuple[Condition, str], Score]:
    scores = {(cell.condition, cell.label): cell.score(store, metric) for cell in experiment.cells}
    return {key: score for key, score in scores.items() if score is not None}


def _unique(values: Any) -> list[Any]:
    return list(dict.fromkeys(values))


def draw_rates(experiment: Experiment, store: RunStore) -> Iterator[tuple[str, Figure]]:
    """Accuracy by missing rate: the average over the data sets with all rates, and each data set and mask."""
    scores = _scores(experiment, store, "accuracy")
    if not scores:
        return
    conditions, labels = _unique(condition for condition, _ in scores), _unique(label for _, label in scores)
    one = conditions[0]
    datasets, masks = _unique(one.dataset for one in conditions), _unique(one.missing for one in conditions)
    rates = sorted({one.rate for one in conditions})

    def curve(dataset: str, missing: str, label: str) -> list[float | None]:
        at = one._replace(dataset=dataset, missing=missing)
        curve_scores = [scores.get((at._replace(rate=rate), label)) for rate in rates]
        return [None if score is None else score.mean for score in curve_scores]

    complete = [
        name for name in datasets if all(None not in curve(name, mask, label) for mask in masks for label in labels)
    ]
    if complete:
        figure, axes = _axes(1, len(masks))
        for axis, mask in zip(axes[0], masks, strict=True):
            for label in labels:
                curves = [curve(dataset, mask, label) for dataset in complete]
                _draw_rates(axis, rates, [sum(at) / len(at) for at in zip(*curves, strict=True)], label)
            axis.set(title=f"{mask} missing", xlabel="missing rate", ylabel="average accuracy (%)")
        figure.suptitle(f"Average over {', '.join(complete)}", fontsize="medium")
        _legend(figure, axes)
        yield "rates-average", figure
    figure, axes = _axes(len(datasets), len(masks), height=2.4)
    for (row, dataset), (column, mask) in product(enumerate(datasets), enumerate(masks)):
        for label in labels:
            _draw_rates(axes[row, column], rates, curve(dataset, mask, label), label)
        axes[row, column].set(title=f"{dataset}, {mask} missing", ylabel="accuracy (%)")
    for axis in axes[-1]:
        axis.set_xlabel("missing rate")
    _legend(figure, axes)
    yield "rates-by-setting", figure


def _draw_rates(axis: Any, rates: Sequence[float], values: Sequence[float | None], label: str) -> None:
    points = [(position, value) for position, value in enumerate(values) if value is not None]
    axis.plot(*zip(*points, strict=True), **_style(label)) if points else None
    axis.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])


def draw_heatmaps(experiment: Experiment, store: RunStore) -> Iterator[tuple[str, Figure]]:
    """The metrics by alpha and beta: one figure per condition, one panel per metric, a square around the best."""
    cells = [cell for cell in experiment.cells if cell.grid_point]
    for condition, group in groupby(cells, key=lambda cell: cell.condition):
        part = list(group)
        metrics = [name for name in part[0].metrics if any(cell.score(store, name) for cell in part)]
        if metrics:
            figure, axes = _axes(1, len(metrics), width=5.6, height=4.2)
            for axis, metric in zip(axes[0], metrics, strict=True):
                _draw_heatmap(figure, axis, part, metric, store)
            figure.suptitle(str(condition), fontsize="medium")
            yield f"heatmap-{condition.task}-{condition.dataset}-{condition.missing}", figure


def _draw_heatmap(figure: Figure, axis: Any, cells: list[TableCell], metric: str, store: RunStore) -> None:
    alphas = sorted({cell.grid_point["alpha"] for cell in cells})
    betas = sorted({cell.grid_point["beta"] for cell in cells})
    values = [[math.nan] * len(betas) for _ in alphas]
    best = (-math.inf, 0, 0)
    for cell in cells:
        row, column = alphas.index(cell.grid_point["alpha"]), betas.index(cell.grid_point["beta"])
        if score := cell.score(store, metric):
            values[row][column] = score.mean
            best = max(best, (score.mean, row, column))
    image = axis.imshow(values, origin="lower", aspect="auto", cmap="viridis")
    axis.grid(visible=False)
    axis.plot(best[2], best[1], marker="s", markersize=14, fillstyle="none", color="white", markeredgewidth=2)
    axis.set_xticks(range(len(betas)), [f"{math.log10(beta):g}" if beta else "-inf" for beta in betas])
    axis.set_yticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axis.set(xlabel="log10 of beta", ylabel="alpha", title=f"{METRIC_TITLES[metric]} (%), best {best[0]:.2f}")
    figure.colorbar(image, ax=axis)


def draw_accuracy_by_hops(experiment: Experiment, store: RunStore) -> Iterator[tuple[str, Figure]]:
    """Accuracy of the test nodes by hops to the nearest source."""
    yield from _draw_by_hops(
        experiment, store, lambda scores: scores.accuracy if scores.tested >= _MIN_NODES else None, "accuracy (%)"
    )


def draw_cosine_by_hops(experiment: Experiment, store: RunStore) -> Iterator[tuple[str, Figure]]:
    """Cosine similarity of original and filled features by hops to the nearest source."""
    yield from _draw_by_hops(
        experiment, store, lambda scores: scores.cosine if scores.nodes >= _MIN_NODES else None, "cosine similarity"
    )


def _draw_by_hops(
    experiment: Experiment, store: RunStore, value: Callable[[HopScores], float | None], title: str
) -> Iterator[tuple[str, Figure]]:
    curves: dict[Condition, dict[str, list[tuple[int, float]]]] = {}
    for cell in experiment.cells:
        pooled = pooled_by_hops(cell.records(store))
        points = [(scores.hops, y) for scores in pooled if (y := value(scores)) is not None]
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
    yield experiment.name, figure


def draw_homophily(experiment: Experiment, store: RunStore) -> Iterator[tuple[str, Figure]]:
    """Accuracy on the synthetic graphs by the negative logarithm of the Dirichlet energy of their features."""
    scores = _scores(experiment, store, "accuracy")
    homophilies = sorted({_homophily(condition.dataset) for condition, _ in scores})
    if not homophilies:
        return
    figure, axes = _axes(1, len(homophilies))
    for axis, homophily in zip(axes[0], homophilies, strict=True):
        for label in _unique(label for _, label in scores):
            points = sorted(
                (_feature_homophily(condition.dataset), score.mean, score.std or 0.0)
                for (condition, scored_label), score in scores.items()
                if scored_label == label and _homophily(condition.dataset) == homophily
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
    from pcfi.experiments.data.loading import load
    from pcfi.experiments.data.synthetic import dirichlet_energy

    data = load(dataset)
    return -math.log(dirichlet_energy(data.features, data.edges))


def draw_cost(experiment: Experiment, store: RunStore) -> Iterator[tuple[str, Figure]]:
    """Total time of imputation and training, fastest at the top."""
    times: dict[Condition, list[tuple[float, float, str]]] = {}
    for cell in experiment.cells:
        parts = [cell.score(store, metric) for metric in experiment.metrics or ()]
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
        texts = [f" {total:.3g} s, imputation {part:.3g} s" for total, part, _ in rows]
        axis.bar_label(bars, texts, fontsize="small")
        axis.set(title=str(condition), xlabel="seconds per split", xscale="log", xlim=(None, max(totals) * 100))
    yield "cost", figure


DRAWINGS: dict[str, Drawing] = {
    "rates": draw_rates,
    "hops-accuracy": draw_accuracy_by_hops,
    "hops-cosine": draw_cosine_by_hops,
    "heatmap": draw_heatmaps,
    "homophily": draw_homophily,
    "cost": draw_cost,
}
