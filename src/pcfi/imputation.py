"""`impute`: features with missing cells and a graph -> an `Imputation`, its status and its warnings."""

import warnings
from typing import Any

import numpy as np

from pcfi.backends import backend_for
from pcfi.errors import ParameterError, PcfiWarning, ScaleWarning, TuningWarning, counted
from pcfi.estimation import Resolved, resolve
from pcfi.inputs.graphs import GraphLike
from pcfi.inputs.problem import Problem, read_problem
from pcfi.memory import refuse_if_too_large
from pcfi.pipeline.methods import FILLS, Filled, usual_warnings
from pcfi.progress import compile_notice
from pcfi.result import Imputation
from pcfi.settings import Settings
from pcfi.stages.diffusion import Outcome
from pcfi.stages.hops import Hops
from pcfi.stages.solvers import FixedSteps, Solver, UntilSettled

DIFFERENT = 100  # times that the largest channel's values are the smallest's, for their scales to count as different
ENOUGH = 10  # known values that tell the scale of a channel


def impute(
    features: Any,
    graph: GraphLike,
    *,
    method: str = "pcfi",
    alpha: float | str = "auto",
    beta: float | str = "auto",
    objective: str | None = None,
    solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
    known: Any = None,
    standardize: bool | None = None,
    center: bool | str | None = None,
    unreachable: str = "mean",
    directed: bool = False,
    self_loops: bool = True,
    random_state: "int | np.random.Generator | None" = None,
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
    method : {"pcfi", "fp", "neighbors", "mean", "zero", "auto"}, default="pcfi"
        PCFI; Feature Propagation; the mean of the known neighbours (the channel's mean where there is none); the
        channel's mean; zero; or the one of the first four that fills hidden known cells best. With "representation",
        "auto" is "pcfi".
    alpha : float or "auto", default="auto"
        Confidence in a value falls by this factor with every hop from its nearest source, 0 < alpha <= 1; 1 treats
        all cells alike. "auto" chooses it without labels, see `tune`. Used by "pcfi" only.
    beta : float or "auto", default="auto"
        How strongly channels share what they know with each other, beta >= 0; 0 switches the second stage off, and so
        does alpha=1, which leaves no cell less confident than another. "auto" chooses it. Used by "pcfi" only.
    objective : {"values", "representation"}, default=None
        What the result is for. "values", to be read and used: what diffusion says is drawn towards the channel's mean
        as far as it proved unreliable at its number of hops. "representation", to train a graph neural network on: the
        paper's output. None is "values" if alpha, beta or method is "auto", and "representation" otherwise. Used by
        "pcfi" and "auto".
    solver : FixedSteps or UntilSettled, default=UntilSettled(rtol=1e-4, max_steps=1000)
        Diffuse until the values have settled, or for a number of steps as in the paper.
    known : boolean array of the shape of features, default=None
        True = known. What stands in a cell that is not known is ignored. None: everything but NaN is known.
    standardize : bool, default=None
        Whether channels share in units of their standard deviation, so that their scales do not matter. None means
        True for values, and False, as in the paper, for a representation.
    center : bool or "auto", default=None
        Whether `representation` of the result is less the channels' means, which helps networks where these are large.
        "auto" decides by their size. None is "auto" for a representation with alpha or beta "auto", else False. Used
        for a representation only.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        What a missing cell gets that no source can reach: the mean of its channel's known values (0 if it has none;
        shrunk like all means for values), 0, NaN, or an error for the whole call.
    directed : bool, default=False
        Whether values flow only along the direction of the edges.
    self_loops : bool, default=True
        Whether each node counts as its own neighbour, with weight 1. Does not change the steady state of "pcfi"; it
        does change `FixedSteps` and "fp".
    random_state : int, numpy Generator or None, default=None
        Which known cells "auto" hides to learn from. None is a fixed seed: the same call gives the same result.
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
    >>> result = pcfi.impute(features, [[0, 1, 2], [1, 2, 3]], alpha=0.5, beta=0.1)
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
        standardize=standardize,
        unreachable=unreachable,
        directed=directed,
        self_loops=self_loops,
        progress=progress,
        objective=objective,
        center=center,
        random_state=random_state,
    )
    problem = read_problem(features, graph, known, directed=settings.directed)
    if "zero" in (method, unreachable) and len(problem.channels.mean[problem.categorical]):
        raise ParameterError(
            "a category cannot be zero", remedy="choose another {method} and {unreachable}, or no {categorical}"
        )
    result, notices = complete(problem, settings)
    for notice in notices:
        warnings.warn(notice, stacklevel=2)
    return result


def complete(problem: Problem, settings: Settings) -> tuple[Imputation, list[PcfiWarning]]:
    """Fill a checked problem: decide what is open, run the stages; also the warnings that the caller should hear."""
    refuse_if_too_large(problem, settings)
    with compile_notice(show=settings.progress):
        resolved = resolve(problem, settings)
        filled = _fill(problem, resolved)
    return _report(problem, resolved, filled, status_of(resolved.settings, filled, problem))


def _fill(problem: Problem, resolved: Resolved) -> Filled:
    settings, tuning, backend = resolved.settings, resolved.tuning, backend_for(problem)
    if problem.n_missing == 0:
        hops = Hops.of_known(*problem.values.shape) if settings.method in ("pcfi", "fp") else None
        return Filled(backend.start(problem, problem.channels.mean), hops=hops)
    scale = tuning.scale if tuning is not None and settings.method == "pcfi" else None
    filled = FILLS[settings.method](problem if scale is None else scale.divide(problem), settings, backend)
    if scale is not None:
        scale.multiply(problem, filled.values)
    if settings.method == "pcfi" and settings.objective == "values" and tuning is not None and filled.hops is not None:
        kept = tuning.kappa_by_code(filled.hops.n_levels, unreachable=0.0 if settings.unreachable == "mean" else 1.0)
        backend.shrink(filled.hops, kept, tuning.trust, tuning.means.values, filled.values)
    return filled


def status_of(settings: Settings, filled: Filled, problem: Problem) -> str:
    """How it went, in a sentence."""
    if problem.n_missing == 0:
        return "Nothing was missing."
    if filled.outcome is None:
        what = {
            "zero": "0",
            "mean": "its channel's mean",
            "neighbors": "the mean of its known neighbours, or of its channel if it has none",
        }
        return f"A missing cell holds {what[settings.method]}."
    if filled.hops is not None and filled.hops.unreachable_cells(problem.first_channels) == problem.n_missing:
        return "No source can reach any missing cell, so there was nothing to diffuse."
    residual, steps = filled.outcome.residual, counted(filled.outcome.steps, "step")
    if isinstance(settings.solver, UntilSettled) and residual <= settings.solver.rtol:
        further = f"one further step would move no cell by more than {settings.solver.rtol:g} of its channel's range"
        return f"Settled after {steps}: {further}."
    further = f"one further step would move some cell by {residual:.1e} of its channel's range"
    if isinstance(settings.solver, FixedSteps):
        return f"Took {steps}, as asked: {further}."
    return f"Not settled after {steps}: {further}."


def _report(problem: Problem, resolved: Resolved, filled: Filled, status: str) -> tuple[Imputation, list[PcfiWarning]]:
    settings, tuning = resolved.settings, resolved.tuning
    outcome = filled.outcome or Outcome()
    solver = settings.solver
    converged = isinstance(solver, FixedSteps) or outcome.residual <= solver.rtol
    empty = (problem.channels.n_known == 0) & (settings.method != "zero") & (problem.n_missing > 0)
    if filled.hops is not None:
        n_unreachable = filled.hops.unreachable_cells(problem.first_channels)
    else:
        n_unreachable = int(empty[problem.first_channels].sum()) * len(problem.values)
    notices = usual_warnings(problem, settings, status, converged=converged, n_unreachable=n_unreachable)
    if tuning is not None and tuning.note and problem.n_missing:
        text = f"alpha={tuning.alpha:g}, beta={tuning.beta:g} and no shrinking were used by default: {tuning.note}"
        notices.append(TuningWarning(text))
    notices += _of_scales(problem, settings, filled)
    is_pcfi = settings.method == "pcfi"
    result = Imputation(
        values=problem.wrap_values(filled.values),
        method=settings.method,
        alpha=settings.alpha if is_pcfi else None,
        beta=settings.beta if is_pcfi else None,
        objective=settings.objective if is_pcfi else None,
        steps=outcome.steps,
        residual=outcome.residual,
        status=status,
        converged=converged,
        n_missing=problem.n_missing,
        n_unreachable=n_unreachable,
        shape=(len(problem.values), len(empty[problem.first_channels])),
        column_names=problem.column_names,
        _filled=filled.values,
        _hops=filled.hops,
        tuning=tuning,
        center=backend_for(problem).channel_means(filled.values) if settings.center else None,
        _unreachable_channels=empty,
        _dtype=problem.dtype,
        _wrap_cells=problem.wrap_cells,
        _first_channels=problem.first_channels,
        _categorical=problem.categorical,
    )
    return result, notices


def _of_scales(problem: Problem, settings: Settings, filled: Filled) -> list[PcfiWarning]:
    """A warning if channels of very different sizes shared in the paper's way, and that took values far away."""
    shared = settings.method == "pcfi" and settings.beta > 0 and settings.alpha < 1 and not settings.standardize
    channels = problem.channels
    size = np.fmax(np.abs(channels.high), np.abs(channels.low)).astype(np.float64)
    size[channels.n_known < ENOUGH] = 0
    varied = size[size > 0]
    if not shared or problem.n_missing == 0 or len(varied) < 2 or varied.max() < DIFFERENT * varied.min():
        return []
    least, most = backend_for(problem).channel_ranges(filled.values)
    beyond = np.fmax(most - channels.high, channels.low - least)
    times = np.divide(beyond, size, out=np.zeros_like(size), where=size > 0)
    worst = int(np.argmax(times))
    if times[worst] <= 1:
        return []
    text = (
        f"sharing between channels with beta={settings.beta:.3g} took {problem.channel_name(worst)} {times[worst]:.0f} "
        "times its largest known value beyond what is known, because channels have very different scales: pass "
        "standardize=True, or objective='values'"
    )
    return [ScaleWarning(text)]
