"""How long do position channels of large graphs take, and is the memory that they announce what they take?"""

import argparse

from common import answer, peak_memory

RUN = """
import ctypes, json, time, warnings
import numpy as np
from common import power_law_graph
import pcfi
from pcfi._kernels import csr_graph
from pcfi.memory import position_bytes

warnings.simplefilter("ignore", pcfi.PcfiWarning)
n_nodes, n_edges, n_channels = {arguments!r}
ring = np.stack([np.arange(300), (np.arange(300) + 1) % 300])
csr_graph.MAX_CACHED_BLOCK_BYTES, usual = 0, csr_graph.MAX_CACHED_BLOCK_BYTES
pcfi.position(ring, 20)  # loads the kernels for large graphs
csr_graph.MAX_CACHED_BLOCK_BYTES = usual
graph = pcfi.prepare_graph(power_law_graph(n_nodes, n_edges), n_nodes)
ctypes.CDLL(None).malloc_trim(0)  # what was freed is given back, so that it is not taken for free memory later
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")  # the peak starts again from here
def field(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) * 1024
before = field("VmRSS")
start = time.perf_counter()
pcfi.position(graph, n_channels)
seconds = time.perf_counter() - start
print(json.dumps(dict(seconds=seconds, taken=field("VmHWM") - before, announced=position_bytes(graph, n_channels))))
"""

GRAPHS = {
    "small": (20_000, 100_000),
    "Arxiv-size": (169_343, 1_166_243),
    "a million nodes": (1_000_000, 10_000_000),
}


def measure(name: str, n_channels: int) -> dict:
    n_nodes, n_edges = GRAPHS[name]
    found = peak_memory(RUN.format(arguments=(n_nodes, n_edges, n_channels)))
    return {
        "graph": name,
        "nodes": n_nodes,
        "edges": n_edges,
        "channels": n_channels,
        "seconds": found["seconds"],
        "memory, MB": found["taken"] / 1e6,
        "announced, MB": found["announced"] / 1e6,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["Arxiv-size", "a million nodes"])
    parser.add_argument("--channels", nargs="+", type=int, default=[128, 256])
    options = parser.parse_args()
    cases = ((name, n_channels) for name in options.graphs for n_channels in options.channels)
    answer("position_cost", (measure(*case) for case in cases))
