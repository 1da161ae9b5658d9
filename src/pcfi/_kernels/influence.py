"""Kernels for influence matrices: how far a row is from settled, and rows of a product into the output."""

import numpy as np

from pcfi._kernels.blocks import neighbour_sum
from pcfi._kernels.compiling import compiled
from pcfi._kernels.vectors import load, magnitude, splat, store, where_positive


@compiled
def row_moves(links, rows, block, inverse, scales, self_weight, moves):
    """`moves[node]` = sum over lanes of the unscaled |x - Px|: what one further step would move."""
    one = splat(block, 1.0)
    own = splat(block, self_weight)
    zero = splat(block, 0.0)
    total = np.empty((1, block.shape[1]), block.dtype)
    for node in rows:
        factor = load(inverse, node)
        row = load(block, node)
        move = factor * (neighbour_sum(links, block, node) + own * row) - row
        move = move / where_positive(factor, load(scales, node), one)
        store(total, 0, where_positive(factor, magnitude(move), zero))
        moves[node] = total.sum()


@compiled
def place_rows(product, rows, channels, shift, bounds, out):
    """`out[rows, channels]` = product + shift, kept within `bounds`."""
    for k in range(len(rows)):
        for c in range(len(channels)):
            value = product[k, c] + shift[c]
            out[rows[k], channels[c]] = min(max(value, bounds[0, c]), bounds[1, c])
