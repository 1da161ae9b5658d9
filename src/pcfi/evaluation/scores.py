"""Scores of filled cells against the truth, by name."""

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.metrics import cosines

TOP = 10  # the k of recall@k and nDCG@k


def score(truth: Array, filled: Array, base: Array, nodes: Array) -> dict[str, float]:
    """RMSE, MAE, R2 against `base`, the channels' means, and the mean cosine of the nodes' hidden cells."""
    squared = float(((truth - filled) ** 2).sum())
    of_mean = float(((truth - base) ** 2).sum())
    return {
        "rmse": float(np.sqrt(squared / len(truth))),
        "mae": float(np.abs(truth - filled).mean()),
        "r2": 1 - squared / of_mean if of_mean > 0 else float("nan"),
        "cosine": float(cosines(truth, filled, nodes).mean()),
    }


def score_binary(truth: Array, filled: Array, nodes: Array) -> dict[str, float]:
    """How well the cells that hold a 1 are found: among each node's hidden cells, and among all of them (AUC).

    Nodes without a hidden 1 do not count. Equal values are ranked by their place, which favours none.
    """
    _, place = np.unique(nodes, return_inverse=True)
    order = np.lexsort((-filled, place))
    starts = np.searchsorted(place[order], np.arange(place.max() + 1))
    rank = np.arange(len(order)) - starts[place[order]]
    hit = truth[order] > 0
    ones = np.bincount(place, weights=truth > 0)
    found = np.bincount(place[order], weights=hit & (rank < TOP))
    gain = np.bincount(place[order], weights=np.where(hit & (rank < TOP), 1 / np.log2(rank + 2), 0.0))
    best = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(TOP) + 2))])
    counted = ones > 0
    reachable = np.minimum(ones[counted], TOP).astype(np.int64)
    return {
        "recall@10": float((found[counted] / reachable).mean()) if counted.any() else float("nan"),
        "ndcg@10": float((gain[counted] / best[reachable]).mean()) if counted.any() else float("nan"),
        "auc": _auc(truth > 0, filled),
    }


def _auc(positive: Array, filled: Array) -> float:
    """Probability that a cell with a 1 is ranked before one with a 0; ties count half."""
    from scipy.stats import rankdata

    n_positive = int(positive.sum())
    n_negative = len(positive) - n_positive
    if not n_positive or not n_negative:
        return float("nan")
    ranks = rankdata(filled)
    return float((ranks[positive].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))
