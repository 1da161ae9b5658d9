"""`pcfi impute`: a node file and an edge file -> the node file, filled, with confidence, hops and a report."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import pcfi
from pcfi.cli import options as o
from pcfi.cli.arguments import GroupedCommand, names
from pcfi.cli.loading import EdgeColumns, Loaded, load
from pcfi.cli.output_tables import fitting, tables_of
from pcfi.cli.outputs import Outputs
from pcfi.cli.session import Session, session
from pcfi.errors import FeatureError, FileError, ParameterError, counted
from pcfi.files.formats import STANDARD, STREAM_FORMATS
from pcfi.files.node_files import Wanted
from pcfi.files.writing import write_table, write_text


def impute(
    nodes: o.NodesFile,
    edges: o.EdgesFile,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Where the filled table goes; - is standard output.",
            metavar="FILE",
            rich_help_panel=o.OUTPUT,
        ),
    ],
    confidence: Annotated[
        str | None,
        typer.Option(help="File for the confidence of every cell.", metavar="FILE", rich_help_panel=o.OUTPUT),
    ] = None,
    confidence_columns: Annotated[
        bool,
        typer.Option("--confidence-columns", help="Confidence as columns of the output.", rich_help_panel=o.OUTPUT),
    ] = False,
    hops: Annotated[
        str | None, typer.Option(help="File for the hops of every cell.", metavar="FILE", rich_help_panel=o.OUTPUT)
    ] = None,
    intervals: Annotated[
        str | None,
        typer.Option(
            help="File for an interval of every cell and its expected error: columns age_low, age_high, age_error.",
            metavar="FILE",
            rich_help_panel=o.OUTPUT,
        ),
    ] = None,
    coverage: Annotated[
        float,
        typer.Option(
            help="Probability that an interval holds the true value.", metavar="NUMBER", rich_help_panel=o.OUTPUT
        ),
    ] = 0.9,
    report: Annotated[
        str | None, typer.Option(help="File for the report, .html.", metavar="FILE", rich_help_panel=o.OUTPUT)
    ] = None,
    facts: Annotated[
        str | None,
        typer.Option(help="File for the facts of the report, .json.", metavar="FILE", rich_help_panel=o.OUTPUT),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            help=f"Format of standard output: {o.listed(STREAM_FORMATS)}.", metavar="FORMAT", rich_help_panel=o.OUTPUT
        ),
    ] = "csv",
    force: o.Force = False,
    id: o.Id = None,  # noqa: A002  the word of the domain
    columns: o.Columns = None,
    exclude: o.Exclude = None,
    categorical: o.Categorical = None,
    missing_value: o.MissingValue = None,
    round: Annotated[  # noqa: A002  what it does
        bool, typer.Option("--round", help="Filled whole numbers stay whole.", rich_help_panel=o.COLUMNS)
    ] = False,
    source: o.SourceColumn = None,
    target: o.TargetColumn = None,
    weight: o.WeightColumn = None,
    unknown_ids: o.UnknownIds = "error",
    method: o.Method = None,
    alpha: o.Alpha = None,
    beta: o.Beta = None,
    objective: o.Objective = None,
    steps: o.Steps = None,
    rtol: o.Rtol = None,
    max_steps: o.MaxSteps = None,
    standardize: o.Standardize = None,
    unreachable: o.Unreachable = None,
    directed: o.Directed = None,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate", help="Hide known cells first; the report shows the error.", rich_help_panel=o.FILLING
        ),
    ] = False,
    memory: o.Memory = None,
    cluster: o.Cluster = None,
    work: o.Work = None,
    seed: o.Seed = 0,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Fill the missing cells of a node file from an edge file.

    Known cells, other columns and the order of rows stay as they are.

    Example: pcfi impute nodes.parquet edges.parquet -o filled.parquet --report report.html
    """
    to_stdout = STANDARD in (output, confidence, hops, intervals)
    with session(quiet=quiet, as_json=as_json, debug=debug, threads=threads, data_out=to_stdout) as told:
        if as_json and to_stdout:
            raise ParameterError("--json prints to standard output, and so would the table: choose one of them")
        outputs = Outputs(output, to, confidence, confidence_columns, hops, intervals, coverage, report, facts, force)
        given = o.given_options(
            seed,
            method=method,
            alpha=alpha,
            beta=beta,
            objective=objective,
            solver=o.solver_of(steps, rtol, max_steps),
            standardize=standardize,
            unreachable=unreachable,
            directed=directed,
        )
        wanted = Wanted(id, names(columns), names(exclude), names(categorical), tuple(missing_value or ()))
        ends = EdgeColumns(source, target, weight, unknown_ids)
        if memory is not None or cluster is not None or work is not None:
            from pcfi.cli.outofcore import Budget, stream

            budget = Budget(memory, cluster, work, {"--evaluate": evaluate, "--round": round, "--threads": threads})
            stored = stream(told, (nodes, edges), wanted, ends, given, outputs, budget)
            if as_json:
                typer.echo(json.dumps(asdict(stored)))
            told.show(_summary(stored, outputs))
            return
        formats = outputs.check(given)
        loaded = load(told, (nodes, edges), wanted, ends, directed=bool(directed), rounds=round)
        if all(column.missing.all() for column in loaded.table.columns):
            raise FileError(f"{nodes} has no known value in any channel: there is nothing to fill from")
        with told.stage("impute"):
            result = pcfi.impute(loaded.table, loaded.graph, **given, progress=told.progress)
        with told.stage("write"):
            tables = tables_of(loaded, result, outputs)
            ready = {what: fitting(table, formats[what], loaded) for what, table in tables.items()}
            for what, table in ready.items():
                write_table(table, outputs.tables()[what], formats[what], force=force)
            outputs = outputs.written(ready)
        tested = _evaluated(told, loaded, given, seed) if evaluate else None
        gathered = (
            _report(told, loaded, result, outputs, (nodes, edges), given, tested)
            if report or facts or as_json
            else None
        )
        if as_json and gathered is not None:
            typer.echo(json.dumps({**json.loads(gathered.to_json()), "picture": None, "outputs": outputs.tables()}))
        told.show(_summary(result, outputs))


def _evaluated(told: Session, loaded: Loaded, given: dict[str, Any], seed: int) -> Any:
    from pcfi.cli.evaluate import hide_and_fill
    from pcfi.report.evaluation_facts import evaluation_facts

    try:
        return evaluation_facts(hide_and_fill(told, loaded, given, seed))
    except FeatureError as error:
        told.warn(f"--evaluate: {error}")
        return None


def _report(
    told: Session,
    loaded: Loaded,
    result: Any,
    outputs: Outputs,
    paths: tuple[str, str],
    given: dict[str, Any],
    tested: Any,
) -> Any:
    from pcfi.report.html_page import paint
    from pcfi.report.imputation_facts import Circumstances, Filling, gather

    with told.stage("report"):
        files = {"nodes": paths[0], "edges": paths[1], "output": outputs.values}
        around = Circumstances(
            title=f"{paths[0]}, filled in" if paths[0] != STANDARD else "Filled in",
            command=shlex.join(["pcfi", *sys.argv[1:]]),
            parameters={**{name: o.DEFAULTS[name] for name in ("alpha", "beta", "solver", "unreachable")}, **given},
            files=files,
            stages=dict(told.stages),
            warnings=tuple(told.warnings),
            evaluation=tested,
        )
        places = loaded.places
        filling = Filling(
            loaded.names,
            loaded.array(loaded.nodes.table),
            loaded.array(result.values),
            loaded.node_name,
            [places[name] for name in loaded.names],
            {one.name: (one.missing, places[one.name]) for one in loaded.table.columns if one.codes is not None},
        )
        gathered = gather(filling, result, loaded.graph, around)
        if outputs.report:
            write_text(paint(gathered), outputs.report, force=outputs.force)
        if outputs.facts:
            write_text(gathered.to_json(), outputs.facts, force=outputs.force)
    return gathered


def _summary(result: Any, outputs: Outputs) -> str:
    share = result.n_missing / max(1, result.shape[0] * result.shape[1])
    parameters = (
        ""
        if result.alpha is None
        else f" (alpha={result.alpha:g}, beta={result.beta:.3g}, objective {result.objective})"
    )
    lines = [
        f"Filled {counted(result.n_missing, 'missing cell')} ({share:.1%}) by {result.method}{parameters}.",
        result.status,
    ]
    written = [
        path for path in (*outputs.tables().values(), outputs.report, outputs.facts) if path not in (None, STANDARD)
    ]
    kinds = [" (a folder of files)" if path is not None and Path(path).is_dir() else "" for path in written]
    return "\n".join([*lines, *(f"Wrote {path}{kind}" for path, kind in zip(written, kinds, strict=True))])


command: tuple[Any, dict[str, Any]] = impute, {"cls": GroupedCommand}
