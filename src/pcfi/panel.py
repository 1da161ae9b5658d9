"""Missing readings of sensors or regions over time: the public name of `pcfi.integrations.panel`."""

from pcfi.integrations.panel import impute

__all__ = ["impute"]
