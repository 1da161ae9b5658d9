"""Label propagation: no features, only the training nodes' labels."""

import time
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ParameterError
from pcfi.experiments.learning.tasks import Answer
from pcfi.experiments.setting import Setting
from pcfi.experiments.splits import NodeSplit

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class LabelPropagation:
    """Y <- alpha A_sym Y + (1 - alpha) Y_0 from the training labels; alpha is chosen on validation unless given."""

    def solve(self, setting: Setting) -> Answer:
        """Spread the labels with each alpha; the best on validation answers."""
        if not isinstance(setting.split, NodeSplit):
            raise ParameterError("label propagation classifies nodes, it does not predict links")
        start = time.perf_counter()
        labels, split, asked = setting.dataset.labels, setting.split, setting.parameters
        seeds = np.zeros((setting.dataset.n_nodes, setting.dataset.n_classes), np.float32)
        seeds[split.train, labels[split.train]] = 1
        best = (-1.0, 0.0, labels)
        for alpha in ALPHAS if asked["alpha"] is None else (asked["alpha"],):
            predicted = spread_labels(setting.adjacency, seeds, alpha, asked["steps"]).argmax(axis=1)
            accuracy = float(np.mean(predicted[split.validation] == labels[split.validation]))
            if accuracy > best[0]:
                best = (accuracy, alpha, predicted)
        metrics = {"validation_accuracy": 100 * best[0], "training_seconds": time.perf_counter() - start}
        return Answer(metrics, best[2], details={"alpha": best[1]})


def spread_labels(adjacency: Any, seeds: Array, alpha: float, steps: int) -> Array:
    """`steps` steps of label propagation from one-hot seeds, clamped to [0, 1]."""
    spread = seeds
    for _ in range(steps):
        spread = np.clip(alpha * (adjacency @ spread) + (1 - alpha) * seeds, 0, 1)
    return spread
