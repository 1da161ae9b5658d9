"""An order of the nodes in which neighbours are near each other, for dividing a graph into parts."""

from pcfi._kernels.compiling import compiled


@compiled
def reach_next_level(indptr, indices, frontier, position, first_parent, reached):
    """List the neighbours of `frontier` that have no position (-1) in `reached`; return their number.

    `first_parent` is the lowest position among their neighbours in the frontier; it is -1 for all nodes that no
    frontier has reached.
    """
    n_reached = 0
    for node in frontier:
        for edge in range(indptr[node], indptr[node + 1]):
            neighbour = indices[edge]
            if position[neighbour] < 0:
                if first_parent[neighbour] < 0:
                    reached[n_reached] = neighbour
                    n_reached += 1
                    first_parent[neighbour] = position[node]
                elif position[node] < first_parent[neighbour]:
                    first_parent[neighbour] = position[node]
    return n_reached


@compiled
def count_crossing(indptr, indices, position, size):
    """Return how many entries of the graph lead from one range of `size` positions to another."""
    n_crossing = 0
    for node in range(len(indptr) - 1):
        own = position[node] // size
        for edge in range(indptr[node], indptr[node + 1]):
            n_crossing += position[indices[edge]] // size != own
    return n_crossing
