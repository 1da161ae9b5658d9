"""How the graph's estimate of a cell relates to its value, and how both sources of knowledge are combined.

For a known cell that was hidden, let z be its standardised value and g what diffusion from the other nodes says. With f
the factors of the node's columns (`factor_model`), each column c has

    g = tau_c z + delta_c . f + noise,      noise ~ N(0, omega_c)

tau is near 1 where a column follows the graph, near 0 where it ignores it, and below 0 where it runs against it; delta
says how far the other columns tell what the neighbours look like. A missing cell is estimated in two steps, as by a
Kalman filter: the known columns of the row give h = lambda_c . E[f] with variance v, and the graph corrects it,

    x = h + k (g - tau h - delta . E[f]),      k = cov(z, g) / var(g)  given the row.

With no other column known this is k g, the graph's estimate drawn towards the mean; where the row says it all, v and k
are near 0.
"""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.factor_model import FactorModel, packed, packed_products, unpacked
from pcfi.estimation.pooling import pooled_means

PRIOR_WEIGHT = 0.5  # prior mean of the part of the graph's estimate that is kept: a graph is given for a reason
WEIGHT_VARIANCE = 0.1  # its prior variance: between -0.1 and 1.1, most likely
FACTOR_RIDGE = 5.0  # cells that say delta = 0
MIN_PRECISION = 1 / WEIGHT_VARIANCE  # prior precision of a column's own part about the common one
MIN_NOISE = 1e-9  # of a column's variance: no estimate of the graph is exact


@dataclass(frozen=True, eq=False)
class GraphLink:
    """Slope tau and noise variance omega of each column, and its coefficients delta of shape (n_columns, rank)."""

    slope: Array
    noise: Array
    factors: Array

    def carried(self, model: FactorModel) -> Array:
        """What the factors add to the graph's estimate of each column: tau Lambda + delta."""
        return np.asarray(self.slope[:, None] * model.loadings + self.factors)


@dataclass(frozen=True, eq=False)
class CellEstimate:
    """Estimates of cells, their variances, and the part of the estimates that comes from the row alone."""

    value: Array
    variance: Array
    from_row: Array


def fit_graph_link(
    cells: tuple[Array, Array, Array, Array], posterior: tuple[Array, Array] | None, model: FactorModel
) -> GraphLink:
    """Estimate the link from hidden cells: their rows, channels, values and the graph's estimates."""
    rows, channels, values, graph = cells
    n_channels = len(model.noise)
    if posterior is None:
        return GraphLink(*_slopes(values, graph, rows, channels, model.noise), np.zeros((n_channels, 0)))
    mean, covariance = posterior
    rank = model.rank
    second = packed_products(mean, mean) + packed(covariance)
    moments = unpacked(_sums_by_channel(second, rows, channels, n_channels), rank) + FACTOR_RIDGE * np.eye(rank)
    solved = [
        np.linalg.solve(moments, _sums_by_channel(mean, rows, channels, n_channels, part)[:, :, None])[:, :, 0]
        for part in (values, graph)
    ]
    # what is left of z and g when f has explained its part of both
    values, graph = (
        part - (mean[rows] * one[channels]).sum(axis=1) for part, one in zip((values, graph), solved, strict=True)
    )
    slope, noise = _slopes(values, graph, rows, channels, model.noise)
    return GraphLink(slope, noise, solved[1] - slope[:, None] * solved[0])


def _sums_by_channel(
    of_rows: Array, rows: Array, channels: Array, n_channels: int, weights: Array | None = None
) -> Array:
    """Sums over cells of what their rows have, times a weight of each cell, by channel."""
    from scipy import sparse

    weights = np.ones(len(rows)) if weights is None else weights
    return np.asarray(sparse.csr_array((weights, (channels, rows)), shape=(n_channels, len(of_rows))) @ of_rows)


def _slopes(values: Array, graph: Array, rows: Array, channels: Array, variance: Array) -> tuple[Array, Array]:
    """Slope tau and noise omega of each channel, whose values have the given variance.

    They follow from the regression of z on g, which is stable where g hardly varies: with rho its slope and s^2 the
    variance of g, tau = rho s^2 / v and omega = s^2 - tau^2 v. rho is drawn towards that of all channels by its
    precision, that of a heteroscedastic regression (HC3: MacKinnon and White, 1985), so that a few large values do not
    pass for much evidence; variance that the hidden cells happen not to show counts as unexplained.
    """
    n_channels = len(variance)

    def total(part: Array) -> Array:
        return np.bincount(channels, weights=part, minlength=n_channels)

    counts = np.maximum(total(np.ones(len(values))), 1)
    values, graph = (part - (total(part) / counts)[channels] for part in (values, graph))
    squares = total(graph**2)
    own = np.divide(total(values * graph), squares, out=np.zeros(n_channels), where=squares > 0)
    leverage = np.minimum((1 / counts)[channels] + graph**2 / np.where(squares > 0, squares, 1.0)[channels], 1 - 1e-9)
    residual = np.abs(values - own[channels] * graph) + MIN_NOISE
    scatter = total((graph * residual / (1 - leverage)) ** 2)
    unseen = np.maximum(variance - total(values**2) / counts, 0.0)
    precision = squares**2 / np.maximum(scatter + (unseen + MIN_NOISE * variance) * squares, np.finfo(np.float64).tiny)
    common = _common_slope(values, graph, rows)
    own = (precision * own + common * MIN_PRECISION) / (precision + MIN_PRECISION)
    weight = pooled_means(own, precision, common)
    typical = squares.sum() / max(len(values), 1)
    spread = np.minimum((squares + typical) / (counts + 1), 0.99 * variance / np.maximum(weight**2, 1e-9))
    slope = weight * spread / variance
    return slope, np.maximum(spread - slope**2 * variance, MIN_NOISE)


def _common_slope(values: Array, graph: Array, rows: Array) -> float:
    """Slope of all channels together, drawn towards its prior mean.

    Its precision is that of a regression whose errors are alike within a row (Liang and Zeger, 1986): a row of columns
    that say the same is one observation.
    """
    squares = float((graph**2).sum())
    slope = float((values * graph).sum()) / max(squares, MIN_NOISE)
    scatter = np.bincount(rows, weights=graph * (values - slope * graph)) if len(rows) else np.zeros(1)
    precision = squares**2 / max(float((scatter**2).sum()), MIN_NOISE)
    return (precision * slope + PRIOR_WEIGHT / WEIGHT_VARIANCE) / (precision + 1 / WEIGHT_VARIANCE)


def prior_link(n_channels: int) -> GraphLink:
    """The link that the priors alone make: half of the graph's estimate is kept, if its variance is 1."""
    return GraphLink(
        np.full(n_channels, PRIOR_WEIGHT), np.full(n_channels, 1 - PRIOR_WEIGHT**2), np.zeros((n_channels, 0))
    )


def combine(graph: Array, posterior: tuple[Array, Array] | None, model: FactorModel, link: GraphLink) -> CellEstimate:
    """Estimate all cells of some rows from the graph's estimates (NaN: there is none) and the posterior of the factors.

    Without factors there is no posterior.
    """
    return RowMoments.of(posterior, model, link).updated(graph)


@dataclass(frozen=True, eq=False)
class RowMoments:
    """What the known columns of a row say about cells, and about what the graph would say of them.

    Attributes
    ----------
    from_row, expected : ndarray of shape (n_rows, n_columns)
        Means of z and of g.
    own, shared, of_graph : ndarray of shape (n_rows, n_columns)
        Variance of z, its covariance with g, and the variance of g.
    """

    from_row: Array
    expected: Array
    own: Array
    shared: Array
    of_graph: Array

    @classmethod
    def of(cls, posterior: tuple[Array, Array] | None, model: FactorModel, link: GraphLink) -> "RowMoments":
        """The moments that follow from the posterior of the factors; without one, those of any row."""
        slope, psi = link.slope, model.noise
        if posterior is None:
            zero, noise = np.zeros((1, len(psi))), psi[None, :]
            return cls(zero, zero, noise, slope * noise, slope**2 * noise + link.noise)
        mean, covariance = posterior
        loadings, carried = model.loadings, link.carried(model)
        own, shared, of_graph = (
            packed(covariance) @ _form(left, right).T
            for left, right in ((loadings, loadings), (loadings, carried), (carried, carried))
        )
        own += psi
        shared += slope * psi
        of_graph += slope**2 * psi + link.noise
        return cls(mean @ loadings.T, mean @ carried.T, own, shared, of_graph)

    def at(self, rows: Array, columns: Array) -> "RowMoments":
        """Those of single cells."""
        return RowMoments(*(array[rows, columns] for array in vars(self).values()))

    def updated(self, graph: Array) -> CellEstimate:
        """The Kalman step: what the row says, corrected by the graph's estimates (NaN: there is none)."""
        gain = np.where(np.isnan(graph), 0.0, self.shared / self.of_graph)
        value = self.from_row + gain * (np.nan_to_num(graph) - self.expected)
        variance = np.maximum(self.own - gain * self.shared, 1e-12)
        return CellEstimate(value, variance, np.broadcast_to(self.from_row, graph.shape))


def _form(left: Array, right: Array) -> Array:
    """What the half of a symmetric matrix M is multiplied by for left^T M right, one row each."""
    upper, lower = np.triu_indices(left.shape[1])
    return np.asarray(packed_products(left, right) + np.where(upper < lower, packed_products(right, left), 0.0))


def combine_cells(
    graph: Array,
    rows: Array,
    channels: Array,
    posterior: tuple[Array, Array] | None,
    model: FactorModel,
    link: GraphLink,
) -> CellEstimate:
    """The same for single cells, given by their rows and channels."""
    slope, noise, psi = link.slope[channels], link.noise[channels], model.noise[channels]
    if posterior is None:
        zeros = np.zeros(len(graph))
        return RowMoments(zeros, zeros, psi, slope * psi, slope**2 * psi + noise).updated(graph)
    mean, covariance = posterior[0][rows], posterior[1][rows]
    loadings, carried = model.loadings[channels], link.carried(model)[channels]
    of_loadings, of_carried = (np.einsum("nij,nj->ni", covariance, part) for part in (loadings, carried))
    own, shared = (of_loadings * loadings).sum(axis=1) + psi, (of_carried * loadings).sum(axis=1) + slope * psi
    of_graph = (of_carried * carried).sum(axis=1) + slope**2 * psi + noise
    moments = RowMoments((mean * loadings).sum(axis=1), (mean * carried).sum(axis=1), own, shared, of_graph)
    return moments.updated(graph)
