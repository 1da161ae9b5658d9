"""`pcfi.scale.impute`: features and graph in files -> results in files, stage by stage, within a budget of memory."""

import errno
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pcfi.errors import (
    ColumnWarning,
    DivergenceError,
    FeatureError,
    GraphError,
    ParameterError,
    PcfiWarning,
    StorageError,
    TooLargeError,
    UnreachableError,
    UnsupportedTypeError,
    counted,
)
from pcfi.estimation.result import seed_of
from pcfi.files.checksums import checksum
from pcfi.files.paths import full_path, is_address, is_scratch, remove, suffix_of
from pcfi.inputs.columns import EdgeColumns, NodeColumns, Weight, shortened
from pcfi.inputs.graphs import read_graph
from pcfi.outofcore import file_names
from pcfi.outofcore.backend import fill_run
from pcfi.outofcore.call_checks import check_choices, check_places, check_shapes
from pcfi.outofcore.cluster import connected
from pcfi.outofcore.edge_source import EdgeSource, build_columns
from pcfi.outofcore.feature_stores import FeatureStore, open_features
from pcfi.outofcore.folder import WorkFolder
from pcfi.outofcore.integrity import drop_damaged
from pcfi.outofcore.mapped_graph import MappedGraph, graph_facts, open_graph
from pcfi.outofcore.node_source import ConversionFile, NodeSource, ends_of, id_like_channel, open_nodes
from pcfi.outofcore.plan import check_budget, check_space, make_plan
from pcfi.outofcore.result import StoredImputation, report
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.run_lock import run_lock
from pcfi.outofcore.run_settings import facts_of
from pcfi.outofcore.runners import runner_of
from pcfi.outofcore.sinks import exists, open_sink
from pcfi.outofcore.tasks import WORD
from pcfi.progress import compile_notice
from pcfi.settings import Settings
from pcfi.stages.solvers import Solver, UntilSettled
from pcfi.system_memory import available

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def impute(
    features: str | Path | NodeSource,
    graph: str | Path | MappedGraph,
    result: str | Path,
    *,
    id: str | None = None,  # noqa: A002  as it is called everywhere
    columns: Any = None,
    categorical: Sequence[str] = (),
    missing_values: Sequence[Any] = (),
    source: str | None = None,
    target: str | None = None,
    weight: Weight = None,
    unknown_ids: str = "error",
    known: str | Path | None = None,
    method: str = "pcfi",
    alpha: float | str = "auto",
    beta: float | str = "auto",
    objective: str = "values",
    solver: Solver = UntilSettled(),  # noqa: B008  a frozen value
    standardize: bool | None = None,
    unreachable: str = "mean",
    directed: bool = False,
    self_loops: bool = True,
    random_state: "int | np.random.Generator | None" = None,
    confidence: str | Path | None = None,
    hops: str | Path | None = None,
    intervals: str | Path | None = None,
    coverage: float = 0.9,
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
        Nodes x channels: .npy, .zarr, .parquet (a file, or a folder of them), or .csv or .tsv (also .gz, .zst). Zarr
        and Parquet may be any address that fsspec opens. NaN and null are missing unless `known` is given.
    graph : path or MappedGraph
        A folder made by `pcfi.scale.build_graph`; or an edge file that it reads. Edges name nodes by row numbers, or by
        the ids of the column `id`.
    result : path
        Where the filled features go: .npy, .zarr or .parquet (a folder of files; columns of Parquet features that are
        no channels come along, and channels without a missing cell stay as they are).
    id : str, default=None
        The column of Parquet features with the ids that an edge file names nodes by. None: by the rules for all tables
        (docs/reading-tables.md): a column called "id", "node" or "node_id", and so on; else nodes are named by row
        numbers. Ids are never a channel.
    columns : list of str, default=None
        The channels among the columns of Parquet features. None: all columns of numbers but the ids.
    categorical : list of str, default=()
        Further columns to fill, of categories, as in `pcfi.frames.impute`. The table is converted first, to one channel
        for each category, and the result must be Parquet.
    missing_values : list, default=()
        Further values that mean missing, such as [-999, "?"].
    source, target, weight : str, default=None
        Columns of an edge file, as in `pcfi.scale.build_graph`.
    unknown_ids : {"error", "drop"}, default="error"
        What an edge means that names an id which no node has.
    known : path, default=None
        Booleans of the shape of the features, True = known, in any of the formats.
    method : {"pcfi", "fp"}, default="pcfi"
        As in `pcfi.impute`, like the other parameters of the method.
    alpha, beta : float or "auto", default="auto"
        As in `pcfi.impute`.
    objective : {"values", "representation"}, default="values"
        As in `pcfi.impute`: values are estimated by the same model, which is fitted to the same sample.
    solver : FixedSteps or UntilSettled, default=UntilSettled(rtol=1e-4, max_steps=1000)
        How long to diffuse.
    standardize : bool, default=None
        Whether stage 2 works in units of the standard deviations of the channels. None means True for values, and
        False for a representation.
    unreachable : {"mean", "zero", "nan", "error"}, default="mean"
        What a missing cell gets that no source can reach.
    directed : bool, default=False
        Whether values flow only along the direction of the edges; a directed graph folder stays directed in any case.
    self_loops : bool, default=True
        Whether each node counts as its own neighbour.
    random_state : int, numpy Generator or None, default=None
        Which known cells are hidden to learn from. None is a fixed seed.
    confidence : path, default=None
        Where the confidence of every cell goes, if it is to be written ("pcfi" only).
    hops : path, default=None
        Where the hops of every cell go, if they are to be written; in Parquet, null where no source can reach.
    intervals : path, default=None
        Where the ends of the interval and the expected error of every cell go, if they are to be written: Parquet with
        the ids and columns such as age_low, age_high and age_error. Values only.
    coverage : float, default=0.9
        Probability that an interval holds the true value.
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
        standardize=objective == "values" if standardize is None else standardize,
        unreachable=unreachable,
        directed=directed,
        self_loops=self_loops,
        progress=progress,
        objective=objective,
        random_state=seed_of(random_state),
    )
    results = {
        "values": result_path(result),
        "confidence": result_path(confidence),
        "hops": result_path(hops),
        "intervals": result_path(intervals),
    }
    check_choices(settings, results, coverage)
    for name, path in results.items():
        if path is not None:
            open_sink(path, "result" if name == "values" else name, (0, 0), np.float32, [])  # that it can be written
    folder = WorkFolder(work_path(work, results["values"]))
    edge_columns = EdgeColumns(source=source, target=target, weight=weight, unknown_ids=unknown_ids)
    with connected(client) as cluster, run_lock(folder.path), _kept_or_removed(folder):
        resumes = folder.has(file_names.JOB)
        _refuse_existing(folder, results, overwrite)
        if not isinstance(features, NodeSource):
            if categorical:
                check_categories(results.values(), unreachable, known)
            node_columns = NodeColumns(id=id, channels=columns, categorical=categorical, missing_values=missing_values)
            features = _open_nodes(features, node_columns, graph, edge_columns, folder)
        store = features.store
        mask = None if known is None else open_features(known, "known", boolean=True)
        check_shapes(store, mask)
        check_places(results, {"features": store.path} | ({} if mask is None else {"known": mask.path}))
        check_budget(store, settings, memory, cluster)
        edges = EdgeSource.of(graph, features.id, build_columns(edge_columns))
        built = edges.folder(folder, store, settings, memory)
        facts = {"results": results, "coverage": float(coverage), "edges": edges.facts()}
        run = _begin(folder, settings, features, mask, built, facts)
        is_resumed = resumes and folder.has(file_names.PLAN)
        stored, notices = _finish(run, memory, cluster, is_resumed=is_resumed, progress=progress)
        del run  # its files are mapped, and Windows does not remove mapped files
        folder.retire()
    for notice in notices:
        warnings.warn(notice, stacklevel=2)
    return stored


def _finish(
    run: OutOfCoreRun, memory: Any, cluster: Any, *, is_resumed: bool, progress: bool
) -> tuple[StoredImputation, list[PcfiWarning]]:
    """Do the tasks that are not finished; return the result and its warnings."""
    if is_resumed:
        _drop_damaged(run)
        run = OutOfCoreRun(run.folder)
    run.folder.write(file_names.PLAN, make_plan(run, memory, cluster))
    with compile_notice(show=progress):
        filled = fill_run(run, runner_of(run, cluster, progress=progress))
    return report(run, filled)


def _drop_damaged(run: OutOfCoreRun) -> None:
    """Let the parts of a work folder be made again that are not as they were written, and warn."""
    damaged = drop_damaged(run)
    if damaged:
        warnings.warn(
            f"{counted(len(damaged), 'file')} of the work folder changed while the run was stopped, and what they held "
            f"is computed again: {shortened(damaged)}",
            PcfiWarning,
            stacklevel=4,
        )


def _open_nodes(path: Any, columns: NodeColumns, graph: Any, edges: EdgeColumns, folder: WorkFolder) -> NodeSource:
    limit = available() // 8
    nodes = open_nodes(path, columns, ends_of(graph, edges), limit, conversion_of(folder))
    name = id_like_channel(nodes, graph, edges, limit)
    if name is not None:
        text = (
            f"nodes are named by row numbers, and {name!r} is filled like any column of numbers, although it holds all "
        )
        warnings.warn(f"{text}ids that the first edges name: pass id={name!r} if it holds the ids", ColumnWarning, 3)
    return nodes


def conversion_of(folder: WorkFolder) -> ConversionFile:
    """Where a node table is converted to if that is needed; a run that is resumed has done so before."""
    is_done = folder.has(file_names.JOB) and folder.nodes.exists()
    if is_done and checksum(folder.nodes) != folder.job()["features"]["stamp"]:
        changed = f"the converted table {str(folder.nodes)!r} changed while the run was stopped, and is made again"
        warnings.warn(changed, PcfiWarning, stacklevel=4)
        is_done = False
    return ConversionFile(path=folder.nodes, is_done=is_done)


def check_categories(results: Iterable[str | None], unreachable: str, known: Any = None) -> None:
    """Refuse what does not go together with columns of categories, before anything is converted."""
    if known is not None:
        raise ParameterError("known= and categorical= do not go together: put null into the missing cells")
    if unreachable == "zero":
        raise ParameterError("a category cannot be zero", remedy="choose another {unreachable}, or no {categorical}")
    for path in results:
        if path is not None and suffix_of(path) != ".parquet":
            raise ParameterError(f"{path!r} holds numbers only: write categories to .parquet")


def result_path(path: str | Path | None) -> str | None:
    """Full path or address of a result; links are followed."""
    if path is not None and not isinstance(path, str | Path):
        raise UnsupportedTypeError(f"a result must be a path, got {path!r}")
    if path is None:
        return None
    full = full_path(path)
    return os.path.realpath(full) if not is_address(full) and Path(full).is_symlink() else full


def work_path(work: str | Path | None, result: str | None) -> Path:
    """Where a run keeps what it has finished."""
    if work is None and is_address(str(result)):
        raise ParameterError("result is an address", remedy="name a local or shared folder to work in with {work}")
    path = Path(f"{result}.work" if work is None else work).absolute()
    holds = [entry for entry in path.iterdir() if not is_scratch(entry)] if path.is_dir() else []
    if holds and not (path / file_names.JOB).exists():
        raise ParameterError(
            f"{str(path)!r} is neither empty nor a work folder of pcfi", remedy="name another with {work}"
        )
    return path


def _refuse_existing(folder: WorkFolder, results: dict[str, str | None], overwrite: bool) -> None:
    for path in results.values():
        if path is not None and not overwrite and not folder.has(file_names.JOB) and exists(path):
            raise ParameterError(f"{path!r} exists: pass overwrite=True to replace it")


def _begin(
    folder: WorkFolder,
    settings: Settings,
    nodes: NodeSource,
    mask: FeatureStore | None,
    graph: Path,
    more: dict[str, Any],
) -> OutOfCoreRun:
    """Write down what the run is, or find that it has begun already."""
    mapped, store = open_graph(graph), nodes.store
    read_graph(mapped, store.shape[0], f"features has {store.shape[0]} rows", directed=settings.directed)
    columns = store.names if suffix_of(store.path) == ".parquet" else None
    job = {
        "settings": facts_of(settings),
        "features": {
            "path": store.path,
            "columns": columns,
            "id": nodes.id,
            "categories": nodes.categories,
            "stamp": store.stamp if nodes.original is None else checksum(Path(store.path)),
            "original": nodes.original,
        },
        "known": mask and {"path": mask.path, "columns": None, "stamp": mask.stamp},
        "graph": {"path": str(graph), "stamp": graph_facts(graph)["checksums"]},
        **more,
    }
    folder.begin(job)
    run = OutOfCoreRun(folder)
    if not folder.has(file_names.KNOWN):
        try:
            check_space(run)
        except StorageError:
            folder.abandon()  # the next call is to be asked again
            raise
        folder.create(file_names.KNOWN, (-(-run.n_channels // WORD), run.n_nodes), np.uint64)
    return run


@contextmanager
def _kept_or_removed(folder: WorkFolder) -> Iterator[None]:
    """Keep what is finished if the same call can go on; remove it if the input is wrong, which will not change."""
    try:
        yield
    except (FeatureError, GraphError, UnreachableError, DivergenceError):
        folder.abandon()
        raise
    except ParameterError:
        if not folder.has(file_names.JOB):
            remove(folder.nodes)
        raise
    except TooLargeError as error:
        if not folder.n_finished:
            folder.abandon()
            raise
        raise TooLargeError(
            f"{error}. Finished tasks are kept in {str(folder.path)!r}",
            remedy="run it again with more memory to continue; for other settings remove that folder first, or choose "
            "another with {work}",
        ) from error
    except OSError as error:
        if isinstance(error, StorageError) or error.errno not in NO_SPACE:
            raise
        kept = f". Finished tasks are kept in {str(folder.path)!r}" if folder.n_finished else ""
        raise StorageError(
            f"no space is left on disk ({error}){kept}", remedy="make room, and run it again to continue"
        ) from error
