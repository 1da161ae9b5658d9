"""The result of `pcfi.panel.impute`: the filled table, intervals, expected errors, and one report per column."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import counted
from pcfi.panels.column_model import KindModel
from pcfi.panels.filling import FilledCells
from pcfi.panels.gaps import KINDS, NEVER
from pcfi.settings import check_coverage

MIN_COEFFICIENT = 0.1  # smaller coefficients are not mentioned in the verdict


@dataclass(frozen=True)
class GapReport:
    """Errors on hidden cells in one kind of gap of a column.

    Attributes
    ----------
    column, kind : str
        A kind of gap has two reports if cells where another column has a reading have their own model.
    n_missing, n_hidden : int
        Number of missing cells, and of hidden known cells, in such gaps.
    mae, mae_of_interpolation, mae_of_neighbors, mae_of_mean : float
        Mean absolute error on the hidden cells, of all kinds together that share a fit because few cells could be
        hidden in each: of the estimates, of linear interpolation in time, of the neighbours
        alone, and of the node's mean. NaN if no cell was hidden.
    space, shared, other_columns, memory : float
        Coefficients of the neighbours, all other nodes and the other columns, and the memory length in steps.
    verdict : str
        Summary in words.
    """

    column: str
    kind: str
    n_missing: int
    n_hidden: int
    mae: float
    mae_of_interpolation: float
    mae_of_neighbors: float
    mae_of_mean: float
    space: float
    shared: float
    other_columns: float
    memory: float
    verdict: str


class GapReports(tuple[GapReport, ...]):
    """One `GapReport` per column and kind of gap; prints as a table, `to_frame()` returns a pandas DataFrame."""

    __slots__ = ()

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary per report."""
        return [asdict(report) for report in self]

    def to_frame(self) -> Any:
        """The reports as a pandas DataFrame."""
        from pcfi.optional import load

        return load("pandas", "to_frame", "frames").DataFrame(self.to_rows())

    def __repr__(self) -> str:
        width = max([len("column"), *(len(report.column) for report in self)])
        lines = [f"{'column':<{width}}  gap              missing      mae  linear  neighbours    mean  verdict"]
        for one in self:
            errors = f"{one.mae:>8.4g} {one.mae_of_interpolation:>7.4g} {one.mae_of_neighbors:>11.4g}"
            numbers = f"{one.n_missing:>8,} {errors} {one.mae_of_mean:>7.4g}"
            lines.append(f"{one.column:<{width}}  {one.kind:<15} {numbers}  {one.verdict}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PanelImputation:
    """A filled panel, with intervals for each filled cell.

    Attributes
    ----------
    values : table or array like the input
        Missing cells filled; known cells are unchanged.
    columns : GapReports
        Errors on hidden cells, by column and kind of gap.
    n_missing : int
        Number of cells that were missing.
    shape : tuple of int
        Number of nodes, times and columns.
    seasons : dict
        Seasons of each column.
    """

    values: Any
    columns: GapReports
    n_missing: int
    shape: tuple[int, int, int]
    seasons: dict[str, tuple[str, ...]]
    _cells: dict[str, FilledCells]
    _wrap: Callable[[dict[str, Array], Any], Any]

    def interval(self, coverage: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper bound of every cell: the true value lies between them with a probability of `coverage`.

        Learned for each kind of gap from known cells that were hidden in such gaps. For known cells both bounds equal
        the value. If too few cells could be hidden, intervals are infinite.
        """
        check_coverage(coverage)
        ends = {name: cells.interval(coverage) for name, cells in self._cells.items()}
        low, high = ({name: pair[end] for name, pair in ends.items()} for end in (0, 1))
        return self._wrap(low, None), self._wrap(high, None)

    @property
    def expected_error(self) -> Any:
        """Expected absolute error of every cell, in its column's unit: 0 if known."""
        return self._wrap({name: cells.expected_errors() for name, cells in self._cells.items()}, 0.0)

    @property
    def gaps(self) -> Any:
        """Kind of gap of each filled cell; "known" for the others."""
        names = np.array(KINDS)
        return self._wrap({name: names[cells.kind] for name, cells in self._cells.items()}, "known")

    def __repr__(self) -> str:
        nodes, times, columns = self.shape
        size = f"{counted(nodes, 'node')} x {counted(times, 'time')} x {counted(columns, 'column')}"
        return (
            f"PanelImputation\n  panel       {size}\n  missing     {counted(self.n_missing, 'cell')}\n{self.columns!r}"
        )


def report_gaps(name: str, cells: FilledCells) -> list[GapReport]:
    """One report for each kind of gap of the column; two, if other columns help where they have a reading."""
    reports = []
    for kind in map(int, np.unique(cells.kind)):
        is_helped = cells.has_columns & (kind in cells.model.with_columns)
        for part in (~is_helped, is_helped):
            chosen = (cells.kind == kind) & part
            if chosen.any():
                fitted = cells.model.of_kind(kind, has_columns=part is is_helped)
                reports.append(_report(name or "readings", kind, fitted, cells.scale[chosen]))
    return reports


def _report(column: str, kind: int, fitted: KindModel, scale: Array) -> GapReport:
    error, linear, neighbors, mean = map(float, fitted.errors)
    return GapReport(
        column=column,
        kind=KINDS[kind],
        n_missing=len(scale),
        n_hidden=len(fitted.scores),
        mae=error,
        mae_of_interpolation=linear,
        mae_of_neighbors=neighbors,
        mae_of_mean=mean,
        space=float(fitted.coefficients[0]),
        shared=float(fitted.coefficients[1]),
        other_columns=float(fitted.coefficients[2]),
        memory=float(fitted.time.length),
        verdict=_verdict(kind, fitted, is_beyond=bool(np.isinf(scale).any())),
    )


def _verdict(kind: int, fitted: KindModel, *, is_beyond: bool) -> str:
    if is_beyond:
        return f"{_verdict(kind, fitted, is_beyond=False)}; without intervals where no node has a reading"
    if not len(fitted.scores):
        return "no comparable gap could be hidden: linear interpolation, without intervals"
    space, shared, columns = np.abs(fitted.coefficients) >= MIN_COEFFICIENT
    others = ["neighbours" if space else "all other nodes"] * bool(space or shared) + ["other columns"] * bool(columns)
    if kind == NEVER:
        return f"filled from {' and '.join(others)}" if others else "filled with the expected value: others do not help"
    worse = ", but no better than the node's mean" if fitted.errors[0] >= fitted.errors[-1] else ""
    if not others:
        return f"interpolated in time alone{worse}"
    return f"interpolated in time, corrected by {' and '.join(others)}{worse}"
