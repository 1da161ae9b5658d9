"""Results of the estimation as data: chosen parameters, evidence, and one report per column."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, overload

import numpy as np

from pcfi.errors import PcfiWarning, TuningWarning, counted
from pcfi.estimation.value_model import ValueModel


@dataclass(frozen=True)
class Tried:
    """A candidate for alpha, and the root mean squared error on hidden cells in standard deviations of the columns.

    `by_degree` is whether features were divided by the square root of the degree while they diffused. Candidates are
    compared on a sample of the columns, by the likelihood of their hidden cells.
    """

    alpha: float
    error: float
    by_degree: bool = False


@dataclass(frozen=True)
class ColumnReport:
    """Errors and predictors of a column, from its hidden cells.

    Attributes
    ----------
    name : str
    n_known, n_missing, n_hidden : int
        Cells that are known, missing, and known but hidden to learn from.
    rmse, rmse_of_mean : float
        Root mean squared error on hidden cells, of the estimates and of the column's mean, in the column's unit; of
        booleans and categories, that of their probabilities. NaN if none was hidden. `expected_error` of a result is
        an absolute error, which is smaller: that of normal errors is 0.8 of their root mean square.
    r2, r2_graph, r2_columns : float
        Part of the variance of hidden cells that the estimates explain, that the graph alone explains, and that the
        other columns alone explain.
    coverage : float
        Part of the hidden cells that are within their 90 % intervals.
    accuracy : float or None
        Of categories, the part of the hidden cells whose category is found.
    n_unreachable : int
        Missing cells that no known cell of the column reaches: the graph says nothing about them.
    verdict : str
        The same in words.
    standard_error : float
        Of `r2`, from the differences between the squared errors of the mean and of the estimates. NaN without at least
        two hidden cells.
    """

    name: str
    n_known: int
    n_missing: int
    n_hidden: int
    rmse: float
    rmse_of_mean: float
    r2: float
    r2_graph: float
    r2_columns: float
    coverage: float
    verdict: str
    standard_error: float = float("nan")
    accuracy: float | None = None
    n_unreachable: int = 0


class ColumnReports(Sequence[ColumnReport]):
    """One `ColumnReport` per column, made when it is first looked at; prints as a table, `to_frame()` is one of pandas.

    `reports` are the reports, or a function that makes them.
    """

    def __init__(self, reports: "Iterable[ColumnReport] | Callable[[], Iterable[ColumnReport]]" = ()) -> None:
        self._source = reports if callable(reports) else tuple(reports)

    @cached_property
    def _reports(self) -> tuple[ColumnReport, ...]:
        return tuple(self._source() if callable(self._source) else self._source)

    @overload
    def __getitem__(self, place: int) -> ColumnReport: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ColumnReport, ...]: ...
    def __getitem__(self, place: int | slice) -> ColumnReport | tuple[ColumnReport, ...]:
        return self._reports[place]

    def __len__(self) -> int:
        return len(self._reports)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnReports) and self._reports == other._reports

    __hash__ = None  # type: ignore[assignment]

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary per column, as a DataFrame takes it."""
        return [asdict(report) for report in self]

    def with_unreachable(self, counts: Sequence[int]) -> "ColumnReports":
        """The reports with the number of unreachable cells of each column, which the verdict mentions."""
        return ColumnReports(partial(_mention_unreachable, self, counts))

    def to_frame(self) -> Any:
        """A DataFrame of pandas with the names of the columns as its index."""
        from pcfi.optional import load

        return load("pandas", "to_frame", "frames").DataFrame(self.to_rows()).set_index("name")

    def __repr__(self) -> str:
        width = max([len("column"), *(len(report.name) for report in self)])
        lines = [f"{'column':<{width}}  missing      rmse  of mean     R2  verdict"]
        for report in self:
            numbers = f"{report.n_missing:>7,} {report.rmse:>9.4g} {report.rmse_of_mean:>8.4g} {report.r2:>6.2f}"
            lines.append(f"{report.name:<{width}}  {numbers}  {report.verdict}")
        return "\n".join(lines)


def _mention_unreachable(reports: ColumnReports, counts: Sequence[int]) -> list[ColumnReport]:
    return [
        replace(report, n_unreachable=int(count), verdict=report.verdict + _of_unreachable(report, int(count)))
        if count
        else report
        for report, count in zip(reports, counts, strict=len(reports) > 0)
    ]


def _of_unreachable(report: ColumnReport, count: int) -> str:
    if not count or not report.n_known:
        return ""
    verb = "is" if count == 1 else "are"
    return (
        f"; {count:,} of {counted(report.n_missing, 'missing cell')} {verb} unreachable, and filled without the graph"
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Tuning:
    """Parameters chosen without labels, and the evidence for them.

    Attributes
    ----------
    objective : {"values", "representation"}
        What the parameters are for.
    alpha, beta : float
        The parameters chosen.
    center : bool
        Whether the representation is better used with the channels' means subtracted.
    error, error_of_mean : float
        Root mean squared error on hidden cells in standard deviations of their columns, of the estimates and of the
        columns' means. NaN if nothing was hidden.
    tried : tuple of Tried
        The candidates for alpha, best first.
    columns : ColumnReports
        One row per column; empty for a representation.
    n_factors : int
        Number of factors through which columns explain each other.
    n_hidden, n_folds : int
        Cells that were hidden, and the number of folds.
    note : str
        Why nothing was learned; empty if something was.
    """

    objective: str
    alpha: float
    beta: float
    center: bool = False
    error: float = float("nan")
    error_of_mean: float = float("nan")
    tried: tuple[Tried, ...] = ()
    columns: ColumnReports = field(default_factory=ColumnReports)
    n_factors: int = 0
    n_hidden: int = 0
    n_folds: int = 0
    note: str = ""
    model: ValueModel | None = field(default=None, repr=False)

    @property
    def by_degree(self) -> bool:
        """Whether values are divided by the square root of the degree of their node while they diffuse."""
        return self.model is not None and self.model.degree is not None

    def __repr__(self) -> str:
        facts = [("objective", self.objective), ("chosen", f"alpha={self.alpha:g}, beta={self.beta:.3g}")]
        if self.note:
            facts.append(("note", f"nothing was learned, because {self.note}"))
        elif self.objective == "representation":
            facts.append(("center", str(self.center)))
        else:
            facts += [("scaled", "by the square root of the degree")] if self.by_degree else []
            facts += [
                ("factors", f"{self.n_factors}, through which columns explain each other"),
                ("error", f"{self.error:.4g}; of the mean {self.error_of_mean:.4g} (in standard deviations)"),
                ("hidden", f"{counted(self.n_hidden, 'cell')} in {counted(self.n_folds, 'fold')}"),
                ("tried", "alpha    error"),
            ]
            facts += [("", _row(one)) for one in self.tried]
        return "Tuning\n" + "\n".join(f"  {name:<12}{text}" for name, text in facts)

    @property
    def options(self) -> dict[str, Any]:
        """What was chosen as options of `impute`, so that `impute(features, graph, **tuning.options)` uses it."""
        chosen = {"alpha": self.alpha, "beta": self.beta, "objective": self.objective}
        return chosen | ({"center": self.center} if self.objective == "representation" else {})

    def to_rows(self) -> list[dict[str, Any]]:
        """The candidates, one dictionary per row, as a DataFrame takes it."""
        return [asdict(one) for one in self.tried]


def _row(one: Tried) -> str:
    return f"{one.alpha:<8g} {one.error:.4g}" + (", scaled by degree" if one.by_degree else "")


def tuning_warnings(tuning: Tuning | None) -> list[PcfiWarning]:
    """A warning if nothing was learned."""
    if tuning is None or not tuning.note:
        return []
    halfway = "halfway between the graph's estimate and the column's mean (0 in a column without a known value)"
    return [TuningWarning(f"values are {halfway}: {tuning.note}")]


def seed_of(random_state: Any) -> int:
    """An integer seed from a seed, from a generator, or from None, which is 0: the same call gives the same bits."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    return 0 if random_state is None else int(random_state)
