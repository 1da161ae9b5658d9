"""`pcfi check`: known cells that the others would not have expected, as a list and as a table."""

import json
from dataclasses import dataclass
from typing import Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.lists import check_list, load_and_fill
from pcfi.cli.session import open_session


@dataclass(frozen=True)
class ListOptions:
    """How much to print and to write."""

    most: int = o.filling_option("--most", "NUMBER", "Cells to print.", default=20)
    output: str | None = o.output_option("--output -o", "FILE", "File for the table of all known cells.")
    force: bool = o.output_option("--force -f", None, "Overwrite an existing file.", default=False)


def check(
    files: o.FileOptions,
    maps: o.MapOptions,
    listing: ListOptions,
    columns: o.ColumnOptions,
    estimation: o.EstimationOptions,
    running: o.RunOptions,
) -> None:
    """Print known cells that the model, leaving them out, would not have expected: probably errors in the data.

    Example: pcfi check nodes.csv edges.csv -o surprising.csv
    """
    with open_session(**vars(running)) as session:
        file = check_list(listing.most, listing.output, force=listing.force)
        loaded, result = load_and_fill(session, files, maps, columns, estimation)
        with session.stage("check"):
            found = result.surprise
        if file is not None:
            file.write(session, found.to_rows(), ("node", "column", "value", "expected", "surprise"), loaded)
        if running.as_json:
            typer.echo(json.dumps(found.to_rows(listing.most), default=str))
        session.answer("\n".join(_line(row) for row in found.to_rows(listing.most)))


def _line(row: dict[str, Any]) -> str:
    from pcfi.explanation.explanation import number

    values = f"{number(row['value'])}, expected {number(row['expected'])}"
    return f"{row['surprise']:8.1f}  {row['column']} of {row['node']}: {values}"


command = grouped_command(check)
