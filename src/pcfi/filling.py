"""One method with numbers for its parameters -> the filled array: the stages in order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.channels import Sharing, share, share_factored
from pcfi.diffusion import Outcome, confidence_weighting, degree_weighting, diffuse, varies
from pcfi.errors import UnreachableError, counted
from pcfi.hops import Hops, count_hops
from pcfi.neighbors import fill_from_neighbors
from pcfi.parameters import Settings
from pcfi.problem import SMALL, Problem

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Filled:
    """What a method hands back: the filled array and how it went."""

    values: Array
    outcome: Outcome | None = None
    hops: Hops | None = None


def _pcfi(problem: Problem, settings: Settings) -> Filled:
    hops = _hops(problem, settings)
    out = start(problem)
    weighting = confidence_weighting(problem.graph, hops, settings.alpha)
    shares = settings.beta > 0 and settings.alpha < 1
    sharers = np.flatnonzero(varies(problem, weighting, settings.solver) & shares)
    outcome, factors = diffuse(
        problem,
        hops,
        weighting,
        settings.solver,
        out,
        self_loops=settings.self_loops,
        keep_factored=sharers,
        progress=settings.progress,
    )
    sharing = Sharing(settings.alpha, settings.beta, bool(settings.standardize))
    units = problem.channels.magnitude[sharers]
    if factors is not None:
        share_factored(out, hops, factors, units, sharing)
    elif len(sharers) > 1:
        share(out, hops, sharers, units, sharing, progress=settings.progress)
    return Filled(_place_unreachable(problem, settings, hops, out), outcome, hops)


def _feature_propagation(problem: Problem, settings: Settings) -> Filled:
    hops = _hops(problem, settings)
    out = start(problem)
    weighting = degree_weighting(problem.graph, hops, settings.self_loops)
    outcome, _ = diffuse(
        problem,
        hops,
        weighting,
        settings.solver,
        out,
        self_loops=settings.self_loops,
        progress=settings.progress,
    )
    return Filled(_place_unreachable(problem, settings, hops, out), outcome, hops)


def _neighbors(problem: Problem, settings: Settings) -> Filled:
    filled = _mean(problem, settings)
    fill_from_neighbors(problem, filled.values)
    return filled


def _mean(problem: Problem, settings: Settings) -> Filled:
    empty = problem.channels.n_known == 0
    _refuse_unreachable(int(empty.sum()) * len(problem.values), problem, settings)
    fill = np.where(empty, _policy_values(problem, settings), problem.channels.mean)
    return Filled(start(problem, fill))


def _zero(problem: Problem, _settings: Settings) -> Filled:
    return Filled(start(problem, np.zeros(problem.values.shape[1])))


FILLS: dict[str, Callable[[Problem, Settings], Filled]] = {
    "pcfi": _pcfi,
    "fp": _feature_propagation,
    "neighbors": _neighbors,
    "mean": _mean,
    "zero": _zero,
}


def _hops(problem: Problem, settings: Settings) -> Hops:
    hops = count_hops(problem, progress=settings.progress)
    _refuse_unreachable(hops.unreachable_cells, problem, settings)
    return hops


def start(problem: Problem, fill: Array | None = None) -> Array:
    """A new array with the known values, and `fill` (by default the mean) in the missing cells of each channel."""
    from pcfi._kernels.survey import copy_known
    from pcfi._kernels.threads import run_rows

    filling = (problem.channels.mean if fill is None else fill).astype(problem.values.dtype)
    out = np.empty_like(problem.values)
    run_rows(
        len(out),
        lambda first, last: copy_known(problem.values, problem.mask, filling, first, last, out),
        inline=out.size < SMALL,
    )
    return out


def _place_unreachable(problem: Problem, settings: Settings, hops: Hops, out: Array) -> Array:
    """Put what the policy says into the unreachable cells (they hold the mean until now)."""
    if hops.unreachable_cells and settings.unreachable != "mean":
        fill = _policy_values(problem, settings).astype(out.dtype)
        for channel in np.flatnonzero(hops.n_unreachable[hops.patterns]):
            out[hops.codes[:, hops.patterns[channel]] > hops.n_levels, channel] = fill[channel]
    return out


def _policy_values(problem: Problem, settings: Settings) -> Array:
    if settings.unreachable == "mean":
        return problem.channels.mean
    return np.full(problem.values.shape[1], np.nan if settings.unreachable == "nan" else 0.0)


def _refuse_unreachable(n_cells: int, problem: Problem, settings: Settings) -> None:
    if n_cells and settings.unreachable == "error":
        text = unreachable_text(n_cells, problem)
        raise UnreachableError(f"{text}: choose unreachable='mean', 'zero' or 'nan' to go on")


def unreachable_text(n_cells: int, problem: Problem) -> str:
    """How many missing cells are unreachable, in words."""
    text = f"{n_cells:,} of {problem.n_missing:,} missing cells cannot be reached from any known cell of their channel"
    n_empty = int((problem.channels.n_known == 0).sum())
    return f"{text} ({counted(n_empty, 'channel')} without any known value)" if n_empty else text
