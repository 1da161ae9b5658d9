"""Passes of the random fields of errors over a graph: weights of the steps, and steps of a Chebyshev recurrence."""

from pcfi._kernels.compiling import compiled
from pcfi._kernels.csr_graph import neighbour_sum
from pcfi._kernels.vectors import load, splat, store


@compiled
def add_step_weights(graph, codes, n_levels, powers, first, last, out):
    """Add to `out[node]` the sum of a_ij alpha^(hops j - hops i) over the reachable neighbours of reachable nodes.

    `powers` are alpha^-1, alpha^0, alpha^1: neighbours are at most a hop apart. If it is empty, the graph is directed:
    weights count as they are, at both ends of an edge, and rows cannot be divided among threads.
    """
    for node in range(first, last):
        if codes[node] > n_levels:
            continue
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            other = graph.indices[edge]
            if codes[other] > n_levels:
                continue
            weight = graph.weights[edge] if graph.weights.size else 1.0
            if powers.size:
                out[node] += weight * powers[int(codes[other]) - int(codes[node]) + 1]
            else:
                out[node] += weight
                out[other] += weight


@compiled
def add_outgoing_sums(graph, rows, block, out):
    """Add the rows of `block`, times the weight of the edge, to the rows of `out` that they come from."""
    for node in rows:
        row = load(block, node)
        for edge in range(graph.indptr[node], graph.indptr[node + 1]):
            source = graph.indices[edge]
            weight = splat(block, graph.weights[edge] if graph.weights.size else 1.0)
            store(out, source, load(out, source) + weight * row)


@compiled
def take_chebyshev_step(graph, rows, current, previous, inverse, added, factors, total):
    """Replace `previous` by own * current - through * inverse o (A current + added) - previous, in some rows.

    `factors` are own, through, and the weight with which the new rows are added to `total`. An empty `added` is 0.
    """
    own, through, weight = splat(current, factors[0]), splat(current, factors[1]), splat(current, factors[2])
    for node in rows:
        sums = neighbour_sum(graph, current, node)
        if added.size:
            sums = sums + load(added, node)
        stepped = own * load(current, node) - through * load(inverse, node) * sums - load(previous, node)
        store(previous, node, stepped)
        store(total, node, load(total, node) + weight * stepped)
