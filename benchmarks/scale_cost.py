"""What does a unit of work of `pcfi.scale` cost? Fits the factors of `pcfi.scale.estimate`, checks them elsewhere.

Writes src/pcfi/scale/cost.json. The sizes that are checked were not used for the fit.
"""

import json
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from common import ROOT, answer, machine, power_law_graph
from scipy.optimize import nnls

warnings.simplefilter("ignore")
FOLDER = Path(tempfile.gettempdir()) / "pcfi-scale-cost"
TARGET = ROOT / "src" / "pcfi" / "scale" / "cost.json"
FITTED = [(200_000, 800_000, 64), (200_000, 3_000_000, 32), (500_000, 1_500_000, 64), (800_000, 8_000_000, 32)]
CHECKED = [(350_000, 2_000_000, 96), (1_000_000, 6_000_000, 48)]
UNITS = ("build", "step, entry", "step, node", "panel, entry", "panel, node", "search, entry", "search, node")
UNITS += ("rows, cell", "sharing, cell and channel")


def run(n_nodes: int, n_edges: int, n_channels: int, **parameters: object) -> dict:
    """Sizes, steps and the seconds of every stage."""
    from pcfi.scale import build_graph, impute

    rng = np.random.default_rng(0)
    features = rng.normal(size=(n_nodes, n_channels)).astype(np.float32)
    features[rng.random(features.shape) < 0.9] = np.nan
    np.save(FOLDER / "x.npy", features)
    edges = power_law_graph(n_nodes, n_edges)
    begin = time.perf_counter()
    graph = build_graph(edges, FOLDER / "g", n_nodes=n_nodes, overwrite=True)
    build = time.perf_counter() - begin
    begin = time.perf_counter()
    filled = impute(FOLDER / "x.npy", FOLDER / "g", FOLDER / "y.npy", overwrite=True, **parameters)
    return {
        "nodes": n_nodes,
        "edges": n_edges,
        "entries": len(graph.indices),
        "channels": n_channels,
        "steps": filled.steps,
        "seconds": time.perf_counter() - begin,
        **filled.seconds,
        "build": build,
    }


def fit(rows: list[dict]) -> dict[str, float]:
    """Seconds per unit, none below 0, so that the relative errors are least."""

    def solve(seconds: list[float], *terms: list[float]) -> list[float]:
        table = np.stack(terms, axis=1) / np.array(seconds)[:, None]
        scale = table.max(axis=0)
        return list(nnls(table / scale, np.ones(len(seconds)))[0] / scale)

    def column(make) -> list[float]:
        return [float(make(row)) for row in rows]

    panels = column(lambda row: -(-row["channels"] // 16))
    entries, nodes = column(lambda row: row["entries"]), column(lambda row: row["nodes"])
    steps, cells = column(lambda row: row["steps"]), column(lambda row: row["nodes"] * row["channels"])
    diffusion = [
        np.multiply(panels, term) for term in (np.multiply(steps, entries), np.multiply(steps, nodes), entries, nodes)
    ]
    searches = column(lambda row: -(-row["channels"] // 64))
    found = solve(column(lambda row: row["build"]), column(lambda row: row["edges"]))
    found += solve(column(lambda row: row["diffuse"]), *diffusion)
    found += solve(column(lambda row: row["hops"]), *(np.multiply(searches, term) for term in (entries, nodes)))
    found += solve(column(lambda row: row["survey"] + row["split"] + row["write"]), cells)
    found += solve(column(lambda row: row["sums"]), column(lambda row: row["nodes"] * row["channels"] ** 2))
    return dict(zip(UNITS, found, strict=True))


def main() -> None:
    from pcfi.scale import estimate

    FOLDER.mkdir(exist_ok=True)
    import pcfi

    run(100_000, 300_000, 32)  # compiles
    # the same sizes with few and with many steps tell steps from what is done once
    rows = [run(*size, solver=solver) for size in FITTED for solver in (pcfi.UntilSettled(), pcfi.UntilSettled(1e-2))]
    factors = fit(rows)
    TARGET.write_text(json.dumps({"machine": machine(), "seconds per": factors}, indent=1) + "\n")
    table = []
    for size in CHECKED:
        found = run(*size)
        said = estimate(size[0], found["entries"] // 2, size[2], steps=found["steps"])
        table.append(
            {
                "nodes": size[0],
                "edges": size[1],
                "channels": size[2],
                "steps": found["steps"],
                "seconds": found["seconds"],
                "estimated": said.seconds,
                "ratio": said.seconds / found["seconds"],
                "seconds to build": found["build"],
                "estimated to build": said.build_seconds,
            }
        )
    answer("scale_cost", table)
    for path in FOLDER.glob("*.npy"):
        path.unlink()


if __name__ == "__main__":
    main()
