"""PaGNN (Jiang & Zhang, 2020): a graph convolution that averages over known cells only."""

from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.training.constant_matrix import compact
from pcfi.experiments.training.system_output import SystemOutput
from pcfi.experiments.training.tasks import first_layer_on_matrix, train_network


def predict(run_input: RunInput) -> SystemOutput:
    """Aggregate the known cells once (this step has no weights), then train the common network on the result."""
    matrix = partial_aggregation(run_input.adjacency, run_input.zero_filled, run_input.known)
    channels = np.flatnonzero(matrix.any(axis=0))
    return train_network(run_input, first_layer_on_matrix(compact(matrix[:, channels]), channels, matrix.shape[1]))


def partial_aggregation(adjacency: Any, zero_filled: Array, known: Array) -> Array:
    """((A_sym 1) o (A_sym (M o X))) / (A_sym M), 0 where no neighbour is known."""
    from scipy import sparse

    total = np.asarray(adjacency.sum(axis=1))[:, None]
    known_weight = np.asarray((adjacency @ sparse.csr_array(known.astype(np.float32))).todense())
    known_sum = np.asarray((adjacency @ sparse.csr_array(zero_filled)).todense())
    return np.asarray(np.divide(total * known_sum, known_weight, out=np.zeros_like(known_sum), where=known_weight > 0))
