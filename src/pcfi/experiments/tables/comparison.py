"""Tables across experiments: our draws, the published draws and the paper; paired differences; resistance."""

from collections.abc import Iterable, Iterator

from pcfi.experiments.paper import Score
from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.cells import TableCell, mean_score, score_of
from pcfi.experiments.tables.experiment import Experiment
from pcfi.experiments.tables.text_tables import EMPTY, METRIC_TITLES, TextTable, format_z, mean_and_error

CellPair = tuple[TableCell, TableCell]


def comparison_table(title: str, pairs: Iterable[CellPair], store: RunStore) -> TextTable:
    """Return one row per cell and metric: our draws, the published draws, the paper, and their z-scores."""
    rows = []
    for own, published in pairs:
        for metric in own.metrics:
            scores, paper = [cell.score(store, metric) for cell in (own, published)], own.paper.get(metric)
            row_head = (own.condition.dataset, own.condition.missing, METRIC_TITLES[metric])
            texts = [mean_and_error(score) for score in scores]
            z_scores = [format_z(score, paper) for score in scores]
            rows.append((*row_head, *texts, _printed(paper), *z_scores))
    columns = ("our draws", "published draws", "paper", "z, our draws", "z, published")
    return TextTable(title, ("data set", "missing", "metric", *columns), tuple(rows), 3)


def paired_table(title: str, pairs: Iterable[tuple[CellPair, CellPair]], store: RunStore) -> TextTable:
    """Return one row per condition and metric: the difference of two systems on the same splits, and the paper's."""
    rows = []
    for (own, published), (other_own, other_published) in pairs:
        for metric in own.metrics:
            texts = [
                mean_and_error(paired_difference(cell, other, store, metric))
                for cell, other in ((own, other_own), (published, other_published))
            ]
            papers = [cell.paper.get(metric) for cell in (own, other_own)]
            printed = [score.mean for score in papers if isinstance(score, Score)]
            paper = f"{printed[0] - printed[1]:.2f}" if len(printed) == 2 else EMPTY
            rows.append((own.condition.dataset, own.condition.missing, METRIC_TITLES[metric], *texts, paper))
    return TextTable(title, ("data set", "missing", "metric", "our draws", "published draws", "paper"), tuple(rows), 3)


def paired_difference(cell: TableCell, other: TableCell, store: RunStore, metric: str) -> Score | None:
    """Return the mean difference of two cells over the splits that both have done."""
    values = [
        {record.run.seed: record.metrics[metric] for record in one.records(store) if record.done}
        for one in (cell, other)
    ]
    return score_of([values[0][seed] - values[1][seed] for seed in values[0] if seed in values[1]])


def system_pairs(own: Experiment, published: Experiment, label: str) -> Iterator[CellPair]:
    """Yield the cells of a row of two experiments that differ in their draws only."""
    by_condition = {cell.condition._replace(draw="own"): cell for cell in published.cells if cell.label == label}
    for cell in own.cells:
        if cell.label == label:
            yield cell, by_condition[cell.condition]


def resistance_table(experiment: Experiment, store: RunStore) -> TextTable:
    """Return, per mask and rate, the average over the data sets and its change from rate 0, ours and the paper's."""
    rates = sorted({cell.condition.rate for cell in experiment.cells})
    rows = []
    for missing in dict.fromkeys(cell.condition.missing for cell in experiment.cells):
        cells = {
            rate: [one for one in experiment.cells if (one.condition.missing, one.condition.rate) == (missing, rate)]
            for rate in rates
        }
        ours = [_average([mean_score(one.records(store), "accuracy") for one in cells[rate]]) for rate in rates]
        paper = [_average([one.paper.get("accuracy") for one in cells[rate]]) for rate in rates]
        texts = [
            f"{_with_drop(mean, ours[0])} ({_with_drop(printed, paper[0])})"
            for mean, printed in zip(ours, paper, strict=True)
        ]
        rows.append((missing, *texts))
    n_datasets = len({cell.condition.dataset for cell in experiment.cells})
    title = f"average over {n_datasets} data sets, change from rate 0 in points; in brackets the paper's"
    return TextTable(title, ("missing", *(f"{rate:g}" for rate in rates)), tuple(rows), 1)


def _average(scores: list[Score | str | None]) -> float | None:
    means = [score.mean for score in scores if isinstance(score, Score)]
    return sum(means) / len(means) if means and len(means) == len(scores) else None


def _with_drop(mean: float | None, full: float | None) -> str:
    if mean is None:
        return EMPTY
    return f"{mean:.2f}" if full is None or mean == full else f"{mean:.2f}, {mean - full:+.2f}"


def _printed(paper: Score | str | None) -> str:
    if isinstance(paper, Score):
        return f"{paper.mean:.2f} ± {paper.standard_error:.2f}"
    return paper or EMPTY
