"""GCNMF (Taguchi et al., 2021): missing cells follow a mixture of Gaussians that is learned with the network."""

import math
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from pcfi._typing import Array
from pcfi.experiments.learning.networks import glorot
from pcfi.experiments.learning.operators import Constant, cheapest, propagated
from pcfi.experiments.learning.tasks import Answer, learn
from pcfi.experiments.setting import Setting


class GCNMF:
    """A first layer that takes the expectation over the missing cells, then ordinary graph convolutions."""

    def solve(self, setting: Setting) -> Answer:
        """Fit the mixture to the mean-filled features, then train all of it together."""
        start = time.perf_counter()
        seed = int(setting.rng("system").integers(2**31))
        mixture = fit_mixture(setting.zero_filled, setting.known, setting.parameters["components"], seed)
        incomplete = Incomplete(setting.adjacency, setting.zero_filled, setting.known)
        seconds = time.perf_counter() - start
        answer = learn(setting, lambda width, rng: ExpectedActivation(incomplete, mixture, width, rng))
        return replace(answer, metrics={**answer.metrics, "imputing_seconds": seconds})


def fit_mixture(zero_filled: Array, known: Array, components: int, seed: int) -> tuple[Array, Array, Array]:
    """Weights, means and variances of a diagonal mixture, fitted to the features filled with their channel's mean."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    filled = np.where(known, zero_filled, channel_means(zero_filled, known))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than components; only a start
        mixture = GaussianMixture(components, covariance_type="diag", random_state=seed)
        try:
            fitted = mixture.fit(filled)
        except ValueError:  # far from the origin, float32 cannot tell a narrow component from a collapsed one
            fitted = mixture.fit(filled.astype(np.float64))
    return fitted.weights_, fitted.means_, fitted.covariances_


def channel_means(zero_filled: Array, known: Array) -> Array:
    """Mean of the known values of each channel, 0 where there is none."""
    means: Array = zero_filled.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return means.astype(np.float32)


class Missing:
    """The matrix A (1 - M), where 1 - M marks the missing cells, as an operator: (A 1) 1^T - A M."""

    def __init__(self, adjacency: Any, known: Array) -> None:
        self.total = torch.tensor(np.asarray(adjacency.sum(axis=1)), dtype=torch.float32)[:, None]
        self.seen = propagated(adjacency, known.astype(np.float32))

    def __matmul__(self, other: torch.Tensor) -> torch.Tensor:
        return self.total * other.sum(dim=0) - self.seen @ other


class Incomplete:
    """What the first layer needs of the data, with nothing of size components x nodes x channels."""

    def __init__(self, adjacency: Any, zero_filled: Array, known: Array) -> None:
        self.known_part: Constant = propagated(adjacency, zero_filled)
        self.missing_mean = Missing(adjacency, known)
        self.missing_variance = Missing(adjacency * adjacency, known)
        # sums of squares are taken around a channel's mean: around 0 they would cancel where variances are small
        self.middle = channel_means(zero_filled, known)
        centered = np.where(known, zero_filled - self.middle, np.float32(0))
        self.ones, self.values, self.squares = (
            cheapest(part.astype(np.float32)) for part in (known, centered, centered**2)
        )


class ExpectedActivation(nn.Module):
    """Per component c: m = A M_c W + b, v = (A o A) V_c (W o W); the output is sum_c gamma_c E[ReLU(N(m, v))]."""

    def __init__(
        self, incomplete: Incomplete, mixture: tuple[Array, Array, Array], width: int, rng: torch.Generator
    ) -> None:
        super().__init__()
        weights, means, variances = (torch.tensor(part, dtype=torch.float32) for part in mixture)
        self.incomplete = incomplete
        self.log_weights = nn.Parameter(weights.log())
        self.means = nn.Parameter(means)
        self.log_variances = nn.Parameter(variances.log())
        self.weight = nn.Parameter(glorot(means.shape[1], width, rng))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self) -> torch.Tensor:
        """Expected hidden values of all nodes."""
        mean, variance = self.moments()
        return (self.responsibilities()[:, :, None] * expected_relu(mean, variance)).sum(dim=1)

    def moments(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of the hidden values before ReLU, of shape (nodes, components, width)."""
        components, width = len(self.means), self.weight.shape[1]

        def spread(operator: Missing, per_channel: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            scaled = per_channel.T[:, :, None] * weight[:, None, :]
            return (operator @ scaled.flatten(1)).view(-1, components, width)

        known = (self.incomplete.known_part @ self.weight)[:, None, :]
        mean = known + spread(self.incomplete.missing_mean, self.means, self.weight) + self.bias
        return mean, spread(self.incomplete.missing_variance, self.log_variances.exp(), self.weight**2)

    def responsibilities(self) -> torch.Tensor:
        """Probability of each component for each node, by the node's known cells alone."""
        precision = (-self.log_variances).exp().T
        offset = self.means.T - torch.from_numpy(self.incomplete.middle)[:, None]
        distance = (
            self.incomplete.squares @ precision
            - 2 * (self.incomplete.values @ (offset * precision))
            + self.incomplete.ones @ (offset**2 * precision + self.log_variances.T + math.log(2 * math.pi))
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
