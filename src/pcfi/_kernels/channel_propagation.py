"""Stage 2 on a block of rows: deviations from the channel means, and the correction of missing cells."""

from typing import NamedTuple

import numpy as np

from pcfi._kernels.compiling import compiled
from pcfi._typing import Array


class ChannelMeans(NamedTuple):
    """The channels that take part in stage 2, the pattern of each, and its mean."""

    channels: Array
    patterns: Array
    means: Array


@compiled
def channel_sums(values, codes, active, n_levels, units, sums, counts):
    """Add the reachable cells of each channel, divided by its unit, to `sums` (float64) and `counts`."""
    for node in range(values.shape[0]):
        row = values[node]
        code_row = codes[node]
        for k in range(len(active.channels)):
            reachable = code_row[active.patterns[k]] <= n_levels
            sums[k] += row[active.channels[k]] / units[k] if reachable else 0.0
            counts[k] += reachable


@compiled
def deviations(values, codes, active, factors, by_code, first, last, out):
    """Set rows `first` to `last` of `out` to by_code[hops] * (value - mean) * factor.

    The last entry of `by_code`, for unreachable cells, is 0. `values` and `codes` start at the same node as `out`.
    """
    unreachable = len(by_code) - 1
    for node in range(first, last):
        row = values[node]
        code_row = codes[node]
        for k in range(len(active.channels)):
            code = min(np.int64(code_row[active.patterns[k]]), unreachable)
            out[node, k] = by_code[code] * ((row[active.channels[k]] - active.means[k]) * factors[k])


@compiled
def correct(values, codes, active, confidence, first, last, received):
    """Add (1 - confidence) * received to the missing reachable cells of rows `first` to `last`.

    Return whether all values written are finite.
    """
    unreachable = len(confidence) - 1
    finite = True
    for node in range(first, last):
        row = values[node]
        code_row = codes[node]
        for k in range(len(active.channels)):
            code = min(np.int64(code_row[active.patterns[k]]), unreachable)
            if 0 < code < unreachable:
                value = row[active.channels[k]] + (1 - confidence[code]) * received[node, k]
                row[active.channels[k]] = value
                finite &= np.isfinite(value)
    return finite
