"""Learn parameters and value models without labels, from known cells that are hidden and estimated."""

from typing import Any

import numpy as np

from pcfi.errors import ParameterError
from pcfi.estimation.resolution import Resolved, resolve
from pcfi.estimation.result import ColumnReport, ColumnReports, Tried, Tuning
from pcfi.inputs.graphs import GraphLike
from pcfi.inputs.problem import read_problem
from pcfi.settings import OBJECTIVES, Settings
from pcfi.stages.solvers import Solver, UntilSettled

__all__ = ["ColumnReport", "ColumnReports", "Resolved", "Tried", "Tuning", "resolve", "tune"]


def tune(
    features: Any,
    graph: GraphLike,
    *,
    alpha: float | str = "auto",
    beta: float | str = "auto",
    objective: str = "values",
    solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
    known: Any = None,
    standardize: bool | None = None,
    directed: bool = False,
    random_state: "int | np.random.Generator | None" = None,
    progress: bool = False,
) -> Tuning:
    """Choose alpha and fit the value model without labels, and report the evidence.

    Known cells are hidden in the way cells are missing (whole nodes, gaps or single cells), estimated with several
    alphas, and compared with what they were. Missing cells are never looked at, and nothing that was given is modified.
    `impute` does all this by itself.

    Parameters
    ----------
    features, graph, known, directed, solver, standardize
        As in `impute`.
    alpha : float or "auto", default="auto"
        A number keeps that alpha and estimates the rest.
    beta : float or "auto", default="auto"
        As in `impute`.
    objective : {"values", "representation"}, default="values"
        Values that someone will read or use: the error on hidden cells decides. A representation for a graph neural
        network: a rule decides, see docs/values.md.
    solver : FixedSteps or UntilSettled, default=UntilSettled(rtol=1e-4, max_steps=1000)
        As in `impute`; folds settle to an rtol of 0.01 at most.
    known : boolean array of the shape of features, default=None
        As in `impute`.
    standardize : bool, default=None
        As in `impute`.
    directed : bool, default=False
        As in `impute`.
    random_state : int, numpy Generator or None, default=None
        Which cells are hidden. None is a fixed seed: the same call gives the same result.
    progress : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    Tuning
        The parameters, everything tried, and a report of every column.

    Examples
    --------
    A ring of 60 nodes with a smooth channel, half of it missing.

    >>> import numpy as np, pcfi
    >>> angle = np.arange(60) / 60 * 2 * np.pi
    >>> known = np.random.default_rng(0).random((60, 1)) < 0.5
    >>> features = np.where(known, 10 + np.sin(angle)[:, None], np.nan)
    >>> tuning = pcfi.tune(features, [np.arange(60), (np.arange(60) + 1) % 60])
    >>> tuning.error < tuning.error_of_mean / 4
    True
    >>> tuning.columns[0].verdict
    'follows the graph'
    """
    if objective not in OBJECTIVES:
        raise ParameterError(
            f"must be one of {', '.join(map(repr, OBJECTIVES))}, got {objective!r}", parameter="objective"
        )
    settings = Settings(
        alpha=alpha,
        beta=beta,
        solver=solver,
        standardize=standardize,
        directed=directed,
        progress=progress,
        objective=objective,
        center="auto" if objective == "representation" else None,
        random_state=random_state,
    )
    problem = read_problem(features, graph, known, directed=settings.directed)
    tuning = resolve(problem, settings).tuning
    if tuning is None:  # pragma: no cover  values and a centre left open always need a tuning
        raise AssertionError("nothing was tuned")
    return tuning
