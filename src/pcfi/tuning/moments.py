"""Sums over hidden cells, by hops, and the reliability and the strength of sharing that they make best.

With mu the mean of a cell's channel, d = X-hat - mu, c what it received from other channels (X-tilde = X-hat + beta c)
and y = x - mu, all in units of the channel's range, the squared error of V = mu + kappa(hops) (X-tilde - mu) is

    sum over hops h:  YY - 2 kappa_h (DY + beta CY) + kappa_h^2 (DD + 2 beta DC + beta^2 CC)

which six sums per number of hops give for any kappa and beta. The best kappa for a beta is a ratio of sums per hop,
made non-increasing by isotonic regression; the best beta for a kappa is a ratio, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LEVELS = 64  # hops from here on count alike
PRIOR_UNITS = 2.0  # hidden units whose weight pulls a hop's reliability towards that of all, and all and beta towards 0
ROUNDS = 12


@dataclass(frozen=True, eq=False)
class Moments:
    """The sums, one entry per number of hops; `units` is the number of independent hidden units behind them."""

    units: Array
    dd: Array
    dc: Array
    cc: Array
    dy: Array
    cy: Array
    yy: Array

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(*(mine + theirs for mine, theirs in zip(self._sums(), other._sums(), strict=True)))

    def __sub__(self, other: "Moments") -> "Moments":
        return Moments(*(mine - theirs for mine, theirs in zip(self._sums(), other._sums(), strict=True)))

    def _sums(self) -> tuple[Array, ...]:
        return (self.units, self.dd, self.dc, self.cc, self.dy, self.cy, self.yy)


@dataclass(frozen=True, eq=False)
class Fit:
    """Reliability by hops (its first entry, for known cells, is 1) and the strength of sharing."""

    kappa: Array
    beta: float


def moments_of(levels: Array, weight: Array, diffused: Array, received: Array, wanted: Array) -> Moments:
    """The sums over hidden cells, given hops, weight in units, d, c and y of each."""
    pairs = [(diffused, diffused), (diffused, received), (received, received), (diffused, wanted)]
    pairs += [(received, wanted), (wanted, wanted)]

    def by_level(weights: Array) -> Array:
        return np.bincount(np.minimum(levels, LEVELS - 1), weights=weights, minlength=LEVELS)

    return Moments(by_level(weight), *(by_level(left * right) for left, right in pairs))


def fit(moments: Moments, beta: float | None = None, prior_units: float = PRIOR_UNITS) -> Fit:
    """The best reliability and beta together, or the best reliability for a given beta.

    Few hidden units would be followed too far, so each hop also holds `prior_units` average ones that say what all hops
    say together, and all hops together hold as many that say 0.
    """
    share = prior_units / max(float(moments.units.sum()), 1.0)
    found = 0.0 if beta is None else beta
    kappa = _kappa(moments, found, share)
    for _ in range(ROUNDS if beta is None else 0):
        slope = float((kappa * moments.cy - kappa**2 * moments.dc).sum())
        # the prior does not shrink with kappa: else beta could grow without bound where kappa vanishes
        curve = float(((kappa**2 + share) * moments.cc).sum())
        better = max(0.0, slope / curve) if curve > 0 else 0.0
        settled = abs(better - found) <= 1e-4 * max(1.0, found)
        found = better
        kappa = _kappa(moments, found, share)
        if settled:
            break
    return Fit(kappa, found)


def _kappa(moments: Moments, beta: float, share: float) -> Array:
    weight = moments.dd + 2 * beta * moments.dc + beta**2 * moments.cc
    product = moments.dy + beta * moments.cy
    prior = share * float(weight.sum())
    seen = np.flatnonzero(weight > 0)
    if not len(seen) or prior <= 0:
        return np.append(1.0, np.zeros(LEVELS - 1))
    pooled = float(np.clip(product.sum() / (weight.sum() + prior), 0.0, 1.0))
    ratio = (product[seen] + prior * pooled) / (weight[seen] + prior)
    monotone = _falling(ratio, weight[seen] + prior)
    # a number of hops that no hidden cell has gets the reliability of the next smaller one that some have
    place = np.maximum(np.searchsorted(seen, np.arange(LEVELS), side="right") - 1, 0)
    kappa = np.clip(monotone, 0.0, 1.0)[place]
    kappa[0] = 1.0
    return np.asarray(kappa)


def _falling(ratio: Array, weights: Array) -> Array:
    """The nearest values that never rise; asked for in every round, and mostly `ratio` itself."""
    if (np.diff(ratio) <= 0).all():
        return ratio
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(ratio, weights=weights, increasing=False).x)
