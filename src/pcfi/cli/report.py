"""`pcfi report`: a saved facts file -> the report."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import GroupedCommand
from pcfi.cli.session import session
from pcfi.errors import FileError
from pcfi.files.writing import check_output, write_text


def report(
    facts: Annotated[
        Path, typer.Argument(metavar="FACTS", help="A file that pcfi impute --facts wrote.", show_default=False)
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the report goes; - is standard output.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = "report.html",
    force: o.Force = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Paint the report of a saved facts file again."""
    with session(quiet=quiet, debug=debug, data_out=output == "-") as told:
        check_output(output, force=force)
        from pcfi.report.html_page import paint

        write_text(paint(_read(facts)), output, force=force)
        if output != "-":
            told.show(f"Wrote {output}")


def _read(path: Path) -> Any:
    """The facts of a file; errors name it."""
    from pcfi.report.facts import Facts

    try:
        return Facts.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path} does not exist: name a file that pcfi impute --facts wrote") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is no text: name a file that pcfi impute --facts wrote") from None
    except FileError as error:
        raise FileError(f"{path}: {error}") from None


command: tuple[Any, dict[str, Any]] = report, {"cls": GroupedCommand}
