"""Options that several commands share; what `pcfi.impute` leaves open stays open here, so that its defaults hold."""

from inspect import signature
from typing import Annotated, Any

import typer

import pcfi
from pcfi.cli.arguments import literal
from pcfi.errors import ParameterError
from pcfi.settings import METHODS, UNREACHABLE_POLICIES

DEFAULTS = {name: parameter.default for name, parameter in signature(pcfi.impute).parameters.items()}
COLUMNS, FILLING, OUTPUT, RUNNING = "Columns", "Filling", "Output", "Running"


def _default(name: str) -> str:
    return f" Default: {DEFAULTS[name]}."


def listed(names: Any) -> str:
    """Names as the help shows them."""
    return ", ".join(names)


NodesFile = Annotated[
    str,
    typer.Argument(
        metavar="NODES",
        help="Node file: .parquet, .csv, .tsv (also .gz, .zst), .feather, .arrow, .npy, .npz, .h5ad; - is stdin.",
        show_default=False,
    ),
]
EdgesFile = Annotated[
    str,
    typer.Argument(
        metavar="EDGES",
        help="Edge file: the same formats; also a sparse .npz, .mtx; an .h5ad gives its connectivities.",
        show_default=False,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="Column of node ids. Default: named id, node or node_id; else the first of unique values named as in "
        "customer_id, customerId; else the first of unique texts; else rows.",
        metavar="COLUMN",
        rich_help_panel=COLUMNS,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="Channels, as in age,income; may be repeated. Default: all numbers.",
        metavar="COLUMN,...",
        rich_help_panel=COLUMNS,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns of numbers that are no channels: labels, say.", metavar="COLUMN,...", rich_help_panel=COLUMNS
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="Columns of categories to fill as well.", metavar="COLUMN,...", rich_help_panel=COLUMNS),
]
MissingValue = Annotated[
    list[str] | None,
    typer.Option(
        "--missing-value",
        help="Means missing, as null and NaN do: -999, say.",
        metavar="VALUE",
        rich_help_panel=COLUMNS,
    ),
]
SourceColumn = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="Edge column where an edge begins. Default: by its name.",
        metavar="COLUMN",
        rich_help_panel=COLUMNS,
    ),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(
        "--target", help="Edge column where it ends. Default: by its name.", metavar="COLUMN", rich_help_panel=COLUMNS
    ),
]
WeightColumn = Annotated[
    str | None,
    typer.Option(
        "--weight",
        help="Edge column of weights. Default: weight, if there is one.",
        metavar="COLUMN",
        rich_help_panel=COLUMNS,
    ),
]
UnknownIds = Annotated[
    str,
    typer.Option(
        "--unknown-ids",
        help="An edge that names an unknown node: error or drop it.",
        metavar="POLICY",
        rich_help_panel=COLUMNS,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(help=f"One of {listed(METHODS)}, auto.{_default('method')}", metavar="NAME", rich_help_panel=FILLING),
]
Alpha = Annotated[
    str | None,
    typer.Option(
        help=f"Confidence falls by this factor with every hop.{_default('alpha')}",
        metavar="NUMBER",
        rich_help_panel=FILLING,
    ),
]
Beta = Annotated[
    str | None,
    typer.Option(
        help=f"How strongly channels share with each other.{_default('beta')}",
        metavar="NUMBER",
        rich_help_panel=FILLING,
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        help="What the result is for: values or representation.",
        hidden="objective" not in DEFAULTS,
        metavar="NAME",
        rich_help_panel=FILLING,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Diffuse for so many steps, as the paper does. Default: until settled.",
        metavar="NUMBER",
        rich_help_panel=FILLING,
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        help="Settled: a further step would move no cell by more than this part of its channel's range. "
        f"Default: {DEFAULTS['solver'].rtol:g}.",
        metavar="NUMBER",
        rich_help_panel=FILLING,
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        help=f"Give up settling after so many steps. Default: {DEFAULTS['solver'].max_steps}.",
        metavar="NUMBER",
        rich_help_panel=FILLING,
    ),
]
Standardize = Annotated[
    bool | None,
    typer.Option(help="Share in units of the channels' standard deviations.", rich_help_panel=FILLING),
]
Unreachable = Annotated[
    str | None,
    typer.Option(
        help=f"What a cell gets that no source can reach: {listed(UNREACHABLE_POLICIES)}.{_default('unreachable')}",
        metavar="POLICY",
        rich_help_panel=FILLING,
    ),
]
Directed = Annotated[
    bool | None,
    typer.Option("--directed", help="Values flow only along the direction of the edges.", rich_help_panel=FILLING),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Work within a budget of memory, such as 4GB, on files of any size; a run that was stopped goes on. "
        "Nodes: .parquet, .npy, .zarr. Does not tune.",
        metavar="SIZE",
        rich_help_panel=RUNNING,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="The same on the workers of a Dask scheduler, such as tcp://host:8786; the budget is that of a worker.",
        metavar="ADDRESS",
        rich_help_panel=RUNNING,
    ),
]
Work = Annotated[
    str | None,
    typer.Option(
        help="Folder for what is finished, with --memory or --cluster. Default: beside the output.",
        metavar="FOLDER",
        rich_help_panel=RUNNING,
    ),
]
Seed = Annotated[
    int, typer.Option(help="Seed of everything that is drawn at random.", metavar="NUMBER", rich_help_panel=RUNNING)
]
Threads = Annotated[
    int | None,
    typer.Option(
        help="Threads to use. Default: all cores.", show_default=False, metavar="NUMBER", rich_help_panel=RUNNING
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but warnings.", rich_help_panel=RUNNING)]
Json = Annotated[bool, typer.Option("--json", help="Print facts for machines, as JSON.", rich_help_panel=RUNNING)]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.", rich_help_panel=RUNNING)]
Force = Annotated[bool, typer.Option("--force", "-f", help="Overwrite existing files.", rich_help_panel=OUTPUT)]


def solver_of(steps: int | None, rtol: float | None, max_steps: int | None) -> Any:
    """The solver that the options ask for; None if they ask for none."""
    if steps is not None and (rtol is not None or max_steps is not None):
        raise ParameterError("--steps fixes the number of steps: it does not go together with --rtol or --max-steps")
    if steps is not None:
        return pcfi.FixedSteps(steps)
    if rtol is None and max_steps is None:
        return None
    usual = DEFAULTS["solver"]
    return pcfi.UntilSettled(usual.rtol if rtol is None else rtol, usual.max_steps if max_steps is None else max_steps)


def given_options(seed: int | None = None, **options: Any) -> dict[str, Any]:
    """What was given, as parameters of `pcfi.impute`; what was not keeps its default there."""
    for name in ("alpha", "beta"):
        if options.get(name) is not None:
            options[name] = literal(options[name])
    if "random_state" in DEFAULTS and seed is not None:
        options["random_state"] = seed
    given = {name: value for name, value in options.items() if value is not None}
    strange = sorted(set(given) - set(DEFAULTS))
    if strange:
        raise ParameterError(f"--{strange[0].replace('_', '-')} is not known to this version of pcfi.impute")
    return given
