"""A part of the graph, laid out in the plane: all of a small graph, the surroundings of one node of a large one."""

from collections import deque
from collections.abc import Callable

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph
from pcfi.report.facts import Dot, Picture

MOST_DOTS = 300
MOST_EDGES = 1500
NEIGHBOURS = 8  # that a node of a sample brings along; a hub would fill the picture
SEED = 0


def draw_picture(graph: Graph, confidence: Array, name: Callable[[int], str]) -> Picture | None:
    """The picture; None for a graph without edges."""
    if len(graph.indices) == 0:
        return None
    nodes = _sample(graph)
    edges = _edges_among(graph, nodes)
    places = _lay_out(len(nodes), edges)
    dots = [
        Dot(
            round(float(x), 4),
            round(float(y), 4),
            None if np.isnan(confidence[node]) else round(float(confidence[node]), 4),
            str(name(int(node))),
        )
        for node, (x, y) in zip(nodes, places, strict=True)
    ]
    return Picture(graph.n_nodes, tuple(dots), tuple((int(a), int(b)) for a, b in edges))


def _sample(graph: Graph) -> Array:
    """Up to `MOST_DOTS` nodes, found breadth first from a well linked one; all of them if they are so few."""
    if graph.n_nodes <= MOST_DOTS:
        return np.arange(graph.n_nodes)
    rng = np.random.default_rng(SEED)
    degree = np.diff(graph.indptr)
    candidates = rng.choice(graph.n_nodes, size=min(200, graph.n_nodes), replace=False)
    start = int(candidates[np.argmax(degree[candidates])])
    found, queue = {start: None}, deque([start])
    while queue and len(found) < MOST_DOTS:
        node = queue.popleft()
        neighbours = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        fresh = [int(one) for one in neighbours if int(one) not in found]
        for one in rng.permutation(fresh)[:NEIGHBOURS].tolist():
            if len(found) < MOST_DOTS:
                found[int(one)] = None
                queue.append(int(one))
    return np.sort(np.fromiter(found, dtype=np.int64))


def _edges_among(graph: Graph, nodes: Array) -> Array:
    """Edges between these nodes, as pairs of positions, at most `MOST_EDGES`."""
    place = {int(node): position for position, node in enumerate(nodes)}
    pairs = {
        (min(a, b), max(a, b))
        for node, a in place.items()
        for b in (place.get(int(one)) for one in graph.indices[graph.indptr[node] : graph.indptr[node + 1]])
        if b is not None
    }
    edges = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    if len(edges) > MOST_EDGES:
        edges = edges[np.sort(np.random.default_rng(SEED).choice(len(edges), MOST_EDGES, replace=False))]
    return edges


def _lay_out(n_nodes: int, edges: Array) -> Array:
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from(edges.tolist())
    places = nx.spring_layout(graph, seed=SEED, iterations=80)
    return np.array([places[node] for node in range(n_nodes)])
