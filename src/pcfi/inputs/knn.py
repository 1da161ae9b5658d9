"""`knn_graph`: rows of a table with missing cells -> the graph that links each row to its most similar rows.

Columns are standardised. The distance of two rows is computed from the columns that are known in both, scaled up to
all columns (NaN-aware Euclidean distance). An edge of length d between i and j has the weight

    exp(-d^2 / (s_i s_j)),     s_i the distance of i to its farthest neighbour

so that the scale adapts to the local density of rows. The first search is exact; beyond `MAX_EXACT_ROWS` rows, missing
cells are replaced by the mean. After a first fill, `RowSearch.search_filled` takes twice as many candidates from the
filled rows and keeps the nearest by the NaN-aware distance.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, ParameterError
from pcfi.optional import load

MAX_EXACT_ROWS = 5_000
MIN_APPROXIMATE_ROWS = 100_000  # with fewer rows, compiling pynndescent takes longer than the search
CHUNK_CELLS = 1 << 24  # entries of one block of the distance matrix
FAR = np.float32(1e30)
MIN_WEIGHT = 1e-6  # so that no edge is lost to underflow


def knn_graph(features: Any, n_neighbors: int = 15) -> Any:
    """Return a graph that links each row to its most similar rows, as a sparse matrix of similarities.

    `impute(features, "knn")` calls it, and calls it again whenever known cells are hidden, so that errors and intervals
    are valid for missing cells. For another number of neighbours pass a function:
    `impute(features, lambda table: pcfi.knn_graph(table, 30))`.

    Parameters
    ----------
    features : array of shape (n_rows, n_columns)
        NaN means missing. Columns are standardised; rows are compared by the columns that are known in both.
    n_neighbors : int, default=15
        Number of similar rows that a row is linked to.

    Returns
    -------
    scipy.sparse.csr_array of shape (n_rows, n_rows)

    Examples
    --------
    >>> import numpy as np, pcfi
    >>> pcfi.knn_graph(np.array([[1.0, 2.0], [1.1, np.nan], [8.0, 9.0]]), n_neighbors=1).nonzero()[1].tolist()
    [1, 0, 0]
    """
    features = np.asarray(features, dtype=np.float64)
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, Integral) or n_neighbors < 1:
        raise ParameterError(f"must be an integer of at least 1, got {n_neighbors!r}", parameter="n_neighbors")
    if features.ndim != 2:
        raise FeatureError(f"features must be 2-D (rows x columns), got shape {features.shape}")
    if len(features) < 2 or features.shape[1] == 0:
        from scipy import sparse

        return sparse.csr_array((len(features), len(features)))
    nearest, distances = RowSearch.fit(features).search(int(n_neighbors))
    return link(nearest, distances, local_scale(distances), len(features))


@dataclass(frozen=True, eq=False)
class RowSearch:
    """Nearest-neighbour search among the rows of a table.

    Attributes
    ----------
    rows : ndarray of shape (n_rows, n_columns)
        Standardized rows, NaN where missing.
    mean, deviation : ndarray
        Mean and standard deviation of the known cells of each column.
    metric : str or callable
        "nan_euclidean", or a metric of scikit-learn, applied to rows with the mean in missing cells.
    """

    rows: Array
    mean: Array
    deviation: Array
    metric: Any

    @staticmethod
    def fit(features: Array, metric: Any = "nan_euclidean") -> "RowSearch":
        """Prepare a search among the rows of `features`."""
        known = ~np.isnan(features)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, features, 0.0).sum(axis=0, dtype=np.float64) / count
        centred = np.where(known, features - mean, 0.0)
        deviation = np.sqrt((centred**2).sum(axis=0) / count)
        deviation[deviation <= 1e-12 * np.abs(mean)] = np.inf  # a constant column contributes nothing
        return RowSearch((features - mean) / deviation, mean, deviation, metric)

    def standardize(self, features: Array) -> Array:
        """Return rows in the units of this search."""
        return (features - self.mean) / self.deviation

    def search(self, n_neighbors: int, features: Array | None = None) -> tuple[Array, Array]:
        """Return row numbers and distances of the nearest rows, in order; infinity if two rows share no known column.

        The queries are the rows of `features`, or by default the fitted rows; a row is never its own neighbour.
        """
        queries = None if features is None else self.standardize(features)
        n_neighbors = min(n_neighbors, len(self.rows) - (features is None))
        if self.metric == "nan_euclidean" and len(self.rows) <= MAX_EXACT_ROWS:
            return nan_aware_neighbors(self.rows, queries, n_neighbors)
        return filled_neighbors(self.rows, queries, n_neighbors, self.metric)

    def search_filled(
        self, n_neighbors: int, filled: Array, features: Array | None = None, filled_features: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the same as `search`, using the filled fitted rows and the filled queries."""
        queries = None if filled_features is None else self.standardize(filled_features)
        n_candidates = n_neighbors if self.metric != "nan_euclidean" else 2 * n_neighbors
        n_candidates = min(n_candidates, len(self.rows) - (features is None))
        nearest, distances = filled_neighbors(self.standardize(filled), queries, n_candidates, self.metric)
        if self.metric == "nan_euclidean":
            unfilled = self.rows if features is None else self.standardize(features)
            nearest, distances = _sort(nearest, _nan_aware_distances(self.rows, unfilled, nearest))
        return nearest[:, :n_neighbors], distances[:, :n_neighbors]


def nan_aware_neighbors(rows: Array, queries: Array | None, n_neighbors: int) -> tuple[Array, Array]:
    """Return the exact nearest rows by NaN-aware Euclidean distance, in blocks of queries."""
    left = rows if queries is None else queries
    nearest = np.empty((len(left), n_neighbors), dtype=np.int64)
    size = max(1, CHUNK_CELLS // len(rows))
    for start in range(0, len(left), size):
        part = left[start : start + size]
        squared = squared_distances(rows, part)
        if queries is None:  # a row itself comes last, after rows without a common column
            own = np.arange(len(part))
            squared[own, start + own] = np.inf
        nearest[start : start + size] = np.argpartition(squared, n_neighbors - 1, axis=1)[:, :n_neighbors]
    return _sort(nearest, _nan_aware_distances(rows, left, nearest))


def squared_distances(rows: Array, queries: Array) -> Array:
    """Mean squared difference of each query and each row over the columns known in both; FAR if there are none.

    With z = 0 in missing cells and u = 1 in known ones, the sum of (z_i - z_j)^2 over the columns known in both is
    z_i^2 . u_j + u_i . z_j^2 - 2 z_i . z_j, and their number is u_i . u_j.
    """
    known = ~np.isnan(rows), ~np.isnan(queries)
    z, y = (np.where(cells, part, 0).astype(np.float32) for cells, part in zip(known, (rows, queries), strict=True))
    u, v = (cells.astype(np.float32) for cells in known)
    common, squared = v @ u.T, (y * y) @ u.T
    squared -= 2 * (y @ z.T)
    squared += v @ (z * z).T
    return np.asarray(np.where(common > 0, squared / np.maximum(common, 1), FAR))


def _nan_aware_distances(rows: Array, queries: Array, nearest: Array) -> Array:
    """Return the distances of selected pairs in double precision."""
    distances = np.empty(nearest.shape)
    for place in range(nearest.shape[1]):
        squares = (rows[nearest[:, place]] - queries) ** 2
        common = (~np.isnan(squares)).sum(axis=1)
        mean = np.divide(np.nansum(squares, axis=1), common, out=np.full(len(queries), np.inf), where=common > 0)
        distances[:, place] = np.sqrt(rows.shape[1] * mean)
    return distances


def filled_neighbors(rows: Array, queries: Array | None, n_neighbors: int, metric: Any) -> tuple[Array, Array]:
    """Return the nearest rows with the mean (0) in missing cells: exact, or approximate if there are many rows."""
    metric = "euclidean" if metric == "nan_euclidean" else metric
    rows = np.nan_to_num(rows)
    queries = None if queries is None else np.nan_to_num(queries)
    if queries is None and len(rows) > MIN_APPROXIMATE_ROWS:
        return _approximate_neighbors(rows, n_neighbors, metric)
    neighbors = load("sklearn.neighbors", "a graph of similar rows", "sklearn")
    search = neighbors.NearestNeighbors(n_neighbors=n_neighbors, metric=metric).fit(rows)
    distances, nearest = search.kneighbors(queries)
    return nearest, distances


def _approximate_neighbors(rows: Array, n_neighbors: int, metric: Any) -> tuple[Array, Array]:
    pynndescent = load("pynndescent", "a graph of so many similar rows", "sklearn")
    index = pynndescent.NNDescent(rows.astype(np.float32), metric=metric, n_neighbors=n_neighbors + 1, random_state=0)
    nearest, distances = index.neighbor_graph
    # a row is usually its own nearest, but among duplicates it may be at any position or absent: then drop the last
    own = nearest == np.arange(len(rows))[:, None]
    own[~own.any(axis=1), -1] = True
    shape = (len(rows), n_neighbors)
    return nearest[~own].reshape(shape).astype(np.int64), distances[~own].reshape(shape).astype(np.float64)


def _sort(nearest: Array, distances: Array) -> tuple[Array, Array]:
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(distances, order, axis=1)


def local_scale(distances: Array) -> Array:
    """Return the distance of each row to its farthest neighbour; 0 if it has none."""
    return np.asarray(np.where(np.isfinite(distances), distances, 0.0).max(axis=1, initial=0.0))


def similarity(distances: Array, own: Array, others: Array) -> Array:
    """Return edge weights from distances and the scales of both rows; 0 for an infinite distance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.exp(-np.where(distances == 0, 0.0, distances**2 / (own * others)))
    return np.where(np.isfinite(distances), np.maximum(weights, MIN_WEIGHT), 0.0)


def link(nearest: Array, distances: Array, scales: Array | None, n_rows: int) -> Any:
    """Return the links of each query to its nearest rows, as a sparse matrix of similarities (queries x rows).

    `scales` are those of the rows; None uses the query's own scale for both ends.
    """
    from scipy import sparse

    own = local_scale(distances)[:, None]
    weights = similarity(distances, own, own if scales is None else scales[nearest])
    queries = np.repeat(np.arange(len(nearest)), nearest.shape[1])
    return sparse.csr_array((weights.ravel(), (queries, nearest.ravel())), shape=(len(nearest), n_rows))
