"""Rows as their missing cells see them: all known cells but those that are missing together with the cell.

A fold hides many cells at once, more of a row than is usually missing there. What the *row* says about a hidden cell is
therefore computed from all known cells of the row but those of the cell's own pattern, as it is for a missing one:
nothing that is fitted without the cells of a fold has seen the cell itself. With m and S the mean and the covariance of
the factors given a row, leaving out its columns G makes them

    m - A Q^-1 (z_G - Lambda_G m),     S + A Q^-1 A^T,     A = S Lambda_G^T,   Q = diag(psi_G) - Lambda_G A
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.column_regression import CompletedRows
from pcfi.estimation.factor_model import FactorModel
from pcfi.estimation.graph_link import GraphLink, RowMoments


@dataclass(frozen=True, eq=False)
class RowsLeft:
    """Rows, and the factors and the link that estimate their cells.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Standardised values, NaN where missing.
    patterns : list of ndarray of int
        Columns that are missing together.
    factors : FactorModel
    link : GraphLink
    """

    values: Array
    patterns: list[Array]
    factors: FactorModel
    link: GraphLink

    def moments(self) -> Iterator[tuple[Array, RowMoments]]:
        """Each pattern, and what the other known columns say about all cells of the rows."""
        known, values = ~np.isnan(self.values), np.nan_to_num(self.values)
        if not self.factors.rank:
            of_any_row = RowMoments.of(None, self.factors, self.link)
            yield from ((columns, of_any_row) for columns in self.patterns)
            return
        posterior = self.factors.posterior(values, known.astype(np.float64))
        moments = RowMoments.of(posterior, self.factors, self.link)
        for columns in self.patterns:
            yield columns, self._without(columns, posterior, moments)

    def _without(self, columns: Array, posterior: tuple[Array, Array], moments: RowMoments) -> RowMoments:
        """The moments of the rows that know some columns without these; those of other rows as they are."""
        rows = np.flatnonzero(~np.isnan(self.values[:, columns]).any(axis=1))
        if not len(rows):
            return moments
        loadings, mean = self.factors.loadings[columns], posterior[0][rows]
        spread = posterior[1][rows] @ loadings.T  # A
        left = np.linalg.cholesky(np.diag(self.factors.noise[columns]) - loadings @ spread)
        surprise = np.linalg.solve(left, (self.values[np.ix_(rows, columns)] - mean @ loadings.T)[:, :, None])[:, :, 0]
        directions = np.linalg.solve(left, spread.transpose(0, 2, 1))
        changed, carried = (
            RowMoments(*(array.copy() for array in vars(moments).values())),
            self.link.carried(self.factors),
        )
        for number in range(len(columns)):
            of_row, of_graph = (directions[:, number] @ part.T for part in (self.factors.loadings, carried))
            changed.from_row[rows] -= of_row * surprise[:, number, None]
            changed.expected[rows] -= of_graph * surprise[:, number, None]
            changed.own[rows] += of_row**2
            changed.shared[rows] += of_row * of_graph
            changed.of_graph[rows] += of_graph**2
        return changed

    def completed(self, graph: Array) -> Iterator[CompletedRows]:
        """Each pattern, and the rows with estimates where they miss a column and in the columns of the pattern.

        `graph` are the graph's estimates of all cells, NaN where there is none.
        """
        known = ~np.isnan(self.values)
        for columns, moments in self.moments():
            taken = known.copy()
            taken[:, columns] = False
            estimate = moments.updated(graph)
            values, variance = (
                np.where(taken, known_value, part)
                for known_value, part in ((self.values, estimate.value), (0.0, estimate.variance))
            )
            yield CompletedRows(columns, values, variance)
