"""Kernels for influence matrices: the residual of each row, and writing rows of a product into the features."""

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._kernels.csr_graph import neighbour_sum
from pcfi._kernels.vectors import absolute, load, splat, store, where_positive


@compiled
def row_residuals(graph, rows, block, inverse, scales, self_weight, out):
    """Set `out[node]` to the sum over lanes of the unscaled |x - Px|, for the nodes in `rows`."""
    one = splat(block, 1.0)
    own = splat(block, self_weight)
    zero = splat(block, 0.0)
    lanes = np.empty((1, block.shape[1]), block.dtype)
    for node in rows:
        factor = load(inverse, node)
        row = load(block, node)
        residual = factor * (neighbour_sum(graph, block, node) + own * row) - row
        residual = residual / where_positive(factor, load(scales, node), one)
        store(lanes, 0, where_positive(factor, absolute(residual), zero))
        out[node] = lanes.sum()


@compiled
def scatter_rows(product, rows, channels, shift, bounds, out):
    """Set `out[rows, channels]` to product + shift, clipped to `bounds`."""
    for k in range(len(rows)):
        for c in range(len(channels)):
            value = product[k, c] + shift[c]
            out[rows[k], channels[c]] = min(max(value, bounds[0, c]), bounds[1, c])
