"""A transform for PyTorch Geometric: the public name of `pcfi.integrations.pyg`."""

from pcfi.integrations.pyg import ImputeFeatures

__all__ = ["ImputeFeatures"]
