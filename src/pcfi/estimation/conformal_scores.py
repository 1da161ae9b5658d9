"""Scores of hidden cells -> the quantile that intervals of each channel go by (conformal prediction).

A score says how wide an interval has to be, in some unit, to include the truth. A channel goes by its own scores and by
those of all channels together, with the latter counting as the more scores the less channels differ.
"""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array

MIN_POOLED_SCORES = 50.0  # scores that those of all channels count as, at least


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Scores of hidden cells in ascending order, their channels and hops (0 if no source reaches them)."""

    values: Array
    channels: Array
    hops: Array

    @classmethod
    def of(cls, values: Array, channels: Array, hops: Array) -> "ConformalScores":
        """Sort the scores."""
        order = np.argsort(values, kind="stable")
        return cls(values[order], channels[order], hops[order])

    @classmethod
    def none(cls) -> "ConformalScores":
        """No scores."""
        return cls(np.empty(0), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.values)

    def of_channels(self, chosen: Array) -> "ConformalScores":
        """Those of some channels, given by a mask."""
        kept = chosen[self.channels]
        return self if kept.all() else ConformalScores(self.values[kept], self.channels[kept], self.hops[kept])

    def quantiles(self, coverage: float, n_channels: int) -> Array:
        """Quantile for each channel; inf where there are too few scores.

        It is the least score q with (number of own scores up to q) + weight * (share of all up to q) >= coverage *
        (number of own scores + weight + 1), found by bisection in the scores of all channels.
        """
        n_scores = len(self)
        if n_scores == 0:
            return np.full(n_channels, np.inf)
        counts = np.bincount(self.channels, minlength=n_channels)
        weight = min(self._pooled_scores(counts, coverage), float(n_scores))
        needed = coverage * (counts + weight + 1)
        # places of the scores of each channel, after those of the channels before it
        places = np.sort(self.channels * n_scores + np.arange(n_scores))
        start, first = np.arange(n_channels) * n_scores, np.cumsum(counts) - counts
        low, high = np.zeros(n_channels, dtype=np.int64), np.full(n_channels, n_scores - 1)
        while (low < high).any():
            middle = (low + high) // 2
            own = np.searchsorted(places, start + middle, side="right") - first
            reached = own + weight * (middle + 1) / n_scores >= needed
            low, high = np.where(reached, low, np.minimum(middle + 1, high)), np.where(reached, middle, high)
        return np.where(needed > counts + weight, np.inf, self.values[low])

    def hop_factors(self, quantiles: Array, coverage: float, max_hops: int) -> Array:
        """What intervals are wider by, at each number of hops up to the most: at least 1, and never less farther away.

        Cells at some number of hops may have another distribution of errors, not only larger ones, so their scores over
        the quantiles of their channels have a quantile of their own; that of all cells counts as `MIN_POOLED_SCORES`.
        """
        factors = np.ones(max_hops + 1)
        limits = quantiles[self.channels]
        ratios = np.where(np.isfinite(limits), self.values / np.where(limits > 0, limits, 1.0), 0.0)
        for hops in np.unique(self.hops[self.hops > 1]):
            own = ratios[self.hops == hops]
            share = MIN_POOLED_SCORES / (MIN_POOLED_SCORES + len(own))
            factors[hops] = (1 - share) * np.quantile(own, min(coverage * (1 + 1 / len(own)), 1.0)) + share
        return np.maximum.accumulate(factors)

    def _pooled_scores(self, counts: Array, coverage: float) -> float:
        """Number of scores that those of all channels count as: the more, the less channels differ.

        The share of a channel's scores beyond the common quantile has a beta distribution about 1 - coverage; its
        precision follows from how much more the shares of channels differ than binomial ones would (Kleinman, 1973).
        """
        n_scores, has_scores = len(self), counts > 0
        n_free = n_scores - np.count_nonzero(has_scores)
        is_beyond = self.values > self.values[min(int(np.ceil(coverage * n_scores)), n_scores) - 1]
        share = float(is_beyond.mean())
        if n_free == 0 or share in (0.0, 1.0):
            return MIN_POOLED_SCORES
        beyond = np.bincount(self.channels, weights=is_beyond, minlength=len(counts))
        excess = ((beyond - share * counts)[has_scores] ** 2 / counts[has_scores]).sum() / (share * (1 - share))
        correlation = (excess - np.count_nonzero(has_scores)) / n_free
        return float(max(MIN_POOLED_SCORES, 1 / max(correlation, 1e-9) - 1))
