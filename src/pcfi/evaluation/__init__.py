"""`evaluate`: scores of methods on known cells that are hidden from them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, ParameterError
from pcfi.estimation.folds import Fold, make_folds
from pcfi.estimation.resolution import on_host
from pcfi.estimation.result import seed_of
from pcfi.evaluation.cells import HiddenCells, split_cells
from pcfi.evaluation.reliability import COVERAGE, ErrorEstimates, measure_reliability
from pcfi.evaluation.result import Evaluation, MethodScores, ScoreAtHops
from pcfi.evaluation.scores import score, score_binary
from pcfi.imputation import complete
from pcfi.inputs.graphs import GraphLike
from pcfi.inputs.problem import Problem, known_mask, read_problem
from pcfi.progress import progress_bar
from pcfi.settings import METHODS, Settings

__all__ = ["Evaluation", "evaluate"]

DEFAULT_METHODS = ("zero", "mean", "neighbors", "fp", "pcfi")
UNITS = ("deviation", "data")
DEFAULT_FOLDS = 3
ROWS_AT_A_TIME = 2048


def evaluate(
    features: Any,
    graph: GraphLike,
    *,
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]] = DEFAULT_METHODS,
    folds: int = DEFAULT_FOLDS,
    unit: str = "deviation",
    known: Any = None,
    directed: bool = False,
    random_state: "int | np.random.Generator | None" = None,
    progress: bool = False,
) -> Evaluation:
    """Hide known cells in the same pattern as the missing cells, fill them with each method, and score the result.

    The cells of a fold are hidden from every step, including tuning. Numbers are scored by their errors; categories
    (`pcfi.frames.evaluate`) by `accuracy`, the share of cells with the correct category.

    Parameters
    ----------
    features : array of shape (n_nodes, n_channels)
        As in `impute`.
    graph : sparse adjacency, (2, E) edge index, (edge_index, weights), edge table, networkx graph, PyG Data, or Graph
        As in `impute`.
    methods : sequence of str, or mapping, default=("zero", "mean", "neighbors", "fp", "pcfi")
        The methods to compare, as in `impute`; or a mapping from a name of your own to the options of `impute`, such as
        {"values": {}, "paper": {"alpha": 0.9, "beta": 0.1, "objective": "representation"}}; `directed` and `progress`
        are the same for all.
    folds : int, default=3
        Number of folds, at least 2. Each hides a fifth of the known cells (a tenth if the graph is built from the
        features), but at most 250,000 cells; there are fewer folds if every cell has been hidden.
    unit : {"deviation", "data"}, default="deviation"
        Unit of errors: the standard deviation of each channel's known values, so that channels with different scales
        count equally, or the unit of the data.
    known : boolean array of the shape of features, default=None
        As in `impute`.
    directed : bool, default=False
        As in `impute`.
    random_state : int, numpy Generator or None, default=None
        Seed for the choice of hidden cells. None is a fixed seed.
    progress : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    Evaluation
        Scores of each method overall, by hops and by channel; for methods with expected errors, their reliability.

    Examples
    --------
    >>> import numpy as np, pcfi
    >>> angle = np.arange(60) / 60 * 2 * np.pi
    >>> known = np.random.default_rng(0).random((60, 1)) < 0.5
    >>> features = np.where(known, 10 + np.sin(angle)[:, None], np.nan)
    >>> ring = [np.arange(60), (np.arange(60) + 1) % 60]
    >>> pcfi.evaluate(features, ring, methods=("mean", "neighbors", "pcfi")).best
    'pcfi'
    """
    settings = _read_methods(methods, directed, random_state)
    if unit not in UNITS:
        raise ParameterError(f"must be one of {', '.join(map(repr, UNITS))}, got {unit!r}", parameter="unit")
    problem = on_host(read_problem(features, graph, known, directed=directed))
    folds_made = make_folds(problem, _check_folds(folds), seed_of(random_state), with_constants=True)
    if len(folds_made) < 2:
        raise FeatureError("too few known cells: evaluate needs at least 2 nodes or cells to hide")
    hidden = split_cells(folds_made, problem)
    error_unit = ErrorUnit.of(problem, unit)
    predictions: dict[str, list[FoldPrediction]] = {name: [] for name in settings}
    with progress_bar("evaluate", len(hidden) * len(settings), show=progress) as advance:
        for cells in hidden:
            hops = _hops_of(cells.numbers)
            for name, method in settings.items():
                predictions[name].append(_predict(cells, hops, error_unit, method))
                advance(1)
    return _summarize(error_unit, hidden, predictions)


@dataclass(frozen=True, eq=False)
class FoldPrediction:
    """Values that a method filled into the hidden cells of one fold.

    Attributes
    ----------
    values : ndarray
        Filled numbers, divided by the error unit of their channel.
    correct : ndarray of bool
        Whether each hidden category was filled correctly.
    hops : ndarray of int
        Hops of the hidden numbers, -1 if unreachable.
    estimates : ErrorEstimates or None
        The method's own error estimates, if it has any.
    seconds : float
    """

    values: Array
    correct: Array
    hops: Array
    estimates: ErrorEstimates | None
    seconds: float


@dataclass(frozen=True, eq=False)
class ErrorUnit:
    """Divisor of each channel's values, chosen so that squared errors neither overflow nor underflow.

    Errors in the unit of the data are computed divided by a common power of two, `scale`, and multiplied by it at the
    end.
    """

    name: str
    per_channel: Array
    scale: float = 1.0

    @classmethod
    def of(cls, problem: Problem, name: str) -> "ErrorUnit":
        """Return the unit with a name out of `UNITS`."""
        if name == "deviation":
            return cls(name, standard_deviations(problem))
        common = float(np.ldexp(0.5, np.frexp(problem.channels.magnitude.astype(np.float64).max())[1]))
        return cls(name, np.full(problem.values.shape[1], common), common)


def standard_deviations(problem: Problem) -> Array:
    """Return the standard deviation of the known values of each channel; 1 where it is 0."""
    known, channels = known_mask(problem), problem.channels
    squares = np.zeros(known.shape[1])
    for start in range(0, len(known), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        centred = np.where(known[rows], problem.values[rows] - channels.mean, 0.0) / channels.magnitude
        squares += np.einsum("ij,ij->j", centred, centred, dtype=np.float64)
    deviation = channels.magnitude * np.sqrt(squares / np.maximum(channels.n_known, 1))
    return np.where((deviation > 0) & ~channels.constant, deviation, 1.0)


def _check_folds(folds: object) -> int:
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise ParameterError(f"must be an integer of at least 2, got {folds!r}", parameter="folds")
    return int(folds)


def _read_methods(methods: Any, directed: bool, random_state: Any) -> dict[str, Settings]:
    """Return the settings of each method, by name."""
    if isinstance(methods, str):
        methods = (methods,)
    options = methods if isinstance(methods, Mapping) else {name: {"method": name} for name in methods}
    if not options:
        raise ParameterError(f"methods is empty: name some of {', '.join(METHODS)}")
    return {str(name): _read_options(one, directed, random_state) for name, one in options.items()}


def _read_options(options: Any, directed: bool, random_state: Any) -> Settings:
    if isinstance(options, str):
        options = {"method": options}
    if not isinstance(options, Mapping):
        raise ParameterError(f"methods must be names of methods, or a mapping from names to options, got {options!r}")
    if options.get("unreachable") == "nan":
        raise ParameterError(
            "evaluate scores every hidden cell, but unreachable='nan' leaves some of them NaN: choose another policy"
        )
    shared = set(options) & {"directed", "progress"}
    if shared:
        name = min(shared)
        raise ParameterError(f"{name} is the same for all methods: pass {name}={options[name]!r} to evaluate itself")
    allowed = [name for name in Settings.__dataclass_fields__ if name not in ("directed", "progress")]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ParameterError(f"unknown option {', '.join(unknown)}: evaluate takes {', '.join(allowed)}")
    seed = random_state if isinstance(random_state, int | np.integer) else None
    return Settings(**{"directed": directed, "random_state": seed, **options})


def _hops_of(fold: Fold) -> Array:
    codes = fold.hops.codes_at(fold.nodes, fold.channels).astype(np.int64)
    return np.where(fold.hops.is_reachable(codes), codes, -1)


def _predict(hidden: HiddenCells, hops: Array, unit: ErrorUnit, settings: Settings) -> FoldPrediction:
    fold = hidden.numbers
    problem = replace(fold.problem, wrap_values=np.asarray, wrap_cells=np.asarray)
    if settings.method == "zero":
        problem = replace(problem, categorical=slice(0))  # zero is not a category: score it as wrong, without an error
    start = time.perf_counter()
    result, _ = complete(problem, settings)  # its warnings are about the fold, not about the caller's data
    seconds = time.perf_counter() - start
    divisor = unit.per_channel[fold.channels]
    values = fold.at(result.values) / divisor
    estimates = None
    if hidden.has_numbers and result.expected_error is not None:
        low, high = (fold.at(bound) for bound in result.interval(COVERAGE))
        estimates = ErrorEstimates(
            expected=fold.at(result.expected_error) / divisor,
            actual=np.abs(values - fold.truth / divisor),
            covered=(low <= fold.truth) & (fold.truth <= high),
            hops=hops,
        )
    return FoldPrediction(values, hidden.correct_categories(result.values), hops, estimates, seconds)


def _summarize(unit: ErrorUnit, hidden: list[HiddenCells], predictions: dict[str, list[FoldPrediction]]) -> Evaluation:
    folds = [cells.numbers for cells in hidden]
    channels = np.concatenate([fold.channels for fold in folds])
    truth = np.concatenate([fold.truth for fold in folds])
    hops = np.concatenate([prediction.hops for prediction in next(iter(predictions.values()))])
    binary = bool(np.isin(truth, (0.0, 1.0)).all() and (truth > 0).any())
    n_channels = len(unit.per_channel)
    n_cells = np.bincount(channels, minlength=n_channels)
    methods, by_hops, by_channel, reliability = [], [], {}, []
    for name, parts in predictions.items():
        methods.append(_score_method(name, folds, parts, unit, binary))
        squares = (np.concatenate([part.values for part in parts]) - truth / unit.per_channel[channels]) ** 2
        for level in np.unique(hops):
            rmse = unit.scale * float(np.sqrt(squares[hops == level].mean()))
            by_hops.append(ScoreAtHops(name, int(level), int((hops == level).sum()), rmse))
        sums = np.bincount(channels, weights=squares, minlength=n_channels)
        mse = np.divide(sums, n_cells, out=np.full(n_channels, np.nan), where=n_cells > 0)
        by_channel[name] = unit.scale * np.sqrt(mse)
        estimates = [part.estimates for part in parts if part.estimates is not None]
        if estimates:
            reliability.append(measure_reliability(name, ErrorEstimates.concatenate(estimates), unit.scale))
    return Evaluation(
        methods=tuple(methods),
        by_hops=tuple(by_hops),
        by_channel=by_channel,
        n_hidden=sum(cells.n_cells for cells in hidden),
        n_folds=len(hidden),
        unit=unit.name,
        reliability=tuple(reliability),
        n_categories=sum(len(column.truth) for cells in hidden for column in cells.categories),
    )


def _score_method(
    name: str, folds: list[Fold], predictions: list[FoldPrediction], unit: ErrorUnit, binary: bool
) -> MethodScores:
    by_fold, sizes = [], []
    for fold, prediction in zip(folds, predictions, strict=True):
        if not len(fold.truth):  # only categories are hidden in this fold
            continue
        divisor = unit.per_channel[fold.channels]
        mean = fold.problem.channels.mean[fold.channels].astype(np.float64)
        scores = score(fold.truth / divisor, prediction.values, mean / divisor, fold.nodes)
        by_fold.append(scores | (score_binary(fold.truth, prediction.values, fold.nodes) if binary else {}))
        sizes.append(len(fold.truth))
    weights = np.array(sizes, dtype=np.float64)
    means, errors = {}, {}
    for key in by_fold[0]:
        values = np.array([scores[key] for scores in by_fold])
        scale = unit.scale if key in ("rmse", "mae") else 1.0
        means[key] = scale * _mean(values, weights, squared=key == "rmse")
        errors[key] = scale * _standard_error(values)
    correct = [prediction.correct for prediction in predictions if len(prediction.correct)]
    if correct:
        means["accuracy"] = float(np.concatenate(correct).mean())
        errors["accuracy"] = _standard_error(np.array([part.mean() for part in correct]))
    return MethodScores(name, means, errors, float(np.mean([prediction.seconds for prediction in predictions])))


def _standard_error(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.std(ddof=1) / np.sqrt(len(finite))) if len(finite) > 1 else float("nan")


def _mean(values: Array, weights: Array, *, squared: bool) -> float:
    """Return the weighted mean, or root mean square, of the finite values."""
    finite = np.isfinite(values)
    if not finite.any():
        return float("nan")
    power = 2 if squared else 1
    return float(np.average(values[finite] ** power, weights=weights[finite]) ** (1 / power))
