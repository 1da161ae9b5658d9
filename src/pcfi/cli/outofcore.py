"""`pcfi impute --memory` and `--cluster`: fill files on disk with `pcfi.scale`; interrupted runs are resumed."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcfi.cli.disk_inputs import DiskFiles
from pcfi.cli.metadata import FileMetadata, read_metadata
from pcfi.cli.options import BudgetOptions, OutputOptions
from pcfi.cli.outputs import content_of
from pcfi.cli.session import Session
from pcfi.errors import ParameterError, PcfiError, TooLargeError, counted
from pcfi.files.atomic_output import Publication, atomic_output
from pcfi.files.formats import STANDARD
from pcfi.inputs.columns import EdgeColumns, NodeColumns
from pcfi.system_memory import size_in_words

INSTEAD = {
    "--evaluate": "it fills the table in memory several times; use pcfi evaluate on fewer columns",
    "--threads": "the workers set their own threads, with dask worker --nthreads",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class DiskCall:
    """A call of `pcfi impute` or `pcfi explain` that processes files on disk.

    Attributes
    ----------
    files : DiskFiles
    nodes : NodeColumns
    edges : EdgeColumns
    parameters : dict
        Those of `pcfi.impute` that were given.
    outputs : OutputOptions
    budget : BudgetOptions
    incompatible : dict
        Options that cannot be combined with a budget, and their values.
    rounds : bool
    reports : bool
        Whether a report, facts or explanations are made of the result.
    """

    files: DiskFiles
    nodes: NodeColumns
    edges: EdgeColumns
    parameters: dict[str, Any]
    outputs: OutputOptions
    budget: BudgetOptions
    incompatible: dict[str, Any] = field(default_factory=dict)
    rounds: bool = False
    reports: bool = False

    @property
    def paths(self) -> tuple[str, str]:
        """Of nodes and edges."""
        return self.files.nodes, self.files.edges

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters as `Settings` takes them."""
        given = {name: value for name, value in self.parameters.items() if name != "position"}
        return {"objective": "values", **given}

    @property
    def position(self) -> int:
        """Number of position channels."""
        return int(self.parameters.get("position", 0))


Finish = Callable[[Any, Any], Any]
"""Turns a finished run and its `StoredImputation` into the result of the command, while the work folder exists."""


def stream(session: Session, call: DiskCall, finish: Finish, check: Callable[[Any], None] = lambda _: None) -> Any:
    """Fill a node file of any size, and return the result of `finish`.

    `check` is called with the `NodeSource` before anything is filled.
    """
    from pcfi.outofcore.folder import WorkFolder
    from pcfi.outofcore.opening import result_path, work_path
    from pcfi.outofcore.run_lock import run_lock

    _refuse(call)
    folder = WorkFolder(work_path(call.budget.work, result_path(call.outputs.work_base)))
    call.outputs.check_stored(call.parameters, resumes=folder.has("job.json"))
    with run_lock(folder.path):
        metadata = _read_metadata(session, call, folder)
        try:
            check(metadata.nodes)
            return _fill(session, call, metadata, folder, finish)
        except PcfiError:
            if not folder.has("job.json"):
                folder.abandon()
            raise


def _read_metadata(session: Session, call: DiskCall, folder: Any) -> FileMetadata:
    from pcfi.memory import give_back
    from pcfi.outofcore.opening import can_find_categories, check_categories, conversion_of

    tables = [path for path in call.outputs.tables().values() if _is_direct(path)]
    if call.nodes.categorical:
        check_categories(tables, call.parameters.get("unreachable", "mean"))
    finds = call.nodes.finds_categories and can_find_categories(tables, None, **call.settings)
    nodes = replace(call.nodes, finds_categories=finds)
    limit, conversion = call.budget.bytes // 8, conversion_of(folder)
    metadata = read_metadata(session, call.paths, nodes, call.edges, limit, conversion, call.files.shown)
    give_back()  # used to look for ids
    return metadata


def _fill(session: Session, call: DiskCall, metadata: FileMetadata, folder: Any, finish: Finish) -> Any:
    from pcfi.outofcore.imputation import filled_run
    from pcfi.outofcore.opening import RunRequest, run_settings

    session.say(
        f"Resuming an interrupted run with {counted(folder.n_finished, 'finished task')} ({folder.path})"
        if folder.has("job.json")
        else f"If this run is interrupted, the same command resumes it ({folder.path})"
    )
    request = RunRequest(
        features=metadata.nodes,
        graph=call.paths[1],
        results=stored_results(call, metadata, folder),
        settings=run_settings(**call.settings, progress=session.progress),
        edge_columns=EdgeColumns(**metadata.edge_columns),
        coverage=call.outputs.coverage,
        rounds=call.rounds,
        memory=call.budget.memory,
        work=str(folder.path),
        client=call.budget.cluster,
        overwrite=call.outputs.force,
    )
    if call.files.weights != (None,):
        request = best_request(session, request, call.files.weights)
    with session.stage("impute"), _logged(session), _kept(session, folder):
        filling = filled_run(request)
        with filling as (run, stored, notices):
            for notice in notices:
                warnings.warn(notice, stacklevel=1)
            return finish(run, stored)


def best_request(session: Session, request: Any, weights: tuple[str | None, ...]) -> Any:
    """The request with the edge weights that give the smallest error on hidden cells; the first if none does."""
    from pcfi.outofcore.imputation import error_on_hidden_cells
    from pcfi.outofcore.run_settings import needs_fit

    requests = [replace(request, edge_columns=EdgeColumns(weight=False if one is None else one)) for one in weights]
    is_fitted = needs_fit(request.settings) and request.settings.objective == "values"
    if len(requests) == 1 or not is_fitted:
        return requests[0]
    folder = Path(request.work)
    chosen = Path(weights[-1] or folder).with_suffix(".json")  # a resumed run must not choose again
    if not chosen.exists():
        with session.stage("choose weights"):
            errors = [
                error_on_hidden_cells(replace(one, work=f"{folder}.{number}")) for number, one in enumerate(requests)
            ]
        with atomic_output(chosen) as file:
            file.write(str(errors.index(min(errors))).encode())
    return requests[int(chosen.read_text())]


def stored_results(call: DiskCall, metadata: FileMetadata, folder: Any) -> dict[str, str | None]:
    """Paths that the run writes to: final paths if `pcfi.scale` has the format, else Parquet in the work folder."""
    from pcfi.files.paths import is_address, suffix_of
    from pcfi.outofcore.opening import result_path

    outputs, parts = call.outputs, folder.results
    results: dict[str, str | None] = dict.fromkeys(("values", "confidence", "hops", "intervals"))
    composed = _composed(call, metadata)
    for what, path in outputs.tables().items():
        is_direct = _is_direct(path) and what not in composed
        if not is_direct and (is_address(path) or suffix_of(path) == ".zarr"):
            raise ParameterError(
                f"{path} is remote or Zarr, which can hold plain values only: write to a local file of another format"
            )
        results[what] = result_path(path) if is_direct else str(parts / f"{what}.parquet")
    has_intervals = call.settings.get("method", "pcfi") == "pcfi" and call.settings["objective"] == "values"
    if has_intervals and results["intervals"] is None and (call.reports or _has_geometry(metadata)):
        results["intervals"] = str(parts / "intervals.parquet")
    if outputs.confidence_columns and results["confidence"] is None:
        results["confidence"] = str(parts / "confidence.parquet")
    if any(Path(path).parent == parts for path in results.values() if path is not None):
        parts.mkdir(mode=0o700, parents=True, exist_ok=True)
    return results


def _is_direct(path: str) -> bool:
    """Whether the run writes an output itself; otherwise it is converted at the end."""
    from pcfi.files.paths import suffix_of
    from pcfi.outofcore.feature_stores import SUFFIXES

    return suffix_of(path) in SUFFIXES


def _composed(call: DiskCall, metadata: FileMetadata) -> set[str]:
    """The tables that have additional columns or are partitioned, and those that have these columns."""
    outputs, is_map = call.outputs, _has_geometry(metadata)
    composed = {"values"} if outputs.confidence_columns or call.position else set()
    if is_map or _is_partitioned(metadata):
        composed |= {what for what in outputs.tables() if content_of(what) == "values"}
    return composed | ({"confidence"} if outputs.confidence_columns else set()) | ({"intervals"} if is_map else set())


def _is_partitioned(metadata: FileMetadata) -> bool:
    return bool(metadata.nodes.partitions)


def _has_geometry(metadata: FileMetadata) -> bool:
    from pcfi.files.geo_files import GEOPARQUET

    return metadata.nodes.schema is not None and GEOPARQUET in (metadata.nodes.store.schema.metadata or {})


def write_stored(session: Session, call: DiskCall, run: Any) -> None:
    """Write the tables that the run has not written in their final format."""
    from pcfi.cli.stored_tables import StoredTables

    parts = {
        name: path for name, path in run.results.items() if path is not None and Path(path).parent == run.folder.results
    }
    if not set(parts) & set(call.outputs.tables()):
        return
    tables = StoredTables(
        run=run,
        source=call.paths[0],
        columns=call.nodes,
        outputs=call.outputs,
        parts=parts,
        position=_position(session, call, run) if call.position else None,
    )
    with session.stage("write"), Publication() as publication:
        tables.write(call.outputs.formats(set(parts)), publication)


def _position(session: Session, call: DiskCall, run: Any) -> Any:
    """Position channels, computed in memory, on the scale of the features."""
    from pcfi.memory import position_bytes
    from pcfi.outofcore.stored_cells import filled_values
    from pcfi.positions import graph_position, sized_like

    needed = position_bytes(run.graph, call.position)
    if needed > call.budget.bytes:
        raise TooLargeError(
            f"{counted(call.position, 'position channel')} of {counted(run.n_nodes, 'node')} need about "
            f"{size_in_words(needed)} of memory, but the budget is {size_in_words(call.budget.bytes)}: raise it, or "
            "ask for fewer channels"
        )
    with session.stage("position"):
        seed = run.settings.random_state
        channels, notices = graph_position(run.graph, call.position, seed, "position", progress=session.progress)
        for notice in notices:
            warnings.warn(notice, stacklevel=1)
        return sized_like(channels, filled_values(run))


def is_possible(call: DiskCall) -> bool:
    """Whether a call can be processed on disk."""
    try:
        _refuse(call)
    except ParameterError:
        return False
    return True


def is_interrupted(outputs: OutputOptions) -> bool:
    """Whether a run on disk with these outputs was interrupted."""
    from pcfi.outofcore import file_names

    return (Path(f"{outputs.work_base}.work") / file_names.JOB).exists()


def _refuse(call: DiskCall) -> None:
    """Raise an error for what cannot be combined with a budget, and say what to do instead."""
    from pcfi.outofcore.call_checks import METHODS

    budget = call.budget
    if budget.memory is None and budget.cluster is None:
        raise ParameterError("--work needs --memory or --cluster: add one of them, or leave --work out")
    name = "--memory" if budget.cluster is None else "--cluster"
    for option, value in call.incompatible.items():
        if value and not (option == "--threads" and budget.cluster is None):
            raise ParameterError(f"{option} cannot be combined with {name}: {INSTEAD[option]}")
    if STANDARD in (*call.paths, *call.outputs.tables().values()):
        raise ParameterError(f"{name} needs files: standard input and output (-) cannot be processed in parts")
    method = call.parameters.get("method", METHODS[0])
    if method not in METHODS:
        raise ParameterError(f"with {name}, --method must be one of {', '.join(METHODS)}, got {method}")


@contextmanager
def _logged(session: Session) -> Iterator[None]:
    """Print stages as lines where no progress bars are drawn."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            session.say(record.getMessage())

    log, lines = logging.getLogger("pcfi.scale"), Lines()
    before = log.level
    if not session.progress:
        log.addHandler(lines)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(lines)
        log.setLevel(before)


@contextmanager
def _kept(session: Session, folder: Any) -> Iterator[None]:
    """After an interruption, say how to resume the run."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if folder.has("job.json"):
            session.say(f"The same command resumes the run ({folder.path})")
        raise
