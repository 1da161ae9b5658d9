"""`impute`: features with missing cells and a graph -> an `Imputation`, the stages in order."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi.diffusion import Outcome, confidence_weighting, degree_weighting, varies
from pcfi.engines import Engine, engine_of
from pcfi.errors import (
    DivergenceError,
    NotSettledWarning,
    PcfiWarning,
    UnreachableError,
    UnreachableWarning,
    counted,
)
from pcfi.graphs import GraphLike
from pcfi.hops import Hops
from pcfi.memory import refuse_if_too_large
from pcfi.parameters import Settings
from pcfi.problem import Problem, read_problem
from pcfi.progress import compile_notice
from pcfi.result import Imputation
from pcfi.solvers import FixedSteps, Solver, UntilSettled

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Filled:
    """What a method hands back: the filled array and how it went."""

    values: Array
    outcome: Outcome | None = None
    hops: Hops | None = None


def impute(
    features: Any,
    graph: GraphLike,
    *,
    method: str = "pcfi",
    alpha: float = 0.5,
    beta: float = 0.1,
    solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
    known: Any = None,
    standardize: bool | None = None,
    unreachable: str = "mean",
    directed: bool = False,
    self_loops: bool = True,
    progress: bool = False,
) -> Imputation:
    """Fill the missing node features of a graph, and say how far each filled value can be trusted.

    Parameters
    ----------
    features : array of shape (n_nodes, n_channels)
        numpy (float32, float64; integers are all known), nested lists, torch tensors, scipy sparse together with
        `known`, or a table of pandas, polars or pyarrow, whose columns of numbers are the channels
        (`pcfi.frames.impute` has the details). NaN (in a table, null too) is missing unless `known` is given. Tensors
        come back as tensors, detached, on their device; those on the CPU are read without a copy.
    graph : sparse adjacency, (2, E) edge index, (edge_index, weights), edge table, networkx graph, PyG Data, or Graph
        See `prepare_graph`. An edge table or a networkx graph names the nodes of a node table by their ids.
    method : {"pcfi", "fp", "neighbors", "mean", "zero"}, default="pcfi"
        PCFI; Feature Propagation; the mean of the known neighbours (the channel's mean where there is none); the
        channel's mean; zero.
    alpha : float, default=0.5
        Confidence in a value falls by this factor with every hop from its nearest source, 0 < alpha <= 1; 1 treats
        all cells alike. Used by "pcfi" only.
    beta : float, default=0.1
        How strongly channels share what they know with each other, beta >= 0; 0 switches the second stage off, and so
        does alpha=1, which leaves no cell less confident than another. Used by "pcfi" only.
    solver : FixedSteps or UntilSettled, default=UntilSettled(rtol=1e-4, max_steps=1000)
        Diffuse until the values have settled, or for a number of steps as in the paper.
    known : boolean array of the shape of features, default=None
        True = known. What stands in a cell that is not known is ignored. None: everything but NaN is known.
    standardize : bool, default=None
        Whether channels share in units of their standard deviation, so that their scales do not matter. None means
        False, as in the paper.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        What a missing cell gets that no source can reach: the mean of its channel's known values (0 if it has none),
        0, NaN, or an error for the whole call.
    directed : bool, default=False
        Whether values flow only along the direction of the edges.
    self_loops : bool, default=True
        Whether each node counts as its own neighbour, with weight 1. Does not change the steady state of "pcfi"; it
        does change `FixedSteps` and "fp".
    progress : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    Imputation
        `values`, `confidence`, `hops`, and how it went.

    Examples
    --------
    A path of four nodes; the two in the middle are missing.

    >>> import numpy as np, pcfi
    >>> features = np.array([[0.0], [np.nan], [np.nan], [3.0]])
    >>> result = pcfi.impute(features, [[0, 1, 2], [1, 2, 3]], alpha=0.5)
    >>> result.values.ravel().round(3)
    array([0.  , 0.75, 2.25, 3.  ])
    >>> result.confidence.ravel()
    array([1. , 0.5, 0.5, 1. ])
    """
    settings = Settings(
        method=method,
        alpha=alpha,
        beta=beta,
        solver=solver,
        standardize=False if standardize is None else standardize,
        unreachable=unreachable,
        directed=directed,
        self_loops=self_loops,
        progress=progress,
    )
    result, notices = complete(read_problem(features, graph, known, directed=settings.directed), settings)
    for notice in notices:
        warnings.warn(notice, stacklevel=2)
    return result


def complete(problem: Problem, settings: Settings) -> tuple[Imputation, list[PcfiWarning]]:
    """Fill a checked problem; returns the result and the warnings that the caller should hear."""
    engine = engine_of(problem)
    if problem.n_missing == 0:
        hops = Hops.of_known(*problem.values.shape) if settings.method in ("pcfi", "fp") else None
        filled = Filled(engine.start(problem, problem.channels.mean), hops=hops)
        return _report(problem, settings, filled, "Nothing was missing.")
    refuse_if_too_large(problem, settings)
    with compile_notice(show=settings.progress):
        filled = FILLS[settings.method](problem, settings, engine)
    return _report(problem, settings, filled, _status(settings, filled, problem.n_missing))


def _pcfi(problem: Problem, settings: Settings, engine: Engine) -> Filled:
    hops = _hops(problem, settings, engine)
    out = engine.start(problem, problem.channels.mean)
    weighting = confidence_weighting(problem.graph, hops, settings.alpha)
    shares = settings.beta > 0 and settings.alpha < 1
    sharers = np.flatnonzero(varies(problem, weighting, settings.solver) & shares)
    outcome, factors = engine.diffuse(problem, hops, weighting, settings, out, sharers)
    _refuse_divergence(outcome)
    engine.share(problem, hops, settings, sharers, factors, out)
    _place_unreachable(problem, settings, engine, hops, out)
    return Filled(out, outcome, hops)


def _feature_propagation(problem: Problem, settings: Settings, engine: Engine) -> Filled:
    hops = _hops(problem, settings, engine)
    out = engine.start(problem, problem.channels.mean)
    weighting = degree_weighting(problem.graph, hops, settings.self_loops)
    outcome, _ = engine.diffuse(problem, hops, weighting, settings, out, sharers=None)
    _refuse_divergence(outcome)
    _place_unreachable(problem, settings, engine, hops, out)
    return Filled(out, outcome, hops)


def _neighbors(problem: Problem, settings: Settings, engine: Engine) -> Filled:
    filled = _mean(problem, settings, engine)
    engine.fill_from_neighbors(problem, filled.values)
    return filled


def _mean(problem: Problem, settings: Settings, engine: Engine) -> Filled:
    empty = problem.channels.n_known == 0
    _refuse_unreachable(int(empty.sum()) * len(problem.values), problem, settings)
    fill = np.where(empty, _policy_values(problem, settings), problem.channels.mean)
    return Filled(engine.start(problem, fill))


def _zero(problem: Problem, _settings: Settings, engine: Engine) -> Filled:
    return Filled(engine.start(problem, np.zeros(problem.values.shape[1])))


FILLS: dict[str, Callable[[Problem, Settings, Engine], Filled]] = {
    "pcfi": _pcfi,
    "fp": _feature_propagation,
    "neighbors": _neighbors,
    "mean": _mean,
    "zero": _zero,
}


def _hops(problem: Problem, settings: Settings, engine: Engine) -> Hops:
    hops = engine.count_hops(problem, settings)
    _refuse_unreachable(hops.unreachable_cells, problem, settings)
    return hops


def _refuse_divergence(outcome: Outcome) -> None:
    if not np.isfinite(outcome.residual):
        raise DivergenceError(
            "the diffusion left the finite numbers: the known values or the edge weights span too many magnitudes"
        )


def _place_unreachable(problem: Problem, settings: Settings, engine: Engine, hops: Hops, out: Array) -> None:
    """Put what the policy says into the unreachable cells (they hold the mean until now)."""
    if hops.unreachable_cells and settings.unreachable != "mean":
        engine.place_unreachable(hops, _policy_values(problem, settings), out)


def _policy_values(problem: Problem, settings: Settings) -> Array:
    if settings.unreachable == "mean":
        return problem.channels.mean
    return np.full(problem.values.shape[1], np.nan if settings.unreachable == "nan" else 0.0)


def _refuse_unreachable(n_cells: int, problem: Problem, settings: Settings) -> None:
    if n_cells and settings.unreachable == "error":
        text = _unreachable_text(n_cells, problem)
        raise UnreachableError(f"{text}: choose unreachable='mean', 'zero' or 'nan' to go on")


def _unreachable_text(n_cells: int, problem: Problem) -> str:
    text = f"{n_cells:,} of {problem.n_missing:,} missing cells cannot be reached from any known cell of their channel"
    n_empty = int((problem.channels.n_known == 0).sum())
    return f"{text} ({counted(n_empty, 'channel')} without any known value)" if n_empty else text


def _status(settings: Settings, filled: Filled, n_missing: int) -> str:
    if filled.outcome is None:
        what = {
            "zero": "0",
            "mean": "its channel's mean",
            "neighbors": "the mean of its known neighbours, or of its channel if it has none",
        }
        return f"A missing cell holds {what[settings.method]}."
    if filled.hops is not None and filled.hops.unreachable_cells == n_missing:
        return "No source can reach any missing cell, so there was nothing to diffuse."
    residual, steps = filled.outcome.residual, counted(filled.outcome.steps, "step")
    if isinstance(settings.solver, UntilSettled) and residual <= settings.solver.rtol:
        further = f"one further step would move no cell by more than {settings.solver.rtol:g} of its channel's range"
        return f"Settled after {steps}: {further}."
    further = f"one further step would move some cell by {residual:.1e} of its channel's range"
    if isinstance(settings.solver, FixedSteps):
        return f"Took {steps}, as asked: {further}."
    return f"Not settled after {steps}: {further}."


def _report(problem: Problem, settings: Settings, filled: Filled, status: str) -> tuple[Imputation, list[PcfiWarning]]:
    notices: list[PcfiWarning] = []
    outcome = filled.outcome or Outcome()
    solver = settings.solver
    converged = isinstance(solver, FixedSteps) or outcome.residual <= solver.rtol
    if not converged:
        advice = "raise max_steps or loosen rtol" + (", or use a smaller alpha" if settings.method == "pcfi" else "")
        notices.append(NotSettledWarning(f"{status} To settle it, {advice}."))
    is_pcfi = settings.method == "pcfi"
    empty = (problem.channels.n_known == 0) & (settings.method != "zero") & (problem.n_missing > 0)
    n_unreachable = filled.hops.unreachable_cells if filled.hops is not None else int(empty.sum()) * len(problem.values)
    if n_unreachable:
        filling = {"mean": "their channel's mean (0 if it has none)", "zero": "0", "nan": "NaN"}[settings.unreachable]
        text = _unreachable_text(n_unreachable, problem)
        notices.append(UnreachableWarning(f"{text}; they hold {filling}"))
    result = Imputation(
        values=problem.restore(filled.values),
        method=settings.method,
        alpha=settings.alpha if is_pcfi else None,
        beta=settings.beta if is_pcfi else None,
        steps=outcome.steps,
        residual=outcome.residual,
        status=status,
        converged=converged,
        n_missing=problem.n_missing,
        n_unreachable=n_unreachable,
        shape=(problem.values.shape[0], problem.values.shape[1]),
        _hops=filled.hops,
        _unreachable_channels=empty,
        _dtype=problem.dtype,
        _wrap=problem.wrap,
    )
    return result, notices
