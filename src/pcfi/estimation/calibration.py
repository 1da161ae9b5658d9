"""From confidence to numbers one can act on: expected error and prediction intervals, learned from hidden cells.

A hidden cell's error is measured in units of its channel's spread, as known without that cell (`spreads`). Two things
tell how large it will be: the channel, by the mean error of its hidden cells, and the hops, by an isotonic regression
(confidence falls with hops, so the expected error never falls); both are drawn towards that of all cells where there
are few. The score of a hidden cell is its error over what the other folds would have expected; an interval is the
expected error times a quantile of the scores of cells with about as many hops (split conformal prediction). With few
hidden nodes even that quantile is uncertain, so it is taken as high as needed for the intervals of each fold, made from
the others, to cover what they should. Beside columns of zeros and ones, whose errors hardly differ in size, an age
would be covered too seldom: a channel with many hidden cells and a clearly larger quantile of its own goes by that.

Steady channels, whose known values are all 0 (or all equal), stand aside: nearly all their cells are filled exactly,
and would make the quantile small for all others. They have one expected error together. About a channel without a
known value nothing can be learned: its intervals have no end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.closed_form import LEVELS
from pcfi.inputs.problem import Channels

PRIOR_CELLS = 10.0  # that say "as everywhere" about the error of a channel, and of a number of hops
CELLS_IN_GROUP = 500  # for a number of hops to have quantiles of its own
MOST_SCORES = 10_000  # kept of a group in a fold, evenly spaced in rank
CAUTION = np.linspace(0.0, 1.0, 21)
EQUAL_VALUES = 5  # that make a channel steady, if they are not 0
CELLS_IN_CHANNEL = 100  # for a channel to have quantiles of its own
CLEARLY = 5.0  # over the root of the number of its cells: by how much its quantile must exceed that of all cells
PARTS = 200  # in which the quantiles of a channel are kept


def is_steady(channels: Channels) -> Array:
    """Channels whose known values are all 0, or all equal and not too few."""
    return channels.silent | (channels.constant & (channels.n_known >= EQUAL_VALUES))


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors in the hidden cells of a fold, in units of the channels' spreads: of the method, and of the mean.

    Levels are hops, LEVELS - 1 at most; `steady` tells whether the channel is, as far as the fold leaves it known.
    """

    levels: Array
    channels: Array
    steady: Array
    absolute: Array
    of_mean: Array

    def at(self, chosen: Array) -> "Errors":
        """Some of the cells."""
        return Errors(*(part[chosen] for part in self._parts()))

    @classmethod
    def joined(cls, folds: "Sequence[Errors]") -> "Errors":
        """The cells of all folds."""
        return cls(*map(np.concatenate, zip(*(fold._parts() for fold in folds), strict=True)))

    def _parts(self) -> tuple[Array, ...]:
        return (self.levels, self.channels, self.steady, self.absolute, self.of_mean)


@dataclass(frozen=True, eq=False)
class Expected:
    """Expected error: of a channel, in its spread, times a factor for the number of hops, of length LEVELS."""

    overall: float
    per_channel: Array
    by_hops: Array

    def of(self, errors: Errors) -> Array:
        """What is expected of the given cells."""
        return np.asarray(self.per_channel[errors.channels] * self.by_hops[errors.levels])


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the hidden cells taught about errors.

    Attributes
    ----------
    scale : ndarray, one per channel
        Mean absolute error of the channel, in the channel's own unit.
    unseen : ndarray of bool, one per channel
        Whether the channel has no known value.
    by_hops : ndarray of length LEVELS
        Factor for a number of hops.
    unreachable : float
        Factor for cells that no source can reach: they hold a mean.
    groups : ndarray of int, one per number of hops
        Which scores a number of hops goes by.
    scores : list, one per group, of lists, one per fold, of ndarray
        Error over expected error of hidden cells, sorted.
    own : OwnQuantiles
        Of channels that have many of them, and larger ones than others.
    """

    scale: Array
    unseen: Array
    by_hops: Array
    unreachable: float
    groups: Array
    scores: list[list[Array]]
    own: "OwnQuantiles"

    def factors(self, n_levels: int) -> Array:
        """Factor by hops code, as in `Hops.codes`: 0 for known cells; the last entry is for unreachable ones."""
        table = self.by_hops[np.minimum(np.arange(n_levels + 2), LEVELS - 1)]
        table[0], table[-1] = 0.0, self.unreachable
        return np.asarray(table)

    def half_widths(self, n_levels: int, coverage: float) -> list[tuple[Array, Array]]:
        """Half the width of an interval: the sum of products of a number by hops code and one by channel.

        The first product is that of channels that go by all cells, the second that of those that go by their own.
        """
        quantiles = np.array([_cautious_quantile(folds, coverage) for folds in self.scores])
        groups = self.groups[np.minimum(np.arange(n_levels + 2), LEVELS - 1)]
        factors = self.factors(n_levels)
        widths = factors * quantiles[groups]
        widths[-1] = max(widths[-1], np.finfo(np.float64).tiny)  # so that it has no end in a channel without one
        own = self.own.at(coverage)
        together = np.where(self.own.rows >= 0, 0.0, np.where(self.unseen, np.inf, self.scale))
        return [(widths, together), (factors, self.scale * own)] if own.any() else [(widths, together)]


@dataclass(frozen=True, eq=False)
class OwnQuantiles:
    """Quantiles of the scores of channels whose scores spread clearly wider than those of all cells.

    Attributes
    ----------
    quantiles : ndarray
        One row per such channel, at 0, 1/PARTS, ... 1.
    rows : ndarray of int, one per channel
        Its row; -1 if it goes by all cells.
    """

    quantiles: Array
    rows: Array

    @classmethod
    def of(cls, channels: Array, scores: Array, n_channels: int) -> "OwnQuantiles":
        """Given the channel of each score; decided once, at 90 %, so that wider coverage has wider intervals."""
        counts, rows = np.bincount(channels, minlength=n_channels), np.full(n_channels, -1)
        limit = (1 + CLEARLY / np.sqrt(np.maximum(counts, 1))) * _quantile(scores, 0.9)
        within = np.bincount(channels[scores <= limit[channels]], minlength=n_channels)
        is_wide = (counts >= CELLS_IN_CHANNEL) & (within < np.ceil((counts + 1) * 0.9)) & (n_channels > 1)
        wide, theirs = np.flatnonzero(is_wide), is_wide[channels]
        scores, channels, sizes = scores[theirs], channels[theirs], counts[wide, None]
        ordered, starts = scores[np.lexsort((scores, channels))], np.cumsum(sizes)[:, None] - sizes
        place = np.ceil((sizes + 1) * np.arange(PARTS + 1) / PARTS).astype(np.int64) - 1
        rows[wide] = np.arange(len(wide))
        return cls(ordered[starts + np.clip(place, 0, sizes - 1)], rows)

    def at(self, coverage: float) -> Array:
        """The quantile of each channel; 0 for those that go by all cells."""
        place = min(int(np.ceil(PARTS * coverage - 1e-9)), PARTS)
        return np.append(self.quantiles[:, place], 0.0)[self.rows]


def calibrate(folds: Sequence[Errors], channels: Channels, spread: Array) -> Calibration:
    """Learn from the folds; `channels` and their spreads are those of the whole problem."""
    steady = Errors.joined(folds).at(np.concatenate([fold.steady for fold in folds]))
    varied = [fold.at(~fold.steady) for fold in folds if not fold.steady.all()]
    folds = varied if len(varied) > 1 else folds
    total, n_channels = Errors.joined(folds), len(spread)
    expected = _expect(total, n_channels)
    of_mean = total.of_mean.sum() / expected.per_channel[total.channels].sum()
    unreachable = max(float(of_mean), float(expected.by_hops[-1]))
    groups = _groups(np.bincount(total.levels, minlength=LEVELS))
    scores: list[list[Array]] = [[] for _ in range(int(groups.max()) + 1)]
    relative = []
    for own in folds:
        others = _expect(Errors.joined([fold for fold in folds if fold is not own]), n_channels)
        relative.append(own.absolute / others.of(own))
        group = groups[own.levels]
        for number, kept in enumerate(scores):
            kept.append(_thinned(np.sort(relative[-1][group == number])))
    of_steady = _drawn(steady.absolute.sum(), len(steady.absolute), expected.overall)
    scale = np.where(is_steady(channels), of_steady, expected.per_channel) * spread
    wide = OwnQuantiles.of(total.channels, np.concatenate(relative), n_channels)
    return Calibration(scale, channels.n_known == 0, expected.by_hops, unreachable, groups, scores, wide)


def _expect(errors: Errors, n_channels: int) -> Expected:
    from scipy.optimize import isotonic_regression

    overall = max(float(errors.absolute.mean()), np.finfo(np.float64).tiny)
    sums = np.bincount(errors.channels, weights=errors.absolute, minlength=n_channels)
    per_channel = _drawn(sums, np.bincount(errors.channels, minlength=n_channels), overall)
    seen = np.unique(errors.levels)
    of_channels = np.bincount(errors.levels, weights=per_channel[errors.channels])[seen] + PRIOR_CELLS * overall
    at_level = np.bincount(errors.levels, weights=errors.absolute)[seen] + PRIOR_CELLS * overall
    monotone = isotonic_regression(at_level / of_channels, weights=of_channels).x
    # a number of hops that was not seen goes by the next smaller one that was
    place = np.maximum(np.searchsorted(seen, np.arange(LEVELS), side="right") - 1, 0)
    return Expected(overall, per_channel, monotone[place])


def _drawn(total: Any, count: Any, overall: float) -> Any:
    """Means of errors, each drawn towards that of all cells."""
    return (total + PRIOR_CELLS * overall) / (count + PRIOR_CELLS)


def _groups(cells: Array) -> Array:
    """Neighbouring numbers of hops together, until each group has enough cells; the last one takes the rest."""
    group, filled, groups = 0, 0, np.zeros(len(cells), dtype=np.int64)
    remaining = int(cells.sum())
    for level, count in enumerate(cells):
        if filled >= CELLS_IN_GROUP and remaining >= CELLS_IN_GROUP:
            group, filled = group + 1, 0
        groups[level] = group
        filled, remaining = filled + int(count), remaining - int(count)
    return groups


def _thinned(scores: Array) -> Array:
    if len(scores) <= MOST_SCORES:
        return scores
    return np.asarray(scores[np.linspace(0, len(scores) - 1, MOST_SCORES).astype(np.int64)])


def _cautious_quantile(folds: list[Array], coverage: float) -> float:
    """The conformal quantile, at a level so high that quantiles of the other folds cover each fold as they should."""
    sizes = [len(scores) for scores in folds]
    for level in coverage + (1 - coverage) * CAUTION:
        covered = 0
        for place, own in enumerate(folds):
            others = np.concatenate([*folds[:place], *folds[place + 1 :], own[:0]])
            bound = _quantile(others, level) if len(others) else np.inf
            covered += int(np.searchsorted(own, bound, side="right"))
        if covered >= coverage * sum(sizes):
            break
    scores = np.concatenate(folds)
    bound = _quantile(scores, float(level))
    if bound > 0 or coverage < 0.5:
        return bound
    # most hidden cells are filled exactly (zeros, say); intervals without width would promise that for nearly all
    return float(np.median(scores[scores > 0])) if scores.any() else 0.0


def _quantile(scores: Array, level: float) -> float:
    """The smallest score that at least `level` of n + 1 exchangeable scores do not exceed; the largest if none."""
    place = int(np.ceil((len(scores) + 1) * level)) - 1
    place = min(max(place, 0), len(scores) - 1)
    return float(np.partition(scores, place)[place])
