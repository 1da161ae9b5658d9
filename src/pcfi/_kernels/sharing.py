"""Row-block kernels of the second stage: deviations from the channel means, and the correction of missing cells."""

import numpy as np

from pcfi._kernels.compiling import compiled


@compiled
def channel_sums(values, codes, patterns, n_levels, sums, counts):
    """Add the reachable cells of each channel to `sums` (float64) and `counts`."""
    for node in range(values.shape[0]):
        for channel in range(values.shape[1]):
            if codes[node, patterns[channel]] <= n_levels:
                sums[channel] += values[node, channel]
                counts[channel] += 1


@compiled
def deviations(values, codes, channels, patterns, means, by_code, out):
    """`out` = by_code[hops] * (value - mean) of the chosen channels; `by_code` is 0 for unreachable cells."""
    unreachable = len(by_code) - 1
    for node in range(values.shape[0]):
        for k in range(len(channels)):
            code = min(np.int64(codes[node, patterns[k]]), unreachable)
            out[node, k] = by_code[code] * (values[node, channels[k]] - means[k])


@compiled
def correct(values, codes, channels, patterns, confidence, received):
    """Add (1 - confidence) * received to the missing reachable cells of the chosen channels."""
    unreachable = len(confidence) - 1
    for node in range(values.shape[0]):
        for k in range(len(channels)):
            code = min(np.int64(codes[node, patterns[k]]), unreachable)
            if 0 < code < unreachable:
                values[node, channels[k]] += (1 - confidence[code]) * received[node, k]
