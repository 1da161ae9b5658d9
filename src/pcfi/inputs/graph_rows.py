"""Some rows of a graph, which may be a mapped file, without the others."""

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph


def row_entries(graph: Graph, nodes: Array) -> tuple[Array, Array]:
    """Places of the entries of some rows, one row after the other, and where each row begins among them."""
    first = graph.indptr[nodes].astype(np.int64)
    counts = graph.indptr[np.asarray(nodes) + 1].astype(np.int64) - first
    begins = np.concatenate([[0], np.cumsum(counts)])
    return np.repeat(first - begins[:-1], counts) + np.arange(begins[-1]), begins
