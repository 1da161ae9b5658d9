"""Do time and memory grow linearly with nodes, edges and channels?"""

import numpy as np
from common import answer
from large_graphs import measure

NODES, EDGES, CHANNELS = 50_000, 400_000, 32


def exponent(sizes: list[int], values: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main() -> None:
    rows = []
    for what in ("nodes and edges", "edges", "channels"):
        sizes, times, memory = [], [], []
        for factor in (1, 2, 4, 8):
            nodes = NODES * factor if what == "nodes and edges" else NODES
            edges = EDGES * factor if what != "channels" else EDGES
            channels = CHANNELS * factor if what == "channels" else CHANNELS
            row = measure(what, nodes, edges, channels, "uniform", "fixed", 0.995)
            sizes.append(factor)
            times.append(row["seconds"])
            memory.append(row["memory above input, output (values, hops) and graph, MB"])
            rows.append({"growing": what, "factor": factor, **row})
        exponents = {"exponent of time": exponent(sizes, times), "exponent of memory": exponent(sizes, memory)}
        rows.append({"growing": what, **exponents})
    answer("growth", rows)


if __name__ == "__main__":
    main()
