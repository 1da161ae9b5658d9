"""Link prediction: a graph auto-encoder is trained on some edges and scored on others."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pcfi._typing import Array
from pcfi.experiments.learning.networks import Dropout, Field, Network
from pcfi.experiments.splits import EdgeSplit, pair_numbers, sample_negative


@dataclass(frozen=True)
class Training:
    """How to train: the protocol's numbers."""

    learning_rate: float
    weight_decay: float
    dropout: float
    epochs: int


@dataclass(frozen=True, eq=False)
class Trained:
    """Area under the ROC curve and average precision after the last epoch, in percent."""

    auc: float
    ap: float
    validation_auc: float
    validation_ap: float
    seconds: float


def train(network: Network, adjacency: Any, split: EdgeSplit, how: Training, rng: np.random.Generator) -> Trained:
    """Train the encoder so that linked nodes have a large inner product, against random pairs drawn anew each epoch."""
    start = time.perf_counter()
    n_nodes = adjacency.shape[0]
    field = Field(adjacency, np.arange(n_nodes), len(network.convolutions))
    taken = np.sort(pair_numbers(split.train, n_nodes))
    positive = torch.tensor(split.train)
    optimizer = torch.optim.Adam(network.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay, fused=True)
    dropout = Dropout(how.dropout, rng)
    for _ in range(how.epochs):
        latent = network.later_layers(network.first(), field, dropout)
        negative = torch.from_numpy(sample_negative(taken, positive.shape[1], n_nodes, rng))
        optimizer.zero_grad()
        reconstruction_loss(latent, positive, negative).backward()
        optimizer.step()
    with torch.no_grad():
        latent = network.later_layers(network.first(), field)
    auc, ap = score(latent, split.test, split.test_negative)
    validation_auc, validation_ap = score(latent, split.validation, split.validation_negative)
    return Trained(auc, ap, validation_auc, validation_ap, time.perf_counter() - start)


def reconstruction_loss(latent: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    """Mean of -log sigmoid over the linked pairs, plus that of -log (1 - sigmoid) over the others."""
    softplus = torch.nn.functional.softplus
    return softplus(-inner_products(latent, positive)).mean() + softplus(inner_products(latent, negative)).mean()


def inner_products(latent: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """Inner product of the two nodes of each pair."""
    return (latent.index_select(0, pairs[0]) * latent.index_select(0, pairs[1])).sum(dim=1)


def score(latent: torch.Tensor, positive: Array, negative: Array) -> tuple[float, float]:
    """Area under the ROC curve and average precision of telling linked pairs from others, in percent."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores = inner_products(latent, torch.tensor(np.concatenate([positive, negative], axis=1))).numpy()
    truth = np.repeat([1, 0], [positive.shape[1], negative.shape[1]])
    return 100 * float(roc_auc_score(truth, scores)), 100 * float(average_precision_score(truth, scores))
