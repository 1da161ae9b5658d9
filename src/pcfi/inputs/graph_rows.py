"""Read some rows of a graph, which may be a mapped file."""

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph


def row_entries(graph: Graph, nodes: Array) -> tuple[Array, Array]:
    """Positions of the entries of some rows, row by row, and the start of each row among them."""
    first = graph.indptr[nodes].astype(np.int64)
    counts = graph.indptr[np.asarray(nodes) + 1].astype(np.int64) - first
    begins = np.concatenate([[0], np.cumsum(counts)])
    return np.repeat(first - begins[:-1], counts) + np.arange(begins[-1]), begins
