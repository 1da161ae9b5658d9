"""Scores of filled cells against the truth, by name."""

import numpy as np

from pcfi._typing import Array

TOP = 10  # the k of recall@k and nDCG@k


def score(truth: Array, filled: Array, base: Array, nodes: Array) -> dict[str, float]:
    """Return RMSE, MAE, R2 against `base` (the channels' means), and the mean cosine of the nodes' hidden cells."""
    sse = float(((truth - filled) ** 2).sum())
    sse_of_mean = float(((truth - base) ** 2).sum())
    return {
        "rmse": float(np.sqrt(sse / len(truth))),
        "mae": float(np.abs(truth - filled).mean()),
        "r2": 1 - sse / sse_of_mean if sse_of_mean > 0 else float("nan"),
        "cosine": float(cosines(truth, filled, nodes).mean()),
    }


def score_binary(truth: Array, filled: Array, nodes: Array) -> dict[str, float]:
    """Return recall@10 and nDCG@10 of the ones among each node's hidden cells, and the AUC over all hidden cells.

    Nodes without a hidden 1 are left out. Equal values are ranked in the order of the cells.
    """
    _, row = np.unique(nodes, return_inverse=True)
    order = np.lexsort((-filled, row))
    sorted_row = row[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_row, sorted_row)
    hit = (truth[order] > 0) & (rank < TOP)
    n_ones = np.bincount(row, weights=truth > 0)
    n_hits = np.bincount(sorted_row, weights=hit)
    gain = np.bincount(sorted_row, weights=np.where(hit, 1 / np.log2(rank + 2), 0.0))
    ideal_gain = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(TOP) + 2))])
    has_ones = n_ones > 0
    max_hits = np.minimum(n_ones[has_ones], TOP).astype(np.int64)
    return {
        "recall@10": float((n_hits[has_ones] / max_hits).mean()) if has_ones.any() else float("nan"),
        "ndcg@10": float((gain[has_ones] / ideal_gain[max_hits]).mean()) if has_ones.any() else float("nan"),
        "auc": _auc(truth > 0, filled),
    }


def _auc(positive: Array, filled: Array) -> float:
    """Return the probability that a cell with a 1 is ranked before one with a 0; ties count half."""
    from scipy.stats import rankdata

    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if not n_positive or not n_negative:
        return float("nan")
    ranks = rankdata(filled)
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def cosines(truth: Array, filled: Array, nodes: Array) -> Array:
    """Cosine of the angle between truth and filled, for each node with hidden cells; 0 where one of them is 0."""
    _, place = np.unique(nodes, return_inverse=True)
    products, left, right = (
        np.bincount(place, weights=part) for part in (truth * filled, truth * truth, filled * filled)
    )
    sizes = np.sqrt(left * right)
    return np.asarray(np.divide(products, sizes, out=np.zeros_like(products), where=sizes > 0))
