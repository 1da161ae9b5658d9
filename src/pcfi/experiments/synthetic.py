"""Synthetic graphs of chosen class homophily with features of chosen spread, as in the paper's homophily experiment."""

import numpy as np

from pcfi._typing import Array
from pcfi.experiments.dataset import Dataset, connected

NODES, CLASSES, CHANNELS = 5000, 10, 5
EDGES_PER_NODE = 10
TRIES = 20  # draws of an end that is not a neighbour yet
RADIUS = 1.0


def homophily_graph(homophily: float, scale: float, *, name: str = "") -> Dataset:
    """A graph of 5,000 nodes in 10 classes of the same size, with 5 channels.

    Edges: nodes arrive one after another in random order, and each links to 10 earlier ones: with probability
    `homophily` of its own class, else of another class drawn at random, and within the class in proportion to their
    degree, so that degrees follow a power law. Features of class c: a Gaussian around plus or minus `RADIUS` along one
    axis (ten mutually equidistant means do not exist in five dimensions), with covariance `scale` x (1 on the
    diagonal, 0.1 elsewhere). Graph and classes depend on `homophily` alone, and the features' noise is the
    same for all scales but for its size.
    """
    rng = np.random.default_rng([0, round(homophily * 1000)])
    labels = rng.permutation(np.arange(NODES) % CLASSES)
    edges = _attach(labels, homophily, rng)
    noise = rng.standard_normal((NODES, CHANNELS)) @ np.linalg.cholesky(_covariance()).T
    features = _means()[labels] + np.sqrt(scale) * noise
    return connected(name, features, labels, edges)


def dirichlet_energy(features: Array, edges: Array) -> float:
    """Mean over edges and channels of the squared difference of the features, each channel divided by its deviation."""
    standard = features / features.std(axis=0)
    return float(np.mean((standard[edges[0]] - standard[edges[1]]) ** 2))


def _means() -> Array:
    return RADIUS * np.concatenate([np.eye(CHANNELS), -np.eye(CHANNELS)])


def _covariance() -> Array:
    return 0.1 + 0.9 * np.eye(CHANNELS)


def _attach(labels: Array, homophily: float, rng: np.random.Generator) -> Array:
    """Preferential attachment within classes: a class's list holds each of its nodes once, and once per edge it got."""
    ends: list[list[int]] = [[] for _ in range(CLASSES)]
    edges: list[tuple[int, int]] = []
    for node, own in enumerate(labels.tolist()):
        same = rng.random(EDGES_PER_NODE) < homophily
        other = (own + rng.integers(1, CLASSES, EDGES_PER_NODE)) % CLASSES
        places = rng.random((EDGES_PER_NODE, TRIES)).tolist()
        chosen: set[int] = set()
        for label, tries in zip(np.where(same, own, other).tolist(), places, strict=True):
            pool = ends[label]
            drawn = (pool[int(place * len(pool))] for place in tries if pool)
            found = next((earlier for earlier in drawn if earlier not in chosen), None)
            if found is not None:
                chosen.add(found)
                pool.append(found)
        edges += [(node, earlier) for earlier in sorted(chosen)]
        ends[own].append(node)
    return np.array(edges).T
