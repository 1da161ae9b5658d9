"""Nodes or edges -> training, validation and test parts."""

from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.errors import DatasetError
from pcfi.experiments.data.dataset import Dataset

N_DEVELOPMENT = 1500
N_TRAIN_PER_CLASS = 20
N_FLAGS = 1 << 22  # 4 MB, so that they stay in the cache


@dataclass(frozen=True, eq=False)
class NodeSplit:
    """Sorted node numbers of each part."""

    train: Array
    validation: Array
    test: Array


@dataclass(frozen=True, eq=False)
class EdgeSplit:
    """Undirected edges of each part, each once, as (2, E) arrays, and as many pairs that are not edges."""

    train: Array
    validation: Array
    validation_negative: Array
    test: Array
    test_negative: Array


def split_nodes(dataset: Dataset, rng: np.random.Generator) -> NodeSplit:
    """Return the paper's split of the nodes.

    The data set's own split if it has one; thirds for the synthetic graphs; else 1,500 random development nodes, 20 per
    class of them for training and the rest for validation, and all other nodes for testing.
    """
    if dataset.split is not None:
        return NodeSplit(**dataset.split)
    order = rng.permutation(dataset.n_nodes)
    if dataset.name.startswith("homophily"):
        third = dataset.n_nodes // 3
        return NodeSplit(*(np.sort(part) for part in np.split(order, [third, 2 * third])))
    if dataset.n_nodes <= N_DEVELOPMENT:
        raise DatasetError(f"{dataset.name} has {dataset.n_nodes} nodes, but the split needs more than {N_DEVELOPMENT}")
    development, test = order[:N_DEVELOPMENT], order[N_DEVELOPMENT:]
    labels = dataset.labels[development]
    train = np.concatenate([development[labels == label][:N_TRAIN_PER_CLASS] for label in range(dataset.n_classes)])
    return NodeSplit(np.sort(train), np.setdiff1d(development, train), np.sort(test))


def split_edges(dataset: Dataset, rng: np.random.Generator) -> EdgeSplit:
    """Return 5 % of the edges for validation, 10 % for testing, and the rest for training."""
    edges = dataset.edges[:, dataset.edges[0] < dataset.edges[1]]
    edges = edges[:, rng.permutation(edges.shape[1])]
    n_validation, n_test = int(0.05 * edges.shape[1]), int(0.1 * edges.shape[1])
    linked = LinkedPairs(pair_numbers(edges, dataset.n_nodes))
    negative = sample_negative(linked, n_validation + n_test, dataset.n_nodes, rng)
    parts = np.split(edges, [n_validation, n_validation + n_test], axis=1)
    return EdgeSplit(parts[2], parts[0], negative[:, :n_validation], parts[1], negative[:, n_validation:])


def pair_numbers(pairs: Array, n_nodes: int) -> Array:
    """Return one number for each undirected pair."""
    return np.asarray(pairs.min(axis=0) * n_nodes + pairs.max(axis=0), dtype=np.int64)


class LinkedPairs:
    """The numbers of linked pairs, as a set that many numbers are looked up in at once."""

    def __init__(self, numbers: Array) -> None:
        self._sorted = np.sort(numbers)
        self._flags = np.zeros(N_FLAGS, dtype=np.bool_)
        self._flags[numbers % N_FLAGS] = True

    def contains(self, numbers: Array) -> Array:
        """Whether each number is that of a linked pair; most others are told apart by their flag alone."""
        linked = self._flags[numbers % N_FLAGS]
        candidates = np.flatnonzero(linked)
        numbers = numbers[candidates]
        places = np.minimum(np.searchsorted(self._sorted, numbers), len(self._sorted) - 1)
        linked[candidates] = self._sorted[places] == numbers
        return np.asarray(linked)


def sample_negative(linked: LinkedPairs, count: int, n_nodes: int, rng: np.random.Generator) -> Array:
    """Draw `count` random pairs of different nodes that are not linked, as a (2, count) array."""
    sampled = np.empty((2, 0), np.int64)
    while sampled.shape[1] < count:
        n_left = count - sampled.shape[1]
        pairs = rng.integers(0, n_nodes, size=(2, n_left + n_left // 8 + 8))
        free = (pairs[0] != pairs[1]) & ~linked.contains(pair_numbers(pairs, n_nodes))
        sampled = np.concatenate([sampled, pairs[:, free][:, :n_left]], axis=1)
    return sampled
