"""How well a withheld attribute can be recovered from the graph and the other columns: overall, by group, by node."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.cell_info import CellInfo
from pcfi.errors import FeatureError, ParameterError
from pcfi.estimation import resolve
from pcfi.estimation.folds import make_folds
from pcfi.inputs.problem import known_mask
from pcfi.pipeline import fill

N_FOLDS = 5
COVERAGE = 0.9
MIN_GROUP = 5  # hidden cells that a group is reported from


@dataclass(frozen=True)
class Recovery:
    """How well hidden cells of a group of nodes are recovered.

    Attributes
    ----------
    group : str
    n_hidden : int
    error, error_of_mean : float
        Root mean squared errors; of a categorical column the shares of wrong categories, guessing the most frequent
        one instead of the mean.
    standard_error : float
        Of the difference between the mean (squared) errors, in per cent of that of the mean.
    explained : float
        1 - error^2 / error_of_mean^2, or 1 - error / error_of_mean of categories: 0 is as good as guessing, 1 exact.
    """

    group: str
    n_hidden: int
    error: float
    error_of_mean: float
    standard_error: float
    explained: float


@dataclass(frozen=True, eq=False)
class Exposure:
    """How well the withheld cells of a column can be recovered.

    Attributes
    ----------
    column : str
    is_category : bool
    n_withheld : int
    recovery : tuple of Recovery
        Of all nodes first, then by group.
    interval_width, usual_width : float
        Median width of the 90 % intervals of withheld cells, and width of the middle 90 % of the known values; NaN for
        categories.
    most_exposed : list of pairs
        Withheld nodes with the narrowest intervals, and their widths.
    """

    column: str
    is_category: bool
    n_withheld: int
    recovery: tuple[Recovery, ...]
    interval_width: float
    usual_width: float
    most_exposed: list[tuple[Any, float]]


def find_exposure(cells: CellInfo, column: Any, groups: Sequence[Any] | None = None, most: int = 10) -> Exposure:
    """Hide known cells of a column as its cells are withheld, and measure how well they are recovered."""
    if cells.hops is None or cells.model is None:
        raise ParameterError("an audit needs the model of values: use objective='values' and method 'pcfi'")
    names = cells.names
    number = names.column(column, int(cells.columns.max()) + 1)
    channels = np.flatnonzero(cells.columns == number)
    withheld = np.flatnonzero(~known_mask(cells.problem)[:, channels[0]])
    if not len(withheld):
        raise FeatureError(
            f"no cell of {names.name(number)!r} is missing, so there is nothing to recover: leave the cells empty that "
            "you would withhold"
        )
    nodes, errors, of_mean = _errors(cells, channels)
    if len(nodes) < MIN_GROUP:
        raise FeatureError(
            f"only {len(nodes)} known cells of {names.name(number)!r} could be hidden, {MIN_GROUP} are needed"
        )
    is_category = number in names.categories
    recovery = [_recovery("all nodes", errors, of_mean, is_category=is_category)]
    if groups is not None:
        labels = np.array([str(groups[node]) for node in nodes])
        recovery += [
            _recovery(label, errors[labels == label], of_mean[labels == label], is_category=is_category)
            for label in np.unique(labels)
            if (labels == label).sum() >= MIN_GROUP
        ]
    widths = np.full(len(withheld), np.nan) if is_category else _widths(cells, int(channels[0]))[withheld]
    order = np.argsort(widths, kind="stable")[: 0 if is_category else most]
    known = cells.host_values[known_mask(cells.problem)[:, channels[0]], channels[0]]
    low, high = np.quantile(known, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return Exposure(
        names.name(number),
        is_category,
        len(withheld),
        tuple(recovery),
        float(np.median(widths)),
        float("nan") if is_category else float(high - low),
        [(names.node(withheld[place]), float(widths[place])) for place in order],
    )


def _errors(cells: CellInfo, channels: Array) -> tuple[Array, Array, Array]:
    """Nodes of hidden cells, and the loss of the estimates and of the mean there: squared, or 1 for a wrong category.

    The model is fitted again for each fold, without its hidden cells.
    """
    problem = cells.problem
    settings = replace(cells.settings, alpha="auto", beta="auto", unreachable="mean", progress=False)
    found = []
    for fold in make_folds(problem, N_FOLDS, 0, with_constants=len(channels) > 1):
        nodes = np.unique(fold.nodes[np.isin(fold.channels, channels)])
        if not len(nodes):
            continue
        resolved = resolve(fold.problem, settings)
        filled = fill(fold.problem, resolved.settings, backend_for(fold.problem), resolved.model).values
        filled = filled[np.ix_(nodes, channels)]
        truth, mean = problem.values[np.ix_(nodes, channels)], fold.problem.channels.mean[channels]
        if len(channels) > 1:
            right = truth.argmax(axis=1)
            found.append((nodes, filled.argmax(axis=1) != right, mean.argmax() != right))
        else:
            found.append((nodes, (filled[:, 0] - truth[:, 0]) ** 2, (mean[0] - truth[:, 0]) ** 2))
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)
    nodes, errors, of_mean = (np.concatenate([part[place] for part in found]) for place in range(3))
    return nodes, errors.astype(np.float64), of_mean.astype(np.float64)


def _recovery(group: str, errors: Array, of_mean: Array, *, is_category: bool) -> Recovery:
    mean, usual = float(errors.mean()), float(of_mean.mean())
    spread = float((of_mean - errors).std(ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else float("nan")
    power = 1.0 if is_category else 0.5
    return Recovery(
        group=group,
        n_hidden=len(errors),
        error=mean**power,
        error_of_mean=usual**power,
        standard_error=100 * spread / usual if usual > 0 else float("nan"),
        explained=1 - mean / usual if usual > 0 else float("nan"),
    )


def _widths(cells: CellInfo, channel: int) -> Array:
    """Widths of the intervals of one channel."""
    errors, model = cells.standardized_errors, cells.model
    if errors is None or model is None:
        return np.full(len(cells.filled), np.inf)
    low, high = model.intervals(cells.host_values, cells.host_hops, errors, COVERAGE, np.float64)
    return np.asarray((high - low)[:, channel])
