"""The model of one column of a panel: parameters for each kind of gap, and how they are fitted.

With y the deviation of a cell from its expected value, g, c and o its estimates from the neighbours, all other nodes
and the other columns, and S[.] the smoother in time, which uses only the times at which the node itself has readings,

    estimate of y = S[y] + space (g - S[g]) + shared (c - S[c]) + columns (o - S[o])

S[y] is interpolation in time. The other terms add how the neighbours and the other columns changed relative to the
readings before and after the gap. With S linear and all coefficients 0 this is linear interpolation; for a node that
never reported S is 0, and the estimate is a regression on the others. The smoother and the coefficients are chosen for
each kind of gap on hidden cells; o is used in cells where another column has a reading, if it helps significantly.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.panels.gaps import KINDS, NEVER
from pcfi.panels.time_models import LINEAR, TimeModel

SHRINKAGE_FACTORS = (0.0, 0.5, 1.0)  # of the regression coefficients, chosen by cross-validation over nodes
NEIGHBORS_ALONE = np.array([1.0, 0.0, 0.0])  # g itself, without regression, for small data
MIN_NODES = 8  # with hidden cells, to estimate a standard error over nodes
MIN_HIDDEN, MIN_GAPS = 100, 20  # hidden cells and gaps that a kind needs for its own model


@dataclass(frozen=True, eq=False)
class KindModel:
    """Fitted model of a kind of gap.

    Attributes
    ----------
    time : TimeModel
    coefficients : ndarray of 3
        Coefficients of the estimates from neighbours, all other nodes and other columns: space, shared and columns.
    scores : ndarray
        Absolute errors of hidden cells in units of `scale_of`, sorted.
    errors : ndarray of 4
        Mean absolute errors of the estimate, of linear interpolation, of the neighbours alone and of the node's mean.
    n_groups : int
        Number of hidden gaps; errors within a gap are correlated.
    """

    time: TimeModel
    coefficients: Array
    scores: Array
    errors: Array
    n_groups: int = 0

    def scale_of(self, variance: Array) -> Array:
        """Relative size of the error at cells with this variance of the smoother."""
        return np.sqrt(np.minimum(variance, self.time.variance) + self.time.noise + 1e-6)


UNLEARNED = KindModel(LINEAR, np.zeros(3), np.empty(0), np.full(4, np.nan))  # for gaps that could not be hidden


@dataclass(frozen=True, eq=False)
class ColumnModel:
    """Scale, seasons, the smoother for the gaps of neighbours, and a model for each kind of gap.

    `with_columns` are models of cells in which another column has a reading, for the kinds where that helps.
    """

    logarithmic: bool
    season: tuple[str, ...]
    base: TimeModel
    kinds: dict[int, KindModel]
    with_columns: dict[int, KindModel] = field(default_factory=dict)

    def of_kind(self, kind: int, *, has_columns: bool) -> KindModel:
        """The model of a kind of gap, in cells where another column has a reading or not."""
        fitted = self.with_columns.get(kind) if has_columns else None
        return fitted or self.kinds.get(kind, UNLEARNED)

    def to_scale(self, values: Array) -> Array:
        """Values on the scale of the model."""
        return np.log(values) if self.logarithmic else values

    def from_scale(self, values: Array) -> Array:
        """Values of the model on the scale of the column."""
        return np.exp(values) if self.logarithmic else values


@dataclass(frozen=True, eq=False)
class HiddenReadings:
    """Hidden cells, one entry each.

    Attributes
    ----------
    node, gap, kind : ndarray of int
        Node, a number for each gap, and the kind of the gap.
    has_columns : ndarray of bool
        Whether another column has a reading in the cell.
    truth, usual, unit : ndarray
        True and expected value on the scale of the model, and the unit of the node.
    baselines : ndarray of shape (3, n_cells)
        Estimates by linear interpolation, by neighbours alone and by the node's mean, on the scale of the column.
    """

    node: Array
    gap: Array
    kind: Array
    has_columns: Array
    truth: Array
    usual: Array
    unit: Array
    baselines: Array


Candidates = dict[TimeModel, tuple[Array, Array]]  # S[y], changes of the predictors, and the variance, at hidden cells


def fit_kinds(cells: HiddenReadings, candidates: Candidates, model: ColumnModel) -> ColumnModel:
    """Choose smoother and coefficients for each kind of gap; kinds with few hidden cells use the pooled fit."""
    everywhere = np.ones(len(cells.kind), dtype=bool)
    kinds = _fit_by_kind(cells, candidates, everywhere, model, n_predictors=2)
    if not cells.has_columns.any():
        return replace(model, kinds=kinds)
    fitted = _fit_by_kind(cells, candidates, cells.has_columns, model, n_predictors=3)
    with_columns = {kind: one for kind, one in fitted.items() if one.coefficients[2]}
    for kind in with_columns:
        rows = (cells.kind == kind) & ~cells.has_columns
        if _is_enough(cells, rows):
            kinds[kind] = _best(cells, candidates, rows, model, n_predictors=2)
    return replace(model, kinds=kinds, with_columns=with_columns)


def _is_enough(cells: HiddenReadings, rows: Array) -> bool:
    return bool(rows.sum() >= MIN_HIDDEN and len(np.unique(cells.gap[rows])) >= MIN_GAPS)


def _fit_by_kind(
    cells: HiddenReadings, candidates: Candidates, rows: Array, model: ColumnModel, *, n_predictors: int
) -> dict[int, KindModel]:
    fitted: dict[int, KindModel] = {}
    in_series = rows & (cells.kind < NEVER)
    pooled = _best(cells, candidates, in_series, model, n_predictors=n_predictors) if in_series.any() else None
    for kind in range(len(KINDS)):
        of_kind = rows & (cells.kind == kind)
        if _is_enough(cells, of_kind) or (kind == NEVER and of_kind.any()):
            fitted[kind] = _best(cells, candidates, of_kind, model, n_predictors=n_predictors)
        elif pooled is not None:
            fitted[kind] = pooled
    return fitted


def _best(
    cells: HiddenReadings, candidates: Candidates, rows: Array, model: ColumnModel, *, n_predictors: int
) -> KindModel:
    """The smoother and the coefficients with the smallest mean absolute error.

    Linear interpolation, unless the gain is significant; and only the first two predictors, unless the third improves
    them significantly. Errors are cross-validated over nodes, because the cells of a gap are correlated.
    """
    usual, unit, group = cells.usual[rows], cells.unit[rows], cells.node[rows]
    truth, deviation = model.from_scale(cells.truth[rows]), (cells.truth[rows] - usual) / unit

    def error(estimate: Array) -> Array:
        return np.asarray(np.abs(model.from_scale(usual + unit * estimate) - truth))

    def best_fit(count: int) -> Any:
        fits: list[tuple[float, Any]] = []
        for time, (at, variance) in candidates.items():
            own, others = at[0, rows], at[1 : count + 1, rows]
            unseen, coefficients = regress(deviation - own, others, group)
            coefficients = np.pad(coefficients, (0, 3 - count))
            choices = [(share * coefficients, own + share * unseen) for share in SHRINKAGE_FACTORS]
            choices.append((NEIGHBORS_ALONE, own + others[0]))
            fits += [(float(error(one).mean()), (time, factors, one, variance[rows])) for factors, one in choices]
        return min(fits, key=lambda fit: fit[0])[1]

    linear = candidates[LINEAR][0][0, rows]
    chosen: Any = LINEAR, np.zeros(3), linear, candidates[LINEAR][1][rows]
    for count in range(2, n_predictors + 1):
        fit = best_fit(count)
        if is_significant(error(chosen[2]) - error(fit[2]), group, cells.gap[rows]):
            chosen = fit
    time, coefficients, estimate, variance = chosen
    baselines = np.abs(cells.baselines[:, rows] - truth).mean(axis=1)
    kind = KindModel(time, coefficients, np.empty(0), np.array([error(estimate).mean(), *baselines]))
    scores = np.sort(np.abs(deviation - estimate) / kind.scale_of(variance))
    return replace(kind, scores=scores, n_groups=len(np.unique(cells.gap[rows])))


def is_significant(gain: Array, node: Array, gap: Array) -> bool:
    """Whether a gain on hidden cells exceeds two standard errors.

    Nodes are assumed to be independent, or gaps if there are few nodes.
    """
    group = np.unique(node, return_inverse=True)[1]
    if group.max(initial=0) + 1 < MIN_NODES:
        group = np.unique(gap, return_inverse=True)[1]
    by_group = np.bincount(group, gain)
    return bool(by_group.sum() > 2 * np.sqrt((by_group**2).sum()))


def regress(target: Array, features: Array, group: Array) -> tuple[Array, Array]:
    """Least squares: leave-one-group-out estimates of all cells, and the coefficients of the complete fit."""
    _, group = np.unique(group, return_inverse=True)
    n_groups, n_features = int(group.max()) + 1, len(features)
    products = [np.bincount(group, one * other, n_groups) for one in features for other in (*features, target)]
    sums = np.stack(products, axis=1).reshape(n_groups, n_features, n_features + 1)
    total = sums.sum(axis=0)
    ridge = (1e-3 * np.trace(total[:, :-1]) / n_features + 1e-12) * np.eye(n_features)
    coefficients = np.linalg.solve(total[:, :-1] + ridge, total[:, -1])
    without = total - sums
    unseen = np.linalg.solve(without[:, :, :-1] + ridge, without[:, :, -1:])[:, :, 0]
    return np.einsum("kc,ck->c", features, unseen[group]), np.asarray(coefficients)
