"""Constant matrices as operators that are cheap to apply in every epoch: sparse, of low rank, or dense."""

from typing import Any

import numpy as np
import torch

from pcfi._typing import Array

LOW_RANK = 160
ROUNDING = 4e-6  # of the largest entry: what float32 leaves of an exact factoring
SPARSE_COST = 8  # a multiplication in a sparse product takes as long as this many in a dense one


class Constant:
    """A constant matrix M, kept as a product of factors; `M @ weights` is differentiable in the weights."""

    def __init__(self, *factors: Any) -> None:
        self.factors = tuple(_fixed(factor) for factor in factors)
        self.transposed = tuple(_transpose(factor) for factor in reversed(self.factors))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the product."""
        return self.factors[0].shape[0], self.factors[-1].shape[1]

    def __matmul__(self, other: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = _Product.apply(self, other)
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, constant: Constant, other: torch.Tensor) -> torch.Tensor:
        ctx.constant = constant
        return _multiply(constant.factors, other)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, _multiply(ctx.constant.transposed, gradients[0])


def _multiply(factors: tuple[Any, ...], other: torch.Tensor) -> torch.Tensor:
    for factor in reversed(factors):
        if isinstance(factor, torch.Tensor):
            other = factor @ other
        else:
            other = torch.from_numpy(factor @ other.detach().numpy())
    return other


def _fixed(factor: Any) -> Any:
    if isinstance(factor, np.ndarray):
        return torch.tensor(factor, dtype=torch.float32)
    return factor.tocsr().astype(np.float32)


def _transpose(factor: Any) -> Any:
    return factor.T if isinstance(factor, torch.Tensor) else factor.T.tocsr()


def propagated(adjacency: Any, features: Array) -> Constant:
    """`adjacency @ features` as the cheapest operator; in two sparse steps if the features are sparse."""
    from scipy import sparse

    n_values = int(np.count_nonzero(features))
    if SPARSE_COST * (n_values + adjacency.nnz) < adjacency.shape[0] * features.shape[1]:
        return Constant(adjacency, sparse.csr_array(features))
    return cheapest(np.asarray(adjacency @ features))


def cheapest(matrix: Array) -> Constant:
    """A matrix as an operator: sparse if few of its entries are not 0, two factors if its rank is low, else dense."""
    from scipy import sparse

    if SPARSE_COST * np.count_nonzero(matrix) < matrix.size:
        return Constant(sparse.csr_array(matrix))
    return Constant(*(factored(matrix) or (matrix,)))


def factored(matrix: Array) -> tuple[Array, Array] | None:
    """Two thin factors of a matrix of low rank (equal to it but for rounding), or None if its rank is not low."""
    width = min(LOW_RANK, min(matrix.shape) // 3)
    if width < 1:
        return None
    whole = torch.tensor(matrix)
    basis = torch.linalg.qr(whole @ torch.randn(whole.shape[1], width, generator=torch.Generator().manual_seed(0)))[0]
    left, sizes, right = torch.linalg.svd(basis.T @ whole, full_matrices=False)
    rank = max(1, int((sizes > sizes[0] * 1e-7).sum()))
    basis, coefficients = basis @ left[:, :rank], sizes[:rank, None] * right[:rank]
    exact = (basis @ coefficients - whole).abs().max() <= ROUNDING * whole.abs().max()
    return (basis.numpy(), coefficients.numpy()) if exact else None
