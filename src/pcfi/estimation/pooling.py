"""Partial pooling (empirical Bayes): columns are shrunk towards their common mean by their standard errors.

How far is learned from the columns themselves: if they differ by no more than chance, they share one estimate; if they
clearly differ, each keeps its own.
"""

import numpy as np

from pcfi._typing import Array


def pooled_means(own: Array, precision: Array, common: float) -> Array:
    """Normal estimates with known precisions, each drawn towards a common mean.

    The variance between columns is estimated by the method of moments (DerSimonian and Laird, 1986). Columns without
    evidence (precision 0) get the common mean.
    """
    total = precision.sum()
    spread = total - (precision**2).sum() / total if total > 0 else 0.0
    if spread <= 0:  # at most one column has evidence
        return np.where(precision > 0, own, common)
    excess = (precision * (own - common) ** 2).sum() - (np.count_nonzero(precision) - 1)
    between = max(excess / spread, 0.0)
    if between == 0.0:
        return np.full_like(own, common)
    return np.asarray((precision * own + common / between) / (precision + 1 / between))
