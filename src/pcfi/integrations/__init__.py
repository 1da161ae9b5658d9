"""scikit-learn, PyTorch Geometric, NetworkX, AnnData and data frames: thin translations of `pcfi.impute`."""
