"""Layout of the graph in the plane: all of a small graph, or a sample of a large one."""

from collections import deque
from collections.abc import Callable

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph
from pcfi.report.facts import DrawnNode, GraphDrawing

MAX_NODES = 300
MAX_EDGES = 1500
MAX_NEIGHBORS = 8  # that a sampled node adds; otherwise a hub would fill the drawing
SEED = 0
OUTLIER_SHARE = 0.02  # share of the nodes at each side that are treated as outliers
MARGIN = 0.1  # largest distance of outliers from the others, relative to the width of the others


def lay_out_graph(graph: Graph, confidence: Array, name: Callable[[int], str]) -> GraphDrawing | None:
    """Lay out the graph or a sample of it; None for a graph without edges."""
    if len(graph.indices) == 0:
        return None
    nodes = _sample(graph)
    edges = _edges_among(graph, nodes)
    places = _lay_out(len(nodes), edges)
    dots = [
        DrawnNode(
            round(float(x), 4),
            round(float(y), 4),
            None if np.isnan(confidence[node]) else round(float(confidence[node]), 4),
            str(name(int(node))),
        )
        for node, (x, y) in zip(nodes, places, strict=True)
    ]
    return GraphDrawing(graph.n_nodes, tuple(dots), tuple((int(a), int(b)) for a, b in edges))


def _sample(graph: Graph) -> Array:
    """Up to `MAX_NODES` nodes, by breadth-first search from nodes of high degree."""
    if graph.n_nodes <= MAX_NODES:
        return np.arange(graph.n_nodes)
    rng = np.random.default_rng(SEED)
    candidates = rng.choice(graph.n_nodes, size=min(10 * MAX_NODES, graph.n_nodes), replace=False)
    starts = iter(candidates[np.argsort(-np.diff(graph.indptr)[candidates], kind="stable")].tolist())
    sample: dict[int, None] = {}
    queue: deque[int] = deque()
    while len(sample) < MAX_NODES:
        if not queue:  # the component is finished: continue in another
            start = next((one for one in starts if one not in sample), None)
            if start is None:
                break
            sample[start] = None
            queue.append(start)
        node = queue.popleft()
        neighbours = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
        fresh = [int(one) for one in neighbours if int(one) not in sample]
        for one in rng.permutation(fresh)[:MAX_NEIGHBORS].tolist():
            if len(sample) < MAX_NODES:
                sample[int(one)] = None
                queue.append(int(one))
    return np.sort(np.fromiter(sample, dtype=np.int64))


def _edges_among(graph: Graph, nodes: Array) -> Array:
    """Edges between these nodes, as pairs of positions, at most `MAX_EDGES`."""
    place = {int(node): position for position, node in enumerate(nodes)}
    pairs = {
        (min(a, b), max(a, b))
        for node, a in place.items()
        for b in (place.get(int(one)) for one in graph.indices[graph.indptr[node] : graph.indptr[node + 1]])
        if b is not None
    }
    edges = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    if len(edges) > MAX_EDGES:
        edges = edges[np.sort(np.random.default_rng(SEED).choice(len(edges), MAX_EDGES, replace=False))]
    return edges


def _lay_out(n_nodes: int, edges: Array) -> Array:
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(n_nodes))
    graph.add_edges_from(edges.tolist())
    places = nx.spring_layout(graph, seed=SEED, iterations=80)
    return _clip_outliers(np.array([places[node] for node in range(n_nodes)]))


def _clip_outliers(places: Array) -> Array:
    """Move outliers to the margin, so that the other nodes fill the picture."""
    low, middle, high = np.quantile(places, [OUTLIER_SHARE, 0.5, 1 - OUTLIER_SHARE], axis=0)
    reach = MARGIN * np.maximum(high - low, 1e-9)
    return np.asarray(np.clip(places, np.minimum(low, middle) - reach, np.maximum(high, middle) + reach))
