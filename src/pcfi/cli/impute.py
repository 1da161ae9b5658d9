"""`pcfi impute`: node and edge files -> the filled node file, with confidence, hops, intervals and a report."""

import json
import shlex
import sys
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.loading import Loaded, fill_loaded
from pcfi.cli.output_tables import delimiter, draws_of, fitting_parts, geometry_for, tables_of
from pcfi.cli.outputs import content_of
from pcfi.cli.session import Session, open_session
from pcfi.errors import FeatureError, FileError, ParameterError, counted
from pcfi.estimation import ColumnReports
from pcfi.files.atomic_output import Publication
from pcfi.files.formats import STANDARD
from pcfi.files.writing import check_columns, write_tables, write_text
from pcfi.inputs.category_columns import finds_categories
from pcfi.inputs.columns import NodeColumns
from pcfi.inputs.position_columns import position_names, refuse_position_names

MAX_COLUMNS = 20  # in the summary


@dataclass(frozen=True)
class Request:
    """All options of `pcfi impute`."""

    inputs: o.InputOptions
    output: o.OutputOptions
    filling: o.FillingOptions
    estimation: o.EstimationOptions
    budget: o.BudgetOptions
    running: o.RunOptions

    def on_disk(self, files: Any, budget: o.BudgetOptions) -> Any:
        """The call that processes these files on disk."""
        from pcfi.cli.outofcore import DiskCall

        return DiskCall(
            files=files,
            nodes=self.inputs.node_columns(),
            edges=self.inputs.edge_columns(),
            parameters=self.parameters(),
            outputs=self.output,
            budget=budget,
            incompatible={"--evaluate": self.filling.evaluate, "--threads": self.running.threads},
            rounds=self.filling.round,
            reports=self.reports,
        )

    @property
    def reports(self) -> bool:
        """Whether facts about the result are collected."""
        return bool(self.output.report or self.output.facts or self.running.as_json)

    def node_columns(self) -> NodeColumns:
        """The choices for the node file; categories are not looked for if they cannot be filled or written."""
        columns, tables = self.inputs.node_columns(), self.output.tables()
        if not columns.finds_categories:
            return columns
        writable = not any(form.is_array for form in self.output.formats(tables).values())
        return replace(columns, finds_categories=writable and finds_categories(**self.parameters()))

    def parameters(self) -> dict[str, Any]:
        """The parameters of `pcfi.impute` that were given."""
        return self.estimation.parameters(
            method=self.filling.method,
            unreachable=self.filling.unreachable,
            directed=self.inputs.directed,
            position=self.filling.position,
        )


@dataclass(frozen=True)
class Completed:
    """A finished imputation: the result, the reports of its columns, the files written, and what --json prints."""

    result: Any
    columns: ColumnReports
    outputs: o.OutputOptions
    as_json: dict[str, Any] | None


def impute(
    inputs: o.InputOptions,
    output: o.OutputOptions,
    filling: o.FillingOptions,
    estimation: o.EstimationOptions,
    budget: o.BudgetOptions,
    running: o.RunOptions,
) -> None:
    """Fill the missing cells of a node table using the graph.

    Known cells, other columns and the order of the rows do not change.

    Example: pcfi impute nodes.parquet edges.parquet -o filled.parquet --report report.html

    A map needs no edges: pcfi impute tracts.gpkg -o filled.gpkg --contiguity queen

    A table without edges: pcfi impute rows.csv -o filled.csv --knn 15
    """
    with open_session(**vars(running), data_to_stdout=output.to_stdout) as session:
        if running.as_json and output.to_stdout:
            raise ParameterError("--json and the table cannot both go to standard output: write the table to a file")
        request = Request(inputs, output, filling, estimation, budget, running)
        request = replace(request, budget=budget if budget.is_set else _automatic_budget(session, request))
        completed = _fill_on_disk(session, request) if request.budget.is_set else _fill_in_memory(session, request)
        if completed.as_json is not None:
            typer.echo(json.dumps(completed.as_json))
        session.show(_summary(completed))


def _automatic_budget(session: Session, request: Request) -> o.BudgetOptions:
    """A budget if the files do not fit into memory, or if a run on disk was interrupted; else none.

    Requests that need the table in memory get no budget either.
    """
    from pcfi.cli.disk_inputs import DiskFiles
    from pcfi.cli.outofcore import is_interrupted, is_possible
    from pcfi.cli.requirements import disk_budget

    sources, tried = request.inputs.sources, replace(request.budget, memory="1GB")
    if not is_possible(request.on_disk(DiskFiles(sources[0], str(sources[1])), tried)):
        return request.budget
    memory = disk_budget(session, sources, request.output.tables().values())
    if memory is None and is_interrupted(request.output):
        memory = request.budget.bytes
    return request.budget if memory is None else replace(request.budget, memory=str(memory))


def _fill_in_memory(session: Session, request: Request) -> Completed:
    parameters, outputs = request.parameters(), request.output
    formats = outputs.check(parameters)
    loaded = _load(session, request)
    if outputs.values:
        check_columns(loaded.nodes.table.schema, outputs.values, formats["values"])
    refuse_position_names(position_names(request.filling.position or 0), loaded.nodes.table.column_names)
    result = fill_loaded(session, loaded, parameters)
    draws = draws_of(result, outputs, request.estimation.seed)
    with Publication() as publication:
        with session.stage("write"):
            written = []
            for what, table in chain(tables_of(loaded, result, outputs).items(), draws):
                path, form = outputs.tables()[what], formats[what]
                write_tables(
                    fitting_parts(what, table, form, loaded),
                    table.num_rows,
                    path,
                    form,
                    force=outputs.force,
                    publication=publication,
                    delimiter=delimiter(form, loaded),
                    geometry=geometry_for(what, loaded),
                    partitions=loaded.nodes.partitions if content_of(what) == "values" else (),
                )
                written.append(what)
            outputs = outputs.written(written)
        evaluation = _evaluation(session, request, loaded) if request.filling.evaluate else None
        if not request.reports:
            return Completed(result, result.columns, outputs, None)
        with session.stage("report"):
            geometry = loaded.nodes.geometry
            frame = None if geometry is None else geometry.frame(loaded.nodes.table)
            facts = _facts(session, request, result, _filled_channels(loaded, result), frame, evaluation)
            _write_report(facts, outputs, publication)
    return Completed(result, result.columns, outputs, _as_json(request, facts, outputs))


def _fill_on_disk(session: Session, request: Request) -> Completed:
    from pcfi.cli.disk_inputs import disk_files

    inputs, prefix = request.inputs, Path(request.budget.work or request.output.work_base)
    with disk_files(session, inputs.sources, inputs.node_columns(), inputs.edge_columns(), prefix) as files:
        return _fill_files_on_disk(session, request, files)


def _fill_files_on_disk(session: Session, request: Request, files: Any) -> Completed:
    from pcfi.cli.outofcore import stream, write_stored

    call = request.on_disk(files, request.budget)

    def finish(run: Any, stored: Any) -> Completed:
        outputs = call.outputs
        write_stored(session, call, run)
        if not request.reports:
            return Completed(stored, stored.columns, outputs, None)
        from pcfi.cli.stored_report import filled_channels, map_frame
        from pcfi.outofcore.stored_cells import stored_imputation

        with session.stage("report"):
            result = stored_imputation(run, stored, call.budget.bytes // 8)
            facts = _facts(session, request, result, filled_channels(run, result), map_frame(run, files.nodes), None)
            with Publication() as publication:
                _write_report(facts, outputs, publication)
        return Completed(stored, stored.columns, outputs, _as_json(request, facts, outputs))

    completed: Completed = stream(session, call, finish)
    return completed


def _as_json(request: Request, facts: Any, outputs: o.OutputOptions) -> dict[str, Any] | None:
    as_json = {**json.loads(facts.to_json()), "picture": None, "map": None, "outputs": outputs.tables()}
    return as_json if request.running.as_json else None


def _load(session: Session, request: Request) -> Loaded:
    loaded = request.inputs.load(session, request.node_columns(), rounds=request.filling.round)
    if all(column.missing.all() for column in loaded.table.columns):
        raise FileError(f"{request.inputs.nodes} has no known value in any channel: there is nothing to learn from")
    return loaded


def _evaluation(session: Session, request: Request, loaded: Loaded) -> Any:
    from pcfi.cli.evaluate import compare_methods
    from pcfi.report.evaluation_facts import evaluation_facts

    try:
        return evaluation_facts(compare_methods(session, loaded, request.parameters()))
    except FeatureError as error:
        session.warn(f"--evaluate: {error}")
        return None


def _filled_channels(loaded: Loaded, result: Any) -> Any:
    from pcfi.report.imputation_facts import FilledChannels

    places = loaded.places
    return FilledChannels.of_arrays(
        loaded.array(loaded.nodes.table),
        loaded.array(result.values),
        names=loaded.names,
        node_name=loaded.node_name,
        places=[places[name] for name in loaded.names],
        categories={one.name: (one.missing, places[one.name]) for one in loaded.table.columns if one.codes is not None},
    )


def _facts(session: Session, request: Request, result: Any, channels: Any, frame: Any, evaluation: Any) -> Any:
    """Facts about a result; `frame` is a GeoDataFrame of the places, if it is a map."""
    from pcfi.report.imputation_facts import RunDetails, collect_facts

    nodes, edges = request.inputs.nodes, request.inputs.edges
    defaults = {name: o.DEFAULTS[name] for name in ("alpha", "beta", "solver", "unreachable")}
    details = RunDetails(
        title=f"{nodes}, filled" if nodes != STANDARD else "Filled table",
        command=shlex.join(["pcfi", *sys.argv[1:]]),
        parameters=defaults | request.parameters(),
        files={"nodes": nodes, **({"edges": edges} if edges else {}), "output": request.output.values},
        stages=dict(session.stages),
        warnings=tuple(session.warnings),
        evaluation=evaluation,
    )
    facts = collect_facts(channels, result, result.cells.graph, details)
    if frame is None:
        return facts
    from pcfi.report.map_facts import collect_map

    return replace(facts, map=collect_map(frame, channels, result))


def _write_report(facts: Any, outputs: o.OutputOptions, publication: Publication) -> None:
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
