"""The graph on a device: `Adjacency`, which multiplies dense blocks of columns."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph


class Adjacency:
    """A sparse N x N matrix, `a @ block`; row i holds what flows into node i.

    Uses a compressed sparse matrix if the device supports it, otherwise sums over a list of edges.
    """

    def __init__(self, indptr: Tensor, indices: Tensor, weights: Tensor) -> None:
        self.indptr = indptr
        self.indices = indices
        self.weights = weights
        self._matrix = _compressed(indptr, indices, weights)

    @classmethod
    def of(cls, graph: Graph, weights: Array | None, device: Any, dtype: Any) -> "Adjacency":
        """The graph with the given weights, or with 1 for each edge."""
        fits = len(graph.indices) <= np.iinfo(np.int32).max
        indptr = torch.as_tensor(graph.indptr, device=device, dtype=torch.int32 if fits else torch.int64)
        indices = torch.as_tensor(graph.indices, device=device, dtype=indptr.dtype)
        if weights is None:
            return cls(indptr, indices, torch.ones(len(indices), device=device, dtype=dtype))
        return cls(indptr, indices, torch.as_tensor(weights, device=device).to(dtype))

    @property
    def rows(self) -> Tensor:
        """Row of each entry."""
        counts = self.indptr.diff()
        return torch.repeat_interleave(torch.arange(len(counts), device=counts.device, dtype=torch.int64), counts)

    def reweighted(self, weights: Tensor) -> "Adjacency":
        """The same entries with other weights."""
        return Adjacency(self.indptr, self.indices, weights)

    def __matmul__(self, block: Tensor) -> Tensor:
        """Sum over the neighbours of each node, weighted."""
        if self._matrix is not None:
            return self._matrix @ block
        pulled = block.index_select(0, self.indices) * self.weights[:, None]
        return torch.zeros_like(block).index_add_(0, self.rows, pulled)


def _compressed(indptr: Tensor, indices: Tensor, weights: Tensor) -> Tensor | None:
    size = (len(indptr) - 1, len(indptr) - 1)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR")  # torch warns that this layout is a beta feature
            matrix = torch.sparse_csr_tensor(indptr, indices, weights, size=size, check_invariants=False)
            matrix @ torch.zeros((size[0], 1), dtype=weights.dtype, device=weights.device)
    except (RuntimeError, NotImplementedError):
        return None
    return matrix
