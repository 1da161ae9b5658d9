"""Statistics of each channel in one pass over the features: known count, range, sum, and a key of its known set.

A cell is known where the mask is True; a mask without rows means that every cell but NaN is known. Inner loops have no
branches, so that the compiler vectorises them.
"""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled, inlined, inner
from pcfi._typing import Array


class ChannelStats(NamedTuple):
    """One entry per channel: number of known cells, their range and sum, and a key of the set of sources."""

    n_known: Array
    low: Array
    high: Array
    total: Array
    key: Array


@inner
def _hash(number):
    """Return a 64-bit hash of a node (the finaliser of splitmix64)."""
    number = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@inlined
def _is_known(values, known, masked, node, channel):
    return known[node, channel] if masked else values[node, channel] == values[node, channel]


@compiled
def add_channel_stats(values, known, start, stop, stats, first_node=0):
    """Add the known cells of the channels `start` to `stop` to `stats`; row 0 is node `first_node`.

    The key of a channel is the sum of the hashes of its sources: channels with the same known set have the same key,
    and two others collide with probability 2^-64.
    """
    masked = known.shape[0] > 0
    start = max(start, 0)  # a hint for the compiler: no index is negative
    for node in range(values.shape[0]):
        node_hash = _hash(np.uint64(first_node + node))
        for k in range(start, stop):
            value = values[node, k]
            is_known = _is_known(values, known, masked, node, k)
            stats.low[k] = value if is_known and value < stats.low[k] else stats.low[k]
            stats.high[k] = value if is_known and value > stats.high[k] else stats.high[k]
        for k in range(start, stop):
            stats.total[k] += values[node, k] if _is_known(values, known, masked, node, k) else 0.0
        for k in range(start, stop):
            is_known = _is_known(values, known, masked, node, k)
            stats.n_known[k] += is_known
            stats.key[k] += node_hash if is_known else np.uint64(0)


@compiled
def copy_known(values, known, fill, first, last, out):
    """Set rows `first` to `last` of `out` to the value where known, to the channel's `fill` elsewhere."""
    masked = known.shape[0] > 0
    for node in range(first, last):
        for k in range(values.shape[1]):
            out[node, k] = values[node, k] if _is_known(values, known, masked, node, k) else fill[k]
