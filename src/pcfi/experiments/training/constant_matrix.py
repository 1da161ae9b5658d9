"""`ConstantMatrix`: a matrix that is multiplied in every epoch, in its cheapest form: sparse, factored or dense."""

import warnings
from typing import Any

import numpy as np
import torch

from pcfi._typing import Array

MAX_RANK = 160
MAX_ROUNDING_ERROR = 4e-6  # relative to the largest entry: rounding of an exact factorization in float32
SPARSE_COST = 8  # time of a multiplication in a sparse product, relative to a dense one


class ConstantMatrix:
    """A constant matrix M as a product of factors; `M @ weights` is differentiable in the weights."""

    def __init__(self, *factors: Any) -> None:
        self.factors = tuple(map(_as_tensor, factors))
        self.transposed = tuple(
            tensor.T if isinstance(factor, np.ndarray) else _as_tensor(factor.T)
            for factor, tensor in zip(reversed(factors), reversed(self.factors), strict=True)
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the product."""
        return self.factors[0].shape[0], self.factors[-1].shape[1]

    def __matmul__(self, other: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = _Product.apply(self, other)
        return product


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: ConstantMatrix, other: torch.Tensor) -> torch.Tensor:
        ctx.matrix = matrix
        return _multiply(matrix.factors, other)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, _multiply(ctx.matrix.transposed, gradients[0])


def _multiply(factors: tuple[torch.Tensor, ...], other: torch.Tensor) -> torch.Tensor:
    for factor in reversed(factors):
        other = factor @ other
    return other


def _as_tensor(factor: Any) -> torch.Tensor:
    """A dense or sparse matrix as a tensor in float32; torch multiplies sparse rows twice as fast as scipy."""
    if isinstance(factor, np.ndarray):
        return torch.tensor(factor, dtype=torch.float32)
    rows = factor.tocsr()
    rows.sort_indices()
    index = [torch.tensor(part, dtype=torch.int32) for part in (rows.indptr, rows.indices)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls its sparse rows "beta"
        return torch.sparse_csr_tensor(*index, torch.tensor(rows.data, dtype=torch.float32), size=rows.shape)


def propagated(adjacency: Any, features: Array) -> ConstantMatrix:
    """Return `adjacency @ features`, as two sparse factors if the features are sparse."""
    from scipy import sparse

    n_values = int(np.count_nonzero(features))
    if SPARSE_COST * (n_values + adjacency.nnz) < adjacency.shape[0] * features.shape[1]:
        return ConstantMatrix(adjacency, sparse.csr_array(features))
    return compact(np.asarray(adjacency @ features))


def compact(matrix: Array) -> ConstantMatrix:
    """Return a matrix in its cheapest form: sparse, or two thin factors if its rank is low, else dense."""
    from scipy import sparse

    if SPARSE_COST * np.count_nonzero(matrix) < matrix.size:
        return ConstantMatrix(sparse.csr_array(matrix))
    return ConstantMatrix(*(low_rank_factors(matrix) or (matrix,)))


def low_rank_factors(matrix: Array) -> tuple[Array, Array] | None:
    """Return two thin factors whose product equals the matrix up to rounding, or None if its rank is not low."""
    width = min(MAX_RANK, min(matrix.shape) // 3)
    if width < 1:
        return None
    dense = torch.tensor(matrix)
    basis = torch.linalg.qr(dense @ torch.randn(dense.shape[1], width, generator=torch.Generator().manual_seed(0)))[0]
    left, singular_values, right = torch.linalg.svd(basis.T @ dense, full_matrices=False)
    rank = max(1, int((singular_values > singular_values[0] * 1e-7).sum()))
    basis, coefficients = basis @ left[:, :rank], singular_values[:rank, None] * right[:rank]
    exact = (basis @ coefficients - dense).abs().max() <= MAX_ROUNDING_ERROR * dense.abs().max()
    return (basis.numpy(), coefficients.numpy()) if exact else None
