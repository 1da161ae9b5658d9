"""The other columns of a panel -> what they say about the deviations of one column at each node and time.

    o(i, t) = b + rho g(i, t) + sum_d w_d rho_d(i, t) y_d(i, t)

is the regression of `pcfi.estimation.column_regression` on the neighbours' estimate g and on the deviations of the
other columns d, which are smoothed in time where column d has no reading (`bridge_gaps`). Where known cells are hidden,
cells of the other columns are hidden with them, in the way they are missing around the gap that is copied.
"""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.column_regression import MAX_COLUMNS, fit_column_regression
from pcfi.estimation.training import MAX_TRAINING_ROWS
from pcfi.panels.deviations import Deviations, PanelAxes, anomalies, bridge_gaps
from pcfi.panels.gaps import CopiedCells
from pcfi.panels.time_models import TimeModel


@dataclass(frozen=True, eq=False)
class SmoothedColumn:
    """Deviations of one column in units of each node (0 where unknown), and how its gaps are bridged.

    Attributes
    ----------
    own, known : ndarray of shape (n_nodes, n_times)
    mean : ndarray of shape (n_nodes,)
        What is usual at each node.
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
        """From values on the scale of the column's model, 0 where unknown."""
        profile, own = anomalies(values, known, season, axes)
        return cls(own, known, profile.mean, base, axes.steps)

    def estimate(self) -> Array:
        """Deviations at all cells, drawn towards 0 where little is known about them."""
        return bridge_gaps(self.own, self.known, self.base, self.steps)[0]

    def without(self, cells: CopiedCells) -> "SmoothedColumn":
        """The same with copied gaps in it, too."""
        known = self.known & ~cells.copied(~self.known)
        return replace(self, known=known, own=np.where(known, self.own, 0.0))


class OtherColumns(tuple[SmoothedColumn, ...]):
    """The other columns of a panel, as predictors of one column; empty if there are none, or too many."""

    __slots__ = ()

    @classmethod
    def of(cls, columns: list[SmoothedColumn]) -> "OtherColumns":
        """All of them, unless they are more than a regression is made for."""
        return cls(columns if len(columns) < MAX_COLUMNS else ())

    def without(self, cells: CopiedCells) -> "OtherColumns":
        """The same with copied gaps."""
        return OtherColumns(one.without(cells) for one in self)

    def means(self) -> Array | None:
        """Usual values of each node (rows) in each column, NaN if it never reported."""
        return np.stack([np.where(one.known.any(axis=1), one.mean, np.nan) for one in self], axis=1) if self else None

    def known_at(self, node: Array, time: Array) -> Array:
        """Whether any of the columns has a reading at some cells."""
        mask = np.zeros(len(node), dtype=bool)
        for one in self:
            mask |= one.known[node, time]
        return mask

    def add_to(self, deviations: Deviations) -> Deviations:
        """Add o to the predictors; nothing, if there are no other columns."""
        if not self:
            return deviations
        estimates = [one.estimate() for one in self]
        rows = np.flatnonzero(deviations.known)
        rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MAX_TRAINING_ROWS)).round().astype(np.int64)]
        completed = np.stack([one.ravel()[rows] for one in (deviations.own, *estimates)], axis=1)
        graph = np.full(completed.shape, np.nan)  # only the first column has an estimate of its own to be regressed on
        graph[:, 0] = deviations.nearby.ravel()[rows]
        fitted = fit_column_regression(completed, completed, graph)
        said = fitted.intercept[0] + fitted.graph[0] * deviations.nearby
        for weight, estimate in zip(fitted.columns[0, 1:], estimates, strict=True):
            said += weight * estimate
        return replace(deviations, columns=said)
