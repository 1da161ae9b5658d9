"""`pcfi impute --memory` and `--cluster`: from files to files through `pcfi.scale`, and on where it was stopped."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcfi.cli.loading import EdgeColumns
from pcfi.cli.outputs import Outputs
from pcfi.cli.session import Session
from pcfi.errors import FileError, ParameterError, TooLargeError, counted
from pcfi.files import edges as edge_files
from pcfi.files import nodes as node_files
from pcfi.files.formats import STANDARD, Format
from pcfi.files.opening import Source

INSTEAD = {
    "--confidence-columns": "use --confidence FILE",
    "--report": "leave it out, or make a report of fewer columns, without a budget",
    "--facts": "leave it out, or use --json",
    "--evaluate": "use pcfi evaluate on fewer columns",
    "--round": "round the output",
    "--categorical": "leave --memory and --cluster out, or turn categories into columns of 0 and 1",
    "--missing-value": "write null or NaN into such cells",
    "--objective values": "leave it out: values are calibrated on the whole table only",
    "--threads": "workers have threads of their own, dask worker --nthreads",
}


@dataclass(frozen=True)
class Budget:
    """How `pcfi.scale` is to work.

    Attributes
    ----------
    memory, cluster, work : str or None
        As given.
    others : dict
        Options that may be in the way, with what was given for them.
    """

    memory: str | None
    cluster: str | None
    work: str | None
    others: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Chosen:
    """Columns of files that are too large to be read, as `pcfi.scale.impute` takes them."""

    id: str | None
    columns: list[str] | None
    ends: dict[str, Any]


def stream(
    told: Session,
    paths: tuple[str, str],
    wanted: node_files.Wanted,
    ends: EdgeColumns,
    given: dict[str, Any],
    outputs: Outputs,
    budget: Budget,
) -> Any:
    """Fill a node file of any size; returns the `StoredImputation`."""
    from pcfi import scale
    from pcfi.scale.folder import WorkFolder
    from pcfi.scale.imputation import work_path
    from pcfi.scale.paths import full_path

    _refuse(paths, wanted, given, outputs, budget)
    folder = WorkFolder(work_path(budget.work, full_path(outputs.values)))
    resumes = folder.has("job.json")
    outputs.check_stored(resumes=resumes)
    chosen = _choose(told, paths, wanted, ends, budget)
    parameters = _parameters(told, given)
    told.say(
        f"Going on with a run that was stopped, {counted(folder.n_finished, 'task')} of which "
        f"{'is' if folder.n_finished == 1 else 'are'} finished ({folder.path})"
        if resumes
        else f"If this is stopped, the same command goes on from what is finished ({folder.path})"
    )
    with told.stage("impute"), _logged(told), _kept(told, folder):
        return scale.impute(
            paths[0],
            paths[1],
            outputs.values,
            id=chosen.id,
            columns=chosen.columns,
            **chosen.ends,
            **parameters,
            confidence=outputs.confidence,
            hops=outputs.hops,
            memory=budget.memory,
            work=budget.work,
            client=budget.cluster,
            overwrite=outputs.force,
            progress=told.progress,
        )


def _refuse(
    paths: tuple[str, str], wanted: node_files.Wanted, given: dict[str, Any], outputs: Outputs, budget: Budget
) -> None:
    """Say what does not go together with a budget, and what to do instead."""
    from pcfi.scale.imputation import METHODS

    if budget.memory is None and budget.cluster is None:
        raise ParameterError("--work is for runs with --memory or --cluster: add one of them, or leave it out")
    asked = {
        "--confidence-columns": outputs.confidence_columns,
        "--report": outputs.report,
        "--facts": outputs.facts,
        "--categorical": wanted.categorical,
        "--missing-value": wanted.missing,
        "--objective values": given.get("objective") == "values",
        **budget.others,
        "--threads": budget.cluster is not None and budget.others["--threads"],
    }
    name = "--memory" if budget.cluster is None else "--cluster"
    for option, value in asked.items():
        if value:
            raise ParameterError(f"{option} does not go together with {name}: {INSTEAD[option]}")
    if STANDARD in (*paths, *outputs.tables().values()):
        raise ParameterError(f"{name} works on files: standard input and output (-) are read and written at once")
    for option in ("alpha", "beta"):
        if given.get(option) == "auto":
            raise ParameterError(
                f"--{option} auto does not go together with {name}, which does not tune: give a number; a run on fewer "
                "--columns without a budget prints those it finds"
            )
    if given.get("method", METHODS[0]) not in METHODS:
        raise ParameterError(f"--method with {name} is one of {', '.join(METHODS)}, got {given['method']}")


def _parameters(told: Session, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of `pcfi.scale.impute`; what is not given has its defaults, which are told."""
    from inspect import signature

    from pcfi import scale

    usual = {name: parameter.default for name, parameter in signature(scale.impute).parameters.items()}
    found = {name: value for name, value in given.items() if name in usual}
    left = [name for name in ("alpha", "beta") if name not in found]
    if left and found.get("method", usual["method"]) == "pcfi":
        told.say(f"Nothing is tuned within a budget: {', '.join(f'{name}={usual[name]}' for name in left)}")
    return found


def _choose(
    told: Session, paths: tuple[str, str], wanted: node_files.Wanted, ends: EdgeColumns, budget: Budget
) -> Chosen:
    """Ids, channels and ends of edges by the rules for all files, from what is written in their heads."""
    from pcfi.memory import available, size_in_bytes
    from pcfi.scale.stores import ParquetStore, open_store

    _refuse_absent(paths)
    store = open_store(paths[0], "the node file")
    id_column, columns = None, None
    if isinstance(store, ParquetStore):
        most = size_in_bytes(budget.memory, "memory") if budget.memory else available() or 1 << 62
        id_column, columns = _choose_columns(told, store, wanted, paths[0], most // 8)
    else:
        named = next((option for option, _ in wanted.names()), None)
        if named is not None:
            raise ParameterError(f"{named} names columns, but {paths[0]} has none: leave it out")
        told.say(f"{paths[0]}: {counted(store.shape[0], 'node')}, {counted(store.shape[1], 'channel')}")
    return Chosen(id_column, columns, _choose_ends(told, paths[1], ends))


def _refuse_absent(paths: tuple[str, str]) -> None:
    from pcfi.scale.edge_tables import SUFFIXES as TABLES
    from pcfi.scale.paths import is_address, suffix_of, table_suffix
    from pcfi.scale.stores import SUFFIXES

    for path, what in zip(paths, ("nodes", "edges"), strict=True):
        if not is_address(path) and not Path(path).exists():
            raise FileError(f"{path} does not exist: check the name of the file of {what}")
    if suffix_of(paths[0]) not in SUFFIXES and ".zarr/" not in paths[0]:
        raise ParameterError(
            f"with --memory or --cluster nodes come as .parquet (a file, or a folder of files), .npy or .zarr, got "
            f"{paths[0]}: convert it, or leave the budget out"
        )
    if table_suffix(paths[1]) not in (*TABLES, ".npy") and not Path(paths[1]).is_dir():
        raise ParameterError(
            f"with --memory or --cluster edges come as .parquet, .csv, .tsv (also .gz, .zst), .npy or a folder of "
            f"pcfi.scale.build_graph, got {paths[1]}: convert it, or leave the budget out"
        )


def _choose_columns(
    told: Session, store: Any, wanted: node_files.Wanted, path: str, most: int
) -> tuple[str | None, list[str]]:
    import pyarrow.compute as pc

    n_nodes = store.shape[0]
    if not n_nodes:
        raise FileError(f"{path} has no rows: one row per node is needed")

    def differ(column: Any) -> bool:
        return column.null_count == 0 and pc.count_distinct(column).as_py() == len(column)

    def is_unique(name: str) -> bool:
        _, first = next(store.batches(0, n_nodes, 1 << 16, [name]))
        if not differ(first.column(name)):
            return False
        try:
            return differ(store.column(name, most))
        except TooLargeError as error:
            raise TooLargeError(f"{error}; if it holds no ids, name the column that does, --id") from None

    table = store.schema.empty_table()
    id_column, columns = node_files.choose_columns(table, wanted, Source(path, Format("parquet")), is_unique)
    told.say(node_files.described(node_files.Nodes(table, id_column, columns), path, n_nodes))
    return id_column, columns


def _choose_ends(told: Session, path: str, ends: EdgeColumns) -> dict[str, Any]:
    from pcfi.scale.edge_tables import SUFFIXES, schema_of
    from pcfi.scale.paths import table_suffix

    if table_suffix(path) not in SUFFIXES:
        told.say(f"{path}: nodes named by row numbers")
        return {}
    schema = schema_of(path)
    pair = edge_files.choose_ends(schema.names, ends.source, ends.target, path)
    chosen = edge_files.Ends(*pair, edge_files.choose_weight(schema, pair, ends.weight, path))
    told.say(f"{path}: {chosen}")
    return {
        "source": chosen.source,
        "target": chosen.target,
        "weight": chosen.weight,
        "unknown_ids": ends.unknown_ids,
    }


@contextmanager
def _logged(told: Session) -> Iterator[None]:
    """Stages as lines where no bars are drawn."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.say(record.getMessage())

    log, lines = logging.getLogger("pcfi.scale"), Lines()
    before = log.level
    if not told.progress:
        log.addHandler(lines)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(lines)
        log.setLevel(before)


@contextmanager
def _kept(told: Session, folder: Any) -> Iterator[None]:
    """An interruption is no loss."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if folder.has("job.json"):
            told.say(f"The same command goes on from what is finished ({folder.path})")
        raise
