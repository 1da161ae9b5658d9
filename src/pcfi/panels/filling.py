"""The missing cells of a column and its model -> estimates, their scale, and intervals."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.panels.column_model import ColumnModel, KindModel
from pcfi.panels.fitting import PanelColumn, deviations_of
from pcfi.panels.gaps import KINDS, OPEN, kinds_of_cells
from pcfi.panels.other_columns import OtherColumns


@dataclass(frozen=True, eq=False, kw_only=True)
class FilledCells:
    """Estimates of the missing cells of one column.

    Attributes
    ----------
    missing : ndarray of bool, shape (n_nodes, n_times)
        The cells; all other arrays have one entry per cell, in the order of `np.nonzero(missing)`.
    kind : ndarray of int
        Number of the kind of gap in `pcfi.panels.gaps.KINDS`.
    has_columns : ndarray of bool
        Whether another column has a reading in the cell.
    center, scale : ndarray
        Estimate, and the unit of the errors of hidden cells, on the scale of the model.
    low, high : float
        Smallest and largest possible value.
    model : ColumnModel
    """

    missing: Array
    kind: Array
    has_columns: Array
    center: Array
    scale: Array
    low: float
    high: float
    model: ColumnModel

    def values(self) -> Array:
        """The estimates."""
        return self._within(self.model.from_scale(self.center))

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """Lower and upper bound; infinite if too few cells could be hidden."""
        half = self._by_kind(lambda kind: _quantile(kind, coverage)) * self.scale
        with np.errstate(over="ignore"):
            low, high = (self.model.from_scale(self.center + sign * half) for sign in (-1, 1))
        return self._within(low), self._within(high)

    def expected_errors(self) -> Array:
        """Expected absolute error."""
        error = self._by_kind(lambda kind: float(kind.scores.mean()) if len(kind.scores) else np.nan) * self.scale
        error = np.where(np.isinf(self.scale), np.nan, error)
        return error * (self.model.from_scale(self.center) if self.model.logarithmic else 1.0)

    def _by_kind(self, measure: Callable[[KindModel], float]) -> Array:
        table = [
            [measure(self.model.of_kind(kind, has_columns=has_columns)) for kind in range(len(KINDS))]
            for has_columns in (False, True)
        ]
        return np.asarray(np.array(table)[self.has_columns.astype(int), self.kind])

    def _within(self, values: Array) -> Array:
        return np.clip(values, self.low, self.high)


def _quantile(kind: KindModel, coverage: float) -> float:
    """Conformal quantile of the scores of hidden cells; the sample size is the number of gaps, not of cells."""
    if not kind.n_groups:
        return np.inf
    place = int(np.ceil(coverage * (1 + 1 / kind.n_groups) * len(kind.scores))) - 1
    return float(kind.scores[place]) if place < len(kind.scores) else np.inf


def fill_column(column: PanelColumn, model: ColumnModel, others: OtherColumns) -> FilledCells:
    """Estimate the missing cells."""
    known, axes = column.known, column.axes
    deviations = deviations_of(column.on_scale(), known, model, axes, others)
    node, time = np.nonzero(column.missing)
    kind, has_columns = kinds_of_cells(known, axes.steps)[node, time], others.known_at(node, time)
    deviation, scale = np.empty(len(node)), np.empty(len(node))
    for number in np.unique(kind):
        for with_reading in (False, True):
            cells = np.flatnonzero((kind == number) & (has_columns == with_reading))
            fitted = model.of_kind(int(number), has_columns=with_reading)
            at, variance = deviations.changes(fitted.time, node[cells], time[cells], axes.steps)
            deviation[cells] = at[0] + fitted.coefficients[: len(at) - 1] @ at[1:]
            scale[cells] = fitted.scale_of(variance)
    # beyond the last reading of all nodes, no known cell could be hidden
    scale[(kind == OPEN) & ~np.asarray(known.any(axis=0))[time]] = np.inf
    profile = deviations.profile
    usual, unit = np.broadcast_to(profile.expected(), known.shape)[node, time], profile.unit[node]
    low, high = _possible(column.values[known])
    return FilledCells(
        missing=column.missing,
        kind=kind,
        has_columns=has_columns,
        center=usual + unit * deviation,
        scale=unit * scale,
        low=low,
        high=high,
        model=model,
    )


def _possible(known: Array) -> tuple[float, float]:
    """As in `pcfi.impute`: at least 0 if no reading is negative, at most 1 if all are between 0 and 1."""
    if not len(known) or known.min() < 0:
        return -np.inf, np.inf
    return 0.0, 1.0 if known.max() <= 1 else np.inf
