"""The command `pcfi` and its subcommands; a new one joins with a line at the end."""

from typing import Annotated

import typer

from pcfi.cli.arguments import ListCommand
from pcfi.cli.reproduce import HELP, reproduce

app = typer.Typer(
    help="Fill in the missing node features of a graph, and say how far each filled value can be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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


app.command(cls=ListCommand, help=HELP, short_help="The paper, reproduced: tables and figures.")(reproduce)
