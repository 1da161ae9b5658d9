"""The command `pcfi` and its subcommands, each loaded when it is called; a new one joins with a line in `COMMANDS`."""

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Command(NamedTuple):
    """Where a subcommand lives, and what the overview says about it."""

    module: str
    help: str


COMMANDS = {
    "impute": Command("pcfi.cli.impute", "Fill the missing cells of a node file from an edge file."),
    "info": Command("pcfi.cli.info", "What is in these files: sizes, missing rates, hops, memory needed."),
    "evaluate": Command("pcfi.cli.evaluate", "Hide known cells, and say how well each method fills them in."),
    "report": Command("pcfi.cli.report", "Paint the report of a saved facts file again."),
    "demo": Command("pcfi.cli.demo", "Fill in removed images of handwritten digits: a table, a picture, a report."),
    "reproduce": Command("pcfi.cli.reproduce", "The paper, reproduced: tables and figures."),
}


class Commands(TyperGroup):
    """A group whose commands are imported when they are called, so that `pcfi --help` answers at once."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options; flags that are not given are False, since typer would load pydantic to make a flag of None."""
        found = super().get_params(ctx)
        for option in found:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return found

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """What the overview needs of a command: its name and a line of help."""
        found = COMMANDS.get(cmd_name)
        return None if found is None else TyperCommand(name=cmd_name, short_help=found.help, help=found.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is to be run, loaded."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(name or ""), rest


def load_command(name: str) -> Any:
    """A subcommand, from the `command` of its module: the function and what typer has to know about it."""
    function, settings = import_module(COMMANDS[name].module).command
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, context_settings=_CONTEXT, **settings)(function)
    return typer.main.get_command(alone)


_CONTEXT = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=Commands,
    help="Fill in the missing node features of a graph, and say how far each filled value can be trusted.",
    no_args_is_help=True,
    rich_markup_mode=None,  # boxes and colours would double the time that --help takes
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT,
)


def _print_version(asked: bool) -> None:
    if asked:
        import pcfi

        typer.echo(f"pcfi {pcfi.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What holds for every subcommand."""
