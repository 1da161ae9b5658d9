"""Graph convolutional networks on constant input: products that do not depend on the weights are computed once."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from pcfi._typing import Array
from pcfi.experiments.training.constant_matrix import ConstantMatrix


class ConstantInputLayer(nn.Module):
    """First layer on constant input: ReLU(M W + b), with M = A_sym X computed beforehand.

    M holds only `channels`, those of the `n_channels` channels that are not 0 everywhere: the weights of the others
    would never get a gradient. The initial weights are drawn for all `n_channels`.
    """

    def __init__(
        self, matrix: ConstantMatrix, width: int, rng: torch.Generator, *, n_channels: int, channels: Array
    ) -> None:
        super().__init__()
        self.matrix = matrix
        self.weight = nn.Parameter(glorot(n_channels, width, rng)[torch.from_numpy(channels)])
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self) -> torch.Tensor:
        """Hidden values of all rows of M."""
        return torch.relu(self.matrix @ self.weight + self.bias)


class GraphConvolution(nn.Module):
    """A graph convolution, A (H W) + b; A is an argument of the call: training and testing need different rows."""

    def __init__(self, n_in: int, n_out: int, rng: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(glorot(n_in, n_out, rng))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, hidden: torch.Tensor, adjacency: ConstantMatrix) -> torch.Tensor:
        """Values of the nodes that are rows of `adjacency`; its columns are the rows of `hidden`."""
        n_in, n_out = self.weight.shape
        if n_out < n_in:
            return adjacency @ (hidden @ self.weight) + self.bias
        return (adjacency @ hidden) @ self.weight + self.bias


class GCN(nn.Module):
    """A first layer and the convolutions after it, ReLU and dropout between them.

    With `jumping`, the output is a linear map of the maximum over the hidden values of all layers.
    """

    def __init__(self, first: nn.Module, widths: list[int], rng: torch.Generator, *, jumping: bool = False) -> None:
        super().__init__()
        self.first = first
        last = [widths[-2]] if jumping else [widths[-1]]
        sizes = [*widths[:-1], *last]
        self.convolutions = nn.ModuleList(GraphConvolution(n_in, n_out, rng) for n_in, n_out in pairwise(sizes))
        self.jump = GraphConvolution(widths[-2], widths[-1], rng) if jumping else None

    def later_layers(
        self, hidden: torch.Tensor, field: "ReceptiveField", dropout: "ByteDropout | None" = None
    ) -> torch.Tensor:
        """Output for the nodes of `field`, from the first layer's hidden values."""
        drop = dropout or torch.nn.Identity()
        layers = []
        last = len(self.convolutions) - 1
        for layer, (convolution, adjacency) in enumerate(zip(self.convolutions, field.adjacency, strict=True)):
            hidden = drop(hidden)
            layers.append(hidden)
            hidden = convolution(hidden, adjacency)
            if layer < last or self.jump is not None:
                hidden = torch.relu(hidden)
        if self.jump is None:
            return hidden
        layers = [values[rows] for values, rows in zip(layers, field.inside, strict=True)]
        largest = torch.stack([*layers, drop(hidden)]).amax(dim=0)
        return largest @ self.jump.weight + self.jump.bias


class ReceptiveField:
    """The receptive field of some nodes through `depth` convolutions: for each layer, the rows of A_sym it needs.

    Attributes
    ----------
    adjacency : list of ConstantMatrix
        For each layer, from the nodes that it reads to those that it writes; the first layer reads all nodes.
    inside : list of index tensors
        For each layer, positions of the nodes among those that it reads.
    """

    def __init__(self, adjacency: Any, nodes: Array, depth: int) -> None:
        rows, parts, inside = np.asarray(nodes), [], []
        for layer in range(depth):
            part = adjacency[rows]
            columns = np.arange(adjacency.shape[1]) if layer == depth - 1 else np.unique(part.indices)
            parts.append(ConstantMatrix(part if layer == depth - 1 else part[:, columns]))
            inside.append(torch.from_numpy(np.searchsorted(columns, nodes)))
            rows = columns
        self.adjacency = parts[::-1]
        self.inside = inside[::-1]


class ByteDropout:
    """Dropout from random bytes: ten times faster than torch's on a CPU, and with its own random generator."""

    def __init__(self, rate: float, rng: np.random.Generator) -> None:
        self.drop_below = round(256 * rate)
        self.scale = 256 / (256 - self.drop_below)
        self.rng = rng

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Set each value to 0 with probability `rate` (in 256ths), and scale the others to keep the mean."""
        if self.drop_below == 0:
            return hidden
        draws = torch.frombuffer(bytearray(self.rng.bytes(hidden.numel())), dtype=torch.uint8)
        keep = (draws >= self.drop_below).view(hidden.shape).to(hidden.dtype)
        return hidden * keep.mul_(self.scale)


def glorot(n_in: int, n_out: int, rng: torch.Generator, gain: float = 1.0) -> torch.Tensor:
    """Glorot's uniform initial weights."""
    bound = gain * (6 / (n_in + n_out)) ** 0.5
    return torch.empty(n_in, n_out).uniform_(-bound, bound, generator=rng)


def adam(network: nn.Module, parameters: dict[str, Any]) -> torch.optim.Optimizer:
    """Return the optimizer of a network, from the parameters of a run."""
    return torch.optim.Adam(
        network.parameters(), lr=parameters["learning_rate"], weight_decay=parameters["weight_decay"], fused=True
    )
