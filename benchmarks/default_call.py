"""What does the default call, which learns from hidden cells, cost next to a call with given parameters and to PyG?"""

import argparse
from typing import Any

import numpy as np
import torch
from common import DATASETS, answer, hide, interleave, load
from torch_geometric.data import Data
from torch_geometric.transforms import FeaturePropagation

import pcfi


def compare(name: str, kind: str, rate: float) -> dict[str, Any]:
    features, edge_index = load(name)
    hidden = hide(features, kind, rate)
    missing = torch.from_numpy(np.isnan(hidden))
    data = Data(x=torch.from_numpy(hidden), edge_index=torch.from_numpy(edge_index))
    graph = pcfi.prepare_graph(edge_index, len(features))
    seconds = interleave(
        {
            "default": lambda: pcfi.impute(hidden, graph, unreachable="zero"),
            "given": lambda: pcfi.impute(
                hidden, graph, unreachable="zero", alpha=0.5, beta=0.1, objective="representation"
            ),
            "pyg_40": lambda: FeaturePropagation(missing, num_iterations=40)(data),
        },
        repeats=3,
        seconds=30.0,
    )
    return {
        "dataset": name,
        "kind": kind,
        "rate": rate,
        "default call over a call with given parameters": seconds["default"] / seconds["given"],
        "PyG FP, 40 steps, over the default call": seconds["pyg_40"] / seconds["default"],
        "PyG FP, 40 steps, over a call with given parameters": seconds["pyg_40"] / seconds["given"],
        "seconds": seconds,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.995, 0.9, 0.5])
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    chosen = parser.parse_args()
    answer(
        "default_call",
        (
            compare(name, kind, rate)
            for rate in chosen.rates
            for kind in ("structural", "uniform")
            for name in chosen.datasets
        ),
    )
