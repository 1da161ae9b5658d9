"""Graphs and features larger than memory: the public name of `pcfi.outofcore`."""

from pcfi.outofcore import (
    ClusterError,
    Estimate,
    MappedGraph,
    StorageError,
    StoredImputation,
    build_graph,
    estimate,
    impute,
    open_graph,
)

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
