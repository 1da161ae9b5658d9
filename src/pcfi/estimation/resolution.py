"""Settings with "auto" in them -> settings with numbers, and the tuning that they come from."""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.estimation.fold_runs import Bench, Whole
from pcfi.estimation.metrics import Metric, read_metric
from pcfi.estimation.representation import choose_representation
from pcfi.estimation.result import Tuning, seeded
from pcfi.estimation.search import Wishes, choose, prepare_benches
from pcfi.inputs import tensors
from pcfi.inputs.problem import Problem
from pcfi.pipeline import fill
from pcfi.settings import Settings
from pcfi.stages.degree_scaling import DegreeScale
from pcfi.stages.shrinkage import Shrinkage

RIVALS = ("fp", "neighbors", "mean")  # of "pcfi", for method="auto"


@dataclass(frozen=True, eq=False)
class Resolved:
    """Settings without "auto", and what was learned on the way (None where nothing had to be)."""

    settings: Settings
    tuning: Tuning | None = None

    @property
    def degree_scale(self) -> DegreeScale | None:
        """What the features are divided by while they diffuse."""
        return self.tuning.scale if self.tuning is not None and self.settings.method == "pcfi" else None

    @property
    def shrinkage(self) -> Shrinkage | None:
        """How far filled values are drawn towards their channel's mean."""
        is_values = self.settings.method == "pcfi" and self.settings.objective == "values"
        return self.tuning.shrinkage if self.tuning is not None and is_values else None


def resolve(problem: Problem, settings: Settings, metric: Metric | None = None) -> Resolved:
    """Decide everything that the settings leave open."""
    metric, problem = metric or read_metric("rmse"), on_host(problem)
    if settings.method not in ("pcfi", "auto"):
        return Resolved(replace(settings, alpha=1.0, beta=0.0, standardize=False, center=False))
    values = settings.aim == "values"
    standardize = values if settings.standardize is None else settings.standardize
    settings = replace(settings, standardize=standardize, objective=settings.aim)
    if not values:
        return _representation(problem, settings)
    seed = int(seeded(settings.random_state).integers(2**63))  # so that all methods see the same folds
    tuning = choose(problem, Wishes(settings, metric), seeded(seed))
    method = settings.method
    if method == "auto":
        method = _best_method(problem, Wishes(settings, metric), tuning, seeded(seed))
    if method != "pcfi":
        return Resolved(replace(settings, method=method, alpha=1.0, beta=0.0, center=False), tuning)
    return Resolved(replace(settings, method=method, alpha=tuning.alpha, beta=tuning.beta, center=False), tuning)


def on_host(problem: Problem) -> Problem:
    """The problem as arrays: what is tuned on another device is tuned on the CPU."""
    if not problem.on_device:
        return problem
    values, mask = tensors.to_array(problem.values, "features"), tensors.to_array(problem.mask, "known")
    return replace(problem, values=np.ascontiguousarray(values), mask=np.ascontiguousarray(mask))


def _representation(problem: Problem, settings: Settings) -> Resolved:
    settings = replace(settings, method="pcfi")
    if not settings.tunes and settings.center in (None, False):
        return Resolved(replace(settings, center=False))
    tuning = choose_representation(problem, settings)
    return Resolved(replace(settings, alpha=tuning.alpha, beta=tuning.beta, center=tuning.center), tuning)


def _best_method(problem: Problem, wishes: Wishes, tuning: Tuning, rng: "np.random.Generator") -> str:
    """The method with the smallest error on the same hidden cells; "pcfi" if there are none."""
    if tuning.note:
        return "pcfi"
    benches = prepare_benches(problem, Whole.of(problem), rng)
    errors = {"pcfi": tuning.error}
    for method in RIVALS:
        plain = replace(wishes.settings, method=method, alpha=1.0, beta=0.0, unreachable="mean", progress=False)
        errors[method] = wishes.metric.over([bench.compared(_filled(bench, plain)) for bench in benches])[0]
    return min(errors, key=lambda method: errors[method])


def _filled(bench: Bench, settings: Settings) -> Array:
    """What a method fills into the hidden cells, less the mean, in units."""
    problem = bench.fold.problem
    filled = fill(problem, settings, backend_for(problem)).values
    return np.asarray((bench.fold.at(filled) - bench.mean) / bench.unit)
