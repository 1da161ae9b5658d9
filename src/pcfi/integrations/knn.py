"""Rows of a table with missing cells -> the graph that links each row to its most similar rows.

Columns are measured in units of their spread. The distance of two rows is taken over the columns that both know, scaled
up to all columns (NaN-aware Euclidean distance). An edge of length d between i and j has the weight

    exp(-d^2 / (s_i s_j)),     s_i the distance of i to its farthest neighbour

so that "near" means near for that part of the table. Neighbours are first searched for exactly, or beyond `EXACT_ROWS`
rows with the mean in missing cells. Once a first fill exists, `RowSearch.again` looks among the filled rows, and
picks from twice as many candidates by the NaN-aware distance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.optional import load

EXACT_ROWS = 5_000
APPROXIMATE_ROWS = 100_000  # from here on by pynndescent, whose compilation takes longer than smaller searches
CHUNK_CELLS = 1 << 24  # of one array of distances
FAR = np.float32(1e30)
LEAST_WEIGHT = 1e-6  # an edge is never lost to underflow


@dataclass(frozen=True, eq=False)
class RowSearch:
    """The rows to search among, and how to compare rows with them.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_columns)
        In units of each column's spread, NaN where missing.
    mean, spread : ndarray
        Of the known cells of each column.
    metric : str or callable
        "nan_euclidean", or a metric of scikit-learn, for rows with the mean in missing cells.
    """

    rows: Array
    mean: Array
    spread: Array
    metric: Any

    @staticmethod
    def among(features: Array, metric: Any = "nan_euclidean") -> "RowSearch":
        """Search among the rows of `features`."""
        known = ~np.isnan(features)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, features, 0.0).sum(axis=0, dtype=np.float64) / count
        centred = np.where(known, features - mean, 0.0)
        spread = np.sqrt((centred**2).sum(axis=0) / count)
        spread[spread <= 1e-12 * np.abs(mean)] = np.inf  # a constant column tells nothing
        spread[spread == 0] = np.inf
        return RowSearch((features - mean) / spread, mean, spread, metric)

    def scaled(self, features: Array) -> Array:
        """Rows in the units of this search."""
        return (features - self.mean) / self.spread

    def first(self, n_neighbors: int, features: Array | None = None) -> tuple[Array, Array]:
        """Row numbers and distances of the nearest rows, nearest first; infinitely far if there is nothing to compare.

        For the rows of `features`, or for the own rows, which are not their own neighbours.
        """
        queries = None if features is None else self.scaled(features)
        n_neighbors = min(n_neighbors, len(self.rows) - (features is None))
        if self.metric == "nan_euclidean" and len(self.rows) <= EXACT_ROWS:
            return nan_aware_neighbors(self.rows, queries, n_neighbors)
        return filled_neighbors(self.rows, queries, n_neighbors, self.metric)

    def again(
        self, n_neighbors: int, filled: Array, features: Array | None = None, filled_features: Array | None = None
    ) -> tuple[Array, Array]:
        """Like `first`, now that the own rows (and `features`) have been `filled`."""
        queries = None if filled_features is None else self.scaled(filled_features)
        most = len(self.rows) - (features is None)
        if self.metric != "nan_euclidean":
            return filled_neighbors(self.scaled(filled), queries, min(n_neighbors, most), self.metric)
        nearest, _ = filled_neighbors(self.scaled(filled), queries, min(2 * n_neighbors, most), self.metric)
        own = self.rows if features is None else self.scaled(features)
        nearest, distances = _in_order(nearest, _nan_aware_distances(self.rows, own, nearest))
        return nearest[:, :n_neighbors], distances[:, :n_neighbors]


def nan_aware_neighbors(rows: Array, queries: Array | None, n_neighbors: int) -> tuple[Array, Array]:
    """Exact nearest rows by NaN-aware Euclidean distance, from matrix products, block by block.

    With z = 0 in missing cells and u = 1 in known ones, the sum of (z_i - z_j)^2 over the columns that both know is
    z_i^2 . u_j + u_i . z_j^2 - 2 z_i . z_j, and their number is u_i . u_j.
    """
    left = rows if queries is None else queries
    u = (~np.isnan(rows)).astype(np.float32)
    z = np.nan_to_num(rows).astype(np.float32)
    right = np.concatenate([u, z**2, z], axis=1).T.copy()
    nearest = np.empty((len(left), n_neighbors), dtype=np.int64)
    size = max(1, CHUNK_CELLS // len(rows))
    for start in range(0, len(left), size):
        part = left[start : start + size]
        v = (~np.isnan(part)).astype(np.float32)
        y = np.nan_to_num(part).astype(np.float32)
        common = v @ right[: rows.shape[1]]
        squared = np.concatenate([y**2, v, -2 * y], axis=1) @ right
        # what has nothing in common is far, and a row itself is farther still
        squared = np.where(common > 0, squared / np.maximum(common, 1), FAR)
        if queries is None:
            own = np.arange(len(part))
            squared[own, start + own] = np.inf
        nearest[start : start + size] = np.argpartition(squared, n_neighbors - 1, axis=1)[:, :n_neighbors]
    return _in_order(nearest, _nan_aware_distances(rows, left, nearest))


def _nan_aware_distances(rows: Array, queries: Array, nearest: Array) -> Array:
    """Distances of chosen pairs, in full precision."""
    distances = np.empty(nearest.shape)
    for place in range(nearest.shape[1]):
        apart = (rows[nearest[:, place]] - queries) ** 2
        common = (~np.isnan(apart)).sum(axis=1)
        total = np.where(np.isnan(apart), 0.0, apart).sum(axis=1)
        distances[:, place] = np.sqrt(np.where(common > 0, total * rows.shape[1] / np.maximum(common, 1), np.inf))
    return distances


def filled_neighbors(rows: Array, queries: Array | None, n_neighbors: int, metric: Any) -> tuple[Array, Array]:
    """Nearest rows with the mean (0) in missing cells: exactly by scikit-learn, by pynndescent if there are many."""
    metric = "euclidean" if metric == "nan_euclidean" else metric
    rows = np.nan_to_num(rows)
    queries = None if queries is None else np.nan_to_num(queries)
    if queries is None and len(rows) > APPROXIMATE_ROWS:
        return _approximate_neighbors(rows, n_neighbors, metric)
    neighbors = load("sklearn.neighbors", "a graph of similar rows", "sklearn")
    search = neighbors.NearestNeighbors(n_neighbors=n_neighbors, metric=metric).fit(rows)
    distances, nearest = search.kneighbors(queries)
    return nearest, distances


def _approximate_neighbors(rows: Array, n_neighbors: int, metric: Any) -> tuple[Array, Array]:
    pynndescent = load("pynndescent", "a graph of so many similar rows", "sklearn")
    index = pynndescent.NNDescent(rows.astype(np.float32), metric=metric, n_neighbors=n_neighbors + 1, random_state=0)
    nearest, distances = index.neighbor_graph
    # a row is its own nearest, but among duplicates it may stand anywhere, or not at all: drop it, or else the last
    own = nearest == np.arange(len(rows))[:, None]
    own[~own.any(axis=1), -1] = True
    shape = (len(rows), n_neighbors)
    return nearest[~own].reshape(shape).astype(np.int64), distances[~own].reshape(shape).astype(np.float64)


def _in_order(nearest: Array, distances: Array) -> tuple[Array, Array]:
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(distances, order, axis=1)


def reach(distances: Array) -> Array:
    """Distance of each row to its farthest neighbour; 0 if it has none."""
    return np.asarray(np.where(np.isfinite(distances), distances, 0.0).max(axis=1, initial=0.0))


def similarity(distances: Array, own: Array, others: Array) -> Array:
    """Weights of edges of given lengths between rows with a given reach; 0 for an infinite length."""
    scale = own * others
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.exp(-np.where(distances == 0, 0.0, distances**2 / scale))
    return np.where(np.isfinite(distances), np.maximum(weights, LEAST_WEIGHT), 0.0)


def link(nearest: Array, distances: Array, reaches: Array | None, n_rows: int) -> Any:
    """Links of each query to its nearest rows, as a sparse matrix of similarities (queries x rows).

    `reaches` are those of the rows; None counts the query's own reach twice.
    """
    from scipy import sparse

    own = reach(distances)[:, None]
    weights = similarity(distances, own, own if reaches is None else reaches[nearest])
    queries = np.repeat(np.arange(len(nearest)), nearest.shape[1])
    return sparse.csr_array((weights.ravel(), (queries, nearest.ravel())), shape=(len(nearest), n_rows))
