"""Splits and masks as the code of the paper's authors draws them from a seed (of `PUBLISHED_SEEDS`, for the paper's).

Nodes are drawn by numpy's `RandomState`, edges and masks by torch's generator on the CPU.
"""

import numpy as np

from pcfi._typing import Array
from pcfi.experiments.data.dataset import Dataset
from pcfi.experiments.data.splits import N_DEVELOPMENT, N_TRAIN_PER_CLASS, EdgeSplit, NodeSplit


def published_nodes(dataset: Dataset, seed: int) -> NodeSplit:
    """Return the development nodes, 20 per class of them for training, drawn class by class; all others test.

    A data set's own split comes first, as in `split_nodes`.
    """
    if dataset.split is not None:
        return NodeSplit(**dataset.split)
    draws = np.random.RandomState(seed)
    development = draws.choice(dataset.n_nodes, N_DEVELOPMENT, replace=False)
    labels = dataset.labels[development]
    train = np.concatenate(
        [
            draws.choice(development[labels == label], N_TRAIN_PER_CLASS, replace=False)
            for label in range(dataset.n_classes)
        ]
    )
    test = np.setdiff1d(np.arange(dataset.n_nodes), development)
    return NodeSplit(np.sort(train), np.setdiff1d(development, train), test)


def published_edges(dataset: Dataset, seed: int) -> EdgeSplit:
    """Return the parts of PyG's `train_test_split_edges`, without its matrix of all pairs."""
    import torch

    draws = torch.Generator().manual_seed(seed)
    edges = dataset.edges[:, dataset.edges[0] < dataset.edges[1]]
    n_edges, n_nodes = edges.shape[1], dataset.n_nodes
    n_validation, n_test = int(0.05 * n_edges), int(0.1 * n_edges)
    parts = np.split(
        edges[:, torch.randperm(n_edges, generator=draws).numpy()], [n_validation, n_validation + n_test], axis=1
    )
    n_free = n_nodes * (n_nodes - 1) // 2 - n_edges
    free = torch.randperm(n_free, generator=draws)[: n_validation + n_test].numpy()
    negative = unlinked_pairs(free, edges, n_nodes)
    return EdgeSplit(parts[2], parts[0], negative[:, :n_validation], parts[1], negative[:, n_validation:])


def unlinked_pairs(numbers: Array, edges: Array, n_nodes: int) -> Array:
    """Return the pairs i < j that have these numbers among all pairs, row by row, that are not in `edges` (sorted)."""
    nodes = np.arange(n_nodes)
    row_starts = nodes * (n_nodes - 1) - nodes * (nodes - 1) // 2  # number of the pair (i, i + 1)
    linked = row_starts[edges[0]] + edges[1] - edges[0] - 1
    position = numbers + np.searchsorted(linked - np.arange(len(linked)), numbers, side="right")
    row = np.searchsorted(row_starts[:-1], position, side="right") - 1
    return np.stack([row, row + 1 + position - row_starts[row]])


def published_mask(kind: str, shape: tuple[int, ...], rate: float, seed: int) -> Array:
    """Draw one Bernoulli number for each node (structural) or cell (uniform); True = known."""
    import torch

    probability = torch.full(shape[:1] if kind == "structural" else shape, 1 - rate)
    known = torch.bernoulli(probability, generator=torch.Generator().manual_seed(seed)).bool().numpy()
    return np.repeat(known[:, None], shape[1], axis=1) if kind == "structural" else np.asarray(known)
