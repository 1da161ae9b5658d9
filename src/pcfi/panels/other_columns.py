"""Estimate the deviations of one column of a panel from the other columns, at each node and time.

    o(i, t) = b + rho g(i, t) + sum_d w_d rho_d(i, t) y_d(i, t)

is the regression of `pcfi.estimation.column_regression` on the neighbours' estimate g and on the deviations of the
other columns d, which are smoothed in time where column d has no reading (`bridge_gaps`). When known cells are hidden,
the gaps of the other columns are copied together with the gap.
"""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.column_regression import MAX_COLUMNS, CompletedRows, fit_column_regression
from pcfi.estimation.training import MAX_TRAINING_ROWS
from pcfi.panels.deviations import Deviations, PanelAxes, anomalies, bridge_gaps
from pcfi.panels.gaps import CopiedCells
from pcfi.panels.time_models import TimeModel


@dataclass(frozen=True, eq=False)
class SmoothedColumn:
    """Deviations of one column in units of each node (0 where unknown), and the smoother for its gaps.

    Attributes
    ----------
    own, known : ndarray of shape (n_nodes, n_times)
    mean : ndarray of shape (n_nodes,)
        Expected value of each node.
    base : TimeModel
    steps : ndarray
        Times in typical steps of the column.
    """

    own: Array
    known: Array
    mean: Array
    base: TimeModel
    steps: Array

    @classmethod
    def of(
        cls, values: Array, known: Array, season: tuple[str, ...], base: TimeModel, axes: PanelAxes
    ) -> "SmoothedColumn":
        """Create it from values on the scale of the column's model, 0 where unknown."""
        profile, own = anomalies(values, known, season, axes)
        return cls(own, known, profile.mean, base, axes.steps)

    def estimate(self) -> Array:
        """Deviations at all cells, shrunk towards 0 where they are unreliable."""
        return bridge_gaps(self.own, self.known, self.base, self.steps)[0]

    def without(self, cells: CopiedCells) -> "SmoothedColumn":
        """The same column with copied gaps."""
        known = self.known & ~cells.copied(~self.known)
        return replace(self, known=known, own=np.where(known, self.own, 0.0))


class OtherColumns(tuple[SmoothedColumn, ...]):
    """The other columns of a panel as predictors of one column; empty if there are none, or too many."""

    __slots__ = ()

    @classmethod
    def of(cls, columns: list[SmoothedColumn]) -> "OtherColumns":
        """All columns, unless there are too many for the regression."""
        return cls(columns if len(columns) < MAX_COLUMNS else ())

    def without(self, cells: CopiedCells) -> "OtherColumns":
        """The same columns with copied gaps."""
        return OtherColumns(one.without(cells) for one in self)

    def means(self) -> Array | None:
        """Expected value of each node (row) in each column, NaN if it never reported."""
        return np.stack([np.where(one.known.any(axis=1), one.mean, np.nan) for one in self], axis=1) if self else None

    def known_at(self, node: Array, time: Array) -> Array:
        """Whether any of the columns has a reading at each of these cells."""
        mask = np.zeros(len(node), dtype=bool)
        for one in self:
            mask |= one.known[node, time]
        return mask

    def add_to(self, deviations: Deviations) -> Deviations:
        """Add o to the predictors, if there are other columns."""
        if not self:
            return deviations
        estimates = [one.estimate() for one in self]
        rows = np.flatnonzero(deviations.known)
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MAX_TRAINING_ROWS)).round().astype(np.int64)]
        completed = np.stack([one.ravel()[rows] for one in (deviations.own, *estimates)], axis=1)
        graph = np.full(completed.shape, np.nan)  # only the first column has an estimate from neighbours
        graph[:, 0] = deviations.nearby.ravel()[rows]
        rows_seen = CompletedRows(np.arange(1), completed, np.zeros(completed.shape))
        [(_, fitted)] = fit_column_regression(completed, [rows_seen], graph)
        estimate_from_columns = fitted.intercept[0] + fitted.graph[0] * deviations.nearby
        for weight, estimate in zip(fitted.columns[0, 1:], estimates, strict=True):
            estimate_from_columns += weight * estimate
        return replace(deviations, columns=estimate_from_columns)
