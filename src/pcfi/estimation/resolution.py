"""Settings with "auto" in them -> settings with numbers, and the value model that goes with them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.estimation.channel_moments import moments_of_problem
from pcfi.estimation.channel_scale import fit_channel_scale
from pcfi.estimation.column_reports import report_columns
from pcfi.estimation.fitting import Fitted, fit_value_model, model_without_evidence
from pcfi.estimation.folds import make_folds
from pcfi.estimation.representation import choose_representation
from pcfi.estimation.result import Tried, Tuning, seed_of
from pcfi.estimation.value_model import ValueModel
from pcfi.inputs import tensors
from pcfi.inputs.problem import Problem
from pcfi.pipeline import fill
from pcfi.settings import Settings

RIVALS = ("fp", "neighbors", "mean")  # of "pcfi", for method="auto"
DEFAULT_ALPHA = 0.6  # if nothing can be learned


@dataclass(frozen=True, eq=False)
class Resolved:
    """Settings without "auto", and what was learned on the way (None where nothing had to be)."""

    settings: Settings
    tuning: Tuning | None = None

    @property
    def model(self) -> ValueModel | None:
        """The model that turns diffused values into estimates; None for other methods and for a representation."""
        is_values = self.settings.method == "pcfi" and self.settings.objective == "values"
        return self.tuning.model if self.tuning is not None and is_values else None


def resolve(problem: Problem, settings: Settings, bounds: Array | None = None) -> Resolved:
    """Resolve "auto" and None in the settings."""
    if settings.method not in ("pcfi", "auto"):
        return Resolved(replace(settings, alpha=1.0, beta=0.0, standardize=False, center=False))
    problem, values = on_host(problem), settings.objective == "values"
    standardize = values if settings.standardize is None else settings.standardize
    settings = replace(settings, standardize=standardize)
    if not values:
        return _representation(problem, settings)
    seed = seed_of(settings.random_state)
    settings = replace(settings, random_state=seed)
    fitted = fit_value_model(problem, settings, seed, bounds)
    tuning = tuning_of(problem, settings, fitted, lambda: model_without_evidence(problem, bounds))
    if settings.method == "auto":
        method = "pcfi" if isinstance(fitted, str) else _best_method(problem, settings, tuning, seed)
        if method != "pcfi":
            return Resolved(replace(settings, method=method, alpha=1.0, beta=0.0, center=False), tuning)
    return Resolved(replace(settings, method="pcfi", alpha=tuning.alpha, beta=tuning.beta, center=False), tuning)


def tuning_of(
    problem: Problem, settings: Settings, fitted: Fitted | str, without_evidence: Callable[[], ValueModel]
) -> Tuning:
    """Result of the estimation for a problem."""
    beta = 0.0 if settings.beta == "auto" else float(settings.beta)
    if isinstance(fitted, str):
        alpha = DEFAULT_ALPHA if settings.alpha == "auto" else float(settings.alpha)
        return Tuning(objective="values", alpha=alpha, beta=beta, note=fitted, model=without_evidence())
    return Tuning(
        objective="values",
        alpha=fitted.candidates[0].alpha,
        beta=beta,
        error=fitted.error,
        error_of_mean=fitted.error_of_mean,
        tried=tuple(Tried(one.alpha, one.error, one.by_degree) for one in fitted.candidates),
        columns=report_columns(problem, fitted.model, fitted.column_errors),
        n_factors=fitted.model.cells.factors.rank,
        n_hidden=fitted.n_hidden,
        n_folds=fitted.n_folds,
        model=fitted.model,
    )


def on_host(problem: Problem) -> Problem:
    """The problem as arrays: estimation for features on another device runs on the CPU."""
    if not problem.on_device:
        return problem
    values, mask = tensors.to_array(problem.values, "features"), tensors.to_array(problem.mask, "known")
    return replace(problem, values=np.ascontiguousarray(values), mask=np.ascontiguousarray(mask))


def _representation(problem: Problem, settings: Settings) -> Resolved:
    settings = replace(settings, method="pcfi")
    if not settings.tunes and settings.center in (None, False):
        return Resolved(replace(settings, center=False))
    tuning = choose_representation(problem.channels, moments_of_problem(problem), settings)
    return Resolved(replace(settings, alpha=tuning.alpha, beta=tuning.beta, center=tuning.center), tuning)


def _best_method(problem: Problem, settings: Settings, tuning: Tuning, seed: int) -> str:
    """The method with the smallest error on hidden cells, in standard deviations."""
    scale = fit_channel_scale(problem)
    folds = make_folds(scale.transformed(problem), tuning.n_folds, seed)
    errors = {"pcfi": tuning.error}
    for method in RIVALS:
        plain = replace(settings, method=method, alpha=1.0, beta=0.0, unreachable="mean", progress=False)
        squared = []
        for fold in folds:
            filled = fold.at(fill(fold.problem, plain, backend_for(fold.problem)).values)
            squared.append(((filled - fold.truth) / scale.unit[fold.channels]) ** 2)
        errors[method] = float(np.sqrt(np.concatenate(squared).mean()))
    best = min(errors, key=lambda method: errors[method])
    return "mean" if errors["mean"] <= (1 + 1e-6) * errors[best] else best
