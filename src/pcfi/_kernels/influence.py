"""Kernels for influence matrices: how far a row is from settled, and rows of a product into the output."""

import numpy as np

from pcfi._kernels.blocks import neighbour_sum
from pcfi._kernels.compiling import compiled
from pcfi._kernels.vectors import load, magnitude, splat, store, where_positive


@compiled
def row_moves(links, rows, block, diagonal, scales, self_weight, moves):
    """`moves[node]` = sum over lanes of the unscaled |x - Px|: what one further step would move."""
    one = splat(block, 1.0)
    own = splat(block, self_weight)
    zero = splat(block, 0.0)
    row = np.empty((1, block.shape[1]), block.dtype)
    for node in rows:
        weight = load(diagonal, node)
        safe = where_positive(weight, (weight + own) * load(scales, node), one)
        move = (neighbour_sum(links, block, node) - weight * load(block, node)) / safe
        store(row, 0, where_positive(weight, magnitude(move), zero))
        moves[node] = row.sum()


@compiled
def place_rows(product, rows, channels, shift, bounds, out):
    """`out[rows, channels]` = product + shift, kept within `bounds`."""
    for k in range(len(rows)):
        for c in range(len(channels)):
            value = product[k, c] + shift[c]
            out[rows[k], channels[c]] = min(max(value, bounds[0, c]), bounds[1, c])
