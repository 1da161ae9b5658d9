"""`impute`: features with missing cells and a graph -> an `Imputation`, its status and its warnings."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.cell_info import CellInfo
from pcfi.errors import GraphWarning, ParameterError, PcfiWarning, ScaleWarning
from pcfi.estimation import Resolved, resolve
from pcfi.estimation.column_reports import column_names
from pcfi.estimation.graph_origin import MIN_SHARE, share_of_similar_rows
from pcfi.estimation.resolution import on_host
from pcfi.estimation.result import seed_of, tuning_warnings
from pcfi.forks import GATE
from pcfi.inputs import tensors
from pcfi.inputs.category_columns import finds_categories
from pcfi.inputs.columns import shortened
from pcfi.inputs.graphs import GraphLike
from pcfi.inputs.problem import Problem, read_problem
from pcfi.memory import refuse_if_too_large
from pcfi.pipeline import Filled, fill, propagation_of
from pcfi.pipeline.policies import (
    check_policies,
    count_unreachable,
    has_converged,
    refuse_non_finite,
    status_of,
    unreachable_by_column,
    usual_warnings,
)
from pcfi.positions import graph_position, sized_like
from pcfi.progress import compile_notice
from pcfi.result import Imputation
from pcfi.settings import Settings
from pcfi.stages.diffusion import DiffusionOutcome
from pcfi.stages.solvers import Solver, UntilSettled

MIN_SCALE_RATIO = 100  # ratio of largest to smallest channel magnitude from which scales count as different
MIN_KNOWN_FOR_SCALE = 10  # known values needed to estimate the scale of a channel


def impute(
    features: Any,
    graph: GraphLike,
    *,
    method: str = "pcfi",
    alpha: float | str = "auto",
    beta: float | str = "auto",
    objective: str = "values",
    solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
    known: Any = None,
    categorical: Sequence[str] | None = None,
    standardize: bool | None = None,
    center: bool | str = False,
    position: int = 0,
    unreachable: str = "mean",
    directed: bool = False,
    self_loops: bool = True,
    bounds: Any = None,
    random_state: "int | np.random.Generator | None" = None,
    progress: bool = False,
) -> Imputation:
    """Fill the missing node features of a graph, and estimate the error of each filled value.

    Parameters
    ----------
    features : array of shape (n_nodes, n_channels)
        A numpy array (float32 or float64; integer arrays have no missing cells), nested lists, a torch tensor, a scipy
        sparse matrix together with `known`, or a pandas, polars or pyarrow table, whose numeric columns are the
        channels (see `pcfi.frames.impute`). NaN, and in a table null, means missing unless `known` is given. Tensors
        are returned as detached tensors on their device; CPU tensors are read without a copy.
    graph : sparse adjacency, (2, E) edge index, (edge_index, weights), edge table, networkx graph, PyG Data, or Graph
        See `prepare_graph`. An edge table or a networkx graph refers to the rows of a node table by their ids. If you
        have no graph: "knn", which links each row to similar rows (`knn_graph`), or a function that builds a graph from
        the channels as an array, NaN where missing. It is called again whenever known cells are hidden.
    method : {"pcfi", "fp", "neighbors", "mean", "zero", "auto"}, default="pcfi"
        PCFI; Feature Propagation; the mean of the known neighbours (the channel's mean where there is none); the
        channel's mean; zero; or, with "auto", the one of the first four with the smallest error on hidden known cells.
        With "representation", "auto" is "pcfi".
    alpha : float or "auto", default="auto"
        Factor by which confidence falls with every hop from the nearest source, 0 < alpha <= 1; 1 treats all cells
        alike. "auto" chooses it without labels, see `tune`. Used by "pcfi" only.
    beta : float or "auto", default="auto"
        How strongly channels correct each other (stage 2), beta >= 0. 0 switches stage 2 off, and so does alpha=1,
        because then all cells have the same confidence. "auto" is 0, because the value model already uses the relations
        between columns. Used by "pcfi" only.
    objective : {"values", "representation"}, default="values"
        Purpose of the result. "values": each missing cell is estimated from the graph, the other columns of its node
        and its column's mean, with weights learned from hidden cells (docs/values.md). "representation": features to
        train a graph neural network on, the paper's output; exactly so with numbers for alpha and beta and
        `FixedSteps(100)`. Used by "pcfi" and "auto".
    solver : FixedSteps or UntilSettled, default=UntilSettled(rtol=1e-4, max_steps=1000)
        Diffuse until the values have settled, or for a fixed number of steps as in the paper.
    known : boolean array of the shape of features, default=None
        True = known. The values of other cells are ignored. None: every cell that is not NaN is known.
    categorical : list of str, default=None
        Columns of a table to fill with categories: each category becomes a channel, and a missing cell gets the most
        likely one. None, for values: text columns with missing cells and at most 64 different values, more than half of
        the known cells with a value that occurs again. Other text columns are returned unchanged. (): no column.
    standardize : bool, default=None
        Whether stage 2 uses units of the channels' standard deviations, so that their scales do not matter. None means
        True for values, and False, as in the paper, for a representation.
    center : bool or "auto", default=False
        Whether the channels' means are subtracted in `representation`, from known cells too. "auto" decides by their
        size. Used for a representation only.
    position : int, default=0
        Number of position channels to append to `representation`. They encode where a node lies in the graph, which
        helps neural networks; see `pcfi.position`. They are never part of `values`. For a representation only.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        Value of missing cells that no source can reach: the mean of the channel's known values (0 if it has none; for
        values, the estimate of the value model), 0, NaN, or an error.
    directed : bool, default=False
        Whether values flow only along the direction of the edges.
    self_loops : bool, default=True
        Whether each node counts as its own neighbour, with weight 1. Does not change the steady state of "pcfi"; it
        does change `FixedSteps` and "fp".
    bounds : pair of numbers, or mapping from column names or numbers to pairs, default=None
        Smallest and largest possible value; None for no limit. Default for columns that are not named: at least 0 if no
        known value is negative, at most 1 if all known values are between 0 and 1. Used for values only.
    random_state : int, numpy Generator or None, default=None
        Seed for the choice of hidden cells. None is a fixed seed: the same call gives the same result.
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
    >>> path = [[0, 1, 2], [1, 2, 3]]
    >>> result = pcfi.impute(features, path, alpha=0.5, beta=0.1, objective="representation")
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
        position=position,
        random_state=random_state,
    )
    chosen = () if categorical is None and not finds_categories(**vars(settings)) else categorical
    problem = read_problem(features, graph, known, directed=settings.directed, categorical=chosen)
    result, notices = complete(problem, settings, read_bounds(bounds, problem))
    given = {name: value for name, value in (("bounds", bounds), ("categorical", categorical)) if value is not None}
    result = replace(result, parameters=result.parameters | given) if given else result
    for notice in notices:
        warnings.warn(notice, stacklevel=2)
    return result


def complete(problem: Problem, settings: Settings, bounds: Array | None = None) -> tuple[Imputation, list[PcfiWarning]]:
    """Fill a checked problem: choose what is "auto", then run the pipeline. Also returns warnings for the caller."""
    check_policies(problem, settings)
    refuse_if_too_large(problem, settings)
    # overflow is detected below
    with GATE.busy(), compile_notice(show=settings.progress), np.errstate(all="ignore"):
        resolved = resolve(problem, settings, bounds)
        on_device = problem.on_device and resolved.model is not None
        to_fill = on_host(problem) if on_device else problem
        filled = fill(to_fill, resolved.settings, backend_for(to_fill), resolved.model)
        refuse_non_finite(*backend_for(to_fill).channel_ranges(filled.values), to_fill)
        if on_device:
            filled = replace(filled, values=tensors.beside(problem.values, filled.values).to(problem.values.dtype))
    result, notices = _report(problem, resolved, filled)
    return _with_position(problem, settings, result, notices) if settings.position else (result, notices)


def _with_position(
    problem: Problem, settings: Settings, result: Imputation, notices: list[PcfiWarning]
) -> tuple[Imputation, list[PcfiWarning]]:
    """The result with its position channels."""
    seed = seed_of(settings.random_state)
    nodes = slice(None) if problem.counted_nodes is None else problem.counted_nodes
    channels, more = graph_position(
        problem.graph, settings.position, seed, "position", nodes, progress=settings.progress
    )
    filled = result.cells.filled
    features = (filled if isinstance(filled, np.ndarray) else tensors.to_array(filled, "values"))[nodes]
    parameters = result.parameters | {"random_state": seed}
    return replace(result, position=sized_like(channels, features), parameters=parameters), [*notices, *more]


def _report(problem: Problem, resolved: Resolved, filled: Filled) -> tuple[Imputation, list[PcfiWarning]]:
    settings, tuning, hops = resolved.settings, resolved.tuning, filled.hops
    status, converged = status_of(problem, settings, filled.outcome, hops), has_converged(settings, filled.outcome)
    outcome = filled.outcome or DiffusionOutcome()
    empty = (problem.channels.n_known == 0) & (settings.method != "zero") & (problem.n_missing > 0)
    if hops is not None:
        n_unreachable = count_unreachable(hops, problem)
    else:
        n_unreachable = int(empty[problem.first_channels].sum()) * problem.n_counted
    if tuning is not None and hops is not None:
        of_columns = unreachable_by_column(hops, problem)
        tuning = replace(tuning, columns=tuning.columns.with_unreachable(of_columns.tolist()))
    notices = usual_warnings(problem, settings, status, converged=converged, n_unreachable=n_unreachable)
    notices += tuning_warnings(tuning) if problem.n_missing else []
    if mixes_units(problem, settings):
        notices += scale_warnings(problem, settings, *backend_for(problem).channel_ranges(filled.values))
    notices += _graph_warnings(resolved, problem)
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
        shape=(problem.n_counted, len(empty[problem.first_channels])),
        column_names=problem.column_names,
        tuning=tuning,
        center=backend_for(problem).channel_means(filled.values) if settings.center else None,
        position=None,
        cells=CellInfo(
            filled=filled.values,
            hops=hops,
            empty_channels=empty,
            dtype=problem.dtype,
            wrap=problem.wrap_cells,
            append=problem.append,
            wrap_values=problem.wrap_values,
            first_channels=problem.first_channels,
            categorical=problem.categorical,
            columns=problem.columns,
            wrap_categories=problem.wrap_categories,
            graph=problem.graph,
            model=resolved.model,
            settings=settings,
            names=problem.names,
        ),
        parameters=_parameters(settings),
    )
    return result, notices


def _graph_warnings(resolved: Resolved, problem: Problem) -> list[PcfiWarning]:
    """A warning if the graph was probably built from the features."""
    if resolved.model is None or not problem.n_missing or problem.build_graph is not None:
        return []
    return similar_rows_warnings(share_of_similar_rows(on_host(problem)))


def similar_rows_warnings(share: float) -> list[PcfiWarning]:
    """A warning if so large a share of the neighbours are similar rows that the graph was made from the features."""
    if not share > MIN_SHARE:
        return []
    text = (
        f"{share:.0%} of the neighbours in the graph, beyond chance, are the most similar rows of this table. The "
        "graph was probably built from the table, so errors and intervals are too small"
    )
    remedy = "use {graph='knn'}, or in Python a function that builds the graph: it is rebuilt whenever cells are hidden"
    return [GraphWarning(text, remedy=remedy)]


def _parameters(settings: Settings) -> dict[str, Any]:
    """Options of `impute` that reproduce the result."""
    options = {name: value for name, value in vars(settings).items() if name != "progress"}
    if settings.method != "pcfi":
        options |= {"alpha": "auto", "beta": "auto", "standardize": None, "center": False}
    return options


def read_bounds(bounds: Any, problem: Problem) -> Array | None:
    """Smallest and largest possible value of each channel, NaN where none is given."""
    if bounds is None:
        return None
    limits = np.full((2, problem.values.shape[1]), np.nan)
    names = column_names(problem)
    given = bounds if isinstance(bounds, Mapping) else dict.fromkeys(names, bounds)
    for name, pair in given.items():
        if str(name) not in names:
            raise ParameterError(f"names {name!r}, but the columns are {shortened(names)}", parameter="bounds")
        limits[:, problem.columns == names.index(str(name))] = _read_pair(pair)[:, None]
    check_bounds(limits, problem)
    return limits


def check_bounds(limits: Array | None, problem: Problem) -> None:
    """Raise an error if all known values of a column are outside its bounds."""
    if limits is None:
        return
    known, channels = problem.channels.n_known > 0, problem.channels
    with np.errstate(invalid="ignore"):
        outside = known & ((channels.high < limits[0]) | (channels.low > limits[1]))
    for channel in np.flatnonzero(outside)[:1]:
        low, high = limits[:, channel]
        raise ParameterError(
            f"of the column {column_names(problem)[problem.columns[channel]]!r} are ({low:g}, {high:g}), but all of "
            f"its known values are outside, from {channels.low[channel]:g} to {channels.high[channel]:g}",
            remedy="check the unit of the bounds",
            parameter="bounds",
        )


def plain_bounds(bounds: Any) -> Any:
    """Bounds in a form that JSON can represent."""
    if isinstance(bounds, Mapping):
        return {str(name): _read_pair(pair).tolist() for name, pair in bounds.items()}
    return None if bounds is None else _read_pair(bounds).tolist()


def _read_pair(pair: Any) -> Array:
    try:
        low, high = (np.nan if end is None else float(end) for end in pair)
    except (TypeError, ValueError):
        raise ParameterError(f"must be pairs of numbers, got {pair!r}", parameter="bounds") from None
    low, high = -np.inf if np.isnan(low) else low, np.inf if np.isnan(high) else high
    if low > high:
        raise ParameterError(f"must be pairs (smallest, largest), got {pair!r}", parameter="bounds")
    return np.array([low, high])


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio < 1e6 else f"{ratio:.1g}"


def _known_sizes(problem: Problem) -> Array:
    """The largest known value of each channel; 0 if it is known too seldom to tell."""
    channels = problem.channels
    size = np.fmax(np.abs(channels.high), np.abs(channels.low)).astype(np.float64)
    size[channels.n_known < MIN_KNOWN_FOR_SCALE] = 0
    return size


def mixes_units(problem: Problem, settings: Settings) -> bool:
    """Whether stage 2 goes on between channels of very different sizes, without `standardize`."""
    is_paper = settings.objective == "representation"
    size = _known_sizes(problem)
    varied = size[size > 0]
    differ = len(varied) > 1 and bool(varied.max() / MIN_SCALE_RATIO >= varied.min())
    return (
        is_paper
        and differ
        and problem.n_missing > 0
        and propagation_of(settings) is not None
        and not settings.standardize
    )


def scale_warnings(problem: Problem, settings: Settings, least: Array, most: Array) -> list[PcfiWarning]:
    """A warning if that moved values far away, given the least and the greatest of each channel."""
    channels, size = problem.channels, _known_sizes(problem)
    beyond = np.fmax(most - channels.high, channels.low - least)
    times = np.divide(beyond, size, out=np.zeros_like(size), where=size > 0)
    worst = int(np.argmax(times))
    if times[worst] <= 1:
        return []
    text = (
        f"channel propagation with beta={settings.beta:.3g} moved {problem.channel_name(worst)} outside its known "
        f"range by {_times(times[worst])} times its largest known value, because channels have very different scales"
    )
    return [ScaleWarning(text, remedy="use {standardize=True}, or {objective='values'}")]
