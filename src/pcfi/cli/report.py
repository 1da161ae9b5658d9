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
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the report goes; - is standard output.")
    ] = "report.html",
    force: o.Force = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Paint the report of a saved facts file again."""
    with session(quiet=quiet, debug=debug, data_out=output == "-") as told:
        check_output(output, force=force)
        try:
            text = facts.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise FileError(f"{facts} is no text: name a file that pcfi impute --facts wrote") from None
        from pcfi.report.facts import Facts
        from pcfi.report.page import paint

        write_text(paint(Facts.from_json(text)), output, force=force)
        if output != "-":
            told.show(f"Wrote {output}")


command: tuple[Any, dict[str, Any]] = report, {"cls": GroupedCommand}
