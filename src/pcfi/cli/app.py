"""The command `pcfi`. Each entry of `COMMANDS` is a subcommand; its module is imported when it is called."""

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from pcfi.cli import INTERRUPTED


class Command(NamedTuple):
    """Module of a subcommand, and its line in `pcfi --help`."""

    module: str
    help: str


COMMANDS = {
    "impute": Command("pcfi.cli.impute", "Fill the missing cells of a node table using the graph."),
    "info": Command("pcfi.cli.info", "Describe two files: sizes, missing rates, hops, memory and time needed."),
    "evaluate": Command("pcfi.cli.evaluate", "Compare the errors of the methods on hidden known cells."),
    "explain": Command("pcfi.cli.explain", "Print which known cells a filled value is computed from, with weights."),
    "check": Command("pcfi.cli.check", "List known values that contradict the others: possible data errors."),
    "suggest": Command("pcfi.cli.suggest", "List the nodes whose measurement would reduce the expected error most."),
    "audit": Command("pcfi.cli.audit", "Measure how well a withheld attribute can be recovered."),
    "report": Command("pcfi.cli.report", "Re-render a report from saved facts."),
    "demo": Command("pcfi.cli.demo", "Remove and fill images of handwritten digits, and write a report."),
    "reproduce": Command("pcfi.cli.reproduce", "Reproduce the tables and figures of the paper."),
}


class Commands(TyperGroup):
    """A group whose commands are imported when they are called, so that `pcfi --help` is fast."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options; flags default to False, because typer would load pydantic for a default of None."""
        options = super().get_params(ctx)
        for option in options:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return options

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Name and help line of a command, without importing it."""
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else TyperCommand(name=cmd_name, short_help=entry.help, help=entry.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command to run, imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(name or ""), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interruption during its import is reported like any other."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("pcfi: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def load_command(name: str) -> Any:
    """Import a subcommand: `command` of its module is the function and the keyword arguments for typer."""
    function, settings = import_module(COMMANDS[name].module).command
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, context_settings=_CONTEXT, **settings)(function)
    return typer.main.get_command(single)


_CONTEXT = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=Commands,
    help="Fill the missing node features of a graph, and estimate the error of each filled value.",
    no_args_is_help=True,
    rich_markup_mode=None,  # boxes and colours would double the time of --help
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT,
)


def _print_version(requested: bool) -> None:
    if requested:
        import pcfi

        typer.echo(f"pcfi {pcfi.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `pcfi` itself."""
