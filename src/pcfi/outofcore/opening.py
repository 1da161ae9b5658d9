"""Arguments of `pcfi.scale.impute` -> a checked and planned run in its work folder, new or resumed."""

import errno
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from pcfi.explanation.draws import check_count
from pcfi.files.checksums import checksum
from pcfi.files.paths import draw_name, full_path, is_address, is_scratch, numbered_path, remove, suffix_of
from pcfi.imputation import plain_bounds
from pcfi.inputs.category_columns import finds_categories, gaps_text
from pcfi.inputs.columns import EdgeColumns, NodeColumns, shortened
from pcfi.inputs.graphs import read_graph
from pcfi.outofcore import file_names
from pcfi.outofcore.call_checks import check_choices, check_partitions, check_places, check_shapes
from pcfi.outofcore.cluster import connected
from pcfi.outofcore.edge_source import EdgeSource, build_columns
from pcfi.outofcore.feature_stores import FeatureStore, open_features
from pcfi.outofcore.folder import WorkFolder
from pcfi.outofcore.integrity import drop_damaged
from pcfi.outofcore.mapped_graph import MappedGraph, graph_facts, open_graph
from pcfi.outofcore.node_source import ConversionFile, NodeSource, ends_of, id_like_channel, open_nodes
from pcfi.outofcore.plan import check_budget, check_space, make_plan, partition_count
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.run_lock import run_lock
from pcfi.outofcore.run_settings import facts_of
from pcfi.outofcore.sinks import exists, open_sink
from pcfi.outofcore.tasks import WORD
from pcfi.settings import Settings
from pcfi.system_memory import available

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, eq=False, kw_only=True)
class RunRequest:
    """The request of the caller.

    Attributes
    ----------
    features : path or NodeSource
    graph : path or MappedGraph
    results : dict of str or None
        Paths of values, confidence, hops and intervals, and of draw1, draw2, ... if there are draws.
    settings : Settings
    node_columns : NodeColumns
    edge_columns : EdgeColumns
    known : path or None
        Mask of the known cells.
    coverage : float
        Of the intervals.
    bounds : pair, mapping to pairs, or None
        As in `pcfi.impute`.
    rounds : bool
        Whether filled integer columns stay integers.
    memory, work, client, partitions : as in `pcfi.scale.impute`
    overwrite : bool
    """

    features: str | Path | NodeSource
    graph: str | Path | MappedGraph
    results: dict[str, str | None]
    settings: Settings
    node_columns: NodeColumns = field(default_factory=NodeColumns)
    edge_columns: EdgeColumns = field(default_factory=EdgeColumns)
    known: str | Path | None = None
    coverage: float = 0.9
    bounds: Any = None
    rounds: bool = False
    memory: int | float | str | None = None
    work: str | Path | None = None
    client: Any = None
    partitions: int | str = "auto"
    overwrite: bool = False

    def facts(self) -> dict[str, Any]:
        """What the call asks for besides settings and input, as the work folder keeps it."""
        bounds = plain_bounds(self.bounds)
        return {"results": self.results, "coverage": float(self.coverage), "bounds": bounds, "rounds": self.rounds}


def run_settings(**options: Any) -> Settings:
    """Settings of a run: what is left open is decided as in `pcfi.impute`, and the seed is a number."""
    settings = Settings(**options)
    standardize = settings.objective == "values" if settings.standardize is None else settings.standardize
    return replace(settings, standardize=standardize, random_state=seed_of(settings.random_state))


@contextmanager
def opened_run(request: RunRequest) -> Iterator[tuple[OutOfCoreRun, Any]]:
    """The run of a request, begun or resumed, and the cluster that works on it, if any.

    The work folder is kept or removed at the end, by what went wrong; if nothing did, the caller retires it.
    """
    results, settings = request.results, request.settings
    check_choices(settings, results, request.coverage)
    check_partitions(request.partitions)
    for name, path in results.items():
        if path is not None:
            open_sink(path, "result" if name == "values" else name, (0, 0), np.float32, [])  # that it can be written
    folder = WorkFolder(work_path(request.work, results["values"]))
    with connected(request.client) as cluster, run_lock(folder.path), _kept_or_removed(folder):
        resumes = folder.has(file_names.JOB)
        _refuse_existing(folder, results, request.overwrite)
        nodes = _nodes(request, folder)
        mask = None if request.known is None else open_features(request.known, "known", boolean=True)
        check_shapes(nodes.store, mask)
        check_places(results, {"features": nodes.store.path} | ({} if mask is None else {"known": mask.path}))
        check_budget(nodes.store, settings, request.memory, cluster, request.partitions)
        edges = EdgeSource.of(request.graph, nodes.id, build_columns(request.edge_columns))
        built = edges.folder(folder, nodes.store, settings, request.memory)
        count = _partitions(request, folder, open_graph(built), nodes.store, cluster)
        facts = {**request.facts(), "edges": edges.facts(), "partitioned": count > 1 or None}
        run = _begin(folder, settings, nodes, mask, built, facts)
        if resumes and folder.has(file_names.PLAN):
            _drop_damaged(run)
            run = OutOfCoreRun(folder)
        folder.write(file_names.PLAN, make_plan(run, request.memory, cluster, count))
        yield run, cluster


def _nodes(request: RunRequest, folder: WorkFolder) -> NodeSource:
    if isinstance(request.features, NodeSource):
        return request.features
    if request.node_columns.categorical:
        check_categories(request.results.values(), request.settings.unreachable, request.known)
    return _open_nodes(request.features, request.node_columns, request.graph, request.edge_columns, folder)


def _drop_damaged(run: OutOfCoreRun) -> None:
    """Let the parts of a work folder be made again that are not as they were written, and warn."""
    damaged = drop_damaged(run)
    if damaged:
        warnings.warn(
            f"{counted(len(damaged), 'file')} of the work folder changed while the run was stopped, and what they held "
            f"is computed again: {shortened(damaged)}",
            PcfiWarning,
            stacklevel=7,  # past the context managers of `opened_run` and `filled_run`
        )


def _open_nodes(path: Any, columns: NodeColumns, graph: Any, edges: EdgeColumns, folder: WorkFolder) -> NodeSource:
    limit = available() // 8
    nodes = open_nodes(path, columns, ends_of(graph, edges), limit, conversion_of(folder))
    gaps = gaps_text(nodes.gaps, "categorical=[...]")
    if gaps:
        warnings.warn(gaps, ColumnWarning, 3)
    name = id_like_channel(nodes, graph, edges, limit)
    if name is not None:
        text = f"nodes are named by row numbers, and {name!r} is filled like any numeric column, although it holds all "
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


def can_find_categories(results: Iterable[str | None], known: Any, **options: Any) -> bool:
    """Whether categorical columns that nobody named can be filled and written."""
    writable = all(path is None or suffix_of(path) == ".parquet" for path in results)
    return writable and known is None and finds_categories(**options)


def check_categories(results: Iterable[str | None], unreachable: str, known: Any = None) -> None:
    """Refuse what does not go together with categorical columns, before anything is converted."""
    if known is not None:
        raise ParameterError("known= and categorical= cannot be combined: put null into the missing cells")
    if unreachable == "zero":
        raise ParameterError("zero is not a category", remedy="choose another {unreachable}, or no {categorical}")
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


def draw_results(result: str | Path, draws: int) -> dict[str, str | None]:
    """Where draws go: beside the result."""
    if draws == 0 and not isinstance(draws, bool):
        return {}
    check_count(draws, "draws")
    return {draw_name(number): result_path(numbered_path(str(result), number)) for number in range(1, draws + 1)}


def work_path(work: str | Path | None, result: str | None) -> Path:
    """Path of the work folder."""
    if work is None and is_address(str(result)):
        raise ParameterError("result is an address", remedy="name a local or shared folder to work in with {work}")
    path = Path(f"{result}.work" if work is None else work).absolute()
    holds = [entry for entry in path.iterdir() if not is_scratch(entry)] if path.is_dir() else []
    if holds and not (path / file_names.JOB).exists():
        raise ParameterError(
            f"{str(path)!r} is neither empty nor a work folder of pcfi", remedy="name another with {work}"
        )
    return path


def _partitions(request: RunRequest, folder: WorkFolder, graph: MappedGraph, store: FeatureStore, cluster: Any) -> int:
    """Number of partitions; a run that is resumed stays divided, or not."""
    if request.partitions != "auto":
        return int(request.partitions)
    if folder.has(file_names.JOB) and folder.has(file_names.PLAN):
        before: int = folder.read(file_names.PLAN).get("partitions", 1)
        return before
    return partition_count(store, graph, request.settings, request.memory, cluster)


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
    """Write the description of a new run, or recognise an interrupted one."""
    mapped, store = open_graph(graph), nodes.store
    read_graph(mapped, store.shape[0], f"features has {store.shape[0]} rows", directed=settings.directed)
    columns = store.names if suffix_of(store.path) == ".parquet" else None
    job = {
        "settings": facts_of(settings),
        "has_names": nodes.has_names,
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
            run.limits  # noqa: B018  raises if bounds name no columns
            check_space(run)
        except (StorageError, ParameterError):
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
            f"no space is left on disk ({error}){kept}", remedy="free some space, and run it again to resume"
        ) from error
