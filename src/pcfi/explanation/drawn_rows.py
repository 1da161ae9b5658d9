"""Estimates, deviations and random errors of some rows -> rows of completed tables, the same for any cut of the rows.

The error of a missing cell is its calibrated standard deviation times a standard normal u. Within a row, the u of its
missing columns are correlated as the regressions of the columns on each other say, or the factors, whichever has the
larger weight in the estimates. Between nodes, u is a random field on the graph (`error_fields`), as far as errors of
hidden neighbours proved to be alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.column_regression import ColumnRegression
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.explanation.error_fields import CATEGORIES, COEFFICIENTS
from pcfi.explanation.error_relations import ErrorRelations, number_channels
from pcfi.stages.hops import Hops

COVERAGE, NORMAL_QUANTILE = 0.9, 1.6448536269514722  # the interval that the spread of draws agrees with
MIN_EIGENVALUE = 0.05  # of the precision matrix of the columns


@dataclass(frozen=True, eq=False, kw_only=True)
class RowEstimates:
    """Some rows, from number `start` on.

    Attributes
    ----------
    start : int
    filled : ndarray
        The filled values.
    centres : ndarray
        What draws lie around, on the scale of the model.
    deviations : ndarray
        Their standard deviations, likewise; 0 if known.
    known : ndarray of bool
    """

    start: int
    filled: Array
    centres: Array
    deviations: Array
    known: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class RowDrawing:
    """What the rows of all draws share.

    Attributes
    ----------
    model : ValueModel
    relations : ErrorRelations
    seed : int
    categorical : index of channels
        Those of categorical columns.
    empty : ndarray of bool
        Channels without a known value, whose cells are the same in all draws.
    categories : list of ndarray
        The channels of each categorical column.
    """

    model: ValueModel
    relations: ErrorRelations
    seed: int
    categorical: Array
    empty: Array
    categories: list[Array]

    @property
    def n_factors(self) -> int:
        """Number of factors whose errors are drawn."""
        return 0 if self._precision is not None else self.model.cells.factors.rank

    @property
    def field_shares(self) -> Array:
        """Share of each field: those of the channels, then those of the factors."""
        shares = self.relations.shares
        common = float(shares[self.model.scale.active].mean()) if self.model.scale.active.any() else 0.0
        return np.append(shares, np.full(self.n_factors, common))

    def field_groups(self, incomplete: Array, size: int) -> list[list[int]]:
        """Numbers of the fields that are needed, in groups: channels with missing cells, then the factors."""
        factors = len(incomplete) + np.arange(self.n_factors)
        numbers = np.append(np.flatnonzero(incomplete), factors).tolist()
        return [numbers[first : first + size] for first in range(0, len(numbers), size)]

    def stream(self, draw: int, number: int) -> list[int]:
        """Seed of a field."""
        return [self.seed, draw, number]

    def deviations(self, expected: Array, hops: Hops) -> Array:
        """Standard deviation of every cell of some rows, given the errors to expect.

        0 if known, of a category, or in a column of which nothing is known.
        """
        half = self.model.half_spreads(expected, hops, COVERAGE)
        half[:, self.categorical] = 0.0
        half[:, self.empty] = 0.0
        return np.asarray(half / NORMAL_QUANTILE)

    def tables(self, rows: RowEstimates, fields: Array, draws: range) -> Iterator[Array]:
        """The rows of some draws, given the fields of each (draw, row, channels and factors)."""
        errors = self.errors(rows.known, fields)
        scale = self.model.scale
        for number, own in zip(draws, errors, strict=True):
            drawn = rows.centres + rows.deviations * own + self._parameter_errors(rows, number)
            drawn = np.clip(scale.original(drawn), scale.least, scale.greatest)
            drawn = np.where(rows.known | (rows.deviations == 0), rows.filled, drawn)
            self._draw_categories(rows, drawn, number)
            yield drawn

    def errors(self, known: Array, fields: Array) -> Array:
        """Standard normal errors of some rows of each draw, related within rows."""
        known = np.ascontiguousarray(known)  # numpy adds up in the order of the memory
        own = fields[..., : known.shape[1]].astype(np.float64, order="C")
        if self._precision is not None:
            return _related_by_regression(own, known, self._precision)
        return own if not self.n_factors else self._related_by_factors(own, known, fields[..., known.shape[1] :])

    @cached_property
    def _precision(self) -> Array | None:
        """Of the columns given the graph; None if the factors relate them."""
        cells = self.model.cells
        if cells.regression is None or cells.weights[2] <= cells.weights[1]:
            return None
        return conditional_precision(cells.regression)

    def _related_by_factors(self, own: Array, known: Array, fields: Array) -> Array:
        """What the factors leave open given the known columns of a row is shared by its missing ones."""
        factors = self.model.cells.factors
        for rows in row_blocks(len(known), known.shape[1] * factors.rank):
            _, covariance = factors.posterior(np.zeros(known[rows].shape), known[rows].astype(np.float64))
            root = np.linalg.cholesky(covariance)
            spread = ((covariance @ factors.loadings.T) * factors.loadings.T).sum(axis=1)
            for errors, drawn in zip(own, fields, strict=True):
                common = np.einsum("nij,nj->ni", root, drawn[rows]) @ factors.loadings.T
                errors[rows] = (common + np.sqrt(factors.noise) * errors[rows]) / np.sqrt(spread + factors.noise)
        return own

    def _parameter_errors(self, rows: RowEstimates, draw: int) -> Array:
        """What other coefficients of the columns, as likely as the fitted ones, would change in the missing cells."""
        out, roots = np.zeros(rows.centres.shape), self.relations.roots
        if not len(roots):
            return out
        numbers = number_channels(self.model, self.categorical)
        coefficients, constants = np.zeros((len(numbers), len(numbers))), np.zeros(len(numbers))
        for place, channel in enumerate(numbers.tolist()):
            stream = np.random.default_rng([self.seed, draw, channel, COEFFICIENTS])
            drawn = roots[place] @ stream.standard_normal(len(numbers))
            constants[place], coefficients[place, np.arange(len(numbers)) != place] = drawn[0], drawn[1:]
        changes = constants + rows.centres[:, numbers] @ coefficients.T
        out[:, numbers] = np.where(rows.known[:, numbers], 0.0, changes)
        return out

    def _draw_categories(self, rows: RowEstimates, drawn: Array, draw: int) -> None:
        """Put one category, by its share, into the missing cells of categorical columns."""
        for channels in self.categories:
            missing = ~rows.known[:, channels[0]]
            seeds = np.random.SeedSequence([self.seed, draw, int(channels[0]), CATEGORIES])
            stream = np.random.Generator(np.random.PCG64(seeds).advance(rows.start))  # a number for each row
            reached = stream.random(len(missing))[missing, None]
            shares = np.maximum(drawn[np.ix_(missing, channels)], 1e-9)
            reached = reached * shares.sum(axis=1, keepdims=True)
            chosen = (np.cumsum(shares, axis=1) < reached).sum(axis=1).clip(max=len(channels) - 1)
            drawn[np.ix_(missing, channels)] = np.eye(len(channels))[chosen]


def conditional_precision(regression: ColumnRegression) -> Array:
    """Precision matrix of the columns given the graph, with 1 on the diagonal.

    If column c has the coefficients w_cd and the noise s_c in its regression on the others, the precision is 1 / s_c on
    the diagonal and -w_cd / s_c beside it; both estimates of an entry are averaged, and drawn towards 0 as far as
    needed for a covariance.
    """
    slopes = regression.columns / np.sqrt(regression.noise)[:, None] * np.sqrt(regression.noise)
    precision = -(slopes + slopes.T) / 2
    np.fill_diagonal(precision, 1.0)
    least = float(np.linalg.eigvalsh(precision)[0])
    if least < MIN_EIGENVALUE:
        precision *= (1 - MIN_EIGENVALUE) / (1 - least)
        np.fill_diagonal(precision, 1.0)
    return precision


def _related_by_regression(own: Array, known: Array, precision: Array) -> Array:
    """Errors whose correlation within a row is that of its missing columns given the known ones.

    If L L' is the precision, L'^-1 n has its inverse as covariance, with the squared columns of L^-1 as variances.
    """
    diagonal = np.eye(len(precision))
    for rows in row_blocks(len(known), len(precision) ** 2):
        missing = ~known[rows]
        within = np.where(missing[:, :, None] & missing[:, None, :], precision, diagonal)
        root = np.linalg.inv(np.linalg.cholesky(within))
        spread = np.sqrt((root**2).sum(axis=1))
        for errors in own:  # one by one, so that a draw does not depend on how many there are
            errors[rows] = np.einsum("nij,ni->nj", root, errors[rows]) / spread
    return own
