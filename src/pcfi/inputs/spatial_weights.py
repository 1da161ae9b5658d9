"""libpysal's spatial weights (`Graph`, and the older `W`) -> node ids and an adjacency matrix."""

import sys
from typing import Any

import numpy as np

KINDS = (("libpysal.graph", "Graph"), ("libpysal.weights", "W"))


def is_spatial_weights(graph: object) -> bool:
    """Whether this is a `Graph` or a `W` of libpysal; does not load it."""
    kinds = (getattr(sys.modules.get(module), name, None) for module, name in KINDS)
    return any(kind is not None and isinstance(graph, kind) for kind in kinds)


def names_of_nodes(weights: Any) -> list[Any]:
    """Names of the nodes in the order of `adjacency`."""
    ids = weights.unique_ids if hasattr(weights, "unique_ids") else weights.id_order
    return list(ids.tolist() if hasattr(ids, "tolist") else ids)


def adjacency(weights: Any) -> Any:
    """The weights as a sparse matrix; a node without neighbours has an empty row."""
    return weights.sparse.tocoo()


def names_rows(weights: Any, index: Any) -> bool:
    """Whether node i is row i: the ids equal the index, or a `W` has no ids.

    A `W` numbers its nodes 0, 1, 2, ... unless it has ids; a `Graph` always uses the index of the table.
    """
    names = names_of_nodes(weights)
    if index is not None and len(index) == len(names) and index.tolist() == names:
        return True
    is_graph = hasattr(weights, "unique_ids")
    return (not is_graph or index is None) and names == list(range(len(names)))


def ends_in_rows(weights: Any, rows: Any) -> tuple[Any, Any]:
    """Edge index of row numbers, and weights."""
    edges = adjacency(weights)
    ends = edges.coords if hasattr(edges, "coords") else (edges.row, edges.col)
    return np.stack([rows[end] for end in ends]), edges.data
