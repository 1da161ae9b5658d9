"""`evaluate`: how well each method fills known cells that are hidden from it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, ParameterError
from pcfi.estimation.folds import Fold, make_folds
from pcfi.estimation.resolution import on_host
from pcfi.estimation.result import seeded
from pcfi.evaluation.cells import Part, parts_of
from pcfi.evaluation.reliability import COVERAGE, Claims, reliability_of
from pcfi.evaluation.result import ByHops, Evaluation, Scored
from pcfi.evaluation.scores import score, score_binary
from pcfi.imputation import complete
from pcfi.inputs.graphs import GraphLike
from pcfi.inputs.problem import Problem, known_mask, read_problem
from pcfi.progress import progress_bar
from pcfi.result import Imputation
from pcfi.settings import METHODS, Settings
from pcfi.stages.hops import Hops, count_hops

__all__ = ["Evaluation", "evaluate"]


DEFAULT_METHODS = ("zero", "mean", "neighbors", "fp", "pcfi")
UNITS = ("deviation", "data")
FOLDS = 3
ROWS_AT_A_TIME = 2048


def evaluate(
    features: Any,
    graph: GraphLike,
    *,
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]] = DEFAULT_METHODS,
    folds: int = FOLDS,
    unit: str = "deviation",
    known: Any = None,
    directed: bool = False,
    random_state: "int | np.random.Generator | None" = None,
    progress: bool = False,
) -> Evaluation:
    """Hide known cells in the way cells are missing, fill them in with each method, and compare with what they were.

    The cells of a fold are hidden from everything that is done for it, tuning included. Cells of numbers have errors;
    where there are columns of categories (`pcfi.frames.evaluate`), `accuracy` is the share of cells that get theirs.

    Parameters
    ----------
    features : array of shape (n_nodes, n_channels)
        As in `impute`.
    graph : sparse adjacency, (2, E) edge index, (edge_index, weights), edge table, networkx graph, PyG Data, or Graph
        As in `impute`.
    methods : sequence of str, or mapping, default=("zero", "mean", "neighbors", "fp", "pcfi")
        The methods to compare, as in `impute`; or, by any name, the options of a call, say
        {"paper": {"alpha": 0.9, "beta": 0.1}, "tuned": {}}; `directed` and `progress` are the same for all.
    folds : int, default=3
        How many times a fifth of the known cells is hidden (250,000 cells where that is less), at least 2 and at most
        until all were. Where at most 40 nodes or cells can be hidden, all are, in 5 folds.
    unit : {"deviation", "data"}, default="deviation"
        What errors are measured in: standard deviations of each channel's known values, so that channels of different
        scales count alike, or the numbers of the data.
    known : boolean array of the shape of features, default=None
        As in `impute`.
    directed : bool, default=False
        As in `impute`.
    random_state : int, numpy Generator or None, default=None
        Which cells are hidden. None is a fixed seed.
    progress : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    Evaluation
        Scores of each method overall, by hops and by channel; for methods that say how large an error to expect,
        whether that is so.

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
    calls = _calls(methods, directed, random_state)
    if unit not in UNITS:
        raise ParameterError(f"must be one of {', '.join(map(repr, UNITS))}, got {unit!r}", parameter="unit")
    problem = on_host(read_problem(features, graph, known, directed=directed))
    hidden = make_folds(problem, seeded(random_state), most=_count(folds), complete=True)
    if len(hidden) < 2:
        raise FeatureError("too few cells are known to hide some of them: evaluate needs at least 2 nodes or cells")
    parts = parts_of(hidden, problem)
    units = Units.of(problem, unit)
    answers: dict[str, list[Answer]] = {name: [] for name in calls}
    with progress_bar("evaluate", len(parts) * len(calls), show=progress) as advance:
        for part in parts:
            hops = _hops_of(part.numbers)
            for name, settings in calls.items():
                answers[name].append(_answer(part, hops, units, settings))
                advance(1)
    return _summary(units, parts, answers)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method filled into the hidden cells of a fold, in units, what it claims about errors, and its time.

    `right` says of every hidden category whether it was chosen.
    """

    filled: Array
    right: Array
    hops: Array
    claims: Claims | None
    seconds: float


@dataclass(frozen=True, eq=False)
class Units:
    """What the values of each channel are divided by so that squares stay within the numbers, and what errors mean.

    Errors in the numbers of the data are worked out in a common power of two, `back`, and multiplied by it in the end.
    """

    name: str
    per_channel: Array
    back: float = 1.0

    @classmethod
    def of(cls, problem: Problem, name: str) -> "Units":
        """The units for a name out of `UNITS`."""
        if name == "deviation":
            return cls(name, _deviations(problem))
        common = float(np.ldexp(0.5, np.frexp(problem.channels.magnitude.astype(np.float64).max())[1]))
        return cls(name, np.full(problem.values.shape[1], common), common)


def _deviations(problem: Problem) -> Array:
    """Standard deviation of the known values of each channel; 1 if that is 0."""
    known, channels = known_mask(problem), problem.channels
    squares = np.zeros(known.shape[1])
    for start in range(0, len(known), ROWS_AT_A_TIME):
        rows = slice(start, start + ROWS_AT_A_TIME)
        part = np.where(known[rows], problem.values[rows] - channels.mean, 0.0) / channels.magnitude
        squares += np.einsum("ij,ij->j", part, part, dtype=np.float64)
    spread = channels.magnitude * np.sqrt(squares / np.maximum(channels.n_known, 1))
    return np.where((spread > 0) & ~channels.constant, spread, 1.0)


def _count(folds: object) -> int:
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise ParameterError(f"must be a whole number of at least 2, got {folds!r}", parameter="folds")
    return int(folds)


def _calls(methods: Any, directed: bool, random_state: Any) -> dict[str, Settings]:
    if isinstance(methods, str):
        methods = (methods,)
    named = methods if isinstance(methods, Mapping) else {name: {"method": name} for name in methods}
    if not named:
        raise ParameterError(f"methods is empty: name some of {', '.join(METHODS)}")
    return {str(name): _settings(options, directed, random_state) for name, options in named.items()}


def _settings(options: Any, directed: bool, random_state: Any) -> Settings:
    if isinstance(options, str):
        options = {"method": options}
    if not isinstance(options, Mapping):
        raise ParameterError(f"methods must name methods, or options by name, got {options!r}")
    if options.get("unreachable") == "nan":
        raise ParameterError(
            "evaluate judges every hidden cell, and unreachable='nan' leaves some empty: choose another"
        )
    shared = set(options) & {"directed", "progress"}
    if shared:
        name = min(shared)
        raise ParameterError(f"{name} is the same for all methods: pass {name}={options[name]!r} to evaluate itself")
    unknown = set(options) - set(Settings.__dataclass_fields__)
    if unknown:
        raise ParameterError(f"{', '.join(sorted(unknown))} is no option of impute that evaluate knows")
    seed = random_state if isinstance(random_state, int | np.integer) else None
    return Settings(**{"directed": directed, "random_state": seed, **options})


def _hops_of(fold: Fold) -> Array:
    hops: Hops = count_hops(fold.problem)
    codes = hops.codes[fold.nodes, hops.patterns[fold.channels]].astype(np.int64)
    return np.where(codes <= hops.n_levels, codes, -1)


def _answer(part: Part, hops: Array, units: Units, settings: Settings) -> Answer:
    fold = part.numbers
    problem = replace(fold.problem, wrap_values=np.asarray, wrap_cells=np.asarray)
    begin = time.perf_counter()
    result, _ = complete(problem, settings)  # what it warns of is a problem that nobody asked about
    seconds = time.perf_counter() - begin
    unit = units.per_channel[fold.channels]
    filled = fold.at(result.values) / unit
    actual = np.abs(filled - fold.truth / unit)
    claims = _claims(fold, result, actual, hops, unit) if part.has_numbers else None
    return Answer(filled, part.right(result.values), hops, claims, seconds)


def _claims(fold: Fold, result: Imputation, actual: Array, hops: Array, unit: Array) -> Claims | None:
    if result.expected_error is None:
        return None
    low, high = (fold.at(bound) for bound in result.interval(COVERAGE))
    return Claims(fold.at(result.expected_error) / unit, actual, (low <= fold.truth) & (fold.truth <= high), hops)


def _summary(units: Units, parts: list[Part], answers: dict[str, list[Answer]]) -> Evaluation:
    folds = [part.numbers for part in parts]
    channels = np.concatenate([fold.channels for fold in folds])
    truth = np.concatenate([fold.truth for fold in folds])
    hops = np.concatenate([answer.hops for answer in next(iter(answers.values()))])
    binary = bool(np.isin(truth, (0.0, 1.0)).all() and (truth > 0).any())
    n_channels, back = len(units.per_channel), units.back
    cells = np.bincount(channels, minlength=n_channels)
    rows, by_hops, by_channel, reliability = [], [], {}, []
    for name, given in answers.items():
        rows.append(_scored(name, folds, given, units, binary))
        squares = (np.concatenate([answer.filled for answer in given]) - truth / units.per_channel[channels]) ** 2
        by_hops += [
            ByHops(name, int(level), int((hops == level).sum()), back * float(np.sqrt(squares[hops == level].mean())))
            for level in np.unique(hops)
        ]
        sums = np.bincount(channels, weights=squares, minlength=n_channels)
        by_channel[name] = back * np.sqrt(np.divide(sums, cells, out=np.full(len(cells), np.nan), where=cells > 0))
        claims = [answer.claims for answer in given if answer.claims is not None]
        if claims:
            reliability.append(reliability_of(name, Claims.joined(claims), back))
    return Evaluation(
        tuple(rows),
        tuple(by_hops),
        by_channel,
        sum(part.n_cells for part in parts),
        len(parts),
        units.name,
        tuple(reliability),
        sum(len(choice.truth) for part in parts for choice in part.choices),
    )


def _scored(name: str, folds: list[Fold], given: list[Answer], units: Units, binary: bool) -> Scored:
    each, sizes = [], []
    for fold, answer in zip(folds, given, strict=True):
        if not len(fold.truth):  # categories only
            continue
        unit = units.per_channel[fold.channels]
        truth, base = fold.truth / unit, fold.problem.channels.mean[fold.channels].astype(np.float64) / unit
        scores = score(truth, answer.filled, base, fold.nodes)
        each.append(scores | (score_binary(fold.truth, answer.filled, fold.nodes) if binary else {}))
        sizes.append(len(fold.truth))
    table = {key: np.array([scores[key] for scores in each]) for key in each[0]}
    back = {key: units.back if key in ("rmse", "mae") else 1.0 for key in table}
    weights = np.array(sizes, dtype=np.float64)
    means = {key: back[key] * _mean(values, weights, squared=key == "rmse") for key, values in table.items()}
    errors = {key: back[key] * _standard_error(values) for key, values in table.items()}
    rights = [answer.right for answer in given if len(answer.right)]
    if rights:
        means["accuracy"] = float(np.concatenate(rights).mean())
        errors["accuracy"] = _standard_error(np.array([right.mean() for right in rights]))
    return Scored(name, means, errors, float(np.mean([answer.seconds for answer in given])))


def _standard_error(values: Array) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.std(ddof=1) / np.sqrt(len(seen))) if len(seen) > 1 else float("nan")


def _mean(values: Array, sizes: Array, *, squared: bool) -> float:
    seen = np.isfinite(values)
    if not seen.any():
        return float("nan")
    power = 2 if squared else 1
    return float(np.average(values[seen] ** power, weights=sizes[seen]) ** (1 / power))
