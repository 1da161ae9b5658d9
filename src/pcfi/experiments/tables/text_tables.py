"""Experiments and their records -> tables in Markdown, LaTeX and HTML."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcfi.experiments.paper import PaperScore, Score, z_score
from pcfi.experiments.runs.store import RunStore
from pcfi.experiments.tables.cells import TableCell, count_failures, mean_score
from pcfi.experiments.tables.experiment import Experiment
from pcfi.experiments.tables.hops import pooled_by_hops

EMPTY = "-"
SELECTED_PARAMETERS = "Parameters chosen on validation"
WIDE_CELLS = "ours ± standard error [splits] (paper)"
METRIC_TITLES = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "ap": "AP",
    "imputing_seconds": "imputation (s)",
    "training_seconds": "training (s)",
}
_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$"}


@dataclass(frozen=True)
class TextTable:
    """Rows and text columns; the first `text_columns` columns are aligned left, the others right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 0

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown, without its title."""
        align = ["---" if column < self.text_columns else "---:" for column in range(len(self.head))]
        lines = [self.head, align, *self.rows]
        return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)

    def latex(self) -> str:
        """Return a `tabular` with booktabs rules, and the title as its caption."""
        columns = "l" * self.text_columns + "r" * (len(self.head) - self.text_columns)
        head, *body = [" & ".join(map(_latex, line)) + r" \\" for line in (self.head, *self.rows)]
        return "\n".join(
            [
                r"\begin{table}",
                rf"\caption{{{_latex(self.title)}}}",
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                head,
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def html(self) -> str:
        """Return a `table` element with its caption, escaped."""
        from html import escape

        def line(cells: Sequence[str], tag: str) -> str:
            classes = ["" if column < self.text_columns else ' class="number"' for column in range(len(cells))]
            return "".join(f"<{tag}{name}>{escape(cell)}</{tag}>" for cell, name in zip(cells, classes, strict=True))

        body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in self.rows)
        head = f"<caption>{escape(self.title)}</caption>\n<thead><tr>{line(self.head, 'th')}</tr></thead>"
        return f"<table>\n{head}\n<tbody>\n{body}\n</tbody>\n</table>\n"


def full_table(experiment: Experiment, store: RunStore) -> TextTable:
    """Return one row per cell and metric: condition, system, ours, paper, difference, z-score, number of splits.

    Scores are means and standard deviations. Cells without any record are left out.
    """
    with_rates = len({cell.condition.rate for cell in experiment.cells}) > 1
    rows = [
        (*_row_head(cell, metric, with_rates), *_row_scores(cell, metric, store))
        for cell in experiment.cells
        if cell.records(store) or cell.unfinished_search(store)
        for metric in experiment.metrics or cell.metrics
    ]
    head = ("data set", "missing", *(["rate"] if with_rates else []), "system", "metric")
    return TextTable(experiment.title, (*head, "ours", "paper", "difference", "z", "splits"), tuple(rows), len(head))


def wide_tables(experiment: Experiment, store: RunStore) -> list[TextTable]:
    """Return, per mask and metric: a row per system, a column per data set or rate, cells like `WIDE_CELLS`.

    A last column holds the average over the data sets, for systems (and papers) with a number for each of them; a star
    marks an average over data sets with different numbers of splits.
    """
    groups = dict.fromkeys(
        (cell.condition.task, cell.condition.missing, metric)
        for cell in experiment.cells
        for metric in experiment.metrics or cell.metrics
    )
    tables = []
    for task, missing, metric in groups:
        cells = [cell for cell in experiment.cells if (cell.condition.task, cell.condition.missing) == (task, missing)]
        by_rate = len({cell.condition.rate for cell in cells}) > 1
        for dataset in dict.fromkeys(cell.condition.dataset for cell in cells) if by_rate else [None]:
            part = [cell for cell in cells if dataset in (None, cell.condition.dataset)]
            title = ", ".join(filter(None, [dataset, f"{missing} missing", METRIC_TITLES.get(metric, metric)]))
            table = _wide_table(title, part, metric, store, by_rate=by_rate)
            if table.rows:
                tables.append(table)
    return tables


def hops_tables(experiment: Experiment, store: RunStore, measure: str) -> list[TextTable]:
    """Return, per condition: a row per system, a column per number of hops; `measure` is "accuracy" or "cosine"."""
    tables = []
    for condition in dict.fromkeys(cell.condition for cell in experiment.cells):
        records = {cell.label: cell.records(store) for cell in experiment.cells if cell.condition == condition}
        values_by_label = {
            label: {scores.hops: getattr(scores, measure) for scores in pooled_by_hops(one)}
            for label, one in records.items()
        }
        columns = sorted(set().union(*values_by_label.values()))
        rows = [
            (
                label,
                *(EMPTY if (value := values.get(hops)) is None else f"{value:.3g}" for hops in columns),
                str(sum(record.done for record in records[label])),
            )
            for label, values in values_by_label.items()
            if values
        ]
        if rows:
            head = ("system", *map(str, columns), "splits")
            tables.append(TextTable(f"{condition}: {measure} by hops", head, tuple(rows), 1))
    return tables


def heatmap_tables(experiment: Experiment, store: RunStore) -> list[TextTable]:
    """Return, per condition and metric: a row per alpha, a column per beta."""
    tables = []
    cells = [cell for cell in experiment.cells if cell.grid_point]
    for condition in dict.fromkeys(cell.condition for cell in cells):
        part = [cell for cell in cells if cell.condition == condition]
        betas = sorted({cell.grid_point["beta"] for cell in part})
        for metric in part[0].metrics:
            scores = {
                (cell.grid_point["alpha"], cell.grid_point["beta"]): score
                for cell in part
                if (score := cell.score(store, metric))
            }
            rows = [
                (f"{alpha:g}", *(_mean(scores.get((alpha, beta))) for beta in betas))
                for alpha in sorted({alpha for alpha, _ in scores})
            ]
            if rows:
                head = ("alpha", *(f"beta {beta:.2g}" for beta in betas))
                splits = sorted({score.splits for score in scores.values()})
                numbers = f"{splits[0]}" if len(splits) == 1 else f"{splits[0]} to {splits[-1]}"
                title = f"{condition}: {METRIC_TITLES[metric]}, {numbers} splits"
                tables.append(TextTable(title, head, tuple(rows), 1))
    return tables


def selected_parameters_table(experiment: Experiment, store: RunStore) -> TextTable | None:
    """Return the parameters that are best on validation, for the cells with several candidates, if all were tried."""
    rows = []
    for cell in experiment.cells:
        n_candidates = len(cell.candidates)
        records, unfinished = cell.records(store), cell.unfinished_search(store)
        if n_candidates > 1 and (records or unfinished):
            task, dataset, missing, rate = cell.condition[:4]
            parameters = ", ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in (records[0].run.parameters if records else ())
            )
            chosen = (parameters or EMPTY, unfinished or f"all {n_candidates}", str(len(records)))
            rows.append((task, dataset, missing, f"{rate:g}", cell.label, *chosen))
    head = ("task", "data set", "missing", "rate", "system", "chosen", "tried", "splits")
    return TextTable(SELECTED_PARAMETERS, head, tuple(rows), 7) if rows else None


def _row_head(cell: TableCell, metric: str, with_rates: bool) -> tuple[str, ...]:
    rate = (f"{cell.condition.rate:g}",) if with_rates else ()
    return (cell.condition.dataset, cell.condition.missing, *rate, cell.label, METRIC_TITLES.get(metric, metric))


def _row_scores(cell: TableCell, metric: str, store: RunStore) -> tuple[str, ...]:
    paper, records = cell.paper.get(metric), cell.records(store)
    if unfinished := cell.unfinished_search(store):
        return unfinished, _mean_and_std(paper), EMPTY, EMPTY, EMPTY
    ours = mean_score(records, metric)
    difference = f"{ours.mean - paper.mean:+.2f}" if ours and isinstance(paper, Score) else EMPTY
    splits = ", ".join(filter(None, [str(ours.splits) if ours else "0", count_failures(records)]))
    return _mean_and_std(ours), _mean_and_std(paper), difference, format_z(ours, paper), splits


def _wide_table(title: str, cells: list[TableCell], metric: str, store: RunStore, *, by_rate: bool) -> TextTable:
    column: Callable[[TableCell], str] = (
        (lambda cell: f"{cell.condition.rate:g}") if by_rate else (lambda cell: cell.condition.dataset)
    )
    columns = list(dict.fromkeys(map(column, cells)))
    with_average = len(columns) > 1 and not by_rate
    rows = []
    for label in dict.fromkeys(cell.label for cell in cells):
        own = {column(cell): cell for cell in cells if cell.label == label}
        ours = [own[name].score(store, metric) if name in own else None for name in columns]
        paper = [own[name].paper.get(metric) if name in own else None for name in columns]
        texts = [_ours_and_paper(own.get(name), metric, store) for name in columns]
        if any(not text.startswith(EMPTY) for text in texts):
            rows.append((label, *texts, *([_average(ours, paper)] if with_average else [])))
    return TextTable(title, ("system", *columns, *(["average"] if with_average else [])), tuple(rows), 1)


def _ours_and_paper(cell: TableCell | None, metric: str, store: RunStore) -> str:
    if cell is None:
        return EMPTY
    records, paper = cell.records(store), cell.paper.get(metric)
    out_of_memory = records and all(record.status == "out of memory" for record in records)
    ours = mean_score(records, metric)
    text = "out of memory" if out_of_memory else cell.unfinished_search(store) or mean_and_error(ours)
    return text if paper is None else f"{text} ({_mean(paper)})"


def _average(ours: Sequence[Score | None], paper: Sequence[PaperScore | None]) -> str:
    scores = [score for score in ours if score is not None]
    paper_means = [score.mean for score in paper if isinstance(score, Score)]
    text = EMPTY
    if len(scores) == len(ours):
        errors = [score.standard_error for score in scores]
        mean = sum(score.mean for score in scores) / len(scores)
        error = "" if None in errors else f" ± {math.hypot(*(one or 0.0 for one in errors)) / len(errors):.2f}"
        text = f"{mean:.2f}{error}{'*' if len({score.splits for score in scores}) > 1 else ''}"
    return f"{text} ({sum(paper_means) / len(paper_means):.2f})" if len(paper_means) == len(paper) else text


def mean_and_error(score: Score | None) -> str:
    """Format a score as in `WIDE_CELLS`, without the paper's."""
    if score is None:
        return EMPTY
    error = "" if score.standard_error is None else f" ± {score.standard_error:.2f}"
    return f"{score.mean:.2f}{error} [{score.splits}]"


def format_z(ours: Score | None, paper: PaperScore | None) -> str:
    """Format the z-score of ours against the paper's."""
    z = z_score(ours, paper)
    return EMPTY if z is None else f"{z:+.1f}"


def _mean(score: PaperScore | Score | None) -> str:
    if isinstance(score, Score):
        return f"{score.mean:.2f}"
    return score or EMPTY


def _mean_and_std(score: PaperScore | Score | None) -> str:
    std = f" ± {score.std:.2f}" if isinstance(score, Score) and score.std is not None else ""
    return _mean(score) + std


def _latex(text: str) -> str:
    signed = re.sub(r"^([+-])(?=\d)", r"$\1$", text)
    return "".join(_LATEX.get(letter, letter) for letter in signed)
