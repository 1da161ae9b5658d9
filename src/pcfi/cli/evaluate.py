"""`pcfi evaluate`: hide known cells of a file, and say how well each method fills them in."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

import pcfi
from pcfi.cli import options as o
from pcfi.cli.arguments import GroupedCommand, names
from pcfi.cli.loading import EdgeColumns, Loaded, load
from pcfi.cli.session import Session, session
from pcfi.errors import ParameterError, counted
from pcfi.evaluation import DEFAULT_FOLDS, UNITS, Evaluation
from pcfi.evaluation.result import describe_hidden
from pcfi.files.node_files import Wanted
from pcfi.settings import METHODS

MOST_HOPS = 6  # that the table has columns for
OWN = ("method", "unreachable", "directed", "random_state")  # options of `impute` that `evaluate` has itself


def evaluate(
    nodes: o.NodesFile,
    edges: o.EdgesFile,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Methods to compare, as in pcfi,mean. Default: {o.listed(METHODS)}.",
            metavar="NAME,...",
            rich_help_panel=o.FILLING,
        ),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            help="How many times a fifth of the known cells is hidden, from 2 on; if few are known, all are in turn.",
            metavar="NUMBER",
            rich_help_panel=o.FILLING,
        ),
    ] = DEFAULT_FOLDS,
    unit: Annotated[
        str,
        typer.Option(
            help="Errors in standard deviations of the channels (deviation), or in the numbers of the files (data).",
            metavar="UNIT",
            rich_help_panel=o.FILLING,
        ),
    ] = UNITS[0],
    id: o.Id = None,  # noqa: A002  the word of the domain
    columns: o.Columns = None,
    exclude: o.Exclude = None,
    categorical: o.Categorical = None,
    missing_value: o.MissingValue = None,
    source: o.SourceColumn = None,
    target: o.TargetColumn = None,
    weight: o.WeightColumn = None,
    unknown_ids: o.UnknownIds = "error",
    alpha: o.Alpha = None,
    beta: o.Beta = None,
    objective: o.Objective = None,
    steps: o.Steps = None,
    rtol: o.Rtol = None,
    max_steps: o.MaxSteps = None,
    standardize: o.Standardize = None,
    directed: o.Directed = None,
    seed: o.Seed = 0,
    threads: o.Threads = None,
    quiet: o.Quiet = False,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Hide known cells in the way cells are missing, fill them in, and report the error of each method.

    Nothing is written; the files are not changed.
    """
    with session(quiet=quiet, as_json=as_json, debug=debug, threads=threads) as told:
        given = o.given_options(
            seed,
            alpha=alpha,
            beta=beta,
            objective=objective,
            solver=o.solver_of(steps, rtol, max_steps),
            standardize=standardize,
            directed=directed,
        )
        wanted = Wanted(id, names(columns), names(exclude), names(categorical), tuple(missing_value or ()))
        ends = EdgeColumns(source, target, weight, unknown_ids)
        loaded = load(told, (nodes, edges), wanted, ends, directed=bool(directed))
        found = hide_and_fill(told, loaded, given, seed, methods=names(methods) or METHODS, folds=folds, unit=unit)
        if as_json:
            typer.echo(json.dumps(as_facts(found)))
        show(told, found)


def hide_and_fill(told: Session, loaded: Loaded, given: dict[str, Any], seed: int, **options: Any) -> Evaluation:
    """Evaluate methods that share the options given on the command line."""
    wanted = {"methods": METHODS, **options}
    unknown = [method for method in wanted["methods"] if method not in METHODS]
    if unknown:
        raise ParameterError(f"--methods must be among {', '.join(METHODS)}, got {unknown[0]!r}")
    shared = {name: value for name, value in given.items() if name not in OWN}
    wanted["methods"] = {method: {**shared, "method": method} for method in wanted["methods"]}
    wanted |= {"directed": loaded.graph.directed, "random_state": seed, "progress": told.progress}
    with told.stage("evaluate"):
        return pcfi.evaluate(loaded.table, loaded.graph, **wanted)


def as_facts(found: Evaluation) -> dict[str, Any]:
    """The evaluation as JSON takes it."""
    from pcfi.report.evaluation_facts import evaluation_facts
    from pcfi.report.facts import finite

    return dict(finite(asdict(evaluation_facts(found))))


def show(told: Session, found: Evaluation) -> None:
    """The table of errors, the best method marked."""
    unit = "standard deviations of the channel" if found.unit == "deviation" else "units of the data"
    cells, folds = describe_hidden(found.n_hidden, found.n_categories), counted(found.n_folds, "fold")
    title = f"Error on {cells} in {folds}, in {unit}"
    hops = sorted({at.hops for at in found.by_hops if at.hops >= 0})[:MOST_HOPS]
    tables = (_table(found, title, hops[:count]) for count in range(len(hops), -1, -1))
    told.answer(next((table for table in tables if told.fits(table)), _table(found, title, [])))
    for line in found.reliability:
        told.answer(str(line))


def _table(found: Evaluation, title: str, hops: list[int]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold")
    categories = ("categories",) if "accuracy" in found.methods[0].scores else ()
    distances = (f"{hop} hop{'s' if hop > 1 else ''}" for hop in hops)
    for name in ("method", *categories, "RMSE", "MAE", *distances, "time"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for one in found.methods:
        at = {point.hops: _number(point.rmse) for point in found.by_hops if point.method == one.method}
        errors = (_number(one.scores[name]) for name in ("rmse", "mae"))
        right = [f"{one.scores['accuracy']:.1%}"] if categories else []
        cells_of_row = [*right, *errors, *(at.get(hop, "-") for hop in hops), f"{one.seconds:.2f} s"]
        table.add_row(Text(one.method), *cells_of_row, style="bold green" if one.method == found.best else "")
    return table


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or 0.01 <= abs(value) < 1e6 else f"{value:.3g}"


command: tuple[Any, dict[str, Any]] = evaluate, {"cls": GroupedCommand}
