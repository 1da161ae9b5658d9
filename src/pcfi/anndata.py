"""Missing values in AnnData: the public name of `pcfi.integrations.anndata`."""

from pcfi.integrations.anndata import impute

__all__ = ["impute"]
