"""`pcfi impute --memory` and `--cluster`: from files to files through `pcfi.scale`, and on where it was stopped."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcfi.cli.metadata import FileMetadata, read_metadata
from pcfi.cli.outputs import Outputs
from pcfi.cli.session import Session
from pcfi.errors import ParameterError, counted
from pcfi.files.formats import STANDARD
from pcfi.inputs.columns import EdgeColumns, NodeColumns

INSTEAD = {
    "--confidence-columns": "use --confidence FILE",
    "--report": "leave it out, or make a report of fewer columns, without a budget",
    "--facts": "leave it out, or use --json",
    "--evaluate": "use pcfi evaluate on fewer columns",
    "--round": "round the output",
    "--position": "call pcfi.position on the graph, which needs it in memory",
    "--threads": "workers have threads of their own, dask worker --nthreads",
}


@dataclass(frozen=True)
class Budget:
    """How `pcfi.scale` is to work.

    Attributes
    ----------
    memory, cluster, work : str or None
        As the user writes them.
    others : dict
        Options that may not go together with a budget, and their values.
    """

    memory: str | None
    cluster: str | None
    work: str | None
    others: dict[str, Any]


def stream(
    session: Session,
    paths: tuple[str, str],
    nodes: NodeColumns,
    edges: EdgeColumns,
    parameters: dict[str, Any],
    outputs: Outputs,
    budget: Budget,
) -> Any:
    """Fill a node file of any size; returns the `StoredImputation`."""
    from pcfi.outofcore.folder import WorkFolder
    from pcfi.outofcore.opening import result_path, work_path
    from pcfi.outofcore.run_lock import run_lock

    _refuse(paths, parameters, outputs, budget)
    folder = WorkFolder(work_path(budget.work, result_path(outputs.values)))
    outputs.check_stored(parameters, resumes=folder.has("job.json"))
    with run_lock(folder.path):
        metadata = _read_metadata(session, paths, nodes, edges, parameters, outputs, budget, folder)
        given = {**metadata.edge_columns, **parameters}
        return _fill(session, metadata.nodes, paths[1], given, outputs, budget, folder)


def _read_metadata(
    session: Session,
    paths: tuple[str, str],
    nodes: NodeColumns,
    edges: EdgeColumns,
    parameters: dict[str, Any],
    outputs: Outputs,
    budget: Budget,
    folder: Any,
) -> FileMetadata:
    from pcfi.memory import give_back, size_in_bytes
    from pcfi.outofcore.opening import check_categories, conversion_of
    from pcfi.system_memory import available

    most = size_in_bytes(budget.memory, "memory") if budget.memory else available()
    if nodes.categorical:
        check_categories(outputs.tables().values(), parameters.get("unreachable", "mean"))
    metadata = read_metadata(session, paths, nodes, edges, most // 8, conversion_of(folder))
    give_back()  # what looking for ids took
    return metadata


def _fill(
    session: Session, nodes: Any, edges: str, given: dict[str, Any], outputs: Outputs, budget: Budget, folder: Any
) -> Any:
    from pcfi import scale

    session.say(
        f"Going on with a run that was stopped, {counted(folder.n_finished, 'task')} of which "
        f"{'is' if folder.n_finished == 1 else 'are'} finished ({folder.path})"
        if folder.has("job.json")
        else f"If this is stopped, the same command goes on from what is finished ({folder.path})"
    )
    with session.stage("impute"), _logged(session), _kept(session, folder):
        return scale.impute(
            nodes,
            edges,
            outputs.values,
            **given,
            confidence=outputs.confidence,
            hops=outputs.hops,
            intervals=outputs.intervals,
            coverage=outputs.coverage,
            memory=budget.memory,
            work=budget.work,
            client=budget.cluster,
            overwrite=outputs.force,
            progress=session.progress,
        )


def is_possible(paths: Any, parameters: dict[str, Any], outputs: Outputs, others: dict[str, Any]) -> bool:
    """Whether files can be filled from disk as they are asked to be."""
    from pcfi.files.paths import suffix_of
    from pcfi.outofcore.feature_stores import SUFFIXES

    if any(suffix_of(path) not in SUFFIXES for path in outputs.tables().values()):
        return False
    try:
        _refuse(paths, parameters, outputs, Budget("1GB", None, None, others))
    except ParameterError:
        return False
    return True


def stopped_run(outputs: Outputs) -> bool:
    """Whether a run that fills these outputs from disk was stopped."""
    from pcfi.outofcore import file_names

    return (Path(f"{outputs.values}.work") / file_names.JOB).exists()


def _refuse(paths: tuple[str, str], parameters: dict[str, Any], outputs: Outputs, budget: Budget) -> None:
    """Say what does not go together with a budget, and what to do instead."""
    from pcfi.outofcore.call_checks import METHODS

    if budget.memory is None and budget.cluster is None:
        raise ParameterError("--work is for runs with --memory or --cluster: add one of them, or leave it out")
    asked = {
        "--confidence-columns": outputs.confidence_columns,
        "--report": outputs.report,
        "--facts": outputs.facts,
        **budget.others,
        "--threads": budget.cluster is not None and budget.others["--threads"],
    }
    name = "--memory" if budget.cluster is None else "--cluster"
    for option, value in asked.items():
        if value:
            raise ParameterError(f"{option} does not go together with {name}: {INSTEAD[option]}")
    if STANDARD in (*paths, *outputs.tables().values()):
        raise ParameterError(f"{name} works on files: standard input and output (-) are read and written at once")
    if parameters.get("method", METHODS[0]) not in METHODS:
        raise ParameterError(f"--method with {name} is one of {', '.join(METHODS)}, got {parameters['method']}")


@contextmanager
def _logged(session: Session) -> Iterator[None]:
    """Stages as lines where no bars are drawn."""

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
    """An interruption is no loss."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if folder.has("job.json"):
            session.say(f"The same command goes on from what is finished ({folder.path})")
        raise
