"""One step of the diffusion on a block of columns: `System`, in values x, with weights relative to each node.

With scale the method's weight of a cell (see `pcfi.stages.diffusion`) and a the adjacency, a step without self-loops is

    (P x)_i = sum_j a_ij (scale_j / scale_i) x_j / d_i        at the free cells, x_i elsewhere

`flow` computes the sum, in one of two ways: with scaled columns of any patterns at once, A (scale o x) / scale; or, if
the scale would underflow, with a matrix of the ratios for one pattern.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcfi.backends.torch_device.adjacency import Adjacency
from pcfi.inputs.tensors import wide_dtype


@dataclass(frozen=True, eq=False)
class System:
    """The diffusion on a block of columns; for a single pattern, tensors have one column for the whole block.

    Attributes
    ----------
    flow : callable
        sum_j a_ij (scale_j / scale_i) x_j, times `unit`; undefined outside the free cells.
    diagonal : Tensor
        d times `unit`, 1 outside the free cells.
    hops : Tensor of int
    free : Tensor of bool
        The missing reachable cells.
    scale : Tensor
    symmetric : bool
        Whether conjugate gradients may be used: an undirected graph, and no scale that underflows.
    unit : float
        A factor that keeps `flow` from overflowing.
    """

    flow: Callable[[Tensor], Tensor]
    diagonal: Tensor
    hops: Tensor
    free: Tensor
    scale: Tensor
    symmetric: bool
    unit: float = 1.0

    def step(self, x: Tensor, self_weight: float = 0.0) -> Tensor:
        """One diffusion step."""
        moved = self.flow(x)
        if self_weight:
            own = self_weight * self.unit
            moved = (moved + own * x) / (self.diagonal + own)
        else:
            moved = moved / self.diagonal
        return torch.where(self.free, moved, x)

    def inner(self, left: Tensor, right: Tensor) -> Tensor:
        """Column by column, the inner product in which P is symmetric: sum_i d_i scale_i^2 left_i right_i."""
        product = (self.scale * left) * (self.scale * right) * self.diagonal
        return product.sum(dim=0, dtype=wide_dtype(left.device))

    @property
    def deepest(self) -> int:
        """The largest number of hops of a free cell."""
        return int(torch.where(self.free, self.hops, 0).max())


@dataclass(frozen=True, eq=False)
class Method:
    """The graph and the scale on the device, shared by all systems of a method."""

    links: Adjacency
    by_hops: Tensor
    by_node: Tensor  # a column
    degree: Tensor | None  # a column
    alpha: float
    directed: bool

    def scaled(self, hops: Tensor) -> System:
        """Columns of any patterns at once."""
        reachable = hops < len(self.by_hops) - 1
        scale = self.by_hops[hops.int()] * self.by_node
        inverse = torch.where(scale > 0, 1 / scale, 0)

        def flow(x: Tensor) -> Tensor:
            return (self.links @ (scale * x)) * inverse

        return self._system(flow, hops, reachable, scale, symmetric=not self.directed)

    def relative(self, hops: Tensor) -> System:
        """Columns of one pattern, whose hops are one column."""
        reachable = hops < len(self.by_hops) - 1
        row, column = self.links.rows, self.links.indices.long()
        gap = (hops[column] - hops[row] + 1).ravel()  # at least 0 for neighbours, so that no ratio exceeds 1
        ratio = torch.where(gap == 0, 1, torch.exp(np.log(self.alpha) * gap.to(self.by_node.dtype)))
        weights = self.links.weights * ratio * (self.by_node[column] / self.by_node[row]).ravel()
        both = (reachable[column] & reachable[row]).ravel()
        links = self.links.reweighted(torch.where(both, weights, 0))
        scale = self.by_hops[hops.int()] * self.by_node
        return self._system(links.__matmul__, hops, reachable, scale, symmetric=False, unit=self.alpha)

    def _system(
        self, flow: Callable[[Tensor], Tensor], hops: Tensor, reachable: Tensor, scale: Tensor, **more: Any
    ) -> System:
        free = reachable & (hops > 0)
        diagonal = flow(reachable.to(scale.dtype)) if self.degree is None else self.degree
        return System(flow, torch.where(free, diagonal, 1), hops, free, scale, **more)
