"""From confidence to numbers one can act on: expected error and prediction intervals, learned from hidden cells.

A hidden cell's error is measured in units of its channel's range. Two things tell how large it will be: the channel, by
the mean error of its hidden cells, drawn towards that of all channels where there are few; and the hops, by an isotonic
regression (confidence falls with hops, so the expected error never falls). An interval is the expected error times the
quantile of (error / expected error) over the hidden cells with about as many hops (split conformal prediction).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.tuning.moments import LEVELS

Array = npt.NDArray[Any]

PRIOR_CELLS = 10.0  # that say "as in all channels" about the error of a channel
CELLS_IN_GROUP = 500  # for a number of hops to have quantiles of its own
MOST_SCORES = 100_000  # kept of a group, evenly spaced in rank


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the hidden cells taught about errors.

    Attributes
    ----------
    scale : ndarray, one per channel
        Mean absolute error of the channel, in the channel's own unit.
    by_hops : ndarray of length LEVELS
        Factor for a number of hops; 0 for known cells.
    unreachable : float
        Factor for cells that no source can reach: they hold a mean.
    groups : ndarray of int, one per number of hops
        Which scores a number of hops goes by.
    scores : tuple of ndarray
        Error over expected error of the hidden cells of each group, sorted.
    """

    scale: Array
    by_hops: Array
    unreachable: float
    groups: Array
    scores: tuple[Array, ...]

    def factors(self, n_levels: int) -> Array:
        """Factor by hops code, as in `Hops.codes`: the last entry is for unreachable cells."""
        table = self.by_hops[np.minimum(np.arange(n_levels + 2), LEVELS - 1)]
        table[0], table[-1] = 0.0, self.unreachable
        return np.asarray(table)

    def half_widths(self, n_levels: int, coverage: float) -> Array:
        """Half the width of an interval by hops code, in units of the channel's scale."""
        quantiles = np.array([_conformal_quantile(scores, coverage) for scores in self.scores])
        groups = self.groups[np.minimum(np.arange(n_levels + 2), LEVELS - 1)]
        return np.asarray(self.factors(n_levels) * quantiles[groups])


def calibrate(levels: Array, channels: Array, errors: Array, mean_errors: Array, units: Array) -> Calibration:
    """Learn from hidden cells: hops, channel, absolute error, that of the mean (in units of the range); all `units`."""
    from scipy.optimize import isotonic_regression

    levels = np.minimum(levels, LEVELS - 1)
    overall = float(errors.mean())
    overall = overall if overall > 0 else 1.0
    counts = np.bincount(channels, minlength=len(units))
    sums = np.bincount(channels, weights=errors, minlength=len(units))
    per_channel = (sums + PRIOR_CELLS * overall) / (counts + PRIOR_CELLS)
    relative = errors / per_channel[channels]
    cells = np.bincount(levels, minlength=LEVELS)
    seen = np.flatnonzero(cells)
    means = np.bincount(levels, weights=relative, minlength=LEVELS)[seen] / cells[seen]
    monotone = isotonic_regression(means, weights=cells[seen]).x
    by_hops = _carried(seen, np.maximum(monotone, 1e-12))
    unreachable = max(float((mean_errors / per_channel[channels]).mean()), float(by_hops[-1]))
    groups = _groups(cells)
    scores = relative / by_hops[levels]
    kept = tuple(_thinned(np.sort(scores[groups[levels] == group])) for group in range(int(groups.max()) + 1))
    return Calibration(per_channel * units, by_hops, unreachable, groups, kept)


def _carried(seen: Array, values: Array) -> Array:
    """Values by hops; a number of hops that was not seen goes by the next smaller one that was."""
    return np.asarray(values[np.maximum(np.searchsorted(seen, np.arange(LEVELS), side="right") - 1, 0)])


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


def _conformal_quantile(scores: Array, coverage: float) -> float:
    """The smallest score that at least `coverage` of n + 1 exchangeable scores do not exceed; the largest if none."""
    place = int(np.ceil((len(scores) + 1) * coverage)) - 1
    return float(scores[min(max(place, 0), len(scores) - 1)])
