"""Whether what a method says about its own errors holds on cells that were hidden from it."""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array

COVERAGE = 0.9
MOST_BINS = 10


@dataclass(frozen=True, eq=False)
class Claims:
    """What was said about hidden cells, and what is true of them.

    Attributes
    ----------
    expected, actual : ndarray
        Absolute error, in the unit of the evaluation.
    inside : ndarray of bool
        Whether the truth lies in the interval.
    hops : ndarray of int
        Hops of each cell, -1 if unreachable.
    """

    expected: Array
    actual: Array
    inside: Array
    hops: Array

    @classmethod
    def joined(cls, parts: "list[Claims]") -> "Claims":
        """Those of all folds together."""
        names = ("expected", "actual", "inside", "hops")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class CoveredAtHops:
    """Share of the hidden cells at a number of hops (-1: unreachable) whose interval holds the truth."""

    hops: int
    cells: int
    covered: float


@dataclass(frozen=True)
class ErrorBin:
    """Cells of which about the same error was expected: that, and the mean error they had."""

    expected: float
    actual: float
    cells: int


@dataclass(frozen=True)
class Reliability:
    """How far the expected errors and the intervals of a method hold.

    Attributes
    ----------
    coverage, covered : float
        The coverage that the intervals promise, and the share of hidden cells that they cover.
    rank_correlation : float
        Of expected with actual errors; NaN if all expected errors are equal.
    """

    method: str
    coverage: float
    covered: float
    rank_correlation: float
    by_hops: tuple[CoveredAtHops, ...]
    bins: tuple[ErrorBin, ...]

    def __str__(self) -> str:
        return (
            f"{self.method}: intervals for {self.coverage:.0%} cover {self.covered:.1%}; rank correlation of expected "
            f"with actual error {self.rank_correlation:.2f}"
        )


def reliability_of(method: str, claims: Claims, back: float) -> Reliability:
    """Compare what was said with what is true; errors are multiplied by `back`."""
    levels = np.unique(claims.hops).tolist()
    by_hops = (claims.inside[claims.hops == level] for level in levels)
    return Reliability(
        method,
        COVERAGE,
        float(claims.inside.mean()),
        _rank_correlation(claims.expected, claims.actual),
        tuple(CoveredAtHops(hops, len(part), float(part.mean())) for hops, part in zip(levels, by_hops, strict=True)),
        _bins(claims, back),
    )


def _bins(claims: Claims, back: float) -> tuple[ErrorBin, ...]:
    """Bins of about equally many cells, from small to large expected errors; equal ones are in one bin."""
    if not len(claims.expected):
        return ()
    ends = np.unique(np.quantile(claims.expected, np.arange(1, MOST_BINS) / MOST_BINS, method="lower"))
    places = np.searchsorted(ends, claims.expected)
    counts = np.bincount(places)
    expected, actual = (np.bincount(places, weights=one) for one in (claims.expected, claims.actual))
    return tuple(
        ErrorBin(back * float(expected[place] / cells), back * float(actual[place] / cells), int(cells))
        for place, cells in enumerate(counts)
        if cells
    )


def _rank_correlation(expected: Array, actual: Array) -> float:
    if np.ptp(expected) == 0 or np.ptp(actual) == 0:
        return float("nan")
    from scipy.stats import spearmanr

    return float(spearmanr(expected, actual).statistic)
