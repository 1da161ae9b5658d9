"""Kalman smoother of series with gaps: an autoregressive process or a random walk, observed with noise.

For each series s, with a_t the share of the state that survives step t and q_t the variance that the step adds,

    s_t = a_t s_{t-1} + N(0, q_t),     observed where known as  s_t + N(0, noise)

Several series of one node have the same gaps and so the same gains. a = 1 and no noise is linear interpolation.
"""

import numpy as np

from pcfi._kernels.compiling import compiled


@compiled
def smooth_series(series, known, survival, added, noise, first_variance, smoothed, variance):
    """Write means into `smoothed` and variances into `variance`; shapes (series, node, time) and (node, time)."""
    n_series, n_nodes, n_times = series.shape
    mean = np.empty(n_series)
    for node in range(n_nodes):
        mean[:] = 0.0
        spread = first_variance
        for t in range(n_times):
            if t > 0:
                spread = survival[t] * survival[t] * spread + added[t]
                for k in range(n_series):
                    mean[k] *= survival[t]
            if known[node, t]:
                gain = spread / (spread + noise) if spread > 0 else 0.0
                for k in range(n_series):
                    mean[k] += gain * (series[k, node, t] - mean[k])
                spread *= 1.0 - gain
            variance[node, t] = spread
            for k in range(n_series):
                smoothed[k, node, t] = mean[k]
        for t in range(n_times - 2, -1, -1):
            before = variance[node, t]
            ahead = survival[t + 1] * survival[t + 1] * before + added[t + 1]
            gain = before * survival[t + 1] / ahead if ahead > 0 else 0.0
            variance[node, t] = before + gain * gain * (variance[node, t + 1] - ahead)
            for k in range(n_series):
                mean_before = smoothed[k, node, t]
                smoothed[k, node, t] = mean_before + gain * (smoothed[k, node, t + 1] - survival[t + 1] * mean_before)
