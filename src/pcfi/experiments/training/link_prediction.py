"""Link prediction: train a graph auto-encoder on the training edges, score it on the others."""

import time
from typing import Any

import numpy as np
import torch

from pcfi._typing import Array
from pcfi.experiments.data.splits import EdgeSplit, LinkedPairs, pair_numbers, sample_negative
from pcfi.experiments.training.networks import GCN, ByteDropout, ReceptiveField, adam
from pcfi.experiments.training.system_output import SystemOutput


def train_link_predictor(
    network: GCN, adjacency: Any, split: EdgeSplit, parameters: dict[str, Any], rng: np.random.Generator
) -> SystemOutput:
    """Train the encoder to give linked nodes a large inner product, against random pairs drawn in every epoch."""
    start = time.perf_counter()
    n_nodes = adjacency.shape[0]
    field = ReceptiveField(adjacency, np.arange(n_nodes), len(network.convolutions))
    linked = LinkedPairs(pair_numbers(split.train, n_nodes))
    positive = torch.tensor(split.train)
    n_negative = parameters["negatives"] * positive.shape[1]
    optimizer, dropout = adam(network, parameters), ByteDropout(parameters["dropout"], rng)
    for _ in range(parameters["epochs"]):
        latent = network.later_layers(network.first(), field, dropout)
        negative = torch.from_numpy(sample_negative(linked, n_negative, n_nodes, rng))
        optimizer.zero_grad()
        reconstruction_loss(latent, positive, negative).backward()
        optimizer.step()
    with torch.no_grad():
        latent = network.later_layers(network.first(), field)
    return SystemOutput({**link_metrics(latent, split), "training_seconds": time.perf_counter() - start})


def link_metrics(latent: torch.Tensor, split: EdgeSplit) -> dict[str, float]:
    """AUC and AP of the latent values on test and validation pairs."""
    auc, ap = auc_and_ap(latent, split.test, split.test_negative)
    validation_auc, validation_ap = auc_and_ap(latent, split.validation, split.validation_negative)
    return {"auc": auc, "ap": ap, "validation_auc": validation_auc, "validation_ap": validation_ap}


def reconstruction_loss(latent: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    """Mean of -log sigmoid over the linked pairs, plus mean of -log (1 - sigmoid) over the others."""
    softplus = torch.nn.functional.softplus
    return softplus(-inner_products(latent, positive)).mean() + softplus(inner_products(latent, negative)).mean()


def inner_products(latent: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """Inner product of the two nodes of each pair."""
    return (latent.index_select(0, pairs[0]) * latent.index_select(0, pairs[1])).sum(dim=1)


def auc_and_ap(latent: torch.Tensor, positive: Array, negative: Array) -> tuple[float, float]:
    """Area under the ROC curve and average precision, in percent, of separating linked from other pairs."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores = inner_products(latent, torch.tensor(np.concatenate([positive, negative], axis=1))).numpy()
    truth = np.repeat([1, 0], [positive.shape[1], negative.shape[1]])
    return 100 * float(roc_auc_score(truth, scores)), 100 * float(average_precision_score(truth, scores))
