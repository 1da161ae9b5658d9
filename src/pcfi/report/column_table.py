"""Column reports -> a text table of errors, coverage and predictors of each column."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pcfi.estimation.result import ColumnReport
from pcfi.report.facts import Facts

MAX_ROWS = 2000
HEADER = (
    "column",
    "missing",
    "root mean squared error",
    "of the mean",
    "R\N{SUPERSCRIPT TWO}",
    "covered by 90% intervals",
    "what explains it",
)


@dataclass(frozen=True)
class ColumnTable:
    """The rows that the page shows, and the number of columns that are left out."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_hidden: int
    n_more: int


def column_table(facts: Facts) -> ColumnTable | None:
    """The table of the incomplete columns; None if there are no reports."""
    reports = [one for one in facts.columns if one.n_missing]
    if not reports:
        return None
    rows = tuple(map(_row, reports[:MAX_ROWS]))
    return ColumnTable(HEADER, rows, sum(one.n_hidden for one in reports), len(reports) - len(rows))


def _row(report: ColumnReport) -> tuple[str, ...]:
    return (
        report.name,
        f"{report.n_missing:,}",
        _text(report.rmse, "{:.4g}".format),
        _text(report.rmse_of_mean, "{:.4g}".format),
        _text(report.r2, "{:.2f}".format),
        _text(report.coverage, "{:.0%}".format),
        report.verdict,
    )


def _text(number: float, form: Callable[[float], str]) -> str:
    """A number as text; a dash if no cell was hidden."""
    return form(number) if math.isfinite(number) else "-"
