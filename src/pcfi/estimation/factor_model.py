"""A factor model of the columns of a node: which columns explain each other, whatever part of a row is known.

With z the standardised columns of a node, f a few common factors and e the part of each column that is its own,

    z = Lambda f + e,      f ~ N(0, I),      e ~ N(0, diag(psi))

so that the known columns of a row say something about f, and f about its missing columns. Lambda and psi are estimated
by expectation-maximisation over rows that may know any of their columns (Ghahramani and Hinton, 1996), with a weak
ridge on Lambda and a weak prior on psi. Iterations are few, because Lambda is rescaled after each as if the variance of
f were free (parameter expansion: Liu, Rubin and Wu, 1998).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array

MAX_ITERATIONS = 25  # of expectation-maximisation; tables settle after 4 to 15
LOADING_TOLERANCE = 3e-3  # root mean squared change of the loadings, in standard deviations, at which iterations stop
LOADING_RIDGE = 0.3  # rows with all loadings 0 that are added
NOISE_PRIOR_CELLS = 2.0  # cells that are added to each column, half of whose variance is its own
MIN_VARIANCE = 1e-9  # of a standardised column whose known values a fold leaves equal
MIN_NOISE = 1e-3  # of a column's variance: no column is explained entirely
MAX_DENSE_COLUMNS = 128  # beyond, the initial loadings come from a truncated singular value decomposition
INITIAL_TOLERANCE = 1e-2  # of its singular values
PAIR_PRIOR = 5.0  # pairs without correlation that are added for the initial loadings


@dataclass(frozen=True, eq=False)
class FactorModel:
    """Loadings Lambda of shape (n_columns, n_factors) and the own variance psi of each column."""

    loadings: Array
    noise: Array

    @property
    def rank(self) -> int:
        """Number of factors."""
        return int(self.loadings.shape[1])

    @classmethod
    def independent(cls, n_columns: int) -> "FactorModel":
        """Standardised columns that do not explain each other."""
        return cls(np.zeros((n_columns, 0)), np.ones(n_columns))

    def posterior(self, values: Any, known: Any) -> tuple[Array, Array]:
        """Mean (n, r) and covariance (n, r, r) of the factors of each row.

        `values` and `known` (0 or 1) are dense or sparse matrices of rows and columns; values are 0 where not known.
        """
        weighted = self.loadings / self.noise[:, None]
        precision = unpacked(known @ packed_products(weighted, self.loadings), self.rank)
        precision[:, np.arange(self.rank), np.arange(self.rank)] += 1.0
        covariance = np.linalg.inv(precision)
        mean = np.einsum("nij,nj->ni", covariance, np.asarray(values @ weighted))
        return mean, covariance


def packed(matrices: Array) -> Array:
    """The entries i <= j of symmetric matrices, row by row."""
    upper, lower = np.triu_indices(matrices.shape[1])
    return np.asarray(matrices[:, upper, lower])


def packed_products(left: Array, right: Array) -> Array:
    """Products of the entries i <= j of two rows."""
    upper, lower = np.triu_indices(left.shape[1])
    return np.asarray(left[:, upper] * right[:, lower])


def unpacked(entries: Any, rank: int) -> Array:
    """The inverse of `packed`."""
    place = np.empty((rank, rank), dtype=np.int64)
    upper = np.triu_indices(rank)
    place[upper] = place.T[upper] = np.arange(len(upper[0]))
    return np.asarray(entries)[:, place]


def fit_factor_model(values: Any, known: Any, rank: int, start: FactorModel | None = None) -> FactorModel:
    """Estimate a model with `rank` >= 1 factors; `values` are centred columns, 0 where `known` (0 or 1, float) is 0.

    Both are dense or sparse matrices of rows and columns. Iterations begin with the model `start`.
    """
    n_known = np.maximum(np.asarray(known.sum(axis=0)).ravel(), 1.0)
    squares = np.asarray((values * values).sum(axis=0)).ravel()
    variance = np.maximum(squares / n_known, MIN_VARIANCE)
    model = _initial_model(values, known, variance, rank) if start is None else start
    for _ in range(MAX_ITERATIONS):
        mean, covariance = model.posterior(values, known)
        second = packed_products(mean, mean) + packed(covariance)
        moments, cross = unpacked(known.T @ second, rank), np.asarray(values.T @ mean)
        loadings = np.linalg.solve(moments + LOADING_RIDGE * np.eye(rank), cross[:, :, None])[:, :, 0]
        explained = 2 * (loadings * cross).sum(axis=1) - np.einsum("ci,cij,cj->c", loadings, moments, loadings)
        noise = squares - explained + LOADING_RIDGE * (loadings**2).sum(axis=1) + NOISE_PRIOR_CELLS * variance / 2
        noise = np.maximum(noise / (n_known + NOISE_PRIOR_CELLS), MIN_NOISE * variance)
        loadings = loadings @ np.linalg.cholesky(unpacked(second.mean(axis=0, keepdims=True), rank)[0])
        change = float(np.sqrt(((loadings - model.loadings) ** 2).mean()))
        model = FactorModel(loadings, noise)
        if change < LOADING_TOLERANCE:
            break
    return _canonical(model)


def _canonical(model: FactorModel) -> FactorModel:
    """The same model with factors that are unique: Lambda^T Psi^-1 Lambda is diagonal and decreases, signs are fixed.

    Any rotation of the factors is the same model; which one the iterations end at depends on rounding.
    """
    _, vectors = np.linalg.eigh(model.loadings.T @ (model.loadings / model.noise[:, None]))
    loadings = model.loadings @ vectors[:, ::-1]
    return FactorModel(loadings * np.where((loadings**3).sum(axis=0) < 0, -1.0, 1.0), model.noise)


def _initial_model(values: Any, known: Any, variance: Array, rank: int) -> FactorModel:
    """Leading eigenvectors of the covariance of pairs of columns that are known together."""
    n_columns = len(variance)
    if n_columns <= MAX_DENSE_COLUMNS:
        covariance, pairs = (_dense(part.T @ part) for part in (values, known))
        eigenvalues, vectors = (part[..., -rank:] for part in np.linalg.eigh(covariance / (pairs + PAIR_PRIOR)))
    else:
        from scipy.sparse.linalg import svds

        start = np.linspace(1.0, 2.0, min(values.shape))
        _, singular, vectors = svds(values, k=rank, v0=start, tol=INITIAL_TOLERANCE, return_singular_vectors="vh")
        rate = float(known.sum()) / (values.shape[0] * n_columns)  # pairs are known with this probability, squared
        vectors, eigenvalues = vectors.T, singular**2 / (values.shape[0] * rate**2 + PAIR_PRIOR)
    loadings = vectors * np.sqrt(np.maximum(eigenvalues, 0.05))
    excess = np.sqrt((loadings**2).sum(axis=1) / (0.9 * variance))
    loadings = loadings / np.maximum(excess, 1.0)[:, None]
    return FactorModel(loadings, np.maximum(variance - (loadings**2).sum(axis=1), variance / 10))


def _dense(matrix: Any) -> Array:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)
