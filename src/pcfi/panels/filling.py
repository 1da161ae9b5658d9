"""The missing cells of a column and its model -> estimates, their scale, and intervals."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.panels.column_model import ColumnModel, KindModel
from pcfi.panels.deviations import Deviations, PanelAxes, anomalies, compare_with_others
from pcfi.panels.gaps import KINDS, OPEN, kinds_of_cells
from pcfi.panels.time_models import LINEAR

UNLEARNED = KindModel(LINEAR, np.zeros(2), np.empty(0), np.full(4, np.nan))  # of a gap unlike any that could be hidden


@dataclass(frozen=True, eq=False)
class FilledCells:
    """Estimates of the missing cells of one column.

    Attributes
    ----------
    missing : ndarray of bool, shape (n_nodes, n_times)
        The cells; all other arrays have one entry per cell, in the order of `np.nonzero(missing)`.
    kind : ndarray of int
        Number of the kind of gap in `pcfi.panels.gaps.KINDS`.
    center, scale : ndarray
        Estimate, and the unit that errors of hidden cells were measured in, on the scale of the model.
    low, high : float
        What is possible.
    model : ColumnModel
    """

    missing: Array
    kind: Array
    center: Array
    scale: Array
    low: float
    high: float
    model: ColumnModel

    def values(self) -> Array:
        """The estimates."""
        return self._within(self.model.from_scale(self.center))

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """Lowest and highest value; infinite where too few cells could be hidden to say."""
        half = self._by_kind(lambda kind: _quantile(kind, coverage)) * self.scale
        with np.errstate(over="ignore"):
            low, high = (self.model.from_scale(self.center + sign * half) for sign in (-1, 1))
        return self._within(low), self._within(high)

    def expected_errors(self) -> Array:
        """Absolute error to expect."""
        error = self._by_kind(lambda kind: float(kind.scores.mean()) if len(kind.scores) else np.nan) * self.scale
        error = np.where(np.isinf(self.scale), np.nan, error)
        return error * (self.model.from_scale(self.center) if self.model.logarithmic else 1.0)

    def _by_kind(self, measure: Callable[[KindModel], float]) -> Array:
        table = np.array([measure(self.model.kinds.get(kind, UNLEARNED)) for kind in range(len(KINDS))])
        return np.asarray(table[self.kind])

    def _within(self, values: Array) -> Array:
        return np.clip(values, self.low, self.high)


def _quantile(kind: KindModel, coverage: float) -> float:
    """The conformal quantile of the scores of hidden cells; what is counted are gaps, whose cells err together."""
    if not kind.n_groups:
        return np.inf
    place = int(np.ceil(coverage * (1 + 1 / kind.n_groups) * len(kind.scores))) - 1
    return float(kind.scores[place]) if place < len(kind.scores) else np.inf


def fill_column(values: Array, known: Array, missing: Array, model: ColumnModel, axes: PanelAxes) -> FilledCells:
    """Estimate the missing cells."""
    z = np.where(known, model.to_scale(np.where(known, values, 1.0)), 0.0)
    profile, own = anomalies(z, known, model.season, axes)
    found = compare_with_others(profile, own, known, model.base, axes)
    node, time = np.nonzero(missing)
    kind = kinds_of_cells(known, axes.steps)[node, time]
    deviation, scale = np.empty(len(node)), np.empty(len(node))
    for number in np.unique(kind):
        cells = np.flatnonzero(kind == number)
        fitted = model.kinds.get(int(number), UNLEARNED)
        deviation[cells], scale[cells] = _estimates(found, fitted, node[cells], time[cells], axes)
    # beyond the last reading of all nodes nobody could be hidden to learn from
    scale[(kind == OPEN) & ~np.asarray(known.any(axis=0))[time]] = np.inf
    usual = np.broadcast_to(profile.expected(), known.shape)[node, time]
    unit = profile.unit[node]
    low, high = _possible(values[known])
    return FilledCells(missing, kind, usual + unit * deviation, unit * scale, low, high, model)


def _estimates(found: Deviations, model: KindModel, node: Array, time: Array, axes: PanelAxes) -> tuple[Array, Array]:
    nodes = np.unique(node)
    place = np.searchsorted(nodes, node)
    smoothed, variance = found.smoothed(model.time, nodes, axes.steps)
    at = smoothed[:, place, time]
    others = np.stack([found.nearby[node, time], found.common[node, time]]) - at[1:]
    return at[0] + model.trust @ others, model.scale_of(variance[place, time])


def _possible(known: Array) -> tuple[float, float]:
    """As in `pcfi.impute`: not below 0 if no reading is, at most 1 if all are between 0 and 1."""
    if not len(known) or known.min() < 0:
        return -np.inf, np.inf
    return 0.0, 1.0 if known.max() <= 1 else np.inf
