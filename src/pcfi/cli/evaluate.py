"""`pcfi evaluate`: hide known cells of a file, and say how well each method fills them in."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import GroupedCommand, names
from pcfi.cli.loading import EdgeColumns, load
from pcfi.cli.session import Session, session
from pcfi.errors import FileError, counted
from pcfi.files.nodes import Wanted
from pcfi.holdout import SHARE, Evaluation
from pcfi.holdout import evaluate as hold_out
from pcfi.parameters import METHODS


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
    share: Annotated[
        float, typer.Option(help="Share of the known cells to hide.", metavar="NUMBER", rich_help_panel=o.FILLING)
    ] = SHARE,
    id: o.Id = None,  # noqa: A002  the word of the domain
    columns: o.Columns = None,
    exclude: o.Exclude = None,
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
        wanted = Wanted(id, names(columns), names(exclude), (), tuple(missing_value or ()))
        ends = EdgeColumns(source, target, weight, unknown_ids)
        loaded = load(told, (nodes, edges), wanted, ends, directed=bool(directed))
        if not loaded.names:
            raise FileError(f"{nodes} has no column of numbers to hide cells of")
        features = loaded.array(loaded.nodes.table)
        with told.stage("evaluate"):
            found = hold_out(
                features,
                loaded.graph,
                methods=names(methods) or METHODS,
                share=share,
                seed=seed,
                options=given,
                progress=told.progress,
            )
        if as_json:
            typer.echo(json.dumps(asdict(found)))
        show(told, found)


def show(told: Session, found: Evaluation) -> None:
    """The table of errors, the best method marked."""
    from rich.table import Table
    from rich.text import Text

    title = f"Error on {counted(found.n_hidden, 'hidden cell')} ({found.how}), in {found.unit}"
    table = Table(title=title, title_justify="left", title_style="bold")
    hops = sorted({at.hops for one in found.methods for at in one.by_hops if at.hops is not None})[:6]
    for name in ("method", "RMSE", "MAE", *(f"{hop} hop{'s' if hop > 1 else ''}" for hop in hops), "time"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    best = min(one.rmse for one in found.methods)
    for one in found.methods:
        at = {point.hops: f"{point.error:.3f}" for point in one.by_hops}
        cells = [f"{one.rmse:.3f}", f"{one.mae:.3f}", *(at.get(hop, "-") for hop in hops), f"{one.seconds:.2f} s"]
        style = "bold green" if one.rmse == best else ""
        table.add_row(Text(one.method), *cells, style=style)
    told.show(table)


command: tuple[Any, dict[str, Any]] = evaluate, {"cls": GroupedCommand}
