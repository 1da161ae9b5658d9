"""`impute`: features with missing cells and a graph -> an `Imputation`, its status and its warnings."""

import warnings
from typing import Any

import numpy as np

from pcfi.backends import backend_for
from pcfi.errors import PcfiWarning, ScaleWarning, TuningWarning
from pcfi.estimation import Resolved, resolve
from pcfi.inputs.graphs import GraphLike
from pcfi.inputs.problem import Problem, read_problem
from pcfi.memory import refuse_if_too_large
from pcfi.pipeline import Filled, fill, propagation_of
from pcfi.pipeline.policies import check_policies, has_converged, status_of, usual_warnings
from pcfi.progress import compile_notice
from pcfi.result import CellInfo, Imputation
from pcfi.settings import Settings
from pcfi.stages.diffusion import DiffusionOutcome
from pcfi.stages.solvers import Solver, UntilSettled

MIN_SCALE_RATIO = 100  # of the largest and the smallest channel's values, from which their scales count as different
MIN_KNOWN_FOR_SCALE = 10  # known values that the scale of a channel is estimated from


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
        How strongly channels correct each other (stage 2), beta >= 0; 0 switches the second stage off, and so does
        alpha=1, which leaves no cell less confident than another. "auto" chooses it. Used by "pcfi" only.
    objective : {"values", "representation"}, default=None
        What the result is for. "values", to be read and used: what diffusion says is drawn towards the channel's mean
        as far as it proved unreliable at its number of hops. "representation", to train a graph neural network on: the
        paper's output. None is "values" if alpha, beta or method is "auto", and "representation" otherwise. Used by
        "pcfi" and "auto".
    solver : FixedSteps or UntilSettled, default=UntilSettled(rtol=1e-4, max_steps=1000)
        Diffuse until the values have settled, or for a number of steps as in the paper.
    known : boolean array of the shape of features, default=None
        True = known. The values of other cells are ignored. None: every cell that is not NaN is known.
    standardize : bool, default=None
        Whether stage 2 works in units of the channels' standard deviations, so that their scales do not matter. None
        means True for values, and False, as in the paper, for a representation.
    center : bool or "auto", default=None
        Whether the channels' means are subtracted in `representation`, which helps networks where means are large.
        "auto" decides by their size. None is "auto" for a representation with alpha or beta "auto", else False. Used
        for a representation only.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        Value of missing cells that no source can reach: the mean of the channel's known values (0 if it has none;
        shrunk like all means for values), 0, NaN, or an error instead of a result.
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
        `values`, `confidence`, `hops`, and convergence diagnostics.

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
    result, notices = complete(problem, settings)
    for notice in notices:
        warnings.warn(notice, stacklevel=2)
    return result


def complete(problem: Problem, settings: Settings) -> tuple[Imputation, list[PcfiWarning]]:
    """Fill a checked problem: estimate what is "auto", run the pipeline; also returns the warnings for the caller."""
    check_policies(problem, settings)
    refuse_if_too_large(problem, settings)
    with compile_notice(show=settings.progress):
        resolved = resolve(problem, settings)
        filled = fill(
            problem,
            resolved.settings,
            backend_for(problem),
            degree_scale=resolved.degree_scale,
            shrinkage=resolved.shrinkage,
        )
    return _report(problem, resolved, filled)


def _report(problem: Problem, resolved: Resolved, filled: Filled) -> tuple[Imputation, list[PcfiWarning]]:
    settings, tuning, hops = resolved.settings, resolved.tuning, filled.hops
    status, converged = status_of(problem, settings, filled.outcome, hops), has_converged(settings, filled.outcome)
    outcome = filled.outcome or DiffusionOutcome()
    empty = (problem.channels.n_known == 0) & (settings.method != "zero") & (problem.n_missing > 0)
    if hops is not None:
        n_unreachable = hops.unreachable_cells(problem.first_channels)
    else:
        n_unreachable = int(empty[problem.first_channels].sum()) * len(problem.values)
    notices = usual_warnings(problem, settings, status, converged=converged, n_unreachable=n_unreachable)
    if tuning is not None and tuning.note and problem.n_missing:
        text = f"alpha={tuning.alpha:g}, beta={tuning.beta:g} and no shrinking were used by default: {tuning.note}"
        notices.append(TuningWarning(text))
    notices += _scale_warnings(problem, settings, filled)
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
        tuning=tuning,
        center=backend_for(problem).channel_means(filled.values) if settings.center else None,
        cells=CellInfo(
            filled=filled.values,
            hops=hops,
            empty_channels=empty,
            dtype=problem.dtype,
            wrap=problem.wrap_cells,
            first_channels=problem.first_channels,
            categorical=problem.categorical,
        ),
    )
    return result, notices


def _scale_warnings(problem: Problem, settings: Settings, filled: Filled) -> list[PcfiWarning]:
    """A warning if stage 2 without `standardize` moved values far away because channels differ in size."""
    mixes_units = propagation_of(settings) is not None and not settings.standardize
    channels = problem.channels
    size = np.fmax(np.abs(channels.high), np.abs(channels.low)).astype(np.float64)
    size[channels.n_known < MIN_KNOWN_FOR_SCALE] = 0
    varied = size[size > 0]
    if not mixes_units or problem.n_missing == 0 or len(varied) < 2 or varied.max() < MIN_SCALE_RATIO * varied.min():
        return []
    least, most = backend_for(problem).channel_ranges(filled.values)
    beyond = np.fmax(most - channels.high, channels.low - least)
    times = np.divide(beyond, size, out=np.zeros_like(size), where=size > 0)
    worst = int(np.argmax(times))
    if times[worst] <= 1:
        return []
    text = (
        f"channel propagation with beta={settings.beta:.3g} took {problem.channel_name(worst)} {times[worst]:.0f} "
        "times its largest known value beyond what is known, because channels have very different scales: pass "
        "standardize=True, or objective='values'"
    )
    return [ScaleWarning(text)]
