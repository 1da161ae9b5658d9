"""Probabilities of the categories of a column, from the estimates of its channels, calibrated on hidden cells.

A categorical column is one channel per category, 1 where a node has it. Their estimates v_k become probabilities

    p_k = (1 - w) v_k^s / sum_j v_j^s + w / K,      K the number of categories

s sharpens or flattens, w allows for surprises. Both are chosen for each column by the likelihood of its hidden cells.
"""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.channel_scale import ChannelScale
from pcfi.estimation.graph_estimates import HiddenEstimates
from pcfi.estimation.training import FoldEstimate
from pcfi.inputs.problem import Problem

SHARPNESS = 2.0 ** np.arange(-2, 3.5, 0.5)  # candidates
SURPRISE = np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.4])  # candidates
MIN_ESTIMATE = 1e-3  # estimates below are raised to this
PRIOR_CELLS = 2.0  # that say s = 1: the penalty of a factor of e, as a difference of log-likelihoods


@dataclass(frozen=True)
class CategoryCalibration:
    """Sharpness s of the estimates and weight w of a surprise, of one column; and the part of hidden cells found."""

    sharpness: float = 1.0
    surprise: float = 0.1
    accuracy: float | None = None

    def probabilities(self, estimates: Array) -> Array:
        """One row of probabilities for each row of estimates."""
        raised = np.clip(np.nan_to_num(estimates), MIN_ESTIMATE, 1.0) ** self.sharpness
        certain = raised / raised.sum(axis=1, keepdims=True)
        return np.asarray((1 - self.surprise) * certain + self.surprise / estimates.shape[1])


def category_channels(problem: Problem) -> dict[int, Array]:
    """Channels of each categorical column, by the number of the column."""
    columns, categorical = problem.columns, np.arange(problem.values.shape[1])[problem.categorical]
    return {int(column): np.flatnonzero(columns == column) for column in np.unique(columns[categorical])}


def fit_probabilities(
    problem: Problem, scale: ChannelScale, hidden: list[HiddenEstimates], estimates: list[FoldEstimate]
) -> dict[int, CategoryCalibration]:
    """Calibrate every categorical column on its hidden cells."""
    calibrations = {}
    for column, channels in category_channels(problem).items():
        parts = [_rows(part, one, scale, channels) for part, one in zip(hidden, estimates, strict=True)]
        values, truth = (np.concatenate([part[number] for part in parts]) for number in (0, 1))
        calibrations[column] = calibrate(values, truth)
    return calibrations


def _rows(part: HiddenEstimates, estimate: FoldEstimate, scale: ChannelScale, channels: Array) -> tuple[Array, Array]:
    """Estimates of the channels of hidden cells, a row for each cell, and the number of its true category."""
    nodes, at = part.nodes[estimate.sources], part.channels[estimate.sources]
    chosen = np.isin(at, channels)
    nodes, at = nodes[chosen], at[chosen]
    cells, row = np.unique(nodes, return_inverse=True)
    values, truth = (np.tile(scale.typical[channels], (len(cells), 1)) for _ in range(2))
    place = row, np.searchsorted(channels, at)
    for table, cell in ((values, estimate.value), (truth, estimate.truth)):
        table[place] = scale.original_at(cell[chosen] + part.shift[at], at)
    return values, truth.argmax(axis=1)


def calibrate(values: Array, truth: Array) -> CategoryCalibration:
    """The most likely calibration, from a row of estimates per cell and the number of its true category."""
    best = (np.inf, CategoryCalibration())
    for sharpness in SHARPNESS:
        for surprise in SURPRISE:
            candidate = CategoryCalibration(float(sharpness), float(surprise))
            likelihood = candidate.probabilities(values)[np.arange(len(truth)), truth]
            loss = -float(np.log(np.maximum(likelihood, 1e-12)).sum()) + PRIOR_CELLS * float(np.log(sharpness)) ** 2
            best = min(best, (loss, candidate), key=lambda one: one[0])
    if not len(truth):
        return CategoryCalibration()
    return replace(best[1], accuracy=float((values.argmax(axis=1) == truth).mean()))
