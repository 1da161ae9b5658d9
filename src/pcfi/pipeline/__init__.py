"""A problem and settings without "auto" -> filled values. The only place that defines the order of the stages.

Calls, runs on disk, cross-validation folds and new nodes all use it, with different backends.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pcfi.backends import Backend, StageBackend
from pcfi.inputs.problem import Problem
from pcfi.pipeline.policies import (
    check_policies,
    count_unreachable,
    refuse_divergence,
    refuse_unreachable,
    unreachable_values,
)
from pcfi.settings import Settings
from pcfi.stages.channel_propagation import PropagationParameters
from pcfi.stages.diffusion import Diffusion, DiffusionOutcome, confidence_weights, degree_weights
from pcfi.stages.hops import Hops

DIFFUSION_METHODS = ("pcfi", "fp")


@dataclass(frozen=True, eq=False)
class Filled:
    """Filled values, as the backend stores them, and the outcome of the diffusion; None for methods without one."""

    values: Any
    outcome: DiffusionOutcome | None = None
    hops: Hops | None = None


class Estimator(Protocol):
    """Turns diffused values into estimates: the value model of `pcfi.estimation`."""

    def prepare(self, problem: Problem) -> Problem:
        """The problem to diffuse."""

    def apply(self, problem: Problem, hops: Hops, out: Any, *, fill_unreachable: bool) -> None:
        """Turn the diffused values in `out` into estimates in the units of `problem`."""


def fill(problem: Problem, settings: Settings, backend: Backend, estimator: Estimator | None = None) -> Filled:
    """Fill a problem by any method; with an estimator, return its estimates instead of the diffused values."""
    if problem.n_missing == 0:
        hops = Hops.of_known(*problem.values.shape) if settings.method in DIFFUSION_METHODS else None
        return Filled(backend.start(problem, problem.channels.mean), hops=hops)
    if settings.method not in DIFFUSION_METHODS:
        return _fill_without_diffusion(problem, settings, backend)
    if estimator is None:
        return run_stages(problem, settings, backend)
    filled = run_stages(estimator.prepare(problem), settings, backend)
    if filled.hops is not None:
        estimator.apply(problem, filled.hops, filled.values, fill_unreachable=settings.unreachable == "mean")
    return filled


def run_stages(problem: Problem, settings: Settings, backend: StageBackend) -> Filled:
    """Hops, stage 1, stage 2 and the policy for unreachable cells, in this order."""
    check_policies(problem, settings)
    hops = backend.count_hops(problem, progress=settings.progress)
    refuse_unreachable(count_unreachable(hops, problem), problem, settings)
    diffusion, parameters = diffusion_of(problem, hops, settings), propagation_of(settings)
    out = backend.start(problem, problem.channels.mean)
    diffused = backend.diffuse(diffusion, out, keep_product=parameters is not None)
    refuse_divergence(diffused.outcome)
    if parameters is not None:
        backend.propagate_channels(diffusion, parameters, diffused.product, out)
    if hops.unreachable_cells() and settings.unreachable != "mean":  # the initial values are the means
        backend.place_unreachable(hops, unreachable_values(problem, settings), out)
    return Filled(out, diffused.outcome, hops)


def diffusion_of(problem: Problem, hops: Hops, settings: Settings) -> Diffusion:
    """Stage 1 of the method in the settings."""
    if settings.method == "fp":
        weights = degree_weights(problem.graph, hops, settings.self_loops)
    else:
        weights = confidence_weights(problem.graph, hops, settings.alpha)
    return Diffusion(
        problem=problem,
        hops=hops,
        weights=weights,
        solver=settings.solver,
        self_weight=float(settings.self_loops),
        progress=settings.progress,
    )


def propagation_of(settings: Settings) -> PropagationParameters | None:
    """Parameters of stage 2; None if there is no stage 2."""
    if settings.method != "pcfi" or settings.beta in (0, "auto") or settings.alpha == 1:  # "auto" is 0
        return None
    return PropagationParameters(settings.alpha, settings.beta, bool(settings.standardize))


def _fill_without_diffusion(problem: Problem, settings: Settings, backend: Backend) -> Filled:
    """Zero, the channel's mean, or the mean of the known neighbours."""
    check_policies(problem, settings)
    if settings.method == "zero":
        return Filled(backend.start(problem, np.zeros(problem.values.shape[1])))
    empty = problem.channels.n_known == 0
    refuse_unreachable(int(empty.sum()) * problem.n_counted, problem, settings)
    out = backend.start(problem, np.where(empty, unreachable_values(problem, settings), problem.channels.mean))
    if settings.method == "neighbors":
        backend.fill_from_neighbors(problem, out)
    return Filled(out)
