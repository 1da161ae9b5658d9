"""Interfaces of `pcfi.impute` for scikit-learn, PyTorch Geometric, NetworkX, AnnData and data frames."""
