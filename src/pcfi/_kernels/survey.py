"""Feature matrix -> facts about each channel, in one pass: known count, range, sum, and a key of its known set."""

from typing import Any

import numpy as np

from pcfi._kernels.compiling import compiled

Array = np.ndarray[Any, Any]


@compiled
def _mix(number):
    """A well mixed 64-bit number for each node (the finaliser of splitmix64)."""
    number = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@compiled
def survey(values, known, count, low, high, total, keys):
    """Fill `count`, `low`, `high`, `total` and `keys` for each channel from its known cells.

    `known` is a mask, or has no rows: then every cell that is not NaN is known. The key of a channel is the sum of
    two mixed numbers over its sources, so channels with the same known set have the same key, and others do
    not (the chance of a clash among 10,000 channels is below 1e-30).
    """
    masked = known.shape[0] > 0
    for node in range(values.shape[0]):
        first = _mix(np.uint64(2 * node))
        second = _mix(np.uint64(2 * node + 1))
        for channel in range(values.shape[1]):
            value = values[node, channel]
            is_known = known[node, channel] if masked else value == value
            if is_known:
                count[channel] += 1
                low[channel] = min(low[channel], value)
                high[channel] = max(high[channel], value)
                total[channel] += value
                keys[channel, 0] += first
                keys[channel, 1] += second


@compiled
def mark_sources(values, known, channels, codes):
    """Write 0 into `codes[node, pattern]` where the pattern's representative channel is known."""
    masked = known.shape[0] > 0
    for node in range(values.shape[0]):
        for pattern in range(len(channels)):
            channel = channels[pattern]
            value = values[node, channel]
            if known[node, channel] if masked else value == value:
                codes[node, pattern] = 0


@compiled
def copy_known(values, known, fill, out):
    """`out` = the value where known, the channel's `fill` elsewhere."""
    masked = known.shape[0] > 0
    for node in range(values.shape[0]):
        for channel in range(values.shape[1]):
            value = values[node, channel]
            is_known = known[node, channel] if masked else value == value
            out[node, channel] = value if is_known else fill[channel]
