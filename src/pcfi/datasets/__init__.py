"""A small real table and graph for examples: incomes of the states of the USA, linked by their borders."""

import csv
from importlib.resources import files
from typing import Any

import numpy as np

from pcfi.errors import ParameterError
from pcfi.optional import load

__all__ = ["load_states"]


def load_states(missing: float = 0.0, *, random_state: int = 0) -> tuple[Any, Any]:
    """Load the incomes of 48 states of the USA, and the borders between the states.

    Personal income per person in dollars, every tenth year from 1929 to 2009, of the states on the mainland. Source:
    Regional Economic Information System, Bureau of Economic Analysis, U.S. Department of Commerce (public domain), as
    collected by libpysal.

    Parameters
    ----------
    missing : float, default=0.0
        Share of the cells to remove at random, 0 <= missing < 1.
    random_state : int, default=0
        Seed of the removal.

    Returns
    -------
    tuple of two pandas DataFrames
        The table, one row per state, the name as index; and the edges, one row per border, columns `source` and
        `target`.

    Examples
    --------
    >>> import pcfi
    >>> states, borders = pcfi.datasets.load_states(missing=0.3)
    >>> states.shape, int(states.isna().sum().sum()), len(borders)
    ((48, 9), 113, 107)
    """
    if not 0 <= missing < 1:
        raise ParameterError(f"must be at least 0 and below 1, got {missing!r}", parameter="missing")
    pandas = load("pandas", "pcfi.datasets", "demo")
    names, years, incomes = _read_incomes()
    incomes[np.random.default_rng(random_state).random(incomes.shape) < missing] = np.nan
    states = pandas.DataFrame(incomes, index=pandas.Index(names, name="state"), columns=years)
    header, *borders = _read_rows("borders.csv")
    return states, pandas.DataFrame(borders, columns=header)


def _read_incomes() -> tuple[list[str], list[str], np.ndarray[Any, np.dtype[np.float64]]]:
    header, *rows = _read_rows("states.csv")
    return [row[0] for row in rows], header[1:], np.array([row[1:] for row in rows], dtype=np.float64)


def _read_rows(name: str) -> list[list[str]]:
    with files(__name__).joinpath(name).open(encoding="utf-8") as file:
        return list(csv.reader(file))
