"""Label propagation: Y <- alpha A_sym Y + (1 - alpha) Y_0 from the labels of the training nodes, without features."""

import time
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ParameterError
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.data.splits import NodeSplit
from pcfi.experiments.training.system_output import SystemOutput

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def predict(run_input: RunInput) -> SystemOutput:
    """Propagate the labels; alpha is a parameter, or the one of `ALPHAS` with the best validation accuracy."""
    if not isinstance(run_input.split, NodeSplit):
        raise ParameterError("label propagation classifies nodes and cannot predict links")
    start = time.perf_counter()
    labels, split, parameters = run_input.dataset.labels, run_input.split, run_input.parameters
    initial = np.zeros((run_input.dataset.n_nodes, run_input.dataset.n_classes), np.float32)
    initial[split.train, labels[split.train]] = 1
    best = (-1.0, 0.0, labels)
    for alpha in ALPHAS if parameters["alpha"] is None else (parameters["alpha"],):
        predicted = propagate_labels(run_input.adjacency, initial, alpha, parameters["steps"]).argmax(axis=1)
        accuracy = float(np.mean(predicted[split.validation] == labels[split.validation]))
        if accuracy > best[0]:
            best = (accuracy, alpha, predicted)
    metrics = {"validation_accuracy": 100 * best[0], "training_seconds": time.perf_counter() - start}
    return SystemOutput(metrics, best[2], details={"alpha": best[1]})


def propagate_labels(adjacency: Any, initial: Array, alpha: float, steps: int) -> Array:
    """Return one-hot labels after `steps` steps of label propagation, clamped to [0, 1]."""
    current = initial
    for _ in range(steps):
        current = np.clip(alpha * (adjacency @ current) + (1 - alpha) * initial, 0, 1)
    return current
