"""Link prediction by a variational graph auto-encoder: weighted loss over all pairs of nodes, plus KL divergence."""

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from pcfi.experiments.data.splits import EdgeSplit
from pcfi.experiments.training.constant_matrix import ConstantMatrix
from pcfi.experiments.training.link_prediction import inner_products, link_metrics
from pcfi.experiments.training.networks import ByteDropout, GraphConvolution, adam
from pcfi.experiments.training.system_output import SystemOutput

BLOCK_PAIRS = 1 << 22  # pairs whose scores are in memory at once


class VariationalEncoder(nn.Module):
    """A first layer, and one convolution each for mean and log standard deviation of the latent values."""

    def __init__(self, first: nn.Module, hidden: int, latent: int, rng: torch.Generator) -> None:
        super().__init__()
        self.first = first
        self.mean, self.log_deviation = (GraphConvolution(hidden, latent, rng) for _ in range(2))

    def forward(self, adjacency: ConstantMatrix, dropout: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and log standard deviation of the latent values of all nodes."""
        hidden = dropout(self.first())
        return self.mean(hidden, adjacency), self.log_deviation(hidden, adjacency)


def train_variational(
    encoder: VariationalEncoder,
    adjacency: Any,
    split: EdgeSplit,
    parameters: dict[str, Any],
    rng: np.random.Generator,
) -> SystemOutput:
    """Train on all pairs: training edges and each node with itself are linked, all others are not."""
    start = time.perf_counter()
    matrix, nodes = ConstantMatrix(adjacency), np.arange(adjacency.shape[0])
    linked = torch.tensor(np.concatenate([split.train, split.train[::-1], [nodes, nodes]], axis=1))
    optimizer, dropout = adam(encoder, parameters), ByteDropout(parameters["dropout"], rng)
    noise = torch.Generator().manual_seed(int(rng.integers(2**63)))
    for _ in range(parameters["epochs"]):
        mean, log_deviation = encoder(matrix, dropout)
        latent = mean + log_deviation.exp() * torch.randn(mean.shape, generator=noise)
        optimizer.zero_grad()
        (all_pairs_loss(latent, linked) + divergence(mean, log_deviation)).backward()
        optimizer.step()
    with torch.no_grad():
        latent, _ = encoder(matrix, nn.Identity())
    return SystemOutput({**link_metrics(latent, split), "training_seconds": time.perf_counter() - start})


def all_pairs_loss(latent: torch.Tensor, linked: torch.Tensor) -> torch.Tensor:
    """Cross-entropy over all N^2 ordered pairs; both classes weigh the same, as in Kipf and Welling (2016).

    norm * mean(w y softplus(-s) + (1 - y) softplus(s)), with w = (N^2 - E) / E and norm = N^2 / (2 (N^2 - E)).
    """
    n_linked = linked.shape[1]
    n_others = len(latent) ** 2 - n_linked
    scores = inner_products(latent, linked)
    softplus = torch.nn.functional.softplus
    correction = (n_others / n_linked * softplus(-scores) - softplus(scores)).sum()
    total: torch.Tensor = _SumOverPairs.apply(latent)
    return (total + correction) / (2 * n_others)


def divergence(mean: torch.Tensor, log_deviation: torch.Tensor) -> torch.Tensor:
    """KL divergence from a standard normal distribution, mean over the nodes, divided by their number."""
    terms = 1 + 2 * log_deviation - mean**2 - (2 * log_deviation).exp()
    return -terms.sum(dim=1).mean() / (2 * len(mean))


class _SumOverPairs(torch.autograd.Function):
    """Sum of softplus(z_i . z_j) over all pairs and its gradient, block by block: memory stays far below N^2."""

    @staticmethod
    def forward(ctx: Any, latent: torch.Tensor) -> torch.Tensor:
        total, gradient = torch.zeros((), dtype=torch.float64), torch.empty_like(latent)
        rows = max(1, BLOCK_PAIRS // len(latent))
        for start in range(0, len(latent), rows):
            scores = latent[start : start + rows] @ latent.T
            gradient[start : start + rows] = 2 * (torch.sigmoid(scores) @ latent)
            total += torch.nn.functional.softplus(scores).sum(dtype=torch.float64)
        ctx.save_for_backward(gradient)
        return total.to(latent.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (gradient,) = ctx.saved_tensors
        return gradients[0] * gradient
