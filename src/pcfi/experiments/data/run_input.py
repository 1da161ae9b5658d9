"""`RunInput`: what a system may see of a run: known features, usable edges, split, parameters, random numbers."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.experiments.catalog import NODE_MASKS, resolved_parameters
from pcfi.experiments.data.dataset import Dataset
from pcfi.experiments.data.loading import load
from pcfi.experiments.data.masks import draw_mask
from pcfi.experiments.data.published import published_edges, published_mask, published_nodes
from pcfi.experiments.data.splits import EdgeSplit, NodeSplit, split_edges, split_nodes
from pcfi.experiments.run import Run

PURPOSES = ("split", "mask", "weights", "training", "system")


@dataclass(frozen=True, eq=False)
class RunInput:
    """The input of a system. Labels of validation and test nodes serve to select and to score, not to train.

    Attributes
    ----------
    known : boolean array of the shape of the features
        True = known.
    edges : int64 array of shape (2, E)
        The edges that the system may use, in both directions: in link prediction, the training edges.
    split : NodeSplit or EdgeSplit
        Training, validation and test parts.
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
        """A_sym of the usable edges, as a scipy CSR array."""
        return normalized_adjacency(self.edges, self.dataset.n_nodes)

    @cached_property
    def hops(self) -> Array | None:
        """Hops of each node to the nearest source, inf if unreachable; None unless nodes miss all channels or none."""
        from scipy import sparse
        from scipy.sparse import csgraph

        if self.run.missing not in NODE_MASKS or self.known.all() or not self.known.any():
            return None
        n_nodes = self.dataset.n_nodes
        ends = tuple(self.edges.astype(np.int32))  # `dijkstra` of scipy before 1.14 takes no other integers
        graph = sparse.coo_array((np.ones(self.edges.shape[1]), ends), shape=(n_nodes, n_nodes))
        sources = np.flatnonzero(self.known[:, 0])
        return np.asarray(csgraph.dijkstra(graph.tocsr(), unweighted=True, indices=sources, min_only=True))

    @property
    def weights_seed(self) -> int:
        """Seed of torch's generator for the initial weights; the authors' node classification always takes 0."""
        if self.run.draw == "published":
            return 0 if self.run.task == "classification" else self.run.seed
        return int(self.rng("weights").integers(2**63))

    def rng(self, purpose: str) -> np.random.Generator:
        """Return random numbers for one purpose; they depend on the seed of the run alone."""
        return random_generator(self.run.seed, purpose)


def random_generator(seed: int, purpose: str) -> np.random.Generator:
    """Return random numbers for one purpose of a run, independent of those for any other purpose."""
    return np.random.Generator(np.random.SFC64([seed, PURPOSES.index(purpose)]))


def load_run_input(run: Run) -> RunInput:
    """Load the data set of a valid run, and draw its split and mask."""
    dataset = load(run.dataset)
    split = _split(run, dataset)
    edges = dataset.edges
    if isinstance(split, EdgeSplit):
        edges = np.concatenate([split.train, split.train[::-1]], axis=1)
    return RunInput(run, dataset, _known(run, dataset), edges, split, resolved_parameters(run))


def _split(run: Run, dataset: Dataset) -> NodeSplit | EdgeSplit:
    if run.draw == "published":
        return (published_nodes if run.task == "classification" else published_edges)(dataset, run.seed)
    return (split_nodes if run.task == "classification" else split_edges)(dataset, random_generator(run.seed, "split"))


def _known(run: Run, dataset: Dataset) -> Array:
    if run.system == "full":
        return np.ones(dataset.features.shape, bool)
    if run.draw == "published":
        return published_mask(run.missing, dataset.features.shape, run.rate, run.seed)
    return draw_mask(run.missing, dataset, run.rate, random_generator(run.seed, "mask"))


def normalized_adjacency(edges: Array, n_nodes: int) -> Any:
    """A_sym = D^-1/2 (A + I) D^-1/2 of undirected edges given in both directions, as a scipy CSR array."""
    from scipy import sparse

    nodes = np.arange(n_nodes)
    row, column = np.concatenate([edges, [nodes, nodes]], axis=1).astype(np.int32)
    scale = 1 / np.sqrt(np.bincount(row, minlength=n_nodes))
    weights = (scale[row] * scale[column]).astype(np.float32)
    return sparse.coo_array((weights, (row, column)), shape=(n_nodes, n_nodes)).tocsr()
