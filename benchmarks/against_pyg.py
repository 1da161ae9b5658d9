"""How much faster than PyG's FeaturePropagation, which does the easier, unweighted job?"""

import argparse

import numpy as np
import torch
from common import DATASETS, answer, hide, interleave, load
from torch_geometric.data import Data
from torch_geometric.transforms import FeaturePropagation

import pcfi

ALPHA, BETA = 0.5, 0.1


def compare(name: str, kind: str, rate: float) -> dict[str, object]:
    features, edge_index = load(name)
    hidden = hide(features, kind, rate)
    missing = torch.from_numpy(np.isnan(hidden))
    data = Data(x=torch.from_numpy(hidden), edge_index=torch.from_numpy(edge_index))

    def peer(steps: int) -> np.ndarray:
        return FeaturePropagation(missing, num_iterations=steps)(data).x.numpy()

    def ours(**options: object) -> np.ndarray:
        return pcfi.impute(hidden, edge_index, unreachable="zero", objective="representation", **options).values

    plain = {"method": "fp", "self_loops": False}
    np.testing.assert_allclose(ours(**plain, solver=pcfi.FixedSteps(100)), peer(100), atol=1e-4)
    seconds = interleave(
        {
            "pcfi_100": lambda: ours(alpha=ALPHA, beta=BETA, solver=pcfi.FixedSteps(100)),
            "fp_100": lambda: ours(**plain, solver=pcfi.FixedSteps(100)),
            "pyg_100": lambda: peer(100),
            "pcfi_settled": lambda: ours(alpha=ALPHA, beta=BETA),
            "pyg_40": lambda: peer(40),
        },
        repeats=5,
        seconds=30.0,
    )
    return {
        "dataset": name,
        "kind": kind,
        "rate": rate,
        "PCFI, 100 steps, vs PyG FP, 100 steps": seconds["pyg_100"] / seconds["pcfi_100"],
        "our FP, 100 steps, vs PyG FP, 100 steps": seconds["pyg_100"] / seconds["fp_100"],
        "PCFI settled, alpha and beta given, vs PyG FP, 40 steps": seconds["pyg_40"] / seconds["pcfi_settled"],
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.995, 0.9, 0.5])
    chosen = parser.parse_args()
    rows = (
        compare(name, kind, rate)
        for rate in chosen.rates
        for kind in ("structural", "uniform")
        for name in chosen.datasets
    )
    answer("against_pyg", rows, alpha=ALPHA, beta=BETA)


if __name__ == "__main__":
    main()
