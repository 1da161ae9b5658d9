"""`pcfi evaluate`: hide known cells of a file, fill them with each method, and print the errors."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import typer

import pcfi
from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command, some_names
from pcfi.cli.loading import Loaded
from pcfi.cli.session import Session, open_session
from pcfi.errors import ParameterError, counted
from pcfi.evaluation import DEFAULT_FOLDS, UNITS, Evaluation
from pcfi.evaluation.result import describe_hidden
from pcfi.settings import METHODS

MAX_HOP_COLUMNS = 6
# parameters of `impute` that `evaluate` sets itself, or that do not change values
NOT_SHARED = ("method", "unreachable", "directed", "random_state", "position")


@dataclass(frozen=True)
class ComparisonOptions:
    """Which methods to compare, and how."""

    methods: list[str] | None = o.filling_option(
        "--methods", "NAME,...", f"Methods to compare, such as pcfi,mean. Default: {', '.join(METHODS)}."
    )
    folds: int = o.filling_option(
        "--folds",
        "NUMBER",
        "Number of folds, at least 2. Each hides a fifth of the known cells.",
        default=DEFAULT_FOLDS,
    )
    unit: str = o.filling_option(
        "--unit",
        "UNIT",
        "Unit of the errors: deviation (standard deviations of the channel) or data (as in the file).",
        default=UNITS[0],
    )


def evaluate(
    inputs: o.InputOptions, comparison: ComparisonOptions, estimation: o.EstimationOptions, running: o.RunOptions
) -> None:
    """Hide known cells, fill them with each method, and print the errors.

    Cells are hidden in the same pattern as the missing cells. No files are written.
    """
    with open_session(**vars(running)) as session:
        parameters = estimation.parameters(directed=inputs.directed)
        loaded = inputs.load(session)
        evaluation = compare_methods(
            session,
            loaded,
            parameters,
            some_names(comparison.methods, "--methods"),
            folds=comparison.folds,
            unit=comparison.unit,
        )
        if running.as_json:
            typer.echo(json.dumps(_as_json(evaluation)))
        _show(session, evaluation)


def compare_methods(
    session: Session, loaded: Loaded, parameters: dict[str, Any], methods: list[str] | None = None, **options: Any
) -> Evaluation:
    """Evaluate methods (default: all) with the parameters given on the command line."""
    unknown = [method for method in methods or () if method not in METHODS]
    if unknown:
        raise ParameterError(f"--methods must be among {', '.join(METHODS)}, got {unknown[0]!r}")
    shared = {name: value for name, value in parameters.items() if name not in NOT_SHARED}
    with session.stage("evaluate"):
        return pcfi.evaluate(
            loaded.table,
            loaded.graph_like,
            methods={method: {**shared, "method": method} for method in methods or METHODS},
            directed=loaded.graph.directed,
            random_state=parameters["random_state"],
            progress=session.progress,
            **options,
        )


def _as_json(evaluation: Evaluation) -> dict[str, Any]:
    from pcfi.report.evaluation_facts import evaluation_facts
    from pcfi.report.facts import finite

    return dict(finite(asdict(evaluation_facts(evaluation))))


def _show(session: Session, evaluation: Evaluation) -> None:
    """Print the table of errors, with as many hop columns as fit, and the reliability of the intervals."""
    found = {at.hops for at in evaluation.by_hops}
    hops = sorted(found - {-1})[:MAX_HOP_COLUMNS]
    unreachable = [-1] if -1 in found else []
    tables = (_table(evaluation, hops[:count] + unreachable) for count in range(len(hops), -1, -1))
    session.answer(next((table for table in tables if session.fits(table)), _table(evaluation, [])))
    for line in evaluation.reliability:
        session.answer(str(line))


def _table(evaluation: Evaluation, hops: list[int]) -> Any:
    from rich.table import Table
    from rich.text import Text

    unit = "standard deviations of the channel" if evaluation.unit == "deviation" else "units of the data"
    cells = describe_hidden(evaluation.n_hidden, evaluation.n_categories)
    title = f"Error on {cells} in {counted(evaluation.n_folds, 'fold')}, in {unit}"
    table = Table(title=title, title_justify="left", title_style="bold")
    categories = ("categories",) if "accuracy" in evaluation.methods[0].scores else ()
    distances = ("unreachable" if hop < 0 else f"{hop} hop{'s' if hop > 1 else ''}" for hop in hops)
    for name in ("method", *categories, "RMSE", "MAE", *distances, "time"):
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for one in evaluation.methods:
        by_hops = {at.hops: _number(at.rmse) for at in evaluation.by_hops if at.method == one.method}
        errors = (_number(one.scores[name]) for name in ("rmse", "mae"))
        accuracy = [f"{one.scores['accuracy']:.1%}"] if categories else []
        cells_of_row = [*accuracy, *errors, *(by_hops.get(hop, "-") for hop in hops), f"{one.seconds:.2f} s"]
        table.add_row(Text(one.method), *cells_of_row, style="bold green" if one.method == evaluation.best else "")
    return table


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or 0.01 <= abs(value) < 1e6 else f"{value:.3g}"


command = grouped_command(evaluate)
