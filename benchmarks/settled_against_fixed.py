"""What does the steady state cost against the paper's 100 steps, and how far are those from it?"""

import numpy as np
from common import answer, hide, interleave, load, power_law_graph

import pcfi


def compare(name: str, features: np.ndarray, graph: object, kind: str, alpha: float) -> dict[str, object]:
    hidden = hide(features, kind, 0.995)
    prepared = pcfi.prepare_graph(graph, len(features))
    options = {"alpha": alpha, "beta": 0.0, "objective": "representation"}
    exact = pcfi.impute(hidden, prepared, **options, solver=pcfi.UntilSettled(1e-7, max_steps=5000))
    spread = np.nanmax(hidden, axis=0) - np.nanmin(hidden, axis=0)
    varies = spread > 0
    results: dict[str, pcfi.Imputation] = {}

    def run(key: str, solver: object) -> None:
        results[key] = pcfi.impute(hidden, prepared, **options, solver=solver)

    def distance(key: str) -> float:
        off = np.abs(results[key].values - exact.values)[:, varies] / spread[varies]
        return float(off.max())

    seconds = interleave(
        {
            "fixed": lambda: run("fixed", pcfi.FixedSteps(100)),
            "settled": lambda: run("settled", pcfi.UntilSettled()),
        },
        repeats=2,
    )
    return {
        "graph": name,
        "kind": kind,
        "alpha": alpha,
        "steps": results["settled"].steps,
        "settled vs 100 steps": seconds["fixed"] / seconds["settled"],
        "distance, settled": distance("settled"),
        "distance, 100 steps": distance("fixed"),
        "seconds": seconds,
    }


def main() -> None:
    rows = []
    for name in ("Cora", "PubMed", "Photo"):
        features, edge_index = load(name)
        rows += [
            compare(name, features, edge_index, kind, alpha)
            for kind in ("structural", "uniform")
            for alpha in (0.1, 0.5, 0.9)
        ]
    features = np.random.default_rng(0).normal(size=(169_343, 128)).astype(np.float32)
    edge_index = power_law_graph(169_343, 1_166_243)
    rows += [compare("Arxiv-size", features, edge_index, "uniform", alpha) for alpha in (0.1, 0.5, 0.9)]
    answer("settled_against_fixed", rows)


if __name__ == "__main__":
    main()
