"""Missing node attributes in a networkx graph: the public name of `pcfi.integrations.networkx`."""

from pcfi.integrations.networkx import impute

__all__ = ["impute"]
