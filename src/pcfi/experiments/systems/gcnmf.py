"""GCNMF (Taguchi et al., 2021): missing cells follow a Gaussian mixture that is trained with the network."""

import math
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from pcfi._typing import Array
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.training.constant_matrix import ConstantMatrix, compact, propagated
from pcfi.experiments.training.networks import ByteDropout, glorot
from pcfi.experiments.training.system_output import SystemOutput
from pcfi.experiments.training.tasks import train_network

GAIN = 1.414  # of the initial weights, as published


def predict(run_input: RunInput) -> SystemOutput:
    """Fit the mixture to the mean-filled features, then train it together with the network."""
    start = time.perf_counter()
    seed = int(run_input.rng("system").integers(2**31))
    mixture = fit_mixture(run_input.zero_filled, run_input.known, run_input.parameters["components"], seed)
    features = PartialFeatures(run_input.adjacency, run_input.zero_filled, run_input.known)
    seconds = time.perf_counter() - start
    output = train_network(
        run_input, lambda width, rng: ExpectedActivation(features, mixture, width, rng), variational=True
    )
    return replace(output, metrics={**output.metrics, "imputing_seconds": seconds})


def fit_mixture(zero_filled: Array, known: Array, components: int, seed: int) -> tuple[Array, Array, Array]:
    """Return weights, means and variances of a diagonal mixture, fitted to the mean-filled features."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    filled = np.where(known, zero_filled, channel_means(zero_filled, known))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # too few distinct rows; only initial values
        mixture = GaussianMixture(components, covariance_type="diag", random_state=seed)
        try:
            fitted = mixture.fit(filled)
        except ValueError:  # in float32, a narrow component far from the origin looks collapsed
            fitted = mixture.fit(filled.astype(np.float64))
    return fitted.weights_, fitted.means_, fitted.covariances_


def channel_means(zero_filled: Array, known: Array) -> Array:
    """Mean of the known values of each channel, 0 where there is none."""
    means: Array = zero_filled.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return means.astype(np.float32)


class MissingCellOperator:
    """The operator A (1 - M) = (A 1) 1^T - A M, where M is the mask of known cells."""

    def __init__(self, adjacency: Any, known: Array) -> None:
        self.total = torch.tensor(np.asarray(adjacency.sum(axis=1)), dtype=torch.float32)[:, None]
        self.known = propagated(adjacency, known.astype(np.float32))

    def __matmul__(self, other: torch.Tensor) -> torch.Tensor:
        return self.total * other.sum(dim=0) - self.known @ other


class DroppedCellOperator:
    """The operator A (D o B), where B holds one number per cell and dropout D differs in every epoch."""

    def __init__(self, adjacency: ConstantMatrix, cells: torch.Tensor) -> None:
        self.adjacency, self.cells = adjacency, cells

    def __matmul__(self, other: torch.Tensor) -> torch.Tensor:
        return self.adjacency @ (self.cells @ other)


Operator = ConstantMatrix | MissingCellOperator | DroppedCellOperator


class PartialFeatures:
    """The data of the first layer, in a form that never takes components x nodes x channels memory."""

    def __init__(self, adjacency: Any, zero_filled: Array, known: Array) -> None:
        self.adjacency, self.squared_adjacency = ConstantMatrix(adjacency), ConstantMatrix(adjacency * adjacency)
        self.total = torch.tensor(np.asarray(adjacency.sum(axis=1)), dtype=torch.float32)[:, None, None]
        self.zero_filled, self.missing = torch.from_numpy(zero_filled), torch.from_numpy(~known)
        self.known_part: ConstantMatrix = propagated(adjacency, zero_filled)
        self.missing_mean = MissingCellOperator(adjacency, known)
        self.missing_variance = MissingCellOperator(adjacency * adjacency, known)
        # squares of deviations from the channel mean, since those from 0 would cancel where variances are small
        self.center = channel_means(zero_filled, known)
        centered = np.where(known, zero_filled - self.center, np.float32(0))
        self.ones, self.values, self.squares = (
            compact(part.astype(np.float32)) for part in (known, centered, centered**2)
        )

    def operators(self, dropout: ByteDropout | None) -> tuple[Operator, Operator, Operator]:
        """The operators on known values, means and variances; dropout leaves out the same cells for all components."""
        if dropout is None:
            return self.known_part, self.missing_mean, self.missing_variance
        kept = dropout(torch.ones_like(self.zero_filled))
        missing = kept * self.missing
        return (
            DroppedCellOperator(self.adjacency, kept * self.zero_filled),
            DroppedCellOperator(self.adjacency, missing),
            DroppedCellOperator(self.squared_adjacency, missing),
        )


class ExpectedActivation(nn.Module):
    """Per component c: m = A (M_c W + b), v = (A o A) V_c (W o W); the output is sum_c gamma_c E[ReLU(N(m, v))]."""

    def __init__(
        self, features: PartialFeatures, mixture: tuple[Array, Array, Array], width: int, rng: torch.Generator
    ) -> None:
        super().__init__()
        weights, means, variances = (torch.tensor(part, dtype=torch.float32) for part in mixture)
        self.features = features
        self.log_weights = nn.Parameter(weights.log())
        self.means = nn.Parameter(means)
        self.log_variances = nn.Parameter(variances.log())
        self.weight = nn.Parameter(glorot(means.shape[1], width, rng, GAIN))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, dropout: ByteDropout | None = None) -> torch.Tensor:
        """Expected hidden values of all nodes, with dropout of cells of the input if given."""
        mean, variance = self.moments(dropout)
        return (self.responsibilities()[:, :, None] * expected_relu(mean, variance)).sum(dim=1)

    def moments(self, dropout: ByteDropout | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of the hidden values before ReLU, of shape (nodes, components, width)."""
        components, width = len(self.means), self.weight.shape[1]

        def spread(operator: Operator, per_channel: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            scaled = per_channel.T[:, :, None] * weight[:, None, :]
            return (operator @ scaled.flatten(1)).view(-1, components, width)

        known, missing_mean, missing_variance = self.features.operators(dropout)
        mean = (known @ self.weight)[:, None, :] + spread(missing_mean, self.means, self.weight)
        variance = spread(missing_variance, self.log_variances.exp(), self.weight**2)
        return mean + self.features.total * self.bias, variance

    def responsibilities(self) -> torch.Tensor:
        """Probability of each component for each node, by the node's known cells alone."""
        precision = (-self.log_variances).exp().T
        offset = self.means.T - torch.from_numpy(self.features.center)[:, None]
        distance = (
            self.features.squares @ precision
            - 2 * (self.features.values @ (offset * precision))
            + self.features.ones @ (offset**2 * precision + self.log_variances.T + math.log(2 * math.pi))
        )
        return torch.softmax(torch.log_softmax(self.log_weights, 0) - distance / 2, dim=1)


def expected_relu(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """E[max(0, x)] of x ~ N(mean, variance); max(0, mean) where the variance is 0."""
    certain = variance <= 0
    deviation = torch.where(certain, 1, variance).sqrt()
    z = mean / deviation
    density = (-z * z / 2).exp() / math.sqrt(2 * math.pi)
    expected = deviation * (density + z / 2 * (1 + torch.erf(z / math.sqrt(2))))
    return torch.where(certain, torch.relu(mean), expected)
