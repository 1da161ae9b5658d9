"""`pcfi impute`: node and edge files -> the filled node file, with confidence, hops, intervals and a report."""

import json
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

import pcfi
from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.loading import Loaded, load
from pcfi.cli.output_tables import delimiter, fitting, tables_of
from pcfi.cli.outputs import Outputs
from pcfi.cli.session import Session, open_session
from pcfi.errors import FeatureError, FileError, ParameterError, counted
from pcfi.estimation import ColumnReports
from pcfi.files.atomic_output import Publication
from pcfi.files.formats import STANDARD
from pcfi.files.writing import check_columns, write_table, write_text

MAX_COLUMNS = 20  # in the summary


@dataclass(frozen=True)
class Request:
    """Everything that the user asks of `pcfi impute`, in groups."""

    files: o.FileOptions
    output: o.OutputOptions
    columns: o.ColumnOptions
    filling: o.FillingOptions
    estimation: o.EstimationOptions
    budget: o.BudgetOptions
    running: o.RunOptions

    def parameters(self) -> dict[str, Any]:
        """The parameters of `pcfi.impute` that were given."""
        return self.estimation.parameters(
            method=self.filling.method, unreachable=self.filling.unreachable, directed=self.columns.directed
        )


@dataclass(frozen=True)
class Completed:
    """A finished imputation: the result, the reports of its columns, the files written, and what --json prints."""

    result: Any
    columns: ColumnReports
    outputs: Outputs
    as_json: dict[str, Any] | None


def impute(
    files: o.FileOptions,
    output: o.OutputOptions,
    columns: o.ColumnOptions,
    filling: o.FillingOptions,
    estimation: o.EstimationOptions,
    budget: o.BudgetOptions,
    running: o.RunOptions,
) -> None:
    """Fill the missing cells of a node table from the graph.

    Known cells, other columns and the order of the rows stay unchanged.

    Example: pcfi impute nodes.parquet edges.parquet -o filled.parquet --report report.html
    """
    with open_session(**vars(running), data_to_stdout=output.to_stdout) as session:
        if running.as_json and output.to_stdout:
            raise ParameterError("--json and the table would both go to standard output: write the table to a file")
        request = Request(files, output, columns, filling, estimation, budget, running)
        completed = _fill_on_disk(session, request) if budget.is_set else _fill_in_memory(session, request)
        if completed.as_json is not None:
            typer.echo(json.dumps(completed.as_json))
        session.show(_summary(completed))


def _fill_in_memory(session: Session, request: Request) -> Completed:
    parameters, outputs = request.parameters(), request.output.outputs()
    formats = outputs.check(parameters)
    loaded = _load(session, request)
    if outputs.values:
        check_columns(loaded.nodes.table.schema, outputs.values, formats["values"])
    with session.stage("impute"):
        result = pcfi.impute(loaded.table, loaded.graph, **parameters, progress=session.progress)
    with Publication() as publication:
        with session.stage("write"):
            tables = tables_of(loaded, result, outputs)
            for what, table in tables.items():
                path, form = outputs.tables()[what], formats[what]
                fitted = fitting(what, table, form, loaded)
                between = delimiter(form, loaded)
                write_table(fitted, path, form, force=outputs.force, publication=publication, delimiter=between)
            outputs = outputs.written(tables)
        evaluation = _evaluation(session, request, loaded) if request.filling.evaluate else None
        if not (outputs.report or outputs.facts or request.running.as_json):
            return Completed(result, result.columns, outputs, None)
        with session.stage("report"):
            facts = _facts(session, request, loaded, result, evaluation)
            _write_report(facts, outputs, publication)
    as_json = {**json.loads(facts.to_json()), "picture": None, "outputs": outputs.tables()}
    return Completed(result, result.columns, outputs, as_json if request.running.as_json else None)


def _fill_on_disk(session: Session, request: Request) -> Completed:
    from pcfi.cli.outofcore import Budget, stream

    filling, outputs = request.filling, request.output.outputs()
    others = {"--evaluate": filling.evaluate, "--round": filling.round, "--threads": request.running.threads}
    result = stream(
        session,
        request.files.paths,
        request.columns.node_columns(),
        request.columns.edge_columns(),
        request.parameters(),
        outputs,
        Budget(**vars(request.budget), others=others),
    )
    return Completed(result, ColumnReports(), outputs, asdict(result) if request.running.as_json else None)


def _load(session: Session, request: Request) -> Loaded:
    columns = request.columns
    loaded = load(
        session,
        request.files.paths,
        columns.node_columns(),
        columns.edge_columns(),
        directed=bool(columns.directed),
        rounds=request.filling.round,
    )
    if all(column.missing.all() for column in loaded.table.columns):
        raise FileError(f"{request.files.nodes} has no known value in any channel: there is nothing to fill from")
    return loaded


def _evaluation(session: Session, request: Request, loaded: Loaded) -> Any:
    from pcfi.cli.evaluate import compare_methods
    from pcfi.report.evaluation_facts import evaluation_facts

    try:
        return evaluation_facts(compare_methods(session, loaded, request.parameters()))
    except FeatureError as error:
        session.warn(f"--evaluate: {error}")
        return None


def _facts(session: Session, request: Request, loaded: Loaded, result: Any, evaluation: Any) -> Any:
    from pcfi.report.imputation_facts import FilledChannels, RunDetails, collect_facts

    nodes, edges = request.files.paths
    defaults = {name: o.DEFAULTS[name] for name in ("alpha", "beta", "solver", "unreachable")}
    details = RunDetails(
        title=f"{nodes}, filled" if nodes != STANDARD else "Filled table",
        command=shlex.join(["pcfi", *sys.argv[1:]]),
        parameters=defaults | request.parameters(),
        files={"nodes": nodes, "edges": edges, "output": request.output.values},
        stages=dict(session.stages),
        warnings=tuple(session.warnings),
        evaluation=evaluation,
    )
    places = loaded.places
    channels = FilledChannels(
        names=loaded.names,
        before=loaded.array(loaded.nodes.table),
        after=loaded.array(result.values),
        node_name=loaded.node_name,
        places=[places[name] for name in loaded.names],
        categories={one.name: (one.missing, places[one.name]) for one in loaded.table.columns if one.codes is not None},
    )
    return collect_facts(channels, result, loaded.graph, details)


def _write_report(facts: Any, outputs: Outputs, publication: Publication) -> None:
    from pcfi.report.html_page import render_page

    if outputs.report:
        write_text(render_page(facts), outputs.report, force=outputs.force, publication=publication)
    if outputs.facts:
        write_text(facts.to_json(), outputs.facts, force=outputs.force, publication=publication)


def _summary(completed: Completed) -> str:
    result, outputs = completed.result, completed.outputs
    share = result.n_missing / max(1, result.shape[0] * result.shape[1])
    parameters = (
        ""
        if result.alpha is None
        else f" (alpha={result.alpha:g}, beta={result.beta:.3g}, objective {result.objective})"
    )
    paths = [path for path in (*outputs.tables().values(), outputs.report, outputs.facts) if path]
    return "\n".join(
        [
            f"Filled {counted(result.n_missing, 'missing cell')} ({share:.1%}) by {result.method}{parameters}.",
            result.status,
            *_columns(completed.columns),
            *(f"Wrote {path}{' (a folder)' if Path(path).is_dir() else ''}" for path in paths if path != STANDARD),
        ]
    )


def _columns(reports: ColumnReports) -> list[str]:
    """The table of the incomplete columns: errors on hidden cells, and what explains each column."""
    incomplete = [report for report in reports if report.n_missing]
    if not incomplete:
        return []
    n_more = len(incomplete) - MAX_COLUMNS
    more = [f"and {counted(n_more, 'more column')}: --json and --report have them all"] if n_more > 0 else []
    return ["", repr(ColumnReports(incomplete[:MAX_COLUMNS])), *more, ""]


command = grouped_command(impute)
