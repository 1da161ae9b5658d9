"""The paper's parameter grids; the points of a grid are ordinary runs, so a search resumes and shares runs."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

Grid = Mapping[str, Sequence[Any]]

ALPHAS = tuple(tenths / 10 for tenths in range(1, 10))
HALF_DECADES = tuple(10.0 ** (halves / 2) for halves in range(-12, 1))
DECADES = tuple(10.0**exponent for exponent in range(-6, 1))
LEARNING_RATES = {"classification": (0.01, 0.005, 0.001, 0.0001), "links": (0.1, 0.01, 0.005, 0.001, 0.0001)}
DROPOUTS = (0.0, 0.25, 0.5)


def paper_grid(system: str, task: str) -> Grid:
    """Return the paper's grid: alpha and beta of PCFI; learning rate and dropout of the other systems.

    >>> len(paper_grid("pcfi", "links")["beta"])
    7
    """
    if system == "pcfi":
        return {"alpha": ALPHAS, "beta": HALF_DECADES if task == "classification" else DECADES}
    if system == "lp":
        return {"alpha": (*ALPHAS, 0.95)}
    return {"learning_rate": LEARNING_RATES[task], "dropout": DROPOUTS}


def grid_points(grid: Grid) -> list[dict[str, Any]]:
    """Return the parameters of every point of a grid.

    >>> grid_points({"alpha": [0.1, 0.2], "beta": [1.0]})
    [{'alpha': 0.1, 'beta': 1.0}, {'alpha': 0.2, 'beta': 1.0}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
