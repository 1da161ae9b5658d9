"""Does renumbering the nodes pay on graphs beyond the cache? Degree, breadth-first and reverse Cuthill-McKee order."""

import numpy as np
from common import answer, hide, interleave, power_law_graph
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, reverse_cuthill_mckee

import pcfi


def orders(graph: pcfi.Graph) -> dict[str, np.ndarray]:
    ones = np.ones(len(graph.indices))
    matrix = sparse.csr_matrix((ones, graph.indices, graph.indptr), shape=(graph.n_nodes, graph.n_nodes))
    degree = np.diff(graph.indptr)
    reached = breadth_first_order(matrix, int(degree.argmax()), directed=False, return_predecessors=False)
    rest = np.setdiff1d(np.arange(graph.n_nodes), reached)
    return {
        "as given": np.arange(graph.n_nodes),
        "degree": np.argsort(-degree, kind="stable"),
        "breadth-first": np.concatenate([reached, rest]),
        "reverse Cuthill-McKee": reverse_cuthill_mckee(matrix, symmetric_mode=True),
    }


def compare(name: str, n_nodes: int, n_edges: int, n_channels: int) -> list[dict[str, object]]:
    edge_index = power_law_graph(n_nodes, n_edges)
    features = hide(np.random.default_rng(0).normal(size=(n_nodes, n_channels)).astype(np.float32), "uniform", 0.995)
    candidates, results = {}, {}

    def candidate(key: str, order: np.ndarray) -> None:
        rank = np.empty(n_nodes, np.int64)
        rank[order] = np.arange(n_nodes)
        graph, values = pcfi.prepare_graph(rank[edge_index], n_nodes), features[order]

        def run() -> None:
            results[key] = pcfi.impute(
                values, graph, beta=0.0, solver=pcfi.FixedSteps(20), alpha=0.5, objective="representation"
            ).values[rank]

        candidates[key] = run

    for key, order in orders(pcfi.prepare_graph(edge_index, n_nodes)).items():
        candidate(key, order)
    seconds = interleave(candidates, repeats=3)
    for values in results.values():
        np.testing.assert_allclose(values, results["as given"], rtol=1e-4, atol=1e-4)
    return [
        {"graph": name, "order": key, "20 steps vs the order as given": seconds["as given"] / taken}
        for key, taken in seconds.items()
    ]


if __name__ == "__main__":
    rows = compare("Arxiv-size", 169_343, 1_166_243, 64) + compare("towards Products", 1_000_000, 10_000_000, 16)
    answer("node_order", rows)
