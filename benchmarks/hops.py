"""What do the hops of many patterns cost: by byte vectors, by bits in a word, and by one search per pattern?"""

import numpy as np
from common import answer, hide, interleave, load, power_law_graph
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

import pcfi
from pcfi._kernels.blocks import aligned_block
from pcfi._kernels.hop_relaxation import mark_sources, read_hops, relax
from pcfi._kernels.hop_search import Sources, search
from pcfi.inputs.problem import read_problem


def compare(name: str, features: np.ndarray, graph: object) -> dict[str, object]:
    problem = read_problem(hide(features, "uniform", 0.995), pcfi.prepare_graph(graph, len(features)))
    sources = Sources(problem.values, problem.mask, problem.channels.representatives)
    shape = (len(features), len(sources.channels))
    stop = np.zeros(1, np.uint8)
    results: dict[str, np.ndarray] = {}

    def relaxed() -> None:
        codes, unreached = np.empty(shape, np.uint8), np.zeros(shape[1], np.int64)
        block = aligned_block(shape[0], np.uint8)
        for first in range(0, shape[1], 64):
            mark_sources(sources, first, block)
            relax(problem.graph.indptr, problem.graph.indices, block, stop)
            read_hops(block, first, codes, unreached)
        results["bytes"] = codes

    def searched(together: int) -> None:
        codes, unreached = np.empty(shape, np.uint8), np.zeros(shape[1], np.int64)
        for first in range(0, shape[1], together):
            part = sources._replace(channels=sources.channels[first : first + together])
            columns = np.empty((shape[0], len(part.channels)), np.uint8)
            search(*problem.graph.outgoing, part, 0, columns, stop, unreached[first : first + together])
            codes[:, first : first + together] = columns
        results["bits" if together == 64 else "single"] = codes

    seconds = interleave({"bytes": relaxed, "bits": lambda: searched(64), "single": lambda: searched(1)})
    np.testing.assert_array_equal(results["bytes"], results["bits"])
    np.testing.assert_array_equal(results["bytes"], results["single"])
    check_with_scipy(problem.graph, results["bytes"])
    return {
        "graph": name,
        "patterns": shape[1],
        "byte vectors vs bits in a word": seconds["bits"] / seconds["bytes"],
        "byte vectors vs one search per pattern": seconds["single"] / seconds["bytes"],
        "seconds": seconds,
    }


def check_with_scipy(graph: pcfi.Graph, codes: np.ndarray) -> None:
    """The hops of the first pattern, by scipy's shortest paths."""
    size = (graph.n_nodes, graph.n_nodes)
    matrix = sparse.csr_array((np.ones(len(graph.indices)), graph.indices, graph.indptr), shape=size)
    found = dijkstra(matrix, unweighted=True, indices=np.flatnonzero(codes[:, 0] == 0), min_only=True)
    np.testing.assert_array_equal(np.where(np.isinf(found), 255, found), codes[:, 0])


if __name__ == "__main__":
    rows = [compare(name, *load(name)) for name in ("Cora", "PubMed", "Photo", "Computers")]
    features = np.random.default_rng(0).normal(size=(169_343, 128)).astype(np.float32)
    rows.append(compare("Arxiv-size", features, power_law_graph(169_343, 1_166_243)))
    answer("hops", rows)
