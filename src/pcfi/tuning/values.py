"""Representation -> values: V = mu + kappa(hops) (X-tilde - mu) in the missing cells."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.hops import Hops
from pcfi.tuning.moments import LEVELS

Array = npt.NDArray[Any]

ROWS_AT_A_TIME = 1024


def by_code(by_hops: Array, n_levels: int, unreachable: float) -> Array:
    """A table by hops, of length LEVELS, as one by hops code, whose last entry is for unreachable cells."""
    table = by_hops[np.minimum(np.arange(n_levels + 2), LEVELS - 1)]
    table[-1] = unreachable
    return np.asarray(table)


def shrink(out: Array, hops: Hops, kappa: Array, means: Array, unreachable_too: bool) -> None:
    """Draw the missing cells of `out` towards the means of their channels, in place; unreachable ones all the way."""
    table = by_code(kappa, hops.n_levels, unreachable=0.0)
    for start in range(0, len(out), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        codes = np.minimum(hops.codes[rows], hops.n_levels + 1)
        missing = ((codes > 0) & (unreachable_too | (codes <= hops.n_levels)))[:, hops.patterns]
        values = means + table[codes][:, hops.patterns] * (out[rows] - means)
        np.copyto(out[rows], values.astype(out.dtype), where=missing)
