"""Nodes that come later: filled from the nodes that are there, which stay as they are.

A new node is linked to nodes of a finished imputation, and values flow towards it only. With w_ij the weights of its
links, xi and X-hat the confidence and the diffused values of the nodes that are there, its missing cells settle at

    x_i = sum_j w_ij xi_j x_j / sum_j w_ij xi_j,      one hop farther than the nearest of its links

and its channels then share with the channel means and correlations of the nodes that are there (stage 2). Calibrated
values are drawn towards the channel's mean as far as their number of hops proved unreliable.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation import Tuning
from pcfi.stages.hops import UNREACHABLE

ROWS_AT_A_TIME = 4096


@dataclass(frozen=True, eq=False)
class Settled:
    """The nodes that are there.

    Attributes
    ----------
    values : ndarray of shape (n_nodes, n_channels)
        Diffused, not yet shared between channels; divided by powers of the degree, if that is what tuning found.
    hops : ndarray of int
    fallback : ndarray
        What an unreachable cell of each channel gets.
    alpha, beta : float
    standardize : bool
    tuning : Tuning or None
        What calibrated values are drawn by.
    """

    values: Array
    hops: Array
    fallback: Array
    alpha: float
    beta: float
    standardize: bool
    tuning: Tuning | None = None

    def fill(self, features: Array, links: Any) -> Array:
        """The rows of `features` with their missing cells filled; `links` are sparse similarities (new x there)."""
        out = features.copy()
        confidence = np.where(self.hops == UNREACHABLE, 0.0, float(self.alpha) ** np.minimum(self.hops, 2**20))
        carried = confidence * self.values.astype(np.float64)
        carried[confidence == 0] = 0.0
        mixing = self._mixing() if self.beta > 0 and self.alpha < 1 else None
        for start in range(0, len(features), ROWS_AT_A_TIME):
            rows = slice(start, start + ROWS_AT_A_TIME)
            weight = links[rows] @ confidence
            reached = weight > 0
            received = np.divide(links[rows] @ carried, weight, out=np.zeros_like(weight), where=reached)
            missing, factors = np.isnan(features[rows]), self._factors(links[rows])
            filled = np.where(missing, received, features[rows] / factors)
            if mixing is not None or self.tuning is not None:
                hops = np.where(missing, self._hops_behind(links[rows]), 0)
                filled = filled if mixing is None else _share(filled, hops, self.alpha, *mixing)
                filled = filled if self.tuning is None else _draw(filled * factors, hops, self.tuning)
            out[rows] = np.where(missing, np.where(reached, filled, self.fallback), features[rows])
        return out

    def _factors(self, links: Any) -> Any:
        """What the values of new nodes were divided by to be like those that are there."""
        scale = None if self.tuning is None else self.tuning.scale
        if scale is None:
            return 1.0
        by_node = scale.of_new(np.asarray(links.sum(axis=1), dtype=np.float64).ravel())
        return scale.factors(np.empty(0), by_node)

    def _hops_behind(self, links: Any) -> Array:
        """Hops of nodes behind `links`: one more than the least of their links."""
        hops = np.full((links.shape[0], self.hops.shape[1]), UNREACHABLE, dtype=np.int64)
        linked = np.flatnonzero(np.diff(links.indptr))
        if len(linked):
            nearest = np.minimum.reduceat(self.hops[links.indices].astype(np.int64), links.indptr[linked], axis=0)
            hops[linked] = np.minimum(nearest + 1, UNREACHABLE)
        return hops

    def _mixing(self) -> tuple[Array, Array]:
        """Channel means m, and beta R in the channels' units (paper, eq. 6 and 9)."""
        reachable = self.hops != UNREACHABLE
        count = np.maximum(reachable.sum(axis=0), 1)
        mean = np.where(reachable, self.values, 0.0).sum(axis=0, dtype=np.float64) / count
        apart = np.where(reachable, self.values - mean, 0.0)
        spread = np.sqrt((apart**2).sum(axis=0))
        spread[spread <= 1e-12 * np.sqrt(count) * np.abs(mean)] = 0.0
        inverse = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        correlation = np.clip(apart.T @ apart * inverse[:, None] * inverse, -1.0, 1.0)
        np.fill_diagonal(correlation, 0.0)
        if self.standardize:
            unit = np.sqrt(count)
            correlation *= (inverse * unit)[:, None] * (spread / unit)
        return mean, self.beta * correlation


def _share(filled: Array, hops: Array, alpha: float, mean: Array, mixing: Array) -> Array:
    confidence = np.where(hops == UNREACHABLE, 0.0, float(alpha) ** np.minimum(hops, 2**20))
    received = (confidence * (filled - mean)) @ mixing
    return np.asarray(np.where(hops == UNREACHABLE, filled, filled + (1 - confidence) * received))


def _draw(filled: Array, hops: Array, tuning: Tuning) -> Array:
    """Calibrated values; unreachable cells stay as they are."""
    kappa = tuning.kappa[np.minimum(hops, len(tuning.kappa) - 1)]
    kept = np.where((hops == UNREACHABLE) | (hops == 0), 1.0, np.minimum(kappa * tuning.trust, 1.0))
    return np.asarray(tuning.means.values + kept * (filled - tuning.means.values))
