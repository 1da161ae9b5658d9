"""`pcfi check`: list known cells that contradict the others."""

import json
from typing import Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.lists import ListOptions, load_and_fill
from pcfi.cli.session import open_session


def check(inputs: o.InputOptions, listing: ListOptions, estimation: o.EstimationOptions, running: o.RunOptions) -> None:
    """List known cells that differ most from the model's prediction without them: possible data errors.

    The table of --output has all known cells.

    Example: pcfi check nodes.csv edges.csv -o surprising.csv
    """
    with open_session(**vars(running)) as session:
        file = listing.file()
        loaded, result = load_and_fill(session, inputs, estimation)
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
