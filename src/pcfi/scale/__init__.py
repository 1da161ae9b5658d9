"""Graphs and features larger than memory, on one machine or a cluster: files in, files out, resumable.

    graph = pcfi.scale.build_graph("edges.parquet", "graph")
    pcfi.scale.impute("features.npy", "graph", "filled.npy", memory="4GB")
"""

from pcfi.scale.graphs import build_graph, open_graph

__all__ = ["build_graph", "open_graph"]
