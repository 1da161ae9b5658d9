"""Graph convolutional networks whose first layer reads constant features: all that can be is computed once."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from pcfi._typing import Array
from pcfi.experiments.learning.operators import Constant


class Propagated(nn.Module):
    """First layer on constant features: ReLU(M W + b), with M = A_sym X computed beforehand.

    M holds only those of the `n_channels` channels, `channels`, that are not 0 everywhere: the weights of the others
    would never get a gradient. The weights are drawn as if all were there.
    """

    def __init__(
        self, constant: Constant, width: int, rng: torch.Generator, *, n_channels: int, channels: Array
    ) -> None:
        super().__init__()
        self.constant = constant
        self.weight = nn.Parameter(glorot(n_channels, width, rng)[torch.from_numpy(channels)])
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self) -> torch.Tensor:
        """Hidden values of all rows of M."""
        return torch.relu(self.constant @ self.weight + self.bias)


class Convolution(nn.Module):
    """A graph convolution, A (H W) + b; A is given with each call, since training and testing need other rows of it."""

    def __init__(self, n_in: int, n_out: int, rng: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(glorot(n_in, n_out, rng))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, hidden: torch.Tensor, adjacency: Constant) -> torch.Tensor:
        """Values of the nodes that are rows of `adjacency`; its columns are the rows of `hidden`."""
        n_in, n_out = self.weight.shape
        if n_out < n_in:
            return adjacency @ (hidden @ self.weight) + self.bias
        return (adjacency @ hidden) @ self.weight + self.bias


class Network(nn.Module):
    """A first layer and the convolutions after it, ReLU and dropout between them.

    With `jumping`, the maximum over the hidden values of all layers goes through a linear map to the output.
    """

    def __init__(self, first: nn.Module, widths: list[int], rng: torch.Generator, *, jumping: bool = False) -> None:
        super().__init__()
        self.first = first
        last = [widths[-2]] if jumping else [widths[-1]]
        sizes = [*widths[:-1], *last]
        self.convolutions = nn.ModuleList(Convolution(n_in, n_out, rng) for n_in, n_out in pairwise(sizes))
        self.jump = Convolution(widths[-2], widths[-1], rng) if jumping else None

    def later_layers(self, hidden: torch.Tensor, field: "Field", dropout: "Dropout | None" = None) -> torch.Tensor:
        """Output for the nodes of `field`, from the first layer's hidden values."""
        drop = dropout or _keep_all
        layers = []
        last = len(self.convolutions) - 1
        for place, (convolution, adjacency) in enumerate(zip(self.convolutions, field.adjacency, strict=True)):
            hidden = drop(hidden)
            layers.append(hidden)
            hidden = convolution(hidden, adjacency)
            if place < last or self.jump is not None:
                hidden = torch.relu(hidden)
        if self.jump is None:
            return hidden
        layers = [layer[rows] for layer, rows in zip(layers, field.inside, strict=True)]
        best = torch.stack([*layers, drop(hidden)]).amax(dim=0)
        return best @ self.jump.weight + self.jump.bias


class Field:
    """What nodes see through `depth` convolutions: per layer, the rows of A_sym that matter and only those.

    Attributes
    ----------
    adjacency : list of Constant
        From the nodes that layer reads to those it writes; the first reads all nodes.
    inside : list of index tensors
        Where the nodes asked for stand among those that each layer reads.
    """

    def __init__(self, adjacency: Any, nodes: Array, depth: int) -> None:
        rows, parts, inside = np.asarray(nodes), [], []
        for layer in range(depth):
            part = adjacency[rows]
            columns = np.arange(adjacency.shape[1]) if layer == depth - 1 else np.unique(part.indices)
            parts.append(Constant(part if layer == depth - 1 else part[:, columns]))
            inside.append(torch.from_numpy(np.searchsorted(columns, nodes)))
            rows = columns
        self.adjacency = parts[::-1]
        self.inside = inside[::-1]


class Dropout:
    """Dropout from random bytes of a generator: ten times faster than torch's on a CPU, and seeded by itself."""

    def __init__(self, rate: float, rng: np.random.Generator) -> None:
        self.drop_below = round(256 * rate)
        self.scale = 256 / (256 - self.drop_below)
        self.rng = rng

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """The values, each 0 with the rate's probability (in 256ths), else scaled up to keep the mean."""
        if self.drop_below == 0:
            return hidden
        drawn = torch.frombuffer(bytearray(self.rng.bytes(hidden.numel())), dtype=torch.uint8)
        keep = (drawn >= self.drop_below).view(hidden.shape).to(hidden.dtype)
        return hidden * keep.mul_(self.scale)


def _keep_all(hidden: torch.Tensor) -> torch.Tensor:
    return hidden


def glorot(n_in: int, n_out: int, rng: torch.Generator) -> torch.Tensor:
    """Uniform initial weights of the usual size."""
    bound = (6 / (n_in + n_out)) ** 0.5
    return torch.empty(n_in, n_out).uniform_(-bound, bound, generator=rng)
