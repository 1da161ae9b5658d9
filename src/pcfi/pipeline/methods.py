"""One method with numbers for its parameters -> the filled array: the stages in order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array
from pcfi.backends import Backend
from pcfi.errors import (
    DivergenceError,
    NotSettledWarning,
    PcfiWarning,
    UnreachableError,
    UnreachableWarning,
    counted,
)
from pcfi.inputs.problem import Problem
from pcfi.settings import Settings
from pcfi.stages.diffusion import Outcome, confidence_weighting, degree_weighting, varies
from pcfi.stages.hops import Hops


@dataclass(frozen=True, eq=False)
class Filled:
    """What a method hands back: the filled array and how it went."""

    values: Array
    outcome: Outcome | None = None
    hops: Hops | None = None


def _pcfi(problem: Problem, settings: Settings, backend: Backend) -> Filled:
    hops = _hops(problem, settings, backend)
    out = backend.start(problem, problem.channels.mean)
    weighting = confidence_weighting(problem.graph, hops, settings.alpha)
    shares = settings.beta > 0 and settings.alpha < 1
    sharers = np.flatnonzero(varies(problem, weighting, settings.solver) & shares)
    outcome, factors = backend.diffuse(problem, hops, weighting, settings, out, sharers)
    refuse_divergence(outcome)
    backend.share(problem, hops, settings, sharers, factors, out)
    _place_unreachable(problem, settings, backend, hops, out)
    return Filled(out, outcome, hops)


def _feature_propagation(problem: Problem, settings: Settings, backend: Backend) -> Filled:
    hops = _hops(problem, settings, backend)
    out = backend.start(problem, problem.channels.mean)
    weighting = degree_weighting(problem.graph, hops, settings.self_loops)
    outcome, _ = backend.diffuse(problem, hops, weighting, settings, out, sharers=None)
    refuse_divergence(outcome)
    _place_unreachable(problem, settings, backend, hops, out)
    return Filled(out, outcome, hops)


def _neighbors(problem: Problem, settings: Settings, backend: Backend) -> Filled:
    filled = _mean(problem, settings, backend)
    backend.fill_from_neighbors(problem, filled.values)
    return filled


def _mean(problem: Problem, settings: Settings, backend: Backend) -> Filled:
    empty = problem.channels.n_known == 0
    refuse_unreachable(int(empty.sum()) * len(problem.values), problem, settings)
    fill = np.where(empty, _policy_values(problem, settings), problem.channels.mean)
    return Filled(backend.start(problem, fill))


def _zero(problem: Problem, _settings: Settings, backend: Backend) -> Filled:
    return Filled(backend.start(problem, np.zeros(problem.values.shape[1])))


FILLS: dict[str, Callable[[Problem, Settings, Backend], Filled]] = {
    "pcfi": _pcfi,
    "fp": _feature_propagation,
    "neighbors": _neighbors,
    "mean": _mean,
    "zero": _zero,
}


def _hops(problem: Problem, settings: Settings, backend: Backend) -> Hops:
    hops = backend.count_hops(problem, settings)
    refuse_unreachable(hops.unreachable_cells(problem.first_channels), problem, settings)
    return hops


def refuse_divergence(outcome: Outcome) -> None:
    """Raise `DivergenceError` if a residual is not a number."""
    if not np.isfinite(outcome.residual):
        raise DivergenceError(
            "the diffusion left the finite numbers: the known values or the edge weights span too many magnitudes"
        )


def _place_unreachable(problem: Problem, settings: Settings, backend: Backend, hops: Hops, out: Array) -> None:
    """Put what the policy says into the unreachable cells (they hold the mean until now)."""
    if hops.unreachable_cells() and settings.unreachable != "mean":
        backend.place_unreachable(hops, _policy_values(problem, settings), out)


def _policy_values(problem: Problem, settings: Settings) -> Array:
    if settings.unreachable == "mean":
        return problem.channels.mean
    return np.full(problem.values.shape[1], np.nan if settings.unreachable == "nan" else 0.0)


def refuse_unreachable(n_cells: int, problem: Problem, settings: Settings) -> None:
    """Raise if there are unreachable cells and the caller wants an error then."""
    if n_cells and settings.unreachable == "error":
        text = unreachable_text(n_cells, problem)
        raise UnreachableError(text, remedy="choose {unreachable='mean'}, 'zero' or 'nan' to fill them anyway")


def usual_warnings(
    problem: Problem, settings: Settings, status: str, *, converged: bool, n_unreachable: int
) -> list[PcfiWarning]:
    """What the caller of any method should hear: that it has not settled, that cells are out of reach."""
    found: list[PcfiWarning] = []
    if not converged:
        advice = "raise max_steps or loosen rtol" + (", or use a smaller alpha" if settings.method == "pcfi" else "")
        found.append(NotSettledWarning(f"{status} To settle it, {advice}."))
    if n_unreachable:
        drawn = ", drawn towards 0" if settings.method == "pcfi" and settings.objective == "values" else ""
        mean = f"their channel's mean{drawn} (0 if it has none)"
        filling = {"mean": mean, "zero": "0", "nan": "NaN"}[settings.unreachable]
        found.append(UnreachableWarning(f"{unreachable_text(n_unreachable, problem)}; they hold {filling}"))
    return found


def unreachable_text(n_cells: int, problem: Problem) -> str:
    """How many missing cells are unreachable, in words."""
    text = f"{n_cells:,} of {problem.n_missing:,} missing cells cannot be reached from any known cell of their channel"
    n_empty = int((problem.channels.n_known[problem.first_channels] == 0).sum())
    return f"{text} ({counted(n_empty, 'channel')} without any known value)" if n_empty else text
