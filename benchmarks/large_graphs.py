"""How long, and how much memory, do graphs of the size of OGBN-Arxiv and towards OGBN-Products take?"""

from common import answer, peak_memory

RUN = """
import ctypes, json, time
import numpy as np
from common import hide, power_law_graph
import pcfi
from pcfi._kernels import csr_graph

n_nodes, n_edges, n_channels, kind, solver = {arguments!r}
solver = pcfi.FixedSteps(100) if solver == "fixed" else pcfi.UntilSettled()
rng = np.random.default_rng(0)
small = np.where(rng.random((300, 24)) < 0.5, rng.normal(size=(300, 24)), np.nan).astype(np.float32)
ring = np.stack([np.arange(300), (np.arange(300) + 1) % 300])
csr_graph.MAX_CACHED_BLOCK_BYTES, usual = 0, csr_graph.MAX_CACHED_BLOCK_BYTES
# loads the kernels for large graphs
pcfi.impute(small, ring, alpha=0.5, beta=0.1, objective="representation", solver=solver)
csr_graph.MAX_CACHED_BLOCK_BYTES = usual
start = time.perf_counter()
graph = pcfi.prepare_graph(power_law_graph(n_nodes, n_edges), n_nodes)
prepare = time.perf_counter() - start
features = rng.normal(size=(n_nodes, n_channels)).astype(np.float32)
hidden = hide(features, kind, {rate})
del features
ctypes.CDLL(None).malloc_trim(0)  # what was freed is given back, so that it is not taken for free memory later
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")  # the peak starts again from here
def field(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) * 1024
before = field("VmRSS")
start = time.perf_counter()
result = pcfi.impute(hidden, graph, alpha=0.5, beta=0.1, objective="representation", solver=solver)
seconds = time.perf_counter() - start
extra = field("VmHWM") - before - result.values.nbytes - result.cells.hops.codes.nbytes
print(json.dumps(dict(seconds=seconds, steps=result.steps, extra=extra, input=hidden.nbytes, edges=graph.n_edges,
    residual=result.residual, n_unreachable=result.n_unreachable)))
"""


def measure(name: str, n_nodes: int, n_edges: int, n_channels: int, kind: str, solver: str, rate: float) -> dict:
    arguments = (n_nodes, n_edges, n_channels, kind, solver)
    found = peak_memory(RUN.format(arguments=arguments, rate=rate))
    return {
        "graph": name,
        "nodes": n_nodes,
        "edges": found["edges"],
        "channels": n_channels,
        "kind": kind,
        "rate": rate,
        "solver": solver,
        "steps": found["steps"],
        "seconds": found["seconds"],
        "memory above input, output (values, hops) and graph, MB": found["extra"] / 1e6,
        "as a part of the input": found["extra"] / found["input"],
    }


if __name__ == "__main__":
    arxiv = ("Arxiv-size", 169_343, 1_166_243, 128)
    products = ("towards Products", 1_000_000, 25_000_000, 32)
    cases = [
        (*graph, kind, solver, 0.995)
        for graph in (arxiv, products)
        for kind in ("structural", "uniform")
        for solver in ("settled", "fixed")
    ]
    answer("large_graphs", (measure(*case) for case in [*cases, (*arxiv, "uniform", "settled", 0.5)]))
