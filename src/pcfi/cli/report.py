"""`pcfi report`: render the report from a facts file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcfi.cli import options as o
from pcfi.cli.arguments import argument, grouped_command
from pcfi.cli.session import open_session
from pcfi.errors import FileError
from pcfi.files.formats import STANDARD
from pcfi.files.writing import check_output, write_text


@dataclass(frozen=True)
class ReportOptions:
    """What `pcfi report` reads and writes."""

    facts: Path = argument("FACTS", "A file written by pcfi impute --facts.")
    output: str = o.output_option(
        "--output -o", "FILE", "File for the report; - is standard output.", default="report.html"
    )
    force: bool = o.output_option("--force -f", None, "Overwrite existing files.", default=False)


def report(options: ReportOptions, messages: o.MessageOptions) -> None:
    """Re-render a report from saved facts, without filling anything again."""
    output = options.output
    with open_session(**vars(messages), data_to_stdout=output == STANDARD) as session:
        check_output(output, force=options.force)
        from pcfi.report.html_page import render_page

        write_text(render_page(_read(options.facts)), output, force=options.force)
        if output != STANDARD:
            session.show(f"Wrote {output}")


def _read(path: Path) -> Any:
    """Read a facts file; errors name it."""
    from pcfi.report.facts import Facts

    try:
        return Facts.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileError(f"{path} does not exist: name a file written by pcfi impute --facts") from None
    except UnicodeDecodeError:
        raise FileError(f"{path} is not a text file: name a file written by pcfi impute --facts") from None
    except FileError as error:
        raise FileError(f"{path}: {error}") from None


command = grouped_command(report)
