"""How the error of the graph's estimates depends on where sources are, learned from hidden cells.

A missing cell with standardised value z is estimated by k g, where g is the sum of w_j z_j over its sources (stage 1):

    E (z - k g)^2 = 1 - 2 c + v,       c = k E z g = a r^(hops - 1),       v = k^2 E g^2 = f + (K - f) q

Sources are the less alike the cell, the farther they are: a and r are fitted to hidden cells. q, the sum of w_j^2, is
the reciprocal of the effective number of sources. Two sources of a cell are about two hops apart, so they covary:
f = a r K / k; what is left of their variance averages out. K is the mean of k^2 over the columns. A cell that no source
reaches has c = v = 0.

So a source is not worth having in itself: a node with many neighbours that have no others becomes their only source,
and they have its noise instead of the mean of several nodes'.
"""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.cell_info import CellInfo
from pcfi.estimation.cell_model import CellModel
from pcfi.estimation.folds import N_PARTS, make_folds
from pcfi.estimation.graph_estimates import graph_estimates, scale_of_channels, with_channels
from pcfi.estimation.graph_link import combine
from pcfi.estimation.value_model import ValueModel
from pcfi.inputs.problem import Problem

MAX_CHANNELS = 64  # channels that a and r are fitted to
PRIOR_LIKENESS = 0.5  # a / K if hidden cells find none: a graph is given for a reason
DECAYS = np.linspace(0.05, 1.0, 39)  # candidates for r


@dataclass(frozen=True)
class EstimateMoments:
    """Covariance c and variance v of the estimates, from hops and q.

    Attributes
    ----------
    near : float
        a.
    decay : float
        r.
    shared, noise : float
        f and K - f.
    hidden : float
        Mean of c over the hidden cells, and of v as well, since k was fitted to them.
    """

    near: float
    decay: float
    shared: float
    noise: float
    hidden: float

    def covariance(self, hops: Array) -> Array:
        """Return c, by hops; infinitely many hops stand for unreachable."""
        return np.where(
            np.isfinite(hops), self.near * self.decay ** np.maximum(np.nan_to_num(hops, posinf=1) - 1, 0), 0
        )

    def variance(self, hops: Array, concentration: Array) -> Array:
        """Return v, by hops and q."""
        return np.where(np.isfinite(hops), self.shared + self.noise * concentration, 0.0)


def weights_of_graph(cells: CellModel) -> Array:
    """Return k of every channel, if nothing else is known of a row.

    Where hidden cells say that the mean is better than all estimates, k is what it would be otherwise: the next fit may
    find it so.
    """
    ones = np.ones((1, len(cells.marginal_variance)))
    total = cells.weights.sum() if cells.weights.any() else 1.0
    return np.asarray(combine(ones, None, cells.independent, cells.plain_link).value[0] * total)


def fit_moments(cells: CellInfo, model: ValueModel, weights: Array) -> EstimateMoments:
    """Fit a and r to hidden cells; `weights` says how much each channel counts."""
    counted = np.flatnonzero(weights > 0)
    chosen = counted[np.linspace(0, len(counted) - 1, min(len(counted), MAX_CHANNELS)).round().astype(np.int64)]
    of_graph, importance = weights_of_graph(model.cells)[chosen], weights[chosen]
    squared = float(np.average(of_graph**2, weights=importance))
    size = float(np.average(np.abs(of_graph), weights=importance))
    covariance, hops, nodes, channels = _hidden_products(cells, model, chosen)
    near, decay = fit_decay(covariance * of_graph[channels], hops, nodes, importance[channels])
    near = min(near or PRIOR_LIKENESS * squared, float(np.sqrt(squared)))
    hidden = near * float(np.mean(decay ** (hops - 1))) if len(hops) else near
    # not below c^2: no error is below 0, however many sources there are
    shared = min(max(near * decay * squared / max(size, 1e-300), near**2), squared)
    return EstimateMoments(near=near, decay=decay, shared=shared, noise=squared - shared, hidden=hidden)


def fit_decay(products: Array, hops: Array, nodes: Array, importance: Array) -> tuple[float, float]:
    """Return a and r: r is its posterior mean, if all are as likely at first, and a node counts as one observation.

    So r is no extreme where hidden cells have hardly any different hops.
    """
    if not len(products):
        return 0.0, 1.0
    powers = DECAYS[:, None] ** (hops - 1.0)
    slopes = (powers * importance) @ products / ((powers**2) @ importance)
    errors = ((products - slopes[:, None] * powers) ** 2) @ importance
    likelihood = -0.5 * len(np.unique(nodes)) * np.log(np.maximum(errors, 1e-300))
    posterior = np.exp(likelihood - likelihood.max())
    decay = float(DECAYS @ posterior / posterior.sum())
    power = decay ** (hops - 1.0)
    return max(float((importance * power) @ products / (importance @ power**2)), 0.0), decay


def _hidden_products(cells: CellInfo, model: ValueModel, chosen: Array) -> tuple[Array, Array, Array, Array]:
    """Return z g, hops, node and channel of hidden cells that a source reaches."""
    transformed = model.scale.transformed(cells.problem)
    problem = some_channels(transformed, chosen)
    settings = replace(cells.settings, beta=0.0, progress=False)
    degree = None if model.degree is None else model.degree.of_channels(chosen)
    seed = cells.settings.random_state
    folds = make_folds(problem, N_PARTS, seed if isinstance(seed, int) else 0)
    hidden = graph_estimates(folds, scale_of_channels(model.scale, chosen), settings, degree)
    if not hidden:
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    products = np.concatenate([part.truth * part.graph for part in hidden])
    hops = np.concatenate([part.fold.hops.codes_at(part.nodes, part.channels) for part in hidden])
    nodes, channels = (np.concatenate([getattr(part, name) for part in hidden]) for name in ("nodes", "channels"))
    reached = ~np.isnan(products)
    return products[reached], hops[reached].astype(np.float64), nodes[reached], channels[reached]


def some_channels(problem: Problem, chosen: Array) -> Problem:
    """The problem with some of its channels."""
    return with_channels(
        problem, np.ascontiguousarray(problem.values[:, chosen]), np.ascontiguousarray(problem.mask[:, chosen])
    )
