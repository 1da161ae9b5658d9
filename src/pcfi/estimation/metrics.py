"""How far filled cells are from the truth: one number per set of cells, smaller is better."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ParameterError

METRICS = ("rmse", "mae", "cosine")


@dataclass(frozen=True)
class Metric:
    """A metric by name: `of(truth, filled, nodes)`, cell by cell; `squared` if squares of it can be averaged."""

    name: str
    of: Callable[[Array, Array, Array], float]
    squared: bool = False

    def over(self, folds: Sequence[tuple[Array, Array, Array]]) -> tuple[float, float]:
        """The metric over truth, filled and nodes of all folds, and its standard error from their differences."""
        each = np.array([self.of(*fold) for fold in folds])
        sizes = np.array([len(truth) for truth, _, _ in folds], dtype=np.float64)
        spread = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0
        if self.squared:
            return float(np.sqrt(np.average(each**2, weights=sizes))), spread
        return float(np.average(each, weights=sizes)), spread


def read_metric(metric: str | Callable[[Array, Array], float]) -> Metric:
    """A metric by name, or a function of two arrays, truth and filled, in units of the channels' ranges."""
    if callable(metric):
        own = metric
        return Metric(getattr(metric, "__name__", "own"), lambda truth, filled, _: float(own(truth, filled)))
    if metric == "rmse":
        return Metric("rmse", lambda truth, filled, _: rmse(truth, filled), squared=True)
    if metric == "mae":
        return Metric("mae", lambda truth, filled, _: float(np.abs(truth - filled).mean()))
    if metric == "cosine":
        return Metric("cosine", lambda truth, filled, nodes: 1 - float(cosines(truth, filled, nodes).mean()))
    names = ", ".join(map(repr, METRICS))
    raise ParameterError(f"metric must be one of {names}, or a function of truth and filled, got {metric!r}")


def rmse(truth: Array, filled: Array) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((truth - filled) ** 2)))


def cosines(truth: Array, filled: Array, nodes: Array) -> Array:
    """Cosine of the angle between truth and filled, for each node with hidden cells; 0 where one of them is 0."""
    _, place = np.unique(nodes, return_inverse=True)
    products, left, right = (
        np.bincount(place, weights=part) for part in (truth * filled, truth * truth, filled * filled)
    )
    sizes = np.sqrt(left * right)
    return np.asarray(np.divide(products, sizes, out=np.zeros_like(products), where=sizes > 0))
