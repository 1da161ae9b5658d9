"""Missing values in a GeoDataFrame: the public name of `pcfi.integrations.geo`."""

from pcfi.integrations.geo import build_graph, impute

__all__ = ["build_graph", "impute"]
