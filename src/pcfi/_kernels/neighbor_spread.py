"""Weight, mean and variance of the known neighbours of single cells."""

from pcfi._kernels.compiling import compiled


@compiled
def neighbour_spread(graph, values, codes, patterns, nodes, channels, out):
    """Write weight, mean and sum of squared deviations of the known neighbours of each cell (node, channel).

    A neighbour is known where its hops code is 0.
    """
    for cell in range(len(nodes)):
        node, channel = nodes[cell], channels[cell]
        pattern = patterns[channel]
        weight = 0.0
        mean = 0.0
        scatter = 0.0
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            neighbour = graph.indices[edge]
            if codes[neighbour, pattern] == 0:
                edge_weight = graph.weights[edge] if graph.weights.size else 1.0
                weight += edge_weight
                deviation = values[neighbour, channel] - mean
                mean += deviation * edge_weight / weight
                scatter += edge_weight * deviation * (values[neighbour, channel] - mean)
        out[cell, 0] = weight
        out[cell, 1] = mean
        out[cell, 2] = scatter
