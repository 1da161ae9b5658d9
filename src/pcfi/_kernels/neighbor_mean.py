"""Weighted mean of the known neighbours of each missing cell."""

import numpy as np

from pcfi._kernels.compiling import compiled


@compiled
def neighbour_means(graph, values, known, first, last, out):
    """Write the mean into the missing cells of rows `first` to `last` of `out` that have a known neighbour.

    Return whether all values written are finite.
    """
    finite = True
    masked = known.shape[0] > 0
    n_channels = values.shape[1]
    mean = np.empty(n_channels)
    weight = np.empty(n_channels)
    for node in range(first, last):
        mean[:] = 0
        weight[:] = 0
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            neighbour = graph.indices[edge]
            edge_weight = graph.weights[edge] if graph.weights.size else 1.0
            for channel in range(n_channels):
                value = values[neighbour, channel]
                if known[neighbour, channel] if masked else value == value:
                    weight[channel] += edge_weight  # a running mean, whose terms neither overflow nor underflow
                    mean[channel] += (value - mean[channel]) * (edge_weight / weight[channel])
        for channel in range(n_channels):
            value = values[node, channel]
            is_known = known[node, channel] if masked else value == value
            if not is_known and weight[channel] > 0:
                out[node, channel] = mean[channel]
                finite &= np.isfinite(out[node, channel])
    return finite
