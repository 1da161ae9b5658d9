"""Expected errors and intervals of a method, checked on hidden cells."""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array

COVERAGE = 0.9
MAX_BINS = 10


@dataclass(frozen=True, eq=False)
class ErrorEstimates:
    """Expected errors and intervals of hidden cells, and the errors made.

    Attributes
    ----------
    expected, actual : ndarray
        Absolute error, in the unit of the evaluation.
    covered : ndarray of bool
        Whether the interval contains the truth.
    hops : ndarray of int
        Hops of each cell, -1 if unreachable.
    """

    expected: Array
    actual: Array
    covered: Array
    hops: Array

    @classmethod
    def concatenate(cls, parts: "list[ErrorEstimates]") -> "ErrorEstimates":
        """Join the cells of all folds."""
        names = ("expected", "actual", "covered", "hops")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class CoverageAtHops:
    """Share of the hidden cells at a number of hops (-1: unreachable) whose interval contains the truth."""

    hops: int
    cells: int
    covered: float


@dataclass(frozen=True)
class ErrorBin:
    """Cells with about equal expected errors: their mean expected error and their mean actual error."""

    expected: float
    actual: float
    cells: int


@dataclass(frozen=True)
class Reliability:
    """Coverage of a method's intervals, and agreement of its expected errors with the actual ones.

    Attributes
    ----------
    coverage, covered : float
        The nominal coverage of the intervals, and the share of hidden cells that they cover.
    rank_correlation : float
        Spearman correlation of expected with actual errors; NaN if all expected errors are equal.
    """

    method: str
    coverage: float
    covered: float
    rank_correlation: float
    by_hops: tuple[CoverageAtHops, ...]
    bins: tuple[ErrorBin, ...]

    def __str__(self) -> str:
        covered = f"{self.method}: intervals for {self.coverage:.0%} cover {self.covered:.1%}"
        covered += "".join(f", {at.covered:.1%} of unreachable cells" for at in self.by_hops if at.hops < 0)
        if np.isnan(self.rank_correlation):
            return covered
        return f"{covered}; rank correlation of expected with actual error {self.rank_correlation:.2f}"


def measure_reliability(method: str, estimates: ErrorEstimates, scale: float) -> Reliability:
    """Compare expected with actual errors; reported errors are multiplied by `scale`."""
    levels = np.unique(estimates.hops).tolist()
    by_hops = (estimates.covered[estimates.hops == level] for level in levels)
    return Reliability(
        method,
        COVERAGE,
        float(estimates.covered.mean()),
        _rank_correlation(estimates.expected, estimates.actual),
        tuple(CoverageAtHops(hops, len(part), float(part.mean())) for hops, part in zip(levels, by_hops, strict=True)),
        _bins(estimates, scale),
    )


def _bins(estimates: ErrorEstimates, scale: float) -> tuple[ErrorBin, ...]:
    """Return bins of about equally many cells, by ascending expected error; equal ones share a bin."""
    if not len(estimates.expected):
        return ()
    ends = np.unique(np.quantile(estimates.expected, np.arange(1, MAX_BINS) / MAX_BINS, method="lower"))
    bin_of_cell = np.searchsorted(ends, estimates.expected)
    counts = np.bincount(bin_of_cell)
    expected, actual = (np.bincount(bin_of_cell, weights=sums) for sums in (estimates.expected, estimates.actual))
    return tuple(
        ErrorBin(scale * float(expected[k] / cells), scale * float(actual[k] / cells), int(cells))
        for k, cells in enumerate(counts)
        if cells
    )


def _rank_correlation(expected: Array, actual: Array) -> float:
    if np.ptp(expected) == 0 or np.ptp(actual) == 0:
        return float("nan")
    from scipy.stats import spearmanr

    return float(spearmanr(expected, actual).statistic)
