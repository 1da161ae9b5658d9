"""Graphs and features larger than memory, on one machine or a cluster: from files to files, resumable.

graph = pcfi.scale.build_graph("edges.parquet", "graph")
pcfi.scale.impute("features.npy", "graph", "filled.npy", memory="4GB")
"""

from pcfi.errors import ClusterError, StorageError
from pcfi.outofcore.imputation import impute
from pcfi.outofcore.mapped_graph import MappedGraph, build_graph, open_graph
from pcfi.outofcore.result import StoredImputation
from pcfi.outofcore.sizing import Estimate, estimate

__all__ = [
    "ClusterError",
    "Estimate",
    "MappedGraph",
    "StorageError",
    "StoredImputation",
    "build_graph",
    "estimate",
    "impute",
    "open_graph",
]
