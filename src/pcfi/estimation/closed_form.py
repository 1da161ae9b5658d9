"""Sums over hidden cells, and the reliability and the strength of sharing that they make best.

With mu the mean of a cell's channel, d = X-hat - mu, c what it received from other channels (X-tilde = X-hat + beta c)
and y = x - mu, all in units of the channel (`trials.Whole`), the squared error of V = mu + k (X-tilde - mu) is

    sum over cells:  YY - 2 k (DY + beta CY) + k^2 (DD + 2 beta DC + beta^2 CC)

where k = trust_j kappa(h), at most 1, depends on the hops h and on the column j of the table: one column may follow its
neighbours closely, and another not at all. Six sums per number of hops and column give the error for any kappa, trust
and beta. The best kappa for given others is a ratio of sums per number of hops, made non-increasing by isotonic
regression; the best beta and the best trust of a column are ratios, too.
"""

from dataclasses import dataclass, fields

import numpy as np

from pcfi._typing import Array

LEVELS = 64  # hops from here on count alike
PRIOR_UNITS = 2.0  # hidden units whose weight pulls a hop's reliability towards that of all, and all and beta towards 0
ROUNDS = 12
ALIKE = np.inf  # prior cells of a column with which all columns are trusted alike


@dataclass(frozen=True, eq=False)
class Moments:
    """The sums, one row per number of hops and one column per column of the table.

    `units` is the number of independent hidden units behind them, `cells` that of hidden cells.
    """

    units: Array
    cells: Array
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

    def trusted(self, trust: Array) -> "Moments":
        """The sums by hops alone, with what was filled in times the trust in its column."""
        powers = dict.fromkeys(("dy", "cy"), trust) | dict.fromkeys(("dd", "dc", "cc"), trust**2)
        return Moments(*(getattr(self, one.name) @ powers.get(one.name, np.ones_like(trust)) for one in fields(self)))

    def products(self, beta: float) -> tuple[Array, Array]:
        """Sums of what was filled in times y, and times itself."""
        return self.dy + beta * self.cy, self.dd + 2 * beta * self.dc + beta**2 * self.cc

    def errors(self, found: "Fit") -> Array:
        """Sum of the squared errors of a fit, by column."""
        kept = np.minimum(found.kappa[: len(self.yy), None] * found.trust, 1.0)
        product, weight = self.products(found.beta)
        return np.asarray((self.yy - 2 * kept * product + kept**2 * weight).sum(axis=0))

    def _sums(self) -> tuple[Array, ...]:
        return tuple(getattr(self, one.name) for one in fields(self))


@dataclass(frozen=True, eq=False)
class Fit:
    """Reliability by hops (its first entry, for known cells, is 1), strength of sharing, and trust in each column."""

    kappa: Array
    beta: float
    trust: Array


@dataclass(frozen=True, eq=False)
class Places:
    """Where each judged cell counts: hops, column, and its part of a hidden unit and of a cell of the column."""

    levels: Array
    columns: Array
    unit: Array
    cell: Array
    shape: tuple[int, int]  # numbers of levels and columns

    @classmethod
    def together(cls, levels: Array) -> "Places":
        """All cells in one column, each a unit of its own."""
        ones = np.ones(len(levels))
        return cls(levels, np.zeros(len(levels), dtype=np.int64), ones, ones, (LEVELS, 1))

    def kept(self, found: Fit) -> Array:
        """How much of the distance from the mean each cell keeps."""
        by_hops = found.kappa[np.minimum(self.levels, LEVELS - 1)]
        return by_hops if (found.trust == 1).all() else np.minimum(by_hops * found.trust[self.columns], 1.0)

    def summed(self, weights: Array) -> Array:
        """The sum of weights by hops and column."""
        place = np.minimum(self.levels, self.shape[0] - 1) * self.shape[1] + self.columns
        return np.bincount(place, weights=weights, minlength=self.shape[0] * self.shape[1]).reshape(self.shape)


def moments_of(places: Places, diffused: Array, received: Array, wanted: Array) -> Moments:
    """The sums over hidden cells, given d, c and y of each."""
    pairs = [(diffused, diffused), (diffused, received), (received, received), (diffused, wanted)]
    pairs += [(received, wanted), (wanted, wanted)]
    counts = places.summed(places.unit), places.summed(places.cell)
    return Moments(*counts, *(places.summed(left * right) for left, right in pairs))


def fit(
    moments: Moments, beta: float | None = None, prior_units: float = PRIOR_UNITS, prior_cells: float = ALIKE
) -> Fit:
    """The best reliability, beta and trust together, or the best for a given beta.

    Few hidden units would be followed too far, so each hop also holds `prior_units` average ones that say what all hops
    say together, and all hops together hold as many that say 0; and each column `prior_cells` average cells that are to
    be trusted like those of all columns.
    """
    share = prior_units / max(float(moments.units.sum()), 1.0)
    alike = np.ones(moments.yy.shape[1])
    by_hops = moments.trusted(alike)

    def best(given: float) -> Fit:
        kappa = _kappa(by_hops, given, share)
        if prior_cells == ALIKE:
            return Fit(kappa, given, alike)
        return Fit(*_trusting(moments, kappa, given, share, prior_cells))

    found = best(beta or 0.0)
    for _ in range(ROUNDS if beta is None else 0):
        trusted = by_hops if prior_cells == ALIKE else moments.trusted(found.trust)
        before, found = found.beta, best(_beta(trusted, found.kappa, share))
        if abs(found.beta - before) <= 1e-4 * max(1.0, before):
            break
    return found


def _beta(moments: Moments, kappa: Array, share: float) -> float:
    """The best beta for sums by hops."""
    kept = kappa[: len(moments.cc)]
    slope = float((kept * moments.cy - kept**2 * moments.dc).sum())
    # the prior does not shrink with kappa: else beta could grow without bound where kappa vanishes
    curve = float(((kept**2 + share) * moments.cc).sum())
    return max(0.0, slope / curve) if curve > 0 else 0.0


def _trusting(
    moments: Moments, kappa: Array, beta: float, share: float, prior_cells: float
) -> tuple[Array, float, Array]:
    """Reliability, beta and trust for a beta, from the reliability with all columns trusted alike."""
    if not kappa[1:].any():  # some columns run against the graph, as much as others follow it
        kappa = np.ones(len(kappa))
    trust = _trust(moments, kappa, beta, prior_cells)
    kappa = _kappa(moments.trusted(trust), beta, share)
    return kappa, beta, _trust(moments, kappa, beta, prior_cells)


def _trust(moments: Moments, kappa: Array, beta: float, prior_cells: float) -> Array:
    product, weight = moments.products(beta)
    kept = kappa[: len(weight)]
    own, curve, cells = kept @ product, kept**2 @ weight, moments.cells.sum(axis=0)
    ratio = np.divide(own, curve, out=np.ones_like(own), where=curve > 0)
    return np.asarray(np.maximum((cells * ratio + prior_cells) / (cells + prior_cells), 0.0))


def _kappa(moments: Moments, beta: float, share: float) -> Array:
    product, weight = moments.products(beta)
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
