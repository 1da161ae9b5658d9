"""Node classification: train a GCN with early stopping on validation accuracy, then predict all nodes."""

import time
from typing import Any

import numpy as np
import torch

from pcfi._typing import Array
from pcfi.experiments.data.splits import NodeSplit
from pcfi.experiments.training.networks import GCN, ByteDropout, ReceptiveField, adam
from pcfi.experiments.training.system_output import SystemOutput


def train_classifier(
    network: GCN,
    adjacency: Any,
    labels: Array,
    split: NodeSplit,
    parameters: dict[str, Any],
    rng: np.random.Generator,
) -> SystemOutput:
    """Train until the validation accuracy has not improved for `patience` epochs; predict with the best weights.

    The first layer is computed once per epoch and used twice: without dropout to validate the weights of the previous
    epoch, and with dropout to train; only dropout of its input takes a second computation. Training and validation
    compute only the nodes on which their losses depend.
    """
    start = time.perf_counter()
    depth = len(network.convolutions)
    train_field, validation_field = (
        ReceptiveField(adjacency, nodes, depth) for nodes in (split.train, split.validation)
    )
    targets = torch.tensor(labels)
    train_targets, validation_targets = (targets[torch.tensor(part)] for part in (split.train, split.validation))
    optimizer, dropout = adam(network, parameters), ByteDropout(parameters["dropout"], rng)
    best = BestWeights(network)
    for epoch in range(parameters["epochs"] + 1):
        hidden = network.first()
        if epoch > 0:
            with torch.no_grad():
                output = network.later_layers(hidden, validation_field)
            best.update(epoch, int((output.argmax(dim=1) == validation_targets).sum()))
            if epoch - best.epoch >= parameters["patience"] or epoch == parameters["epochs"]:
                break
        if parameters.get("input_dropout"):
            hidden = network.first(dropout)
        output = network.later_layers(hidden, train_field, dropout)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(output, train_targets).backward()
        optimizer.step()
    best.restore()
    with torch.no_grad():
        all_nodes = ReceptiveField(adjacency, np.arange(len(labels)), depth)
        predicted = network.later_layers(network.first(), all_nodes).argmax(dim=1).numpy()
    metrics = {
        "validation_accuracy": 100 * best.correct / max(1, len(split.validation)),
        "epochs": float(epoch),
        "best_epoch": float(best.epoch),
        "training_seconds": time.perf_counter() - start,
    }
    return SystemOutput(metrics, predicted)


class BestWeights:
    """A copy of the weights with the most correct validation nodes so far; of equals, the earliest."""

    def __init__(self, network: GCN) -> None:
        self._parameters = list(network.parameters())
        self._copies = [parameter.detach().clone() for parameter in self._parameters]
        self.correct, self.epoch = -1, 0

    def update(self, epoch: int, correct: int) -> None:
        """Copy the weights if more validation nodes are correct than before."""
        if correct > self.correct:
            self.correct, self.epoch = correct, epoch
            with torch.no_grad():
                for copy, parameter in zip(self._copies, self._parameters, strict=True):
                    copy.copy_(parameter)

    def restore(self) -> None:
        """Put the copied weights back into the network."""
        with torch.no_grad():
            for copy, parameter in zip(self._copies, self._parameters, strict=True):
                parameter.copy_(copy)
