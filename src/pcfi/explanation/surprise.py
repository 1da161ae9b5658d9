"""Known cells that the model, leaving them out, would not have expected: probably errors in the data, ranked.

Known cells are hidden in `N_FOLDS` parts and estimated by the fitted model; a cell's surprise is its distance from the
estimate in units of the absolute error to expect of it. A wrong value also misleads the estimates of the cells around
it, and the model that is fitted to it. So this is done twice: cells that surprise at first are hidden, the model is
fitted again without them, and all cells are compared with what the others, without these, let expect.

In a column with two values, or most of whose values are one and the same, errors have no common size: nearly all are 0,
and the others are as large as the values. Whether a cell has the frequent value or another counts as the distance that
a normal error of the same probability has: a rare value is no error for being rare. How far another value is from the
rest of the others counts in units of their usual distance; both are added as independent errors are.
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
MEAN_OF_ABSOLUTE = float(np.sqrt(np.pi / 2))  # standard deviation of a normal error over its mean absolute value
MEDIAN_OVER_MEAN = 0.8453  # of the absolute value of a normal error


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
    is_fitted = len(cells.model.errors.scores) > 0 and not _complete(problem, parts).any()
    first = (cells.model, cells.settings) if is_fitted else _fitted(problem, settings, _first_part(problem, parts))
    _, residuals = hidden_residuals(problem, first, parts, nothing)
    suspects = _suspects(np.abs(residuals), parts, np.isfinite(frequent_values(problem)))
    hidden = suspects | _first_part(problem, parts)
    expected, residuals = hidden_residuals(problem, _fitted(problem, settings, hidden), parts, suspects)
    return _ranked(cells, parts, expected, np.abs(residuals))


def _complete(problem: Problem, parts: Array) -> Array:
    """Channels that are compared and have no missing cells: of these, a model learns no errors."""
    return np.asarray(problem.mask.all(axis=0) & (parts >= 0).any(axis=0))


def _first_part(problem: Problem, parts: Array) -> Array:
    """Cells of complete channels that are hidden from a fit, so that it learns how large errors are there."""
    return np.asarray((parts == 0) & _complete(problem, parts))


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
    frequent = frequent_values(problem)
    for channel in np.flatnonzero(np.isfinite(frequent)):
        known = np.isfinite(expected[:, channel])
        values, filled = problem.values[known, channel].astype(np.float64), expected[known, channel]
        residuals[known, channel] = _residuals_from(float(frequent[channel]), values, filled)
    return expected, residuals


def frequent_values(problem: Problem) -> Array:
    """The value that most known cells of a channel have, or the lower one of two; NaN where there is none."""
    frequent = np.full(problem.values.shape[1], np.nan)
    for channel in np.flatnonzero(~problem.channels.constant):
        values, counts = np.unique(problem.values[problem.mask[:, channel], channel], return_counts=True)
        if len(values) == 2:
            frequent[channel] = values[0]
        elif len(values) and 2 * counts.max() > counts.sum():
            frequent[channel] = values[counts.argmax()]
    return frequent


def _residuals_from(frequent: float, values: Array, expected: Array) -> Array:
    """Residuals of a normal error that is as improbable as having the frequent value or not, calibrated.

    Of other values, their distance from the median of the others counts as well, in units of the usual one.
    """
    from scipy.special import ndtri

    is_other = values != frequent
    if not is_other.any():
        return np.zeros(len(values))
    others = values[is_other]
    towards_others = float(np.median(others)) - frequent
    of_other = np.clip((expected - frequent) / (towards_others or 1.0), 0.0, 1.0)
    estimates, truth = np.stack([1 - of_other, of_other], axis=1), is_other.astype(np.int64)
    probability = calibrate(estimates, truth).probabilities(estimates)[np.arange(len(truth)), truth]
    residuals = -ndtri(probability / 2) * MEAN_OF_ABSOLUTE
    distances = np.abs(others - np.median(others))
    usual = max(float(np.median(distances)) / MEDIAN_OVER_MEAN, abs(towards_others))
    residuals[is_other] = np.hypot(residuals[is_other], distances / usual)
    return np.asarray(residuals * np.where(is_other, np.sign(values - frequent), -np.sign(towards_others)))


def _standardized(model: ValueModel, values: Array, channels: Array) -> Array:
    """Values of single cells on the scale of the model; what is not possible there is as far as can be."""
    with np.errstate(divide="ignore", invalid="ignore"):
        transformed = np.where(model.scale.logarithmic[channels], np.log(values), values)
    return np.nan_to_num(model.scale.standardized(transformed, channels), nan=-1e6, posinf=1e6, neginf=-1e6)


def _suspects(scores: Array, parts: Array, calibrated: Array) -> Array:
    """Cells that surprise far more than others of their column; at most a share of each column.

    In `calibrated` columns, those with a frequent value, a surprise of 1 is usual.
    """
    suspects = np.zeros(scores.shape, dtype=np.bool_)
    for channel in np.flatnonzero((parts >= 0).any(axis=0)):
        own = scores[:, channel]
        usual = 1.0 if calibrated[channel] else np.nanmedian(own)
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
