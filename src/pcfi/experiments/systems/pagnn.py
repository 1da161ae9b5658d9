"""PaGNN (Jiang & Zhang, 2020): a graph convolution that averages over known cells only."""

from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.experiments.learning.operators import cheapest
from pcfi.experiments.learning.tasks import Answer, constant_layer, learn
from pcfi.experiments.setting import Setting


class PaGNN:
    """The partial aggregation has no weights of its own, so it is computed once; the rest is an ordinary network."""

    def solve(self, setting: Setting) -> Answer:
        """Aggregate the known cells, then train a linear map and graph convolutions on the result."""
        matrix = partial_aggregation(setting.adjacency, setting.zero_filled, setting.known)
        channels = np.flatnonzero(matrix.any(axis=0))
        return learn(setting, constant_layer(cheapest(matrix[:, channels]), channels, matrix.shape[1]))


def partial_aggregation(adjacency: Any, zero_filled: Array, known: Array) -> Array:
    """((A_sym 1) o (A_sym (M o X))) / (A_sym M), 0 where no neighbour is known."""
    from scipy import sparse

    total = np.asarray(adjacency.sum(axis=1))[:, None]
    seen = np.asarray((adjacency @ sparse.csr_array(known.astype(np.float32))).todense())
    summed = np.asarray((adjacency @ sparse.csr_array(zero_filled)).todense())
    return np.asarray(np.divide(total * summed, seen, out=np.zeros_like(summed), where=seen > 0))
