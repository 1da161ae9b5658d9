"""How an estimate depends on the other cells of its row and on the graph's estimates of them, as coefficients.

Given the fitted parameters, which cells of a row are known and which the graph reaches, the value model is an affine
function of the known values and of the graph's estimates, all standardised. Its coefficients are read off by estimating
rows with a single 1 in them.
"""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.cell_model import CellModel

MAX_BLOCK_CELLS = 1 << 16  # cells of a block of rows: factors need some arrays of that size each


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Estimate of a cell, standardised: constant + sum of coefficient * (known value or graph's estimate).

    `channels` are those with a coefficient; `variance` is that of the estimate.
    """

    channels: Array
    coefficients: Array
    constant: float
    variance: float


def row_weights(model: CellModel, known: Array, reached: Array, channel: int) -> RowWeights:
    """Coefficients of one cell; `known` and `reached` (by the graph, and missing) are of length n_channels."""
    n_channels = len(known)
    alone = model.factors.rank == 0 and model.regression is None
    tried = np.array([channel]) if alone else np.arange(n_channels)
    tried = tried[(known | reached)[tried]]
    graph = np.where(reached, 0.0, np.nan)
    base = model.estimate(np.zeros((1, n_channels)), known[None], graph[None])
    constant = float(np.broadcast_to(base.value, (1, n_channels))[0, channel])
    coefficients, size = np.zeros(len(tried)), max(1, MAX_BLOCK_CELLS // n_channels)
    for start in range(0, len(tried), size):
        part = tried[start : start + size]
        units = np.zeros((len(part), n_channels))
        units[np.arange(len(part)), part] = 1.0
        rows = np.broadcast_to(known, units.shape)
        estimate = model.estimate(np.where(rows, units, 0.0), rows, graph + units * reached)
        coefficients[start : start + size] = np.broadcast_to(estimate.value, units.shape)[:, channel] - constant
    variance = float(np.broadcast_to(base.variance, (1, n_channels))[0, channel])
    kept = coefficients != 0
    return RowWeights(tried[kept], coefficients[kept], constant, variance)
