"""Synthetic graphs of chosen class homophily with features of chosen spread, as in the paper's homophily experiment."""

import numpy as np

from pcfi._typing import Array
from pcfi.experiments.data.dataset import Dataset, largest_component

NODES, CLASSES, CHANNELS = 5000, 10, 5
EDGES_PER_NODE = 10
MAX_DRAWS = 20  # of a neighbour that is not one yet
RADIUS = 1.0


def homophily_graph(homophily: float, scale: float, *, name: str = "") -> Dataset:
    """Return a graph of 5,000 nodes in 10 classes of the same size, with 5 channels.

    Edges: nodes arrive one after another in random order, and each links to 10 earlier ones: with probability
    `homophily` of its own class, else of another class drawn at random, and within the class in proportion to their
    degree, so that degrees follow a power law. Features of class c: a Gaussian around plus or minus `RADIUS` along one
    axis (ten mutually equidistant means do not exist in five dimensions), with covariance `scale` x (1 on the
    diagonal, 0.1 elsewhere). Graph and classes depend on `homophily` alone; the noise of the
    features is the same for all scales, up to its size.
    """
    rng = np.random.default_rng([0, round(homophily * 1000)])
    labels = rng.permutation(np.arange(NODES) % CLASSES)
    edges = _attach(labels, homophily, rng)
    noise = rng.standard_normal((NODES, CHANNELS)) @ np.linalg.cholesky(_covariance()).T
    features = _means()[labels] + np.sqrt(scale) * noise
    return largest_component(name, features, labels, edges)


def dirichlet_energy(features: Array, edges: Array) -> float:
    """Mean squared difference of the features over edges and channels, after division by each channel's deviation."""
    scaled = features / features.std(axis=0)
    return float(np.mean((scaled[edges[0]] - scaled[edges[1]]) ** 2))


def _means() -> Array:
    return RADIUS * np.concatenate([np.eye(CHANNELS), -np.eye(CHANNELS)])


def _covariance() -> Array:
    return 0.1 + 0.9 * np.eye(CHANNELS)


def _attach(labels: Array, homophily: float, rng: np.random.Generator) -> Array:
    """Preferential attachment within classes: the list of a class has each node once, plus once per received edge."""
    ends: list[list[int]] = [[] for _ in range(CLASSES)]
    edges: list[tuple[int, int]] = []
    for node, own in enumerate(labels.tolist()):
        same = rng.random(EDGES_PER_NODE) < homophily
        other = (own + rng.integers(1, CLASSES, EDGES_PER_NODE)) % CLASSES
        draws = rng.random((EDGES_PER_NODE, MAX_DRAWS)).tolist()
        neighbors: set[int] = set()
        for label, positions in zip(np.where(same, own, other).tolist(), draws, strict=True):
            pool = ends[label]
            candidates = (pool[int(position * len(pool))] for position in positions if pool)
            neighbor = next((earlier for earlier in candidates if earlier not in neighbors), None)
            if neighbor is not None:
                neighbors.add(neighbor)
                pool.append(neighbor)
        edges += [(node, earlier) for earlier in sorted(neighbors)]
        ends[own].append(node)
    return np.array(edges).T
