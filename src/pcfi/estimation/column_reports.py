"""Errors on hidden cells -> a report for each column, with a verdict."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.error_fitting import ColumnErrors
from pcfi.estimation.result import ColumnReport, ColumnReports
from pcfi.estimation.value_model import ValueModel
from pcfi.inputs.problem import Problem

MIN_R2 = 0.05  # part of the variance below which a column counts as not explained
MAX_NAMES = 2  # columns that a verdict names


def column_names(problem: Problem) -> list[str]:
    """Names of the columns; numbers if they have none."""
    n_columns = int(problem.columns.max()) + 1
    return list(problem.column_names) if problem.column_names else [str(number) for number in range(n_columns)]


def report_columns(problem: Problem, model: ValueModel, errors: ColumnErrors) -> ColumnReports:
    """One report per column; the channels of a categorical column count together."""
    constant = problem.channels.constant.copy()
    constant[problem.categorical] = False
    facts = ColumnFacts(
        names=column_names(problem),
        columns=problem.columns,
        n_nodes=len(problem.values),
        n_known=problem.channels.n_known,
        constant=constant,
        graph="the graph" if problem.build_graph is None else "similar rows",
        model=model,
        errors=errors,
    )
    return ColumnReports(facts.reports)


@dataclass(frozen=True, eq=False, kw_only=True)
class ColumnFacts:
    """What the reports of the columns are made from.

    Attributes
    ----------
    names : list of str, one per column
    columns, n_known, constant : ndarray, one entry per channel
        Column of each channel, number of its known cells, and whether they are all equal.
    n_nodes : int
    graph : str
        What the graph is called: one that is made from the table adds no facts.
    model : ValueModel
    errors : ColumnErrors
    """

    names: list[str]
    columns: Array
    n_nodes: int
    n_known: Array
    constant: Array
    graph: str
    model: ValueModel
    errors: ColumnErrors

    def reports(self) -> list[ColumnReport]:
        """One report per column."""
        columns, names, errors, model = self.columns, self.names, self.errors, self.model

        def total(part: Array) -> Array:
            return np.bincount(columns, weights=part, minlength=len(names))

        sums = {
            name: total(getattr(errors, name))
            for name in ("of_mean", "of_graph", "of_row", "of_model", "squared_gains")
        }
        n_hidden = total(errors.n_hidden)
        explained = {name: _explained(part, sums["of_mean"]) for name, part in sums.items() if name != "squared_gains"}
        covered = total(errors.covered * errors.n_hidden) / np.maximum(n_hidden, 1)
        covariance = _graph_covariance(model)
        first_channels, widths = np.searchsorted(columns, np.arange(len(names))), np.bincount(columns)
        reports = []
        for number, (name, first) in enumerate(zip(names, first_channels.tolist(), strict=True)):
            n_known = int(self.n_known[first])
            report = ColumnReport(
                name=name,
                n_known=n_known,
                n_missing=self.n_nodes - n_known,
                n_hidden=int(n_hidden[number]) // int(widths[number]),
                rmse=_root(sums["of_model"][number], n_hidden[number], errors.unit[first]),
                rmse_of_mean=_root(sums["of_mean"][number], n_hidden[number], errors.unit[first]),
                r2=float(explained["of_model"][number]),
                r2_graph=float(explained["of_graph"][number]),
                r2_columns=float(explained["of_row"][number]),
                coverage=float(covered[number]) if n_hidden[number] else float("nan"),
                accuracy=model.categories[number].accuracy if number in model.categories else None,
                verdict="",
                standard_error=_standard_error(
                    n_hidden[number], sums["of_mean"][number], sums["of_model"][number], sums["squared_gains"][number]
                ),
            )
            companions = partial(_companions, model, first, columns, names)
            verdict = _unlearned(report, is_constant=bool(self.constant[first]))
            verdict = verdict or _explained_by(report, self.graph, covariance[first], companions)
            reports.append(replace(report, verdict=verdict))
        return reports


def _explained(errors: Array, of_mean: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(of_mean > 0, 1 - errors / of_mean, np.nan)


def _standard_error(n_hidden: float, of_mean: float, of_model: float, squared_gains: float) -> float:
    """Standard error of 1 - of_model / of_mean, given the mean's own error."""
    if n_hidden < 2 or not of_mean > 0:
        return float("nan")
    scatter = squared_gains - (of_mean - of_model) ** 2 / n_hidden
    return float(np.sqrt(max(scatter, 0.0) * n_hidden / (n_hidden - 1)) / of_mean)


def _root(total: float, n_hidden: float, unit: float) -> float:
    return float(unit * np.sqrt(total / n_hidden)) if n_hidden else float("nan")


def _unlearned(report: ColumnReport, *, is_constant: bool) -> str:
    """The verdict on a column that nothing is learned about; empty for others."""
    if report.n_known == 0:
        return "nothing is known: filled with 0"
    if report.n_missing == 0:
        return "complete"
    if is_constant:
        return "constant: filled with its only value"
    return "" if report.n_hidden else "too few known cells to tell"


def _explained_by(report: ColumnReport, graph: str, covariance: float, companions: Callable[[], str]) -> str:
    """The verdict on a column that was estimated: `covariance` is that with the graph's estimates."""
    found = "" if report.accuracy is None else f" ({report.accuracy:.0%} of hidden categories found)"
    if not report.r2 > MIN_R2:
        usual = "the most frequent" if found else "its mean"
        return f"neither {graph} nor other columns explain it: filled close to {usual}{found}"
    parts = []
    if report.r2_graph > MIN_R2:
        parts.append(f"follows {graph}" if covariance > 0 else f"runs against {graph}")
    if report.r2_columns > MIN_R2:
        parts.append(f"explained by {companions()}")
    if report.r2_columns > report.r2_graph:
        parts.reverse()
    return (", ".join(parts) if parts else f"explained by {graph} and other columns together") + found


def _graph_covariance(model: ValueModel) -> Array:
    """Covariance of the values of each channel and the graph's estimates of them, whatever the row says."""
    return model.cells.plain_link.slope * model.cells.marginal_variance


def _companions(model: ValueModel, channel: int, columns: Array, names: list[str]) -> str:
    """The columns that are most correlated with a channel, according to the factors."""
    loadings, noise = model.cells.factors.loadings, model.cells.factors.noise
    deviations = np.sqrt((loadings**2).sum(axis=1) + noise)
    correlation = np.abs(loadings @ loadings[channel]) / (deviations * deviations[channel])
    correlation[columns == columns[channel]] = 0.0
    strong = np.flatnonzero(correlation > correlation.max() / 2)
    ranked = columns[strong[np.argsort(-correlation[strong], kind="stable")]]
    chosen = list(dict.fromkeys(ranked.tolist()))[:MAX_NAMES]
    return " and ".join(names[column] for column in chosen)
