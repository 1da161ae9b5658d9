"""Statistics of each channel in one pass over the features: known count, range, sum, and a key of its known set.

A cell is known where the mask is True; a mask without rows means that every cell but NaN is known. Inner loops have no
branches, so that the compiler vectorises them.
"""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled, inner
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


@inner
def known_flags(row, known_row, flags):
    """Set `flags[k]` to whether the k-th cell of the row is known."""
    if len(known_row):
        for k in range(len(flags)):
            flags[k] = known_row[k]
    else:
        for k in range(len(flags)):
            flags[k] = row[k] == row[k]


@compiled
def add_channel_stats(values, known, start, stop, stats, first_node=0):
    """Add the known cells of the channels `start` to `stop` to `stats`; row 0 is node `first_node`.

    The key of a channel is the sum of the hashes of its sources: channels with the same known set have the same key,
    and two others collide with probability 2^-64.
    """
    masked = known.shape[0] > 0
    flags = np.empty(stop - start, np.bool_)
    for node in range(values.shape[0]):
        row = values[node, start:stop]
        known_flags(row, known[node, start:stop] if masked else known[:0, 0], flags)
        _add_range_and_sum(row, flags, stats.low[start:stop], stats.high[start:stop], stats.total[start:stop])
        node_hash = _hash(np.uint64(first_node + node))
        n_known, key = stats.n_known[start:stop], stats.key[start:stop]
        for k in range(len(flags)):
            n_known[k] += flags[k]
        for k in range(len(flags)):
            key[k] += node_hash if flags[k] else np.uint64(0)


@inner
def _add_range_and_sum(row, flags, low, high, total):
    for k in range(len(flags)):
        value = row[k]
        low[k] = value if flags[k] and value < low[k] else low[k]
        high[k] = value if flags[k] and value > high[k] else high[k]
    for k in range(len(flags)):
        total[k] += row[k] if flags[k] else 0.0


@compiled
def copy_known(values, known, fill, first, last, out):
    """Set rows `first` to `last` of `out` to the value where known, to the channel's `fill` elsewhere."""
    masked = known.shape[0] > 0
    flags = np.empty(values.shape[1], np.bool_)
    for node in range(first, last):
        row = values[node]
        filled = out[node]
        known_flags(row, known[node] if masked else known[:0, 0], flags)
        for k in range(len(flags)):
            filled[k] = row[k] if flags[k] else fill[k]
