"""What a system is given: the data of a run with the missing cells hidden, its split, parameters and randomness."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.experiments.catalog import WHOLE_NODES, settings_of
from pcfi.experiments.dataset import Dataset
from pcfi.experiments.datasets import load
from pcfi.experiments.masks import draw_mask
from pcfi.experiments.runs import Run
from pcfi.experiments.splits import EdgeSplit, NodeSplit, split_edges, split_nodes

PURPOSES = ("split", "mask", "weights", "training", "system")


@dataclass(frozen=True, eq=False)
class Setting:
    """The data of a run, as a system may see it; the labels of validation and test nodes only choose and score.

    Attributes
    ----------
    known : boolean array of the shape of the features
        True = known.
    edges : int64 array of shape (2, E)
        The edges that may be used, in both directions: those of the training part in link prediction.
    split : NodeSplit or EdgeSplit
        Parts for training, validation and testing.
    parameters : dict
        All parameters of the run, defaults included.
    """

    run: Run
    dataset: Dataset
    known: Array
    edges: Array
    split: NodeSplit | EdgeSplit
    parameters: dict[str, Any]

    @cached_property
    def features(self) -> Array:
        """The features, NaN where missing."""
        return np.where(self.known, self.dataset.features, np.float32(np.nan))

    @cached_property
    def zero_filled(self) -> Array:
        """The features, 0 where missing."""
        return np.where(self.known, self.dataset.features, np.float32(0))

    @cached_property
    def adjacency(self) -> Any:
        """A_sym of the edges that may be used, as a scipy CSR array."""
        return normalized_adjacency(self.edges, self.dataset.n_nodes)

    @cached_property
    def hops(self) -> Array | None:
        """Hops of each node to the nearest known one (inf if there is none), if nodes miss all channels or none."""
        from scipy import sparse
        from scipy.sparse import csgraph

        if self.run.missing not in WHOLE_NODES or self.known.all() or not self.known.any():
            return None
        n_nodes = self.dataset.n_nodes
        graph = sparse.coo_array((np.ones(self.edges.shape[1]), tuple(self.edges)), shape=(n_nodes, n_nodes))
        sources = np.flatnonzero(self.known[:, 0])
        return np.asarray(csgraph.dijkstra(graph.tocsr(), unweighted=True, indices=sources, min_only=True))

    def rng(self, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose; they depend on the run's seed alone."""
        return random_numbers(self.run.seed, purpose)


def random_numbers(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers for one purpose of a run, independent of those for any other purpose."""
    return np.random.Generator(np.random.SFC64([seed, PURPOSES.index(purpose)]))


def make_setting(run: Run) -> Setting:
    """Load the data of a valid run, draw its split and its mask."""
    dataset = load(run.dataset)
    rng = random_numbers(run.seed, "split")
    split = split_nodes(dataset, rng) if run.task == "classification" else split_edges(dataset, rng)
    edges = dataset.edges
    if isinstance(split, EdgeSplit):
        edges = np.concatenate([split.train, split.train[::-1]], axis=1)
    if run.system == "full":
        known = np.ones(dataset.features.shape, bool)
    else:
        known = draw_mask(run.missing, dataset, run.rate, random_numbers(run.seed, "mask"))
    return Setting(run, dataset, known, edges, split, settings_of(run))


def normalized_adjacency(edges: Array, n_nodes: int) -> Any:
    """A_sym = D^-1/2 (A + I) D^-1/2 of undirected edges given in both directions, as a scipy CSR array."""
    from scipy import sparse

    nodes = np.arange(n_nodes)
    row, column = np.concatenate([edges, [nodes, nodes]], axis=1).astype(np.int32)
    scale = 1 / np.sqrt(np.bincount(row, minlength=n_nodes))
    weights = (scale[row] * scale[column]).astype(np.float32)
    return sparse.coo_array((weights, (row, column)), shape=(n_nodes, n_nodes)).tocsr()
