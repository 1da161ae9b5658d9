"""Deviations from the expected values, and their estimates from neighbours, all other nodes and other columns.

With rho(j, t) the reliability of y(j, t), the share of its variance that is known from node j itself (1 at a reading,
and less the farther it is inside a gap), the estimate from the neighbours of node i is

    g(i, t) = sum_j w_ij rho_j y_j / (sum_j w_ij rho_j + (1 - r) / r)

the best linear estimate from neighbours whose deviations all have the correlation r with each other and with node i.
The estimate c(i, t) from all other nodes is the same sum with equal weights. Neither uses node i itself. The estimate
from the other columns, o(i, t), is in `pcfi.panels.other_columns`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph
from pcfi.panels.profile import Profile, fit_profile
from pcfi.panels.time_models import TimeModel

MIN_CORRELATION, MAX_CORRELATION = 0.02, 0.98  # estimates of r are clipped to this range
FAR_STEPS = 2  # hops beyond the neighbours that are used if neighbours have no reading


@dataclass(frozen=True, eq=False)
class PanelAxes:
    """The graph, the times in typical steps, and the phase of each time in each season.

    If the seasons are given, all are used; otherwise as many of the first ones as reduce the error on hidden cells.
    """

    graph: Graph
    steps: Array
    phases: dict[str, Array]
    season_is_given: bool = False

    def seasons(self) -> list[tuple[str, ...]]:
        """Candidates for the seasons of a column."""
        names = tuple(self.phases)
        return [names] if self.season_is_given else [names[:count] for count in range(len(names) + 1)]

    def shortened(self, times: slice) -> "PanelAxes":
        """The same for a stretch of time."""
        phases = {name: phases[times] for name, phases in self.phases.items()}
        return PanelAxes(self.graph, self.steps[times], phases, self.season_is_given)

    @cached_property
    def weights(self) -> Any:
        """Weights of the edges with a mean of 1."""
        matrix = self.graph.matrix()
        return matrix / max(matrix.data.mean(), 1e-300) if matrix.nnz else matrix


@dataclass(frozen=True, eq=False)
class Deviations:
    """Deviations y in units of each node, 0 where unknown, and predictors of them.

    Attributes
    ----------
    known : ndarray of bool, shape (n_nodes, n_times)
    profile : Profile
    own, nearby, common : ndarray of the same shape
        y, g and c.
    columns : ndarray of the same shape or None
        o, if the panel has other columns.
    """

    known: Array
    profile: Profile
    own: Array
    nearby: Array
    common: Array
    columns: Array | None = None

    @property
    def predictors(self) -> list[Array]:
        """g, c and, if there are other columns, o."""
        return [self.nearby, self.common, *([] if self.columns is None else [self.columns])]

    def changes(self, model: TimeModel, node: Array, time: Array, steps: Array) -> tuple[Array, Array]:
        """S[y] and, of each predictor, its change p - S[p] at some cells; and the variance of the smoother.

        S uses only the times at which the node has readings.
        """
        nodes, place = np.unique(node, return_inverse=True)
        series = np.stack([one[nodes] for one in (self.own, *self.predictors)])
        smoothed, variance = model.smooth(series, self.known[nodes], steps)
        at = smoothed[:, place, time]
        at[1:] = np.stack([one[node, time] for one in self.predictors]) - at[1:]
        return at, variance[place, time]


def anomalies(
    values: Array, known: Array, season: tuple[str, ...], axes: PanelAxes, other_means: Array | None = None
) -> tuple[Profile, Array]:
    """The profile, and deviations from it in units of each node; `values` are 0 where unknown."""
    profile = fit_profile(values, known, tuple(axes.phases[name] for name in season), axes.graph, other_means)
    own = (values - profile.expected()) / profile.unit[:, None]
    own[~known] = 0.0
    return profile, own


def compare_with_others(profile: Profile, own: Array, known: Array, base: TimeModel, axes: PanelAxes) -> Deviations:
    """Add the estimates from neighbours and from all nodes; `base` fills their own gaps first."""
    estimate, reliability = bridge_gaps(own, known, base, axes.steps)
    nearby = _nearby(estimate, reliability, known, axes, _neighbor_correlation(own, known, axes.weights))
    return Deviations(known, profile, own, nearby, _common(estimate, reliability, own, known))


def bridge_gaps(own: Array, known: Array, base: TimeModel, steps: Array) -> tuple[Array, Array]:
    """Return rho y at all cells, with y smoothed by `base` where no reading is known; and rho."""
    smoothed, variance = base.smooth(own[None], known, steps)
    prior = _prior_variance(own, known, steps, base)
    reliability = np.where(known, 1.0, np.clip(1 - variance / prior, 0, 1))
    return np.where(known, own, smoothed[0]) * reliability, reliability


def _prior_variance(own: Array, known: Array, steps: Array, base: TimeModel) -> float:
    """Variance of the deviations in units of the innovation of a typical step, as the smoother has it."""
    if np.isfinite(base.length):
        return base.variance
    both = known[:, 1:] & known[:, :-1]
    apart = np.broadcast_to(np.diff(steps), both.shape)[both]
    innovation = float((np.diff(own, axis=1)[both] ** 2).mean() / apart.mean()) if len(apart) else 1.0
    return float((own[known] ** 2).mean() / max(innovation, 1e-12)) if known.any() else 1.0


def _shrinkage(products: float, pairs: float) -> float:
    """(1 - r) / r for the correlation r of pairs."""
    correlation = min(max(products / pairs if pairs > 0 else 0.0, MIN_CORRELATION), MAX_CORRELATION)
    return (1 - correlation) / correlation


def _neighbor_correlation(own: Array, known: Array, weights: Any) -> float:
    mask = known.astype(np.float64)
    return _shrinkage(float((own * (weights @ own)).sum()), float((mask * (weights @ mask)).sum()))


def _nearby(estimate: Array, reliability: Array, known: Array, axes: PanelAxes, shrinkage: float) -> Array:
    total, weight = axes.weights @ estimate, axes.weights @ reliability
    nearby = total / (weight + shrinkage)
    for _ in range(FAR_STEPS):  # cells in a gap pass on the estimates from their neighbours
        support = weight / (weight + shrinkage)
        passed = np.where(known, 0.0, (1 - reliability) * support)
        total, weight = axes.weights @ (estimate + passed * nearby), axes.weights @ (reliability + passed)
        nearby = np.where(known, nearby, total / (weight + shrinkage))
    return np.asarray(nearby)


def _common(estimate: Array, reliability: Array, own: Array, known: Array) -> Array:
    mask = known.astype(np.float64)
    pairs = float((mask.sum(axis=0) ** 2).sum() - mask.sum())
    shrinkage = _shrinkage(float((own.sum(axis=0) ** 2).sum() - (own**2).sum()), pairs)
    return np.asarray((estimate.sum(axis=0) - estimate) / (reliability.sum(axis=0) - reliability + shrinkage))
