"""How much faster is the training of the common GCN than the same loop on PyG's GCNConv layers?"""

import argparse
import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from common import answer
from torch import nn
from torch_geometric.nn import GCNConv

from pcfi.experiments.data.run_input import RunInput, load_run_input
from pcfi.experiments.run import Run
from pcfi.experiments.systems.imputers import fill
from pcfi.experiments.training.tasks import first_layer_on_features, train_network


class Peer(nn.Module):
    """Three GCNConv layers that keep the normalised adjacency; ReLU and dropout between them."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GCNConv(n_in, n_out, cached=True) for n_in, n_out in pairwise(widths))

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = nn.functional.dropout(torch.relu(layer(x, edge_index)), 0.5, self.training)
        return self.layers[-1](x, edge_index)


def peer(run_input: RunInput, features: np.ndarray) -> dict[str, float]:
    """The protocol as one writes it with PyG: a step and a test per epoch, patience on validation accuracy."""
    torch.manual_seed(run_input.run.seed)
    start = time.perf_counter()
    x, edges, labels = (torch.tensor(part) for part in (features, run_input.edges, run_input.dataset.labels))
    split = run_input.split
    model = Peer([x.shape[1], 64, 64, run_input.dataset.n_classes])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    best, best_epoch, accuracy = -1.0, 0, 0.0
    for epoch in range(1, 10_001):
        model.train()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x, edges)[split.train], labels[split.train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            correct = (model(x, edges).argmax(dim=1) == labels).numpy()
        if correct[split.validation].mean() > best:
            best, best_epoch, accuracy = correct[split.validation].mean(), epoch, correct[split.test].mean()
        if epoch - best_epoch >= 200:
            break
    return {"seconds": time.perf_counter() - start, "epochs": epoch, "accuracy": 100 * accuracy}


def ours(run_input: RunInput, features: np.ndarray) -> dict[str, float]:
    start = time.perf_counter()
    trained = train_network(run_input, first_layer_on_features(run_input, features))
    seconds = time.perf_counter() - start
    correct = trained.labels == run_input.dataset.labels
    return {
        "seconds": seconds,
        "epochs": trained.metrics["epochs"],
        "accuracy": 100 * correct[run_input.split.test].mean(),
    }


def compare(dataset: str, missing: str, rate: float, seeds: int) -> dict[str, Any]:
    """Both in turn on each seed's split; the first seed's training is done once before, to warm up."""
    rows: dict[str, list[dict[str, float]]] = {"ours": [], "PyG": []}
    for seed in range(seeds):
        run_input = load_run_input(Run("classification", dataset, missing, rate, "pcfi", (), seed))
        features = fill(run_input)[0]
        if seed == 0:
            ours(run_input, features)
        rows["ours"].append(ours(run_input, features))
        rows["PyG"].append(peer(run_input, features))
    mean = {who: {key: np.mean([row[key] for row in of]) for key in of[0]} for who, of in rows.items()}
    per_epoch = {who: 1000 * mean[who]["seconds"] / mean[who]["epochs"] for who in mean}
    return {
        "dataset": dataset,
        "kind": missing,
        "rate": rate,
        "per epoch, ours vs PyG": per_epoch["PyG"] / per_epoch["ours"],
        "whole training, ours vs PyG": mean["PyG"]["seconds"] / mean["ours"]["seconds"],
        "our accuracy": mean["ours"]["accuracy"],
        "PyG's accuracy": mean["PyG"]["accuracy"],
        "our ms per epoch": per_epoch["ours"],
        "our epochs": mean["ours"]["epochs"],
        "PyG's epochs": mean["PyG"]["epochs"],
        "splits": seeds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=["Cora"])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.995])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = [
        compare(name, kind, rate, chosen.splits)
        for name in chosen.datasets
        for rate in chosen.rates
        for kind in ("structural", "uniform")
    ]
    answer("training", rows, torch_threads=chosen.threads)


if __name__ == "__main__":
    main()
