"""Policies for every method and caller: unreachable cells, divergence, status and warnings."""

import numpy as np

from pcfi._typing import Array
from pcfi.errors import (
    ColumnWarning,
    DivergenceError,
    NotSettledWarning,
    ParameterError,
    PcfiWarning,
    UnreachableError,
    UnreachableWarning,
    counted,
)
from pcfi.inputs.missing_markers import marker_text, missing_markers
from pcfi.inputs.problem import Problem
from pcfi.settings import Settings
from pcfi.stages.diffusion import DiffusionOutcome
from pcfi.stages.hops import Hops
from pcfi.stages.solvers import FixedSteps, UntilSettled


def check_policies(problem: Problem, settings: Settings) -> None:
    """Raise an error if the settings do not suit categorical columns."""
    if "zero" in (settings.method, settings.unreachable) and len(problem.channels.mean[problem.categorical]):
        raise ParameterError(
            "zero is not a category, so categorical columns cannot be filled with it",
            remedy="choose another {method} and {unreachable}, or leave out {categorical}",
        )


def unreachable_by_column(hops: Hops, problem: Problem) -> Array:
    """Number of cells of each column that no source can reach, of the nodes that are counted."""
    per_pattern = hops.n_unreachable
    if problem.counted_nodes is not None:
        per_pattern = (~hops.is_reachable(hops.codes[problem.counted_nodes])).sum(0)
    return np.asarray(per_pattern[hops.patterns[problem.first_channels]])


def count_unreachable(hops: Hops, problem: Problem) -> int:
    """Number of cells that no source can reach, of the nodes that are counted."""
    return int(unreachable_by_column(hops, problem).sum())


def refuse_divergence(outcome: DiffusionOutcome) -> None:
    """Raise `DivergenceError` if the residual is not finite."""
    if not np.isfinite(outcome.residual):
        raise DivergenceError(
            "values overflowed in the diffusion: known values or edge weights span too many orders of magnitude",
            remedy="rescale them",
        )


def refuse_non_finite(least: Array, most: Array, problem: Problem) -> None:
    """Raise `DivergenceError` if the smallest or largest value of a filled channel is infinite."""
    wrong = np.flatnonzero(np.isposinf(most) | np.isneginf(least))
    if len(wrong):
        raise DivergenceError(
            f"filled values of {problem.channel_name(int(wrong[0]))} overflow {problem.dtype}: known values or edge "
            "weights span too many orders of magnitude",
            remedy="rescale them, or pass the features as float64",
        )


def refuse_unreachable(n_cells: int, problem: Problem, settings: Settings) -> None:
    """Raise an error if there are unreachable cells and the policy is "error"."""
    if n_cells and settings.unreachable == "error":
        raise UnreachableError(
            _unreachable_text(n_cells, problem),
            remedy="choose {unreachable='mean'}, 'zero' or 'nan' to fill them anyway",
        )


def unreachable_values(problem: Problem, settings: Settings) -> Array:
    """Value of the unreachable cells of each channel, by the policy."""
    if settings.unreachable == "mean":
        return problem.channels.mean
    return np.full(problem.values.shape[1], np.nan if settings.unreachable == "nan" else 0.0)


def has_converged(settings: Settings, outcome: DiffusionOutcome | None) -> bool:
    """Whether the solver reached its goal."""
    return outcome is None or isinstance(settings.solver, FixedSteps) or outcome.residual <= settings.solver.rtol


def status_of(problem: Problem, settings: Settings, outcome: DiffusionOutcome | None, hops: Hops | None) -> str:
    """Convergence in a sentence."""
    if problem.n_missing == 0:
        return "Nothing was missing."
    if outcome is None:
        what = {
            "zero": "0",
            "mean": "its channel's mean",
            "neighbors": "the mean of its known neighbours, or of its channel if it has none",
        }
        return f"A missing cell holds {what[settings.method]}."
    if hops is not None and count_unreachable(hops, problem) == problem.n_missing:
        return "No source can reach any missing cell, so there was nothing to diffuse."
    residual, steps = outcome.residual, counted(outcome.steps, "step")
    if isinstance(settings.solver, UntilSettled) and residual <= settings.solver.rtol:
        further = f"one further step would move no cell by more than {settings.solver.rtol:g} of its channel's range"
        return f"Settled after {steps}: {further}."
    further = f"one further step would move some cell by {residual:.1e} of its channel's range"
    if isinstance(settings.solver, FixedSteps):
        return f"Took {steps}, as asked: {further}."
    return f"Not settled after {steps}: {further}."


def usual_warnings(
    problem: Problem, settings: Settings, status: str, *, converged: bool, n_unreachable: int
) -> list[PcfiWarning]:
    """Warnings of any method: not settled, unreachable cells, and values that may mark missing cells."""
    notices: list[PcfiWarning] = [
        ColumnWarning(
            marker_text(value, names),
            remedy="if it marks missing cells, replace it with NaN, or name it with {missing_values}",
            arguments={"missing_values": [int(value)]},
        )
        for value, names in missing_markers(problem).items()
    ]
    if not converged:
        advice = "to settle it, raise {max_steps} or loosen {rtol}"
        advice += ", or use a smaller {alpha}" if settings.method == "pcfi" else ""
        notices.append(NotSettledWarning(status.removesuffix("."), remedy=advice))
    if n_unreachable:
        is_values = settings.method == "pcfi" and settings.objective == "values"
        row = "an estimate from the other columns, or " if is_values else ""
        filling = {"mean": f"{row}their channel's mean (0 if it has none)", "zero": "0", "nan": "NaN"}
        text = f"{_unreachable_text(n_unreachable, problem)}; they are set to {filling[settings.unreachable]}"
        notices.append(UnreachableWarning(text))
    return notices


def _unreachable_text(n_cells: int, problem: Problem) -> str:
    missing = f"{n_cells:,} of {counted(problem.n_missing, 'missing cell')}"
    if getattr(problem.graph, "n_edges", None) == 0:  # a graph that is divided among workers does not count them
        return f"the graph has no edges, so {missing} cannot be reached from any known cell"
    text = f"{missing} cannot be reached from any known cell of their channel"
    if problem.build_graph is not None:
        text += ", perhaps because rows without a known value are similar to none"
    n_empty = int((problem.channels.n_known[problem.first_channels] == 0).sum())
    return f"{text} ({counted(n_empty, 'channel')} without any known value)" if n_empty else text
