"""`pcfi.scale.impute`: features and graph in files -> results in files, stage by stage, within a budget of memory."""

import errno
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from pcfi.channels import mixing_of
from pcfi.diffusion import Outcome, active_channels, routes_of
from pcfi.diffusion.job import Job
from pcfi.errors import FeatureError, ParameterError, StorageError, UnsupportedTypeError
from pcfi.graphs import read_graph
from pcfi.imputation import refuse_unreachable
from pcfi.parameters import Settings
from pcfi.problem import group_by_key
from pcfi.progress import compile_notice
from pcfi.scale.folder import WorkFolder
from pcfi.scale.graphs import FACTS, MappedGraph, build_graph, open_graph
from pcfi.scale.paths import is_address, remove, suffix_of
from pcfi.scale.plan import check_layout, check_space, make_plan
from pcfi.scale.result import StoredImputation, report
from pcfi.scale.run import PATTERNS, Run, facts_of
from pcfi.scale.runners import DaskRunner, LocalRunner, Runner, connect
from pcfi.scale.sinks import exists, open_sink
from pcfi.scale.stores import Store, open_store
from pcfi.scale.tasks import SUM_GROUPS, WORD, sharing_of
from pcfi.solvers import Solver, UntilSettled

Array = npt.NDArray[Any]

METHODS = ("pcfi", "fp")
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def impute(
    features: str | Path,
    graph: str | Path | MappedGraph,
    result: str | Path,
    *,
    columns: Any = None,
    known: str | Path | None = None,
    method: str = "pcfi",
    alpha: float = 0.5,
    beta: float = 0.1,
    solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
    standardize: bool | None = None,
    unreachable: str = "mean",
    directed: bool = False,
    self_loops: bool = True,
    confidence: str | Path | None = None,
    hops: str | Path | None = None,
    memory: int | float | str | None = None,
    work: str | Path | None = None,
    client: Any = None,
    overwrite: bool = False,
    progress: bool = False,
) -> StoredImputation:
    """Like `pcfi.impute`, for features in files: within a budget of memory, resumable, on one machine or a cluster.

    Finished tasks are recorded in a work folder. If the run is killed, the same call goes on where it stopped, and the
    result is the same to the last bit. Results appear under their names when they are complete.

    Parameters
    ----------
    features : path
        Nodes x channels: .npy, .zarr, or .parquet (a file, or a folder of them). Zarr and Parquet may be any address
        that fsspec opens. NaN and null are missing unless `known` is given.
    graph : path or MappedGraph
        A folder made by `pcfi.scale.build_graph`; or an edge file that it reads, which names nodes by row numbers.
    result : path
        Where the filled features go: .npy, .zarr or .parquet (a folder of files; columns of Parquet features that are
        no channels come along).
    columns : list of str, default=None
        The channels among the columns of Parquet features. None: all columns of numbers.
    known : path, default=None
        Booleans of the shape of the features, True = known, in any of the formats.
    method : {"pcfi", "fp"}, default="pcfi"
        As in `pcfi.impute`, like the other parameters of the method.
    alpha : float, default=0.5
        Confidence in a value falls by this factor with every hop from its nearest source.
    beta : float, default=0.1
        How strongly channels share what they know with each other; 0 switches the second stage off.
    solver : FixedSteps or UntilSettled, default=UntilSettled(rtol=1e-4, max_steps=1000)
        How long to diffuse.
    standardize : bool, default=None
        Whether channels share in units of their standard deviation. None means False.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        What a missing cell gets that no source can reach.
    directed : bool, default=False
        Whether values flow only along the direction of the edges; a directed graph folder stays directed in any case.
    self_loops : bool, default=True
        Whether each node counts as its own neighbour.
    confidence : path, default=None
        Where the confidence of every cell goes, if it is wanted ("pcfi" only).
    hops : path, default=None
        Where the hops of every cell go, if they are wanted.
    memory : int, float or str, default=None
        Bytes of private memory that a process may take in all, such as "4GB"; on a cluster, each worker. Mapped files
        are not counted: the system keeps as much of them in memory as there is room. None: 70 % of what is available
        here, or the smallest limit among the workers.
    work : path, default=None
        The work folder; on a cluster all workers must see it under this path. Takes about as much space as the
        features. None: `<result>.work`. It is removed at the end.
    client : dask.distributed.Client or str, default=None
        A cluster that does the work, or the address of its scheduler. None: this process.
    overwrite : bool, default=False
        Whether results that are there may be replaced.
    progress : bool, default=False
        Whether to show progress bars.

    Returns
    -------
    StoredImputation
        Where the results are, and how it went.
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
    results = {"values": _text(result), "confidence": _text(confidence), "hops": _text(hops)}
    _check_choices(settings, results)
    store = open_store(features, "features", columns)
    mask = None if known is None else open_store(known, "known", boolean=True)
    _check_shapes(store, mask)
    for name, path in results.items():
        if path is not None:
            open_sink(path, "result" if name == "values" else name, store.shape, np.float32, store.names)
    folder = WorkFolder(_work_path(work, results["values"]))
    cluster = None if client is None else connect(client)
    with _kept_on_full_disk(folder):
        _begin(folder, settings, store, mask, graph, results, overwrite=overwrite)
        run = Run(folder)
        plan = make_plan(run, memory, cluster)
        folder.write("plan.json", plan)
        runner: Runner = LocalRunner(run, progress=progress)
        if cluster is not None:
            runner = DaskRunner(run, cluster, uuid4().hex, progress=progress)
        with compile_notice(show=progress):
            outcome = _do_stages(run, runner)
        found, notices = report(run, outcome)
        folder.retire()
    for notice in notices:
        warnings.warn(notice, stacklevel=2)
    return found


def _text(path: str | Path | None) -> str | None:
    if path is not None and not isinstance(path, str | Path):
        raise UnsupportedTypeError(f"a result must be a path, got {path!r}")
    return None if path is None else str(path) if is_address(str(path)) else str(Path(path).absolute())


def _check_choices(settings: Settings, results: dict[str, str | None]) -> None:
    if settings.method not in METHODS:
        raise ParameterError(f"method must be 'pcfi' or 'fp' here, got {settings.method!r}: others are in pcfi.impute")
    if results["confidence"] is not None and settings.method != "pcfi":
        raise ParameterError(f"method {settings.method!r} has no confidence: leave confidence= out")
    if results["values"] is None:
        raise ParameterError("result must be a path, got None")


def _check_shapes(store: Store, mask: Store | None) -> None:
    if 0 in store.shape:
        raise FeatureError(f"features has shape {store.shape}: at least one row and one channel is needed")
    if mask is not None and mask.shape != store.shape:
        raise FeatureError(f"known has shape {mask.shape}, but features has shape {store.shape}: both must agree")
    if mask is not None and mask.dtype != np.bool_:
        raise FeatureError(f"known must hold booleans (True = known), got dtype {mask.dtype}")


def _work_path(work: str | Path | None, result: str | None) -> Path:
    if work is None and is_address(str(result)):
        raise ParameterError("result is an address: name a local or shared folder to work in with work=")
    path = Path(f"{result}.work" if work is None else work).absolute()
    if path.is_dir() and any(path.iterdir()) and not (path / "job.json").exists():
        raise ParameterError(f"{str(path)!r} is not empty and no work folder of pcfi: name another with work=")
    return path


def _begin(
    folder: WorkFolder,
    settings: Settings,
    store: Store,
    mask: Store | None,
    graph: Any,
    results: dict[str, str | None],
    *,
    overwrite: bool,
) -> None:
    """Write down what the run is, or find that it has begun already."""
    resumes = folder.has("job.json")
    for path in results.values():
        if path is not None and not resumes and not overwrite and exists(path):
            raise ParameterError(f"{path!r} exists: pass overwrite=True to replace it")
    path = _graph_path(graph, folder, settings, store)
    found = open_graph(path)
    read_graph(found, store.shape[0], f"features has {store.shape[0]} rows", directed=settings.directed)
    job = {
        "settings": facts_of(settings),
        "features": {"path": _full(store.path), "columns": store.names if suffix_of(store.path) == ".parquet" else None}
        | {"stamp": store.stamp},
        "known": mask and {"path": _full(mask.path), "columns": None, "stamp": mask.stamp},
        "graph": {"path": str(path), "stamp": [found.n_nodes, len(found.indices), (path / FACTS).stat().st_mtime_ns]},
        "results": results,
    }
    if folder.begin(job):
        return
    run = Run(folder)
    check_space(run)
    folder.create("known.raw", (-(-run.n_channels // WORD), run.n_nodes), np.uint64)


def _full(path: str) -> str:
    return path if is_address(path) else str(Path(path).absolute())


def _graph_path(graph: Any, folder: WorkFolder, settings: Settings, store: Store) -> Path:
    if isinstance(graph, MappedGraph) and graph.folder is not None:
        return graph.folder
    if not isinstance(graph, str | Path):
        raise UnsupportedTypeError(
            f"graph is a {type(graph).__qualname__}, but pcfi.scale works on files: pass the folder that "
            "pcfi.scale.build_graph made, or the path of an edge file"
        )
    if is_address(str(graph)) or Path(graph).is_file():
        built = folder.path.with_name(f"{folder.path.name}.graph")
        if not built.exists():
            build_graph(graph, built, n_nodes=store.shape[0], directed=settings.directed)
        return built
    return Path(graph).absolute()


@contextmanager
def _kept_on_full_disk(folder: WorkFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or error.errno not in NO_SPACE:
            raise
        raise StorageError(
            f"no space is left on disk ({error}). Finished tasks are kept in {str(folder.path)!r}: make room, and the "
            "same call goes on from there"
        ) from error


def _do_stages(run: Run, runner: Runner) -> Outcome:
    """All stages in their order; those that are in the journal take no time."""
    runner.run("survey", run.n_ranges)
    _once(run, "channels-n_known.npy", _gather_survey)
    runner.run("hops", -(-run.n_patterns // PATTERNS), run.plan.searches)
    _once(run, "hops.json", _gather_hops)
    refuse_unreachable(run.hops.unreachable_cells, run.outline, run.settings)
    _once(run, "layout.json", _lay_out)
    check_layout(run)
    runner.run("split", run.n_ranges)
    runner.run("diffuse", len(run.layout.panels))
    entries = run.folder.finished("diffuse").values()
    if len(run.layout.sharers) > 1 and not any(entry["factored"] for entry in entries):
        _once(run, "mixing.npy", lambda run: _mix(run, runner))
    _once(run, "sinks.json", _make_sinks)
    runner.run("write", run.n_ranges)
    for sink in run.sinks().values():
        sink.finish()
    return Outcome.worst([Outcome(entry["steps"], entry["residual"]) for entry in entries])


def _once(run: Run, name: str, make: Callable[[Run], None]) -> None:
    """Make what `name` is the last file of, unless it is there."""
    if not run.folder.has(name):
        make(run)


def _gather_survey(run: Run) -> None:
    """Facts of all ranges -> facts about each channel."""
    parts = [run.folder.load(f"survey-{index}.npy") for index in range(run.n_ranges)]
    n_known = np.sum([part[0] for part in parts], axis=0).astype(np.int64)
    low, high = (pick([part[k] for part in parts], axis=0) for k, pick in ((1, np.min), (2, np.max)))
    low[n_known == 0] = high[n_known == 0] = 0
    mean = np.clip(np.sum([part[3] for part in parts], axis=0) / np.maximum(n_known, 1), low, high)
    keys = np.sum([run.folder.load(f"keys-{index}.npy") for index in range(run.n_ranges)], axis=0, dtype=np.uint64)
    patterns, representatives = group_by_key(keys)
    low, high = low.astype(run.dtype), high.astype(run.dtype)
    found = {"low": low, "high": high, "mean": mean, "patterns": patterns, "representatives": representatives}
    for name, array in (found | {"n_known": n_known}).items():
        run.folder.save(f"channels-{name}.npy", array)


def _gather_hops(run: Run) -> None:
    """Entries of all groups -> counts over all patterns."""
    entries = [entry for _, entry in sorted(run.folder.finished("hops").items())]
    dtypes = [entry["dtype"] for entry in entries]
    facts = {
        "dtype": max(dtypes, key=lambda dtype: np.dtype(dtype).itemsize),
        "dtypes": dtypes,
        "n_levels": max(entry["n_levels"] for entry in entries),
        "n_unreachable": [count for entry in entries for count in entry["n_unreachable"]],
    }
    run.folder.write("hops.json", facts)


def _lay_out(run: Run) -> None:
    """Channels that go together in `pcfi.impute` make a panel, so that they settle in the same way."""
    from pcfi._kernels.blocks import lanes_of
    from pcfi.diffusion import influence, relative

    settings = run.settings
    active = active_channels(run.outline, run.hops, run.weighting, settings.solver)
    loops, dtype = float(settings.self_loops), run.arithmetic
    job = Job(run.outline, run.hops, run.weighting, settings.solver, loops, dtype, run.outline.values, lambda _: None)
    routes = routes_of(job, active)
    panels: list[Array] = []
    for route, chosen in routes:
        if route is influence.diffuse:
            panels.append(chosen)
        elif route is relative.diffuse:
            panels += _by_pattern(chosen, run.channels.patterns[chosen], lanes_of(np.float64))
        else:
            panels += [chosen[start : start + lanes_of(dtype)] for start in range(0, len(chosen), lanes_of(dtype))]
    sharers = run.varying if run.shares and run.outline.n_missing else run.varying[:0]
    factored = len(routes) == 1 and routes[0][0] is influence.diffuse and np.array_equal(routes[0][1], sharers)
    for number, panel in enumerate(panels):
        run.folder.create(f"panel-{number}.raw", (run.n_nodes, len(panel)), run.dtype)
    layout = {"panels": [panel.tolist() for panel in panels], "sharers": sharers.tolist(), "factored": bool(factored)}
    run.folder.write("layout.json", layout)


def _by_pattern(chosen: Array, patterns: Array, lanes: int) -> list[Array]:
    """Groups of up to `lanes` channels of one pattern, two groups or so to a panel."""
    groups = []
    for pattern in np.unique(patterns):
        same = chosen[patterns == pattern]
        groups += [same[start : start + lanes] for start in range(0, len(same), lanes)]
    panels: list[Array] = []
    for group in groups:
        if panels and len(panels[-1]) + len(group) <= 2 * lanes:
            panels[-1] = np.concatenate([panels[-1], group])
        else:
            panels.append(group)
    return panels


def _mix(run: Run, runner: Runner) -> None:
    """The scatter of the sharing channels -> what a channel receives from each other one."""
    sharers = run.layout.sharers
    scatter = runner.total("sums", min(SUM_GROUPS, run.n_ranges))
    units, counts = run.channels.magnitude[sharers], run.sums[1][sharers]
    with np.errstate(over="ignore", invalid="ignore"):
        mixing = mixing_of(scatter, units / np.sqrt(np.maximum(counts, 1)), sharing_of(run)).astype(run.dtype)
    run.folder.save("mixing.npy", mixing)


def _make_sinks(run: Run) -> None:
    for sink in run.sinks().values():
        sink.create(run.plan.range_rows)
    run.folder.write("sinks.json", list(run.results))
