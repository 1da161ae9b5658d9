"""A small data set with classes, sparse features and a connected graph, and run inputs on it."""

from typing import Any

import numpy as np

from pcfi.experiments.catalog import resolved_parameters
from pcfi.experiments.data.dataset import Dataset, largest_component
from pcfi.experiments.data.masks import draw_mask
from pcfi.experiments.data.run_input import RunInput
from pcfi.experiments.data.splits import NodeSplit, split_edges
from pcfi.experiments.run import Run


def small_dataset(n_nodes: int = 120, n_channels: int = 30, n_classes: int = 3, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    labels = np.arange(n_nodes) % n_classes
    likely = 0.15 + 0.5 * (np.arange(n_channels) % n_classes == labels[:, None])
    features = (rng.random((n_nodes, n_channels)) < likely).astype(np.float32)
    ends = rng.integers(0, n_nodes, (2, 12 * n_nodes))
    inside = (labels[ends[0]] == labels[ends[1]]) | (rng.random(ends.shape[1]) < 0.1)
    ring = np.stack([np.arange(n_nodes), (np.arange(n_nodes) + 1) % n_nodes])
    return largest_component("small", features, labels, np.concatenate([ring, ends[:, inside]], axis=1))


def small_run_input(
    system: str = "zero",
    missing: str = "structural",
    rate: float = 0.5,
    task: str = "classification",
    **parameters: Any,
) -> RunInput:
    dataset = small_dataset()
    rng = np.random.default_rng(1)
    run = Run(task, "small", missing, rate, system, tuple(sorted(parameters.items())))
    edges = dataset.edges
    if task == "classification":
        parts = np.split(rng.permutation(dataset.n_nodes), [30, 70])
        split = NodeSplit(*map(np.sort, parts))
    else:
        split = split_edges(dataset, rng)
        edges = np.concatenate([split.train, split.train[::-1]], axis=1)
    return RunInput(run, dataset, draw_mask(missing, dataset, rate, rng), edges, split, resolved_parameters(run))
