"""Fit the `ColumnModel` of a column, on known cells that are hidden in the same pattern as the missing cells.

Scale (linear or log), seasons and the smoother for the gaps of neighbours are chosen by the error of interpolation in
time; then `pcfi.panels.column_model` fits smoother and coefficients for each kind of gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.panels.column_model import Candidates, ColumnModel, HiddenReadings, fit_kinds, is_significant
from pcfi.panels.deviations import Deviations, PanelAxes, anomalies, compare_with_others
from pcfi.panels.gaps import KINDS, HiddenGaps, classify_cells, hide_gaps, hide_sensors, kinds_of_cells
from pcfi.panels.other_columns import OtherColumns, SmoothedColumn
from pcfi.panels.time_models import CANDIDATES, FEW_CANDIDATES, LINEAR, TimeModel

MIN_GAPS_HIDDEN = 200  # hidden gaps of each kind, after which no further round is needed
MAX_ROUNDS = 5
SHARE_OF_TESTS = 0.1  # share of the known cells to hide, if only whole nodes are missing
MAX_CELLS_TO_COMPARE = 2_000_000  # cells of the period on which scale and seasons are compared


@dataclass(frozen=True, eq=False, kw_only=True)
class PanelColumn:
    """A column of a panel with its scale, and the rounds in which known cells are hidden.

    Attributes
    ----------
    values, known, missing : ndarray of shape (n_nodes, n_times)
        `values` are arbitrary where not known; cells that are neither known nor missing are not in the table.
    axes : PanelAxes
    rounds : list of HiddenGaps
    model : ColumnModel
        Scale, seasons and smoother; kinds of gaps are not fitted yet.
    """

    values: Array
    known: Array
    missing: Array
    axes: PanelAxes
    rounds: list[HiddenGaps]
    model: ColumnModel

    def on_scale(self) -> Array:
        """Values on the scale of the model, 0 where unknown."""
        return np.where(self.known, self.model.to_scale(np.where(self.known, self.values, 1.0)), 0.0)

    def smoothed(self) -> SmoothedColumn:
        """The column as a predictor of other columns."""
        return SmoothedColumn.of(self.on_scale(), self.known, self.model.season, self.model.base, self.axes)


def prepare_column(values: Array, known: Array, missing: Array, axes: PanelAxes, seed: int) -> PanelColumn:
    """Choose the hidden cells of each round, and the scale of a column."""
    rng = np.random.default_rng(seed)
    rounds = [*_gap_rounds(known, missing, axes, rng), *_sensor_rounds(known, missing, rng)]
    is_gap = missing[known.any(axis=1)].any()
    hidden = rounds[0].mask if is_gap else known & (rng.random(known.shape) < SHARE_OF_TESTS)
    model = _choose_scale(values, known, missing, hidden, axes)
    return PanelColumn(values=values, known=known, missing=missing, axes=axes, rounds=rounds, model=model)


def fit_column(column: PanelColumn, others: OtherColumns) -> ColumnModel:
    """Learn the model of each kind of gap."""
    z = column.on_scale()
    samples = [_sample(z, column, hidden, others.without(hidden.cells)) for hidden in column.rounds]
    if not any(len(cells.kind) for cells, _ in samples):
        return column.model
    fields = [vars(cells).values() for cells, _ in samples]
    cells = HiddenReadings(*(np.concatenate(parts, axis=-1) for parts in zip(*fields, strict=True)))
    return fit_kinds(cells, _joined([parts for _, parts in samples]), column.model)


def _joined(samples: list[Candidates]) -> Candidates:
    return {
        model: (
            np.concatenate([sample[model][0] for sample in samples], axis=-1),
            np.concatenate([sample[model][1] for sample in samples]),
        )
        for model in CANDIDATES
    }


def _gap_rounds(known: Array, missing: Array, axes: PanelAxes, rng: np.random.Generator) -> Iterator[HiddenGaps]:
    """Cells to hide in copies of the gaps."""
    if not missing[known.any(axis=1)].any():
        return
    count = 0
    for _ in range(MAX_ROUNDS):
        hidden, least = hide_gaps(known, missing, axes.steps, rng)
        yield hidden
        count += least
        if count >= MIN_GAPS_HIDDEN:
            return


def _sensor_rounds(known: Array, missing: Array, rng: np.random.Generator) -> Iterator[HiddenGaps]:
    """Whole nodes to hide, if whole nodes are missing."""
    reporting = known.any(axis=1)
    return hide_sensors(known, rng) if missing[~reporting].any() and reporting.sum() > 2 else iter(())


def _choose_scale(values: Array, known: Array, missing: Array, hidden: Array, axes: PanelAxes) -> ColumnModel:
    """Choose log scale, seasons and smoother, by the error of interpolation in time on hidden cells.

    Log scale and seasons are used only if they help significantly.
    """
    nodes, times = (known & ~hidden).any(axis=1), _stretch(known.shape)
    known, hidden, missing, values = (one[nodes][:, times] for one in (known, hidden, missing, values))
    axes = axes.shortened(times)
    left, weight = known & ~hidden, _importance(known, missing, hidden, axes)
    gap = classify_cells(left, axes.steps)[1][hidden]
    scales = (False, True) if known.any() and values[known].min() > 0 else (False,)
    fits = []
    for logarithmic in scales:
        for season in axes.seasons():
            model = ColumnModel(logarithmic, season, LINEAR, {})
            z = np.where(left, model.to_scale(np.where(left, values, 1.0)), 0.0)
            errors = {
                base: weight * np.abs(model.from_scale(estimate) - values[hidden])
                for base, estimate in _interpolated(z, left, hidden, season, axes)
            }
            base = min(errors, key=lambda one: float(errors[one].sum()))
            fits.append((replace(model, base=base), errors[base]))
    best = min(fits, key=lambda fit: float(fit[1].sum()))
    return best[0] if is_significant(fits[0][1] - best[1], np.nonzero(hidden)[0], gap) else fits[0][0]


def _stretch(shape: tuple[int, int]) -> slice:
    """The middle period with at most `MAX_CELLS_TO_COMPARE` cells."""
    count = min(shape[1], max(2, MAX_CELLS_TO_COMPARE // shape[0]))
    first = (shape[1] - count) // 2
    return slice(first, first + count)


def _importance(known: Array, missing: Array, hidden: Array, axes: PanelAxes) -> Array:
    """Weight of each hidden cell, so that kinds of gaps count in proportion to their missing cells."""
    n_missing = np.bincount(kinds_of_cells(known, axes.steps)[missing], minlength=len(KINDS))
    kinds = kinds_of_cells(known & ~hidden, axes.steps)[hidden]
    n_hidden = np.bincount(kinds, minlength=len(KINDS))
    return np.asarray((n_missing / np.maximum(n_hidden, 1))[kinds] + 1e-9)


def _interpolated(
    z: Array, known: Array, target: Array, season: tuple[str, ...], axes: PanelAxes
) -> Iterator[tuple[TimeModel, Array]]:
    profile, own = anomalies(z, known, season, axes)
    usual, unit = np.broadcast_to(profile.expected(), z.shape)[target], profile.unit[np.nonzero(target)[0]]
    for model in FEW_CANDIDATES:
        smoothed, _ = model.smooth(own[None], known, axes.steps)
        yield model, usual + unit * smoothed[0][target]


def deviations_of(z: Array, known: Array, model: ColumnModel, axes: PanelAxes, others: OtherColumns) -> Deviations:
    """Deviations of a column and their predictors; `z` are values on the scale of the model, 0 where unknown."""
    profile, own = anomalies(z, known, model.season, axes, others.means())
    return others.add_to(compare_with_others(profile, own, known, model.base, axes))


def _sample(
    z: Array, column: PanelColumn, hidden: HiddenGaps, others: OtherColumns
) -> tuple[HiddenReadings, Candidates]:
    """Hidden cells of one round, and the estimates of each smoother."""
    model, axes, left = column.model, column.axes, column.known & ~hidden.mask
    deviations = deviations_of(np.where(left, z, 0.0), left, model, axes, others)
    node, time = np.nonzero(hidden.mask)
    candidates = {one: deviations.changes(one, node, time, axes.steps) for one in CANDIDATES}
    kinds, gaps = classify_cells(left, axes.steps)
    cells = HiddenReadings(
        node=node,
        gap=gaps[node, time],
        kind=kinds[node, time],
        has_columns=others.known_at(node, time),
        truth=z[node, time],
        usual=np.broadcast_to(deviations.profile.expected(), z.shape)[node, time],
        unit=deviations.profile.unit[node],
        baselines=_baselines(model.from_scale(np.where(left, z, 0.0)), deviations, (node, time), model, axes),
    )
    return cells, candidates


def _baselines(
    values: Array, deviations: Deviations, at: tuple[Array, Array], model: ColumnModel, axes: PanelAxes
) -> Array:
    """Linear interpolation, neighbours alone and the node's mean at hidden cells, on the scale of the column."""
    node, time = at
    nodes = np.unique(node)
    known, profile = deviations.known[nodes], deviations.profile
    mean = model.from_scale(profile.mean)
    centre = mean[nodes, None]
    smoothed, _ = LINEAR.smooth(np.where(known, values[nodes] - centre, 0.0)[None], known, axes.steps)
    linear = (smoothed[0] + centre)[np.searchsorted(nodes, node), time]
    usual = np.broadcast_to(profile.expected(), values.shape)[node, time]
    near = model.from_scale(usual + profile.unit[node] * deviations.nearby[node, time])
    return np.stack([linear, near, mean[node]])
