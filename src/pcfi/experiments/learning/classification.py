"""Node classification: a network is trained with early stopping on validation; predictions for all nodes come out."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pcfi._typing import Array
from pcfi.experiments.learning.networks import Dropout, Field, Network
from pcfi.experiments.splits import NodeSplit


@dataclass(frozen=True)
class Training:
    """How to train: the protocol's numbers."""

    learning_rate: float
    weight_decay: float
    dropout: float
    epochs: int
    patience: int


@dataclass(frozen=True, eq=False)
class Trained:
    """Predicted class of every node at the epoch of the best validation accuracy (in percent)."""

    predicted: Array
    validation_accuracy: float
    best_epoch: int
    epochs: int
    seconds: float


def train(
    network: Network, adjacency: Any, labels: Array, split: NodeSplit, how: Training, rng: np.random.Generator
) -> Trained:
    """Train until the validation accuracy has not improved for `patience` epochs.

    Each epoch's first layer serves twice: with dropout to train, and without to test the weights that the epoch before
    has left. Training and validation compute only the nodes that their losses depend on.
    """
    start = time.perf_counter()
    depth = len(network.convolutions)
    train_field, validation_field = (Field(adjacency, nodes, depth) for nodes in (split.train, split.validation))
    targets = torch.tensor(labels)
    train_targets, validation_targets = targets[split.train], targets[split.validation]
    optimizer = torch.optim.Adam(network.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay, fused=True)
    dropout = Dropout(how.dropout, rng)
    best = _Best(network)
    for epoch in range(how.epochs + 1):
        hidden = network.first()
        if epoch > 0:
            with torch.no_grad():
                output = network.later_layers(hidden, validation_field)
            best.update(epoch, int((output.argmax(dim=1) == validation_targets).sum()))
            if epoch - best.epoch >= how.patience or epoch == how.epochs:
                break
        output = network.later_layers(hidden, train_field, dropout)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(output, train_targets).backward()
        optimizer.step()
    best.restore()
    with torch.no_grad():
        everywhere = Field(adjacency, np.arange(len(labels)), depth)
        predicted = network.later_layers(network.first(), everywhere).argmax(dim=1).numpy()
    accuracy = 100 * best.correct / max(1, len(split.validation))
    return Trained(predicted, accuracy, best.epoch, epoch, time.perf_counter() - start)


class _Best:
    """The weights with the most correct validation nodes so far, the earliest if several."""

    def __init__(self, network: Network) -> None:
        self.parameters = list(network.parameters())
        self.kept = [parameter.detach().clone() for parameter in self.parameters]
        self.correct, self.epoch = -1, 0

    def update(self, epoch: int, correct: int) -> None:
        if correct > self.correct:
            self.correct, self.epoch = correct, epoch
            with torch.no_grad():
                for kept, parameter in zip(self.kept, self.parameters, strict=True):
                    kept.copy_(parameter)

    def restore(self) -> None:
        with torch.no_grad():
            for kept, parameter in zip(self.kept, self.parameters, strict=True):
                parameter.copy_(kept)
