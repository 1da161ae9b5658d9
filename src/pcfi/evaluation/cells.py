"""Cells of a fold, by how they are judged: numbers by their error, categories by whether the right one is chosen."""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.folds import Fold
from pcfi.inputs.problem import Problem


@dataclass(frozen=True, eq=False)
class Part:
    """A fold in parts.

    Attributes
    ----------
    numbers : Fold
        The cells that have an error. Where only categories are hidden, their shares.
    choices : tuple of Fold
        Those of each column of categories, one row per cell and one column per category.
    has_numbers : bool
        Whether `numbers` are numbers.
    n_cells : int
        Number of hidden cells; a category is one.
    """

    numbers: Fold
    choices: tuple[Fold, ...]
    has_numbers: bool
    n_cells: int

    def right(self, values: Array) -> Array:
        """Whether the largest share of each hidden category is that of the truth; no share at all is no choice."""
        parts = [np.zeros(0, dtype=bool)]
        for choice in self.choices:
            shares = np.nan_to_num(choice.at(values))
            parts.append((shares.argmax(axis=1) == choice.truth.argmax(axis=1)) & (shares.max(axis=1) > 0))
        return np.concatenate(parts)


def parts_of(folds: list[Fold], problem: Problem) -> list[Part]:
    """Split the cells of each fold; the channels of a column of categories are hidden together."""
    columns = problem.columns
    widths = np.bincount(columns)
    is_number = np.full(len(columns), True)
    is_number[problem.categorical] = False
    some = any(is_number[fold.channels].any() for fold in folds)

    def part(fold: Fold) -> Part:
        column, number = columns[fold.channels], is_number[fold.channels]
        choices = [_choice(fold, column == one, widths[one]) for one in np.unique(column[~number])]
        n_cells = int(number.sum()) + sum(len(choice.truth) for choice in choices)
        return Part(_chosen(fold, number) if some else fold, tuple(choices), some, n_cells)

    return [part(fold) for fold in folds]


def _chosen(fold: Fold, cells: Array) -> Fold:
    return replace(fold, nodes=fold.nodes[cells], channels=fold.channels[cells], truth=fold.truth[cells])


def _choice(fold: Fold, cells: Array, width: int) -> Fold:
    part = _chosen(fold, cells)
    order = np.lexsort((part.channels, part.nodes)).reshape(-1, width)
    return replace(part, nodes=part.nodes[order], channels=part.channels[order], truth=part.truth[order])
