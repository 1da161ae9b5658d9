"""Missing masks: one function per kind, (data set, rate, rng) -> boolean mask, True = known."""

from collections.abc import Callable

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ParameterError
from pcfi.experiments.data.dataset import Dataset

BLOCKS = 4
STRENGTH = 4.0  # difference in log-odds of being missing between the least and the most likely cell


def draw_mask(kind: str, dataset: Dataset, rate: float, rng: np.random.Generator) -> Array:
    """Draw a mask of a kind in `MASKS`; cells are missing with a probability that is `rate` on average."""
    if kind not in MASKS:
        raise ParameterError(f"missing must be one of {', '.join(MASKS)}, got {kind!r}")
    if not 0 <= rate <= 1:
        raise ParameterError(f"rate must be a number of at least 0 and at most 1, got {rate!r}")
    return MASKS[kind](dataset, rate, rng)


def _structural(dataset: Dataset, rate: float, rng: np.random.Generator) -> Array:
    """Each node misses all of its channels or none."""
    return _node_mask(dataset, np.full(dataset.n_nodes, rate), rng)


def _uniform(dataset: Dataset, rate: float, rng: np.random.Generator) -> Array:
    """Each cell is missing independently of the others."""
    return rng.random(dataset.features.shape, dtype=np.float32) >= np.float32(rate)


def _block(dataset: Dataset, rate: float, rng: np.random.Generator) -> Array:
    """Channels form random groups, like the questions of a questionnaire; a node misses all of a group or none."""
    n_nodes, n_channels = dataset.features.shape
    groups = rng.permutation(np.arange(n_channels) % BLOCKS)
    return (rng.random((n_nodes, BLOCKS)) >= rate)[:, groups]


def _degree(dataset: Dataset, rate: float, rng: np.random.Generator) -> Array:
    """Nodes with few neighbours are more likely to miss all of their channels."""
    degree = np.bincount(dataset.edges[0], minlength=dataset.n_nodes)
    return _node_mask(dataset, calibrated_probabilities(-_quantiles(degree), rate), rng)


def _value(dataset: Dataset, rate: float, rng: np.random.Generator) -> Array:
    """Large values of a channel are more likely to be missing."""
    probability = calibrated_probabilities(_quantiles(dataset.features), rate)
    return rng.random(probability.shape, dtype=np.float32) >= probability


def _class(dataset: Dataset, rate: float, rng: np.random.Generator) -> Array:
    """Nodes of some classes are more likely to miss all of their channels."""
    tendency = rng.permutation(np.linspace(0, 1, dataset.n_classes))
    return _node_mask(dataset, calibrated_probabilities(tendency[dataset.labels], rate), rng)


MASKS: dict[str, Callable[[Dataset, float, np.random.Generator], Array]] = {
    "structural": _structural,
    "uniform": _uniform,
    "block": _block,
    "degree": _degree,
    "value": _value,
    "class": _class,
}


def calibrated_probabilities(tendency: Array, rate: float) -> Array:
    """Probabilities with log-odds `STRENGTH` x tendency + c, where c is such that their mean is `rate`."""
    from scipy.optimize import brentq
    from scipy.special import expit, logit

    if rate in (0, 1):
        return np.full(tendency.shape, float(rate))
    levels, counts = np.unique(tendency, return_counts=True)
    slope = STRENGTH * levels

    def excess(shift: float) -> float:
        return float(np.average(expit(slope + shift), weights=counts) - rate)

    middle, width = float(logit(rate)), float(np.abs(slope).max()) + 1
    return np.asarray(expit(STRENGTH * tendency + brentq(excess, middle - width, middle + width, xtol=1e-12)))


def _quantiles(values: Array) -> Array:
    """Quantile of each value in its column, from 0 to 1; equal values have equal quantiles."""
    from scipy.stats import rankdata

    return np.asarray((rankdata(values, axis=0) - 0.5) / len(values))


def _node_mask(dataset: Dataset, probability: Array, rng: np.random.Generator) -> Array:
    known = rng.random(dataset.n_nodes) >= probability
    return np.repeat(known[:, None], dataset.features.shape[1], axis=1)
