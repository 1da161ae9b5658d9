"""Row-block kernels of the second stage: deviations from the channel means, and the correction of missing cells."""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._typing import Array


class ChannelMeans(NamedTuple):
    """The channels that share, the pattern of each, and its mean."""

    channels: Array
    patterns: Array
    means: Array


@compiled
def channel_sums(values, codes, sharers, n_levels, units, sums, counts):
    """Add the reachable cells of each sharing channel, in its unit, to `sums` (float64) and `counts`."""
    for node in range(values.shape[0]):
        row = values[node]
        code_row = codes[node]
        for k in range(len(sharers.channels)):
            reachable = code_row[sharers.patterns[k]] <= n_levels
            sums[k] += row[sharers.channels[k]] / units[k] if reachable else 0.0
            counts[k] += reachable


@compiled
def deviations(values, codes, sharers, factors, by_code, first, last, out):
    """Rows `first` to `last` of `out` = by_code[hops] * (value - mean) * factor; `by_code` is 0 for unreachable cells.

    `values` and `codes` start at the same node as `out`.
    """
    unreachable = len(by_code) - 1
    for node in range(first, last):
        row = values[node]
        code_row = codes[node]
        for k in range(len(sharers.channels)):
            code = min(np.int64(code_row[sharers.patterns[k]]), unreachable)
            out[node, k] = by_code[code] * ((row[sharers.channels[k]] - sharers.means[k]) * factors[k])


@compiled
def correct(values, codes, sharers, confidence, first, last, received):
    """Add (1 - confidence) * received to the missing reachable cells of rows `first` to `last`.

    Returns whether all that was written is finite.
    """
    unreachable = len(confidence) - 1
    finite = True
    for node in range(first, last):
        row = values[node]
        code_row = codes[node]
        for k in range(len(sharers.channels)):
            code = min(np.int64(code_row[sharers.patterns[k]]), unreachable)
            if 0 < code < unreachable:
                value = row[sharers.channels[k]] + (1 - confidence[code]) * received[node, k]
                row[sharers.channels[k]] = value
                finite &= np.isfinite(value)
    return finite
