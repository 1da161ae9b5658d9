"""Missing values in a node table: the public name of `pcfi.integrations.frames`."""

from pcfi.integrations.frames import evaluate, impute

__all__ = ["evaluate", "impute"]
