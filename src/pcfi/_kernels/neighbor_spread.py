"""Weight, mean and variance of the known neighbours of single cells, and what they say of all cells of some rows."""

import numpy as np

from pcfi._kernels.compiling import compiled


@compiled
def neighbour_spread(graph, values, unit, codes, patterns, nodes, channels, out):
    """Write weight, mean and sum of squared deviations of the known neighbours of each cell (node, channel).

    Values are taken in units of their channel. A neighbour is known where its hops code is 0.
    """
    for cell in range(len(nodes)):
        node, channel = nodes[cell], channels[cell]
        pattern, scale = patterns[channel], unit[channel]
        weight = 0.0
        mean = 0.0
        scatter = 0.0
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            neighbour = graph.indices[edge]
            if codes[neighbour, pattern] == 0:
                edge_weight = graph.weights[edge] if graph.weights.size else 1.0
                weight += edge_weight
                value = values[neighbour, channel] / scale
                deviation = value - mean
                mean += deviation * edge_weight / weight
                scatter += edge_weight * deviation * (value - mean)
        out[cell, 0] = weight
        out[cell, 1] = mean
        out[cell, 2] = scatter


@compiled
def add_neighbour_terms(graph, known, first, usual_spread, slopes, out):
    """Add slopes . (log(spread / usual) / 2, log(1 + count)) of the known neighbours to every missing cell of `out`.

    Row r of `out` is node first + r. `known` holds the values, NaN where one is missing. Weights of edges count
    neighbours.
    """
    n_channels = known.shape[1]
    count = np.empty(n_channels)
    total = np.empty(n_channels)
    squares = np.empty(n_channels)
    for row in range(len(out)):
        node = first + row
        count[:] = 0.0
        total[:] = 0.0
        squares[:] = 0.0
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            neighbour = graph.indices[edge]
            edge_weight = graph.weights[edge] if graph.weights.size else 1.0
            for channel in range(n_channels):
                value = known[neighbour, channel]
                is_known = value == value
                part = edge_weight if is_known else 0.0
                value = value if is_known else 0.0
                count[channel] += part
                total[channel] += part * value
                squares[channel] += part * value * value
        for channel in range(n_channels):
            if known[node, channel] != known[node, channel]:
                number = count[channel]
                if number > 0.0:
                    usual = usual_spread[channel]
                    scatter = max(squares[channel] - total[channel] * total[channel] / number, 0.0)
                    spread = (scatter + usual) / (max(number - 1.0, 0.0) + 1.0)
                    of_spread = slopes[0, channel] * 0.5 * np.log(spread / usual)
                    out[row, channel] += of_spread + slopes[1, channel] * np.log(1.0 + number)
