"""The model of one column of a panel: what is learned about each kind of gap, and how it is chosen.

With y the deviation of a cell from what is usual, g, c and o what its neighbours, all other nodes and the other columns
say about it, and S[.] the smoother in time, which sees only the times at which the node itself has readings,

    estimate of y = S[y] + space (g - S[g]) + shared (c - S[c]) + columns (o - S[o])

S[y] is interpolation in time. The other terms add how the neighbours and the other columns moved since the readings
before and after the gap. With S linear and all factors 0 this is linear interpolation; for a node that never reported S
is 0, and what is left is a regression on the others. The smoother and the factors are chosen for each kind of gap on
hidden cells; o is used in cells where another column has a reading, if that is certain to be better.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.panels.gaps import KINDS, NEVER
from pcfi.panels.time_models import LINEAR, TimeModel

SHARES_OF_TRUST = (0.0, 0.5, 1.0)  # of the regression's factors: less if it does not hold for nodes it has not seen
NEIGHBORS_ALONE = np.array([1.0, 0.0, 0.0])  # g itself: no regression, if there is little data
MIN_NODES = 8  # with hidden cells, from which their differences say what chance is
MIN_HIDDEN, MIN_GAPS = 100, 20  # cells and gaps of a kind, from which it gets a model of its own


@dataclass(frozen=True, eq=False)
class KindModel:
    """What was learned about a kind of gap.

    Attributes
    ----------
    time : TimeModel
    trust : ndarray of 3
        Factors of what neighbours, all other nodes and other columns say: space, shared and columns.
    scores : ndarray
        Absolute errors of hidden cells in units of `scale_of`, sorted.
    errors : ndarray of 4
        Mean absolute errors of the estimate, of linear interpolation, of the neighbours alone and of the node's mean.
    n_groups : int
        Hidden gaps; cells of one gap err together.
    """

    time: TimeModel
    trust: Array
    scores: Array
    errors: Array
    n_groups: int = 0

    def scale_of(self, variance: Array) -> Array:
        """Relative size of the error at cells with this variance of the smoother."""
        return np.sqrt(np.minimum(variance, self.time.variance) + self.time.noise + 1e-6)


UNLEARNED = KindModel(LINEAR, np.zeros(3), np.empty(0), np.full(4, np.nan))  # of a gap unlike any that could be hidden


@dataclass(frozen=True, eq=False)
class ColumnModel:
    """Scale, seasons, the smoother that bridges gaps of neighbours, and a model for each kind of gap.

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
        True and usual value on the scale of the model, and the unit of the node.
    rivals : ndarray of shape (3, n_cells)
        Estimates by linear interpolation, by neighbours alone and by the node's mean, on the scale of the column.
    """

    node: Array
    gap: Array
    kind: Array
    has_columns: Array
    truth: Array
    usual: Array
    unit: Array
    rivals: Array


Candidates = dict[TimeModel, tuple[Array, Array]]  # S[y], changes of the predictors, and the variance, at hidden cells


def fit_kinds(cells: HiddenReadings, candidates: Candidates, model: ColumnModel) -> ColumnModel:
    """Choose smoother and factors for each kind of gap; kinds of few hidden cells share those of all gaps."""
    everywhere = np.ones(len(cells.kind), dtype=bool)
    kinds = _fit_by_kind(cells, candidates, everywhere, model, n_predictors=2)
    if not cells.has_columns.any():
        return replace(model, kinds=kinds)
    fitted = _fit_by_kind(cells, candidates, cells.has_columns, model, n_predictors=3)
    with_columns = {kind: one for kind, one in fitted.items() if one.trust[2]}
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
    """The smoother and the factors with the least mean absolute error.

    Linear interpolation, unless the gain is certain; and the first two predictors alone, unless the third is certain to
    be better. Cells of one gap are alike, so errors are those of a regression that has not seen the node
    (cross-validation).
    """
    usual, unit, group = cells.usual[rows], cells.unit[rows], cells.node[rows]
    truth, deviation = model.from_scale(cells.truth[rows]), (cells.truth[rows] - usual) / unit

    def error(estimate: Array) -> Array:
        return np.asarray(np.abs(model.from_scale(usual + unit * estimate) - truth))

    def least(count: int) -> Any:
        fits: list[tuple[float, Any]] = []
        for time, (at, variance) in candidates.items():
            own, others = at[0, rows], at[1 : count + 1, rows]
            unseen, trust = regress(deviation - own, others, group)
            trust = np.pad(trust, (0, 3 - count))
            choices = [(share * trust, own + share * unseen) for share in SHARES_OF_TRUST]
            choices.append((NEIGHBORS_ALONE, own + others[0]))
            fits += [(float(error(one).mean()), (time, factors, one, variance[rows])) for factors, one in choices]
        return min(fits, key=lambda fit: fit[0])[1]

    linear = candidates[LINEAR][0][0, rows]
    chosen: Any = LINEAR, np.zeros(3), linear, candidates[LINEAR][1][rows]
    for count in range(2, n_predictors + 1):
        fit = least(count)
        if is_certain(error(chosen[2]) - error(fit[2]), group, cells.gap[rows]):
            chosen = fit
    time, trust, estimate, variance = chosen
    rivals = np.abs(cells.rivals[:, rows] - truth).mean(axis=1)
    kind = KindModel(time, trust, np.empty(0), np.array([error(estimate).mean(), *rivals]))
    scores = np.sort(np.abs(deviation - estimate) / kind.scale_of(variance))
    return replace(kind, scores=scores, n_groups=len(np.unique(cells.gap[rows])))


def is_certain(gain: Array, node: Array, gap: Array) -> bool:
    """Whether a gain over hidden cells is larger than chance: two standard errors.

    What is taken to be independent are nodes, or gaps if nodes are few.
    """
    group = np.unique(node, return_inverse=True)[1]
    if group.max(initial=0) + 1 < MIN_NODES:
        group = np.unique(gap, return_inverse=True)[1]
    by_group = np.bincount(group, gain)
    return bool(by_group.sum() > 2 * np.sqrt((by_group**2).sum()))


def regress(target: Array, features: Array, group: Array) -> tuple[Array, Array]:
    """Least squares: the estimate of each cell without the cells of its group, and the coefficients of all cells."""
    _, group = np.unique(group, return_inverse=True)
    n_groups, n_features = int(group.max()) + 1, len(features)
    products = [np.bincount(group, one * other, n_groups) for one in features for other in (*features, target)]
    sums = np.stack(products, axis=1).reshape(n_groups, n_features, n_features + 1)
    total = sums.sum(axis=0)
    pull = (1e-3 * np.trace(total[:, :-1]) / n_features + 1e-12) * np.eye(n_features)
    trust = np.linalg.solve(total[:, :-1] + pull, total[:, -1])
    without = total - sums
    unseen = np.linalg.solve(without[:, :, :-1] + pull, without[:, :, -1:])[:, :, 0]
    return np.einsum("kc,ck->c", features, unseen[group]), np.asarray(trust)
