"""Known cells that the model, leaving them out, would not have expected: probably errors in the data, ranked.

Known cells are hidden in `N_FOLDS` parts and estimated by the fitted model; a cell's surprise is its distance from the
estimate in units of the absolute error to expect of it. A cell of a column with two values has the distance that a
normal error of the same probability has: the rarer value is no error for being rare. A wrong value also misleads the
estimates of the cells around it, and the model that is fitted to it. So this is done twice: cells that surprise at
first are hidden, the model is fitted again without them, and all cells are compared with what the others, without
these, let expect.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.cell_info import CellInfo
from pcfi.errors import FeatureError, ParameterError
from pcfi.estimation.category_probabilities import calibrate
from pcfi.estimation.channel_scale import fit_channel_scale
from pcfi.estimation.fitting import fit_to_sample
from pcfi.estimation.result import seed_of
from pcfi.estimation.sample import draw_sample
from pcfi.estimation.value_model import ValueModel
from pcfi.explanation.explanation import number
from pcfi.inputs.cell_names import CellNames
from pcfi.inputs.problem import Problem, survey
from pcfi.pipeline import fill
from pcfi.settings import Settings

N_FOLDS = 10  # parts of the known cells; each is estimated from the other nine
SUSPECT_RATIO = 6.0  # times the median surprise of the column: 4 standard deviations if errors are normal
MAX_SUSPECTS = 0.1  # share of a column that is hidden the second time
MAX_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Surprises:
    """Known cells, the most surprising first.

    Attributes
    ----------
    rows, column_numbers : ndarray of int
    values : ndarray
        The known values.
    expected : ndarray
        What the model says, without them.
    scores : ndarray
        Distance between both in units of the error to expect, on the scale of the model. About 1 is usual.
    names : CellNames
    """

    rows: Array
    column_numbers: Array
    values: Array
    expected: Array
    scores: Array
    names: CellNames

    def __len__(self) -> int:
        return len(self.rows)

    def to_rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """One dictionary per cell, as a DataFrame takes it; the `most` surprising ones, or all."""
        places = range(len(self) if most is None else min(most, len(self)))
        return [
            {
                "node": self.names.node(self.rows[place]),
                "column": self.names.name(int(self.column_numbers[place])),
                "value": float(self.values[place]),
                "expected": float(self.expected[place]),
                "surprise": float(self.scores[place]),
            }
            for place in places
        ]

    def to_frame(self, most: int | None = None) -> Any:
        """The same as a DataFrame of pandas."""
        from pcfi.optional import load

        names = ["node", "column", "value", "expected", "surprise"]
        return load("pandas", "to_frame", "frames").DataFrame(self.to_rows(most), columns=names)

    def __repr__(self) -> str:
        lines = [
            f"{row['column']} of {row['node']!r} is {number(row['value'])}, expected {number(row['expected'])}: "
            f"{row['surprise']:.1f} times the error to expect"
            for row in self.to_rows(MAX_SHOWN)
        ]
        more = len(self) - MAX_SHOWN
        return "\n".join([*lines, *([f"and {more:,} less surprising cells"] if more > 0 else [])])


def find_surprises(cells: CellInfo) -> Surprises:
    """Compare every known cell of a numeric column with what the other cells let expect."""
    if cells.hops is None or cells.model is None:
        raise ParameterError(
            "surprise needs the model of values, and this result has none: impute with objective='values' and "
            "method 'pcfi'"
        )
    problem, settings = cells.problem, _quiet(cells.settings)
    parts = parts_of(problem)
    nothing = np.zeros(parts.shape, dtype=np.bool_)
    is_fitted = len(cells.model.errors.scores) > 0
    first = (cells.model, cells.settings) if is_fitted else _fitted(problem, settings, parts == 0)
    _, residuals = hidden_residuals(problem, first, parts, nothing)
    suspects = _suspects(np.abs(residuals), parts)
    hidden = suspects if problem.n_missing or suspects.any() else parts == 0
    expected, residuals = hidden_residuals(problem, _fitted(problem, settings, hidden), parts, suspects)
    return _ranked(cells, parts, expected, np.abs(residuals))


def _quiet(settings: Settings) -> Settings:
    return replace(
        settings, alpha="auto", beta="auto", standardize=True, center=False, unreachable="mean", progress=False
    )


def parts_of(problem: Problem, n_folds: int = N_FOLDS) -> Array:
    """Part of each known cell of a numeric column; -1 for all others."""
    parts = np.random.default_rng(0).integers(n_folds, size=problem.values.shape).astype(np.int8)
    parts[~problem.mask] = -1
    parts[:, problem.categorical] = -1
    parts[:, problem.channels.constant] = -1
    return parts


def _without(problem: Problem, hidden: Array) -> Problem:
    mask = problem.mask & ~hidden
    return replace(problem, mask=mask, channels=survey(problem.values, mask, problem.channel_name))


def _fitted(problem: Problem, settings: Settings, hidden: Array) -> tuple[ValueModel, Settings]:
    """The model and the settings that are fitted to all but some known cells.

    Columns are on the scale on which they are closer to a normal distribution, whether or not they are estimated best
    on it: what is far from the rest depends on the tails of the distribution.
    """
    left, seed = _without(problem, hidden), seed_of(settings.random_state)
    fitted = fit_to_sample(draw_sample(left), [fit_channel_scale(left)], settings, seed, left)
    if isinstance(fitted, str):
        raise FeatureError(f"there are too few known cells to say which of them surprise: {fitted}")
    return fitted.model, replace(settings, random_state=seed, alpha=fitted.candidates[0].alpha, beta=0.0)


def hidden_residuals(
    problem: Problem, fitted: tuple[ValueModel, Settings], parts: Array, suspects: Array
) -> tuple[Array, Array]:
    """Estimates of all known cells from the unsuspected ones of the other parts; NaN elsewhere.

    Also the residuals, in units of the absolute error to expect.
    """
    model, settings = fitted[0], replace(fitted[1], unreachable="mean", progress=False)
    expected, residuals = np.full((2, *parts.shape), np.nan)
    for part in range(int(parts.max()) + 1):
        chosen = np.nonzero(parts == part)
        fold = _without(problem, suspects | (parts == part))
        filled = fill(fold, settings, backend_for(fold), model)
        if filled.hops is None or not len(chosen[0]):
            continue
        errors = model.expected_errors(fold.graph, filled.hops, filled.values)[chosen]
        expected[chosen] = filled.values[chosen]
        distance = [_standardized(model, values[chosen], chosen[1]) for values in (problem.values, expected)]
        residuals[chosen] = (distance[0] - distance[1]) / np.maximum(errors, 1e-12)
    for channel in np.flatnonzero(two_valued(problem)):
        residuals[:, channel] = _two_valued_residuals(problem, int(channel), expected[:, channel])
    return expected, residuals


def two_valued(problem: Problem) -> Array:
    """Channels whose known values are two different ones."""
    known, channels = problem.mask, problem.channels
    ends = (problem.values == channels.low) | (problem.values == channels.high)
    return np.asarray((ends | ~known).all(axis=0) & ~channels.constant)


def _two_valued_residuals(problem: Problem, channel: int, expected: Array) -> Array:
    """Residuals of a normal error that is as improbable as the value, calibrated; NaN where nothing is expected."""
    from scipy.special import ndtri

    low, high = float(problem.channels.low[channel]), float(problem.channels.high[channel])
    residuals, known = np.full(len(expected), np.nan), np.isfinite(expected)
    of_high = (expected[known] - low) / (high - low)
    is_high = problem.values[known, channel] == high
    estimates, truth = np.stack([1 - of_high, of_high], axis=1), is_high.astype(np.int64)
    probability = calibrate(estimates, truth).probabilities(estimates)[np.arange(len(truth)), truth]
    residuals[known] = -ndtri(probability / 2) * np.sqrt(np.pi / 2) * np.where(is_high, 1.0, -1.0)
    return residuals


def _standardized(model: ValueModel, values: Array, channels: Array) -> Array:
    """Values of single cells on the scale of the model; what is not possible there is as far as can be."""
    with np.errstate(divide="ignore", invalid="ignore"):
        transformed = np.where(model.scale.logarithmic[channels], np.log(values), values)
    return np.nan_to_num(model.scale.standardized(transformed, channels), nan=-1e6, posinf=1e6, neginf=-1e6)


def _suspects(scores: Array, parts: Array) -> Array:
    """Cells that surprise far more than others of their column; at most a share of each column."""
    suspects = np.zeros(scores.shape, dtype=np.bool_)
    for channel in np.flatnonzero((parts >= 0).any(axis=0)):
        own = scores[:, channel]
        usual = np.nanmedian(own)
        most = np.nanquantile(own, 1 - MAX_SUSPECTS)
        with np.errstate(invalid="ignore"):
            suspects[:, channel] = (own > SUSPECT_RATIO * usual) & (own > most) & (usual > 0)
    return suspects


def _ranked(cells: CellInfo, parts: Array, expected: Array, scores: Array) -> Surprises:
    rows, channels = np.nonzero((parts >= 0) & np.isfinite(scores))
    order = np.argsort(-scores[rows, channels], kind="stable")
    rows, channels = rows[order], channels[order]
    return Surprises(
        rows=rows,
        column_numbers=cells.problem.columns[channels],
        values=cells.host_values[rows, channels],
        expected=expected[rows, channels],
        scores=scores[rows, channels],
        names=cells.names,
    )
