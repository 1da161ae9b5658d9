"""The choice of parameters without labels: hide known cells, fill them in, and take what does it best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.calibration import Calibration, Errors, calibrate
from pcfi.estimation.closed_form import ALIKE, LEVELS, PRIOR_UNITS, Fit, Moments, fit
from pcfi.estimation.fold_runs import Bench, FoldBackend, Trial, Whole, prepare_bench, try_alpha
from pcfi.estimation.folds import make_folds
from pcfi.estimation.means import Means, shrunken_means
from pcfi.estimation.metrics import Metric
from pcfi.estimation.result import Tried, Tuning
from pcfi.inputs.problem import Problem
from pcfi.progress import progress_bar
from pcfi.settings import Settings
from pcfi.stages.degree_scaling import DegreeScale, grows_with_degree

ALPHAS = (0.1, 0.3, 0.6, 0.9)  # with 1 channels cannot share, and otherwise it is much like 0.9
FOLDS = 3  # each costs a diffusion per alpha
FEWEST_UNITS = 5  # hidden nodes (cells, where cells are missing one by one) below which nothing can be learned
FINALISTS = 2  # alphas that are tried on all folds
PRIOR_CELLS = (300.0, 60.0, 12.0)  # of a column that are trusted like those of all columns
FEWEST_CELLS = 100  # that must be hidden of some column to tell columns apart
WORTHWHILE = 0.99  # of the squared error of all columns is left at most if they are told apart
RESCUED = 0.5  # of that of a column, as it would be otherwise or with its mean
CAUTIOUS_UNITS = (8.0, 32.0)  # instead of PRIOR_UNITS: what few hidden units say is followed less far
DEFAULT_ALPHA, DEFAULT_BETA = 0.5, 0.1


@dataclass(frozen=True)
class Wishes:
    """The caller's settings, some of them open, and the metric that decides."""

    settings: Settings
    metric: Metric

    @property
    def alpha(self) -> float | None:
        """The alpha that the caller fixed."""
        return None if self.settings.alpha == "auto" else float(self.settings.alpha)

    @property
    def beta(self) -> float | None:
        """The beta that the caller fixed."""
        return None if self.settings.beta == "auto" else float(self.settings.beta)


@dataclass(frozen=True, eq=False)
class Judged:
    """One alpha on all folds: what would be chosen with it, and how good that is."""

    alpha: float
    fit: Fit
    filled: list[Array]  # calibrated values of each fold less the mean, in units, with a fit to the other folds
    by_fold: Array
    error: float
    deviation: float
    divided: bool = False  # by a power of the degree


def choose(problem: Problem, wishes: Wishes, rng: "np.random.Generator") -> Tuning:
    """Alpha, beta and the reliability by hops for reconstructing values."""
    whole = Whole.of(problem)
    benches = prepare_benches(problem, whole, rng, progress=wishes.settings.progress)
    lacking = _lacking(problem, benches)
    if lacking is not None:
        return _fallback(problem, wishes, lacking)
    alphas = ALPHAS if wishes.alpha is None else (wishes.alpha,)
    judged = _race(benches, alphas, wishes)
    scale = DegreeScale.of(problem) if grows_with_degree(problem, whole.squares, whole.units) else None
    divided = [] if scale is None else _race_divided(problem, scale, benches, judged, wishes)
    best = divided[0] if divided and _clearly_better(divided[0], judged[0]) else judged[0]
    return Tuning(
        objective="values",
        alpha=best.alpha,
        beta=best.fit.beta,
        kappa=best.fit.kappa,
        trust=best.fit.trust[problem.columns],
        center=False,
        metric=wishes.metric.name,
        error=best.error,
        error_of_mean=wishes.metric.over([bench.compared(np.zeros_like(bench.wanted)) for bench in benches])[0],
        tried=tuple(
            Tried(one.alpha, one.fit.beta, one.error, one.deviation, len(one.filled), one.divided)
            for one in sorted([*judged, *divided], key=lambda one: (one.divided, one.alpha))
        ),
        n_hidden=round(sum(float(bench.places.cell.sum()) for bench in benches)),
        n_folds=len(benches),
        note="",
        means=shrunken_means(problem.channels, whole.squares),
        calibration=_calibration(problem, whole, benches, best.filled),
        scale=scale if best.divided else None,
    )


def _race(benches: list[Bench], alphas: Sequence[float], wishes: Wishes) -> list[Judged]:
    """All alphas on the first folds, the best two on all; best first, those that were dropped behind."""
    n_first = max(2, len(benches) // 2)
    n_trials = n_first * len(alphas) + (len(benches) - n_first) * min(FINALISTS, len(alphas))
    with progress_bar("tune", n_trials, show=wishes.settings.progress) as advance:

        def run(some: list[Bench], chosen: Sequence[float]) -> dict[float, list[Trial]]:
            trials: dict[float, list[Trial]] = {alpha: [] for alpha in chosen}
            for bench in some:
                backend = FoldBackend(bench)
                for alpha in chosen:
                    trials[alpha].append(try_alpha(bench, alpha, wishes.settings, backend))
                    advance(1)
                del backend  # and its array, before the next is made
            return trials

        trials = run(benches[:n_first], alphas)
        judged = [judge(benches[:n_first], trials[alpha], wishes) for alpha in alphas]
        judged.sort(key=lambda one: one.error)
        finalists = [one.alpha for one in judged[:FINALISTS]]
        more = run(benches[n_first:], finalists)
    final = {alpha: judge(benches, trials[alpha] + more[alpha], wishes) for alpha in finalists}
    best, *others = sorted(final.values(), key=lambda one: one.error)
    return [_cautious(benches, trials[best.alpha] + more[best.alpha], wishes, best), *others, *judged[FINALISTS:]]


def _race_divided(
    problem: Problem, scale: DegreeScale, benches: list[Bench], judged: list[Judged], wishes: Wishes
) -> list[Judged]:
    """The same for features divided by powers of the degree, with the alpha that was best without."""
    divided = scale.divide(problem)
    rivals = _race([bench.divided(scale, divided) for bench in benches], [judged[0].alpha], wishes)
    return [replace(one, divided=True) for one in rivals]


def _clearly_better(rival: Judged, best: Judged) -> bool:
    """Whether the error of a rival is smaller on the folds by more than the standard error of the difference."""
    return _clearly_smaller(rival.by_fold, best.by_fold)


def _clearly_smaller(rival: Array, best: Array) -> bool:
    gain = best - rival
    return bool(gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)))


def _cautious(benches: list[Bench], trials: list[Trial], wishes: Wishes, bold: Judged) -> Judged:
    """The most cautious fit whose error is not clearly larger than the smallest: by more than its standard error."""
    fits = [bold, *(judge(benches, trials, wishes, units) for units in CAUTIOUS_UNITS)]
    best = min(fits, key=lambda one: one.error)
    for one in reversed(fits):
        excess = one.by_fold - best.by_fold
        if excess.mean() <= excess.std(ddof=1) / np.sqrt(len(excess)):
            return one
    return best


def prepare_benches(
    problem: Problem, whole: Whole, rng: "np.random.Generator", *, progress: bool = False
) -> list[Bench]:
    """The folds, with what their trials share."""
    folds = make_folds(problem, rng, most=FOLDS)
    benches = [prepare_bench(fold, whole, progress=progress) for fold in folds]
    benches = [bench for bench in benches if len(bench.wanted)]
    levels = min(LEVELS, 1 + max((int(bench.places.levels.max()) for bench in benches), default=0))
    return [bench.up_to(levels) for bench in benches]


def judge(benches: list[Bench], trials: list[Trial], wishes: Wishes, prior_units: float = PRIOR_UNITS) -> Judged:
    """Fit reliability and beta, and estimate the error with fits that did not see the fold they are applied to."""
    moments = [trial.moments for trial in trials]
    total = _total(moments)
    beta = wishes.beta if trials[0].alpha < 1 else 0.0
    prior_cells, fits = _fits_without_own(moments, total, beta, prior_units)
    filled = [
        bench.places.kept(found) * (trial.diffused + found.beta * trial.received)
        for bench, trial, found in zip(benches, trials, fits, strict=True)
    ]
    compared = [bench.compared(values) for bench, values in zip(benches, filled, strict=True)]
    error, deviation = wishes.metric.over(compared)
    by_fold = np.array([wishes.metric.of(*one) for one in compared])
    found = fit(total, beta, prior_units, prior_cells)
    return Judged(trials[0].alpha, found, filled, by_fold, error, deviation)


def _fits_without_own(
    moments: list[Moments], total: Moments, beta: float | None, prior_units: float
) -> tuple[float, list[Fit]]:
    """How many cells of a column are to be trusted like those of all columns, and for each fold what the others teach.

    Columns are told apart only if that makes the error on the folds clearly smaller, and by enough: that of all
    columns, or that of one that follows the graph, beside many that do not.
    """

    def fitted(prior_cells: float) -> tuple[float, list[Fit], Array]:
        fits = [fit(total - own, beta, prior_units, prior_cells) for own in moments]
        return prior_cells, fits, np.array([own.errors(found) for own, found in zip(moments, fits, strict=True)])

    alike, fits, errors = fitted(ALIKE)
    cells, of_mean = total.cells.sum(axis=0), total.yy.sum(axis=0)
    if len(cells) > 1 and cells.max() >= FEWEST_CELLS:
        tried = [fitted(PRIOR_CELLS[0])]
        if tried[0][2].sum() < errors.sum():
            tried += map(fitted, PRIOR_CELLS[1:])
        apart, rivals, theirs = min(tried, key=lambda one: float(one[2].sum()))
        ours = errors.sum(axis=0)
        rescued = (theirs.sum(axis=0) < RESCUED * np.minimum(ours, of_mean)) & (cells >= FEWEST_CELLS)
        worthwhile = theirs.sum() < WORTHWHILE * errors.sum() or rescued.any()
        if worthwhile and _clearly_smaller(theirs.sum(axis=1), errors.sum(axis=1)):
            return apart, rivals
    return alike, fits


def _total(moments: list[Moments]) -> Moments:
    total = moments[0]
    for more in moments[1:]:
        total = total + more
    return total


def _calibration(problem: Problem, whole: Whole, benches: list[Bench], filled: list[Array]) -> Calibration:
    errors = []
    for bench, values in zip(benches, filled, strict=True):
        ratio, levels = bench.unit / bench.spread, np.minimum(bench.places.levels, LEVELS - 1)
        parts = (np.abs(bench.wanted - values) * ratio, np.abs(bench.wanted) * ratio)
        errors.append(Errors(levels, bench.fold.channels, bench.steady, *parts))
    return calibrate(errors, problem.channels, whole.spread)


def _lacking(problem: Problem, benches: list[Bench]) -> str | None:
    """Why nothing can be learned, or None if something can."""
    if len(benches) < 2:
        if problem.n_missing == 0:
            return "nothing is missing"
        many = (problem.channels.n_known >= FEWEST_UNITS).any()
        return f"the known cells are too few to hide some of them{', or no edge leads to them' if many else ''}"
    n_units = sum(float(bench.places.unit.sum()) for bench in benches)
    if n_units < FEWEST_UNITS:
        return f"only {n_units:.0f} known nodes or cells can be hidden and reached, and {FEWEST_UNITS} are needed"
    if not any(bench.wanted.any() for bench in benches):
        return "every known cell holds its channel's mean"
    return None


def _fallback(problem: Problem, wishes: Wishes, note: str) -> Tuning:
    means = problem.channels.mean.astype(np.float64)
    return Tuning(
        objective="values",
        alpha=DEFAULT_ALPHA if wishes.alpha is None else wishes.alpha,
        beta=DEFAULT_BETA if wishes.beta is None else wishes.beta,
        kappa=np.ones(LEVELS),
        trust=np.ones(len(means)),
        center=False,
        metric=wishes.metric.name,
        error=float("nan"),
        error_of_mean=float("nan"),
        tried=(),
        n_hidden=0,
        n_folds=0,
        note=note,
        means=Means(means, 0.0),
        calibration=None,
    )
