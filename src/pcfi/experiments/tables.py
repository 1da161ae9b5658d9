"""Cells and their records -> tables in Markdown, LaTeX and HTML: ours, the paper's, the difference, the splits."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcfi.experiments.cells import Cell, Summary, chosen, summary, trouble
from pcfi.experiments.distances import by_hops
from pcfi.experiments.paper import Printed
from pcfi.experiments.plans import Plan
from pcfi.experiments.store import Record, Store

NOTHING = "-"
CHOICES = "Parameters chosen on validation"
METRIC_TITLES = {
    "accuracy": "accuracy",
    "auc": "AUC",
    "ap": "AP",
    "imputing_seconds": "imputation (s)",
    "training_seconds": "training (s)",
}
_LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$"}


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; columns from `numbers` on hold numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: int = 0

    def markdown(self) -> str:
        """The table as GitHub shows it, without its title."""
        align = ["---" if column < self.numbers else "---:" for column in range(len(self.head))]
        lines = [self.head, align, *self.rows]
        return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)

    def latex(self) -> str:
        """A `tabular` with booktabs rules, and the title as its caption."""
        columns = "l" * self.numbers + "r" * (len(self.head) - self.numbers)
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
        """A `table` element with its caption, escaped."""
        from html import escape

        def line(cells: Sequence[str], tag: str) -> str:
            kinds = ["" if column < self.numbers else ' class="number"' for column in range(len(cells))]
            return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))

        body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in self.rows)
        head = f"<caption>{escape(self.title)}</caption>\n<thead><tr>{line(self.head, 'th')}</tr></thead>"
        return f"<table>\n{head}\n<tbody>\n{body}\n</tbody>\n</table>\n"


def full_table(plan: Plan, store: Store) -> Table:
    """One row per cell and metric: where, who, ours, the paper's, the difference, the number of splits.

    Cells of which nothing was run are left out.
    """
    with_rates = len({cell.condition.rate for cell in plan.cells}) > 1
    rows = [
        (*_where(cell, metric, with_rates), *_numbers(cell, metric, records))
        for cell in plan.cells
        if (records := chosen(cell, store))
        for metric in plan.metrics or cell.metrics
    ]
    where = ("data set", "missing", *(["rate"] if with_rates else []), "system", "metric")
    return Table(plan.title, (*where, "ours", "paper", "difference", "splits"), tuple(rows), len(where))


def wide_tables(plan: Plan, store: Store) -> list[Table]:
    """Per kind of missing (and metric): a row per system, a column per data set or rate, "ours (the paper's)".

    A last column averages over the columns, where both the system and the paper have them all.
    """
    tables = []
    for task, missing, metric in _groups(plan):
        cells = [cell for cell in plan.cells if (cell.condition.task, cell.condition.missing) == (task, missing)]
        by_rate = len({cell.condition.rate for cell in cells}) > 1
        for dataset in dict.fromkeys(cell.condition.dataset for cell in cells) if by_rate else [None]:
            part = [cell for cell in cells if dataset in (None, cell.condition.dataset)]
            title = ", ".join(filter(None, [dataset, f"{missing} missing", METRIC_TITLES.get(metric, metric)]))
            table = _pivoted(title, part, metric, store, by_rate=by_rate)
            if table.rows:
                tables.append(table)
    return tables


def hops_tables(plan: Plan, store: Store, measure: str) -> list[Table]:
    """Per condition: a row per system, a column per number of hops; `measure` is "accuracy" or "cosine"."""
    tables = []
    for condition in dict.fromkeys(cell.condition for cell in plan.cells):
        cells = [cell for cell in plan.cells if cell.condition == condition]
        found = {cell.label: {at.hops: getattr(at, measure) for at in by_hops(chosen(cell, store))} for cell in cells}
        columns = sorted(set().union(*found.values()))
        rows = [
            (label, *(NOTHING if (value := values.get(hops)) is None else f"{value:.3g}" for hops in columns))
            for label, values in found.items()
            if values
        ]
        if rows:
            tables.append(Table(f"{condition}: {measure} by hops", ("system", *map(str, columns)), tuple(rows), 1))
    return tables


def heatmap_tables(plan: Plan, store: Store) -> list[Table]:
    """Per condition and metric: a row per alpha, a column per beta."""
    tables = []
    cells = [cell for cell in plan.cells if cell.axis]
    for condition in dict.fromkeys(cell.condition for cell in cells):
        own = [cell for cell in cells if cell.condition == condition]
        betas = sorted({cell.axis["beta"] for cell in own})
        for metric in own[0].metrics:
            found = {
                (cell.axis["alpha"], cell.axis["beta"]): one
                for cell in own
                if (one := summary(chosen(cell, store), metric))
            }
            rows = [
                (f"{alpha:g}", *(f"{one.mean:.2f}" if (one := found.get((alpha, beta))) else NOTHING for beta in betas))
                for alpha in sorted({alpha for alpha, _ in found})
            ]
            if rows:
                head = ("alpha", *(f"beta {beta:.2g}" for beta in betas))
                tables.append(Table(f"{condition}: {METRIC_TITLES[metric]}", head, tuple(rows), 1))
    return tables


def choices_table(plan: Plan, store: Store) -> Table | None:
    """The parameters that validation chose, for the cells that had a choice."""
    rows = []
    for cell in plan.cells:
        records = chosen(cell, store) if len(cell.candidates) > 1 else []
        if records:
            task, dataset, missing, rate = cell.condition
            where = (task, dataset, missing, f"{rate:g}", cell.label)
            rows.append((*where, said_parameters(records[0]), str(len(records))))
    head = ("task", "data set", "missing", "rate", "system", "chosen", "splits")
    return Table(CHOICES, head, tuple(rows), 6) if rows else None


def said_parameters(record: Record) -> str:
    """A run's parameters in words."""
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in record.run.parameters
    )


def said_ours(found: Summary | None) -> str:
    """Mean and standard deviation of ours."""
    if found is None:
        return NOTHING
    return f"{found.mean:.2f}" if found.std is None else f"{found.mean:.2f} ± {found.std:.2f}"


def said_paper(printed: Printed | None) -> str:
    """What the paper printed."""
    if printed is None:
        return NOTHING
    return "out of memory" if printed.mean is None else f"{printed.mean:.2f} ± {printed.std:.2f}"


def said_difference(found: Summary | None, printed: Printed | None) -> str:
    """Ours minus the paper's mean."""
    if found is None or printed is None or printed.mean is None:
        return NOTHING
    return f"{found.mean - printed.mean:+.2f}"


def _where(cell: Cell, metric: str, with_rates: bool) -> tuple[str, ...]:
    rate = (f"{cell.condition.rate:g}",) if with_rates else ()
    return (cell.condition.dataset, cell.condition.missing, *rate, cell.label, METRIC_TITLES.get(metric, metric))


def _numbers(cell: Cell, metric: str, records: list[Record]) -> tuple[str, ...]:
    found, printed = summary(records, metric), cell.paper.get(metric)
    splits = ", ".join(filter(None, [str(found.splits) if found else "0", trouble(records)]))
    return said_ours(found), said_paper(printed), said_difference(found, printed), splits


def _groups(plan: Plan) -> list[tuple[str, str, str]]:
    groups = [
        (cell.condition.task, cell.condition.missing, metric)
        for cell in plan.cells
        for metric in plan.metrics or cell.metrics
    ]
    return list(dict.fromkeys(groups))


def _pivoted(title: str, cells: list[Cell], metric: str, store: Store, *, by_rate: bool) -> Table:
    column: Callable[[Cell], str] = (
        (lambda cell: f"{cell.condition.rate:g}") if by_rate else (lambda cell: cell.condition.dataset)
    )
    columns = list(dict.fromkeys(map(column, cells)))
    averaged = len(columns) > 1 and not by_rate
    rows = []
    for label in dict.fromkeys(cell.label for cell in cells):
        own = {column(cell): cell for cell in cells if cell.label == label}
        records = {name: chosen(own[name], store) if name in own else [] for name in columns}
        found = [summary(records[name], metric) for name in columns]
        printed = [own[name].paper.get(metric) if name in own else None for name in columns]
        if any(records.values()):
            texts = [_beside(*three) for three in zip(records.values(), found, printed, strict=True)]
            rows.append((label, *texts, *([_average(found, printed)] if averaged else [])))
    return Table(title, ("system", *columns, *(["average"] if averaged else [])), tuple(rows), 1)


def _beside(records: list[Record], found: Summary | None, printed: Printed | None) -> str:
    """Ours, and the paper's in brackets."""
    ours = NOTHING if found is None else f"{found.mean:.2f}"
    if records and all(record.status == "out of memory" for record in records):
        ours = "out of memory"
    if printed is None:
        return ours
    return f"{ours} ({'out of memory' if printed.mean is None else f'{printed.mean:.2f}'})"


def _average(found: Sequence[Summary | None], printed: Sequence[Printed | None]) -> str:
    ours = [one.mean for one in found if one is not None]
    theirs = [one.mean for one in printed if one is not None and one.mean is not None]
    mean = f"{sum(ours) / len(ours):.2f}" if len(ours) == len(found) else NOTHING
    return f"{mean} ({sum(theirs) / len(theirs):.2f})" if len(theirs) == len(printed) else mean


def _latex(text: str) -> str:
    signed = re.sub(r"^([+-])(?=\d)", r"$\1$", text)
    return "".join(_LATEX.get(letter, letter) for letter in signed)
