"""How accurate is a GCN on the representation that "auto" chooses, against the paper's parameters?

Runs that are in the results already are not repeated: delete benchmarks/results/representation.json to start anew.
"""

import json
from typing import Any

import numpy as np
from common import RESULTS, answer, load

import pcfi

RATE = 0.995
SPLITS = {(name, kind): 5 for name in ("Cora", "CiteSeer", "Photo") for kind in ("structural", "uniform")}
SPLITS |= {("PubMed", "structural"): 3, ("Computers", "structural"): 3}
PAPER, AUTO = "paper's parameters, 100 steps", "auto"


def measure(name: str, kind: str, seed: int) -> dict[str, Any]:
    """Accuracy on one split, with the paper's parameters and with those that "auto" chooses."""
    from pcfi.experiments.data.run_input import load_run_input
    from pcfi.experiments.paper import paper_parameters
    from pcfi.experiments.run import Run
    from pcfi.experiments.runs.execution import execute

    def accuracy(**parameters: Any) -> float:
        chosen = tuple(sorted(parameters.items()))
        return execute(Run("classification", name, kind, RATE, "pcfi", chosen, seed)).metrics["accuracy"]

    run_input = load_run_input(Run("classification", name, kind, RATE, "pcfi", (), seed))
    tuning = pcfi.tune(run_input.features, run_input.edges, objective="representation")
    paper = paper_parameters("classification", name, kind, RATE)
    ours = {"alpha": tuning.alpha, "beta": tuning.beta, "center": tuning.center, "solver": "settled"}
    return {
        PAPER: accuracy(**paper, solver="fixed", steps=100),
        AUTO: accuracy(**ours),
        "alpha": tuning.alpha,
        "centred": tuning.center,
    }


def summarize(runs: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, kind in SPLITS:
        splits = [run for key, run in runs.items() if key.startswith(f"{name}, {kind}, ")]
        if splits:
            paper, auto = (float(np.mean([run[key] for run in splits])) for key in (PAPER, AUTO))
            row = {"data": name, "missing": f"{kind} {RATE:.1%}", "splits": len(splits), PAPER: paper, AUTO: auto}
            row |= {"difference": auto - paper, "alpha": splits[0]["alpha"], "centred": str(splits[0]["centred"])}
            rows.append(row)
    return rows


def main() -> None:
    path = RESULTS / "representation.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else {}
    for (name, kind), n_splits in SPLITS.items():
        load(name)  # from the copy of the data sets beside the repository, if there is one
        for seed in range(n_splits):
            key = f"{name}, {kind}, {seed}"
            if key not in runs:
                runs[key] = measure(name, kind, seed)
                answer("representation", summarize(runs), runs=runs)


if __name__ == "__main__":
    main()
