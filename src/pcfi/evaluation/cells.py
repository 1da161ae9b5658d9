"""Hidden cells of a fold, split by how they are scored: numbers by their error, categories by accuracy."""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.folds import Fold
from pcfi.inputs.problem import Problem


@dataclass(frozen=True, eq=False)
class HiddenCells:
    """Hidden numbers and hidden categories of a fold.

    Attributes
    ----------
    numbers : Fold
        The numeric cells. If only categories are hidden in all folds: their indicator channels.
    categories : tuple of Fold
        One per categorical column, with one row per cell and one column per category.
    has_numbers : bool
        Whether `numbers` holds numeric cells.
    n_cells : int
        Number of hidden cells; a categorical cell counts once.
    """

    numbers: Fold
    categories: tuple[Fold, ...]
    has_numbers: bool
    n_cells: int

    def correct_categories(self, values: Array) -> Array:
        """Return, for each hidden category, whether it has the largest filled value of its column, above 0."""
        correct = [np.zeros(0, dtype=bool)]
        for column in self.categories:
            shares = np.nan_to_num(column.at(values))
            correct.append((shares.argmax(axis=1) == column.truth.argmax(axis=1)) & (shares.max(axis=1) > 0))
        return np.concatenate(correct)


def split_cells(folds: list[Fold], problem: Problem) -> list[HiddenCells]:
    """Split the cells of each fold; the channels of a categorical column are hidden together."""
    columns = problem.columns
    widths = np.bincount(columns)
    is_number = np.full(len(columns), True)
    is_number[problem.categorical] = False
    has_numbers = any(is_number[fold.channels].any() for fold in folds)

    def split(fold: Fold) -> HiddenCells:
        column, numeric = columns[fold.channels], is_number[fold.channels]
        categories = [_categorical(fold, column == one, widths[one]) for one in np.unique(column[~numeric])]
        n_cells = int(numeric.sum()) + sum(len(part.truth) for part in categories)
        return HiddenCells(_select(fold, numeric) if has_numbers else fold, tuple(categories), has_numbers, n_cells)

    return [split(fold) for fold in folds]


def _select(fold: Fold, cells: Array) -> Fold:
    return replace(fold, nodes=fold.nodes[cells], channels=fold.channels[cells], truth=fold.truth[cells])


def _categorical(fold: Fold, cells: Array, width: int) -> Fold:
    """Return the cells of one categorical column as a table of one row per cell."""
    part = _select(fold, cells)
    order = np.lexsort((part.channels, part.nodes)).reshape(-1, width)
    return replace(part, nodes=part.nodes[order], channels=part.channels[order], truth=part.truth[order])
