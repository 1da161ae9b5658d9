"""A transform for PyTorch Geometric: the public name of `pcfi.integrations.pyg`."""

from pcfi.integrations.pyg import ImputeFeatures, edge_type_weights

__all__ = ["ImputeFeatures", "edge_type_weights"]
