"""Shrinkage: filled values -> values drawn towards their channel's mean, the more so the less they are reliable."""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.stages.hops import Hops

MAX_BLOCK_CELLS = 1 << 16  # cells of a block of rows, so that it stays in the cache


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """How much of a filled cell's distance from its channel's mean is kept.

    Attributes
    ----------
    kappa : ndarray
        Part that is kept, by hops; the last entry holds for all larger numbers of hops.
    trust : ndarray, one per channel
        What that is multiplied by, up to 1 in all.
    means : ndarray, one per channel
    """

    kappa: Array
    trust: Array
    means: Array

    def kept_by_code(self, n_levels: int, unreachable: float) -> Array:
        """Part that is kept by hops code, as in `Hops.codes`; the last entry is for unreachable cells."""
        table = self.kappa[np.minimum(np.arange(n_levels + 2), len(self.kappa) - 1)]
        table[-1] = unreachable
        return np.asarray(table)


def shrink(hops: Hops, shrinkage: Shrinkage, unreachable: float, out: Array) -> None:
    """Draw the cells of `out` towards their channels' means, a block of rows at a time.

    `unreachable` is the part that unreachable cells keep, whatever the trust.
    """
    kept_by_code, means = shrinkage.kept_by_code(hops.n_levels, unreachable), shrinkage.means
    alike = bool((shrinkage.trust == 1).all())
    size = max(1, MAX_BLOCK_CELLS // max(out.shape[1], 1))
    one_pattern = hops.codes.shape[1] == 1
    for start in range(0, len(out), size):
        rows = slice(start, start + size)
        codes = hops.table_index(hops.codes[rows])
        if not one_pattern:
            codes = codes[:, hops.patterns]
        kept = kept_by_code[codes]
        if not alike:
            kept = np.where(hops.is_filled(codes), np.minimum(kept * shrinkage.trust, 1.0), kept)
        drawn = out[rows] - means
        drawn *= kept
        drawn += means
        np.copyto(out[rows], drawn, where=kept < 1, casting="same_kind")
