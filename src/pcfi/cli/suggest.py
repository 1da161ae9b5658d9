"""`pcfi suggest`: list the nodes whose measurement would reduce the total expected error most."""

import json

import typer

import pcfi
from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.lists import ListOptions, load_and_fill
from pcfi.cli.session import open_session


def suggest(
    inputs: o.InputOptions, listing: ListOptions, estimation: o.EstimationOptions, running: o.RunOptions
) -> None:
    """List the nodes whose measurement would reduce the total expected error most, in the order of choice.

    Example: pcfi suggest nodes.csv edges.csv --most 20 -o measure.csv
    """
    with open_session(**vars(running)) as session:
        file = listing.file()
        loaded, result = load_and_fill(session, inputs, estimation)
        with session.stage("suggest"):
            found = pcfi.suggest(result, listing.most)
        if file is not None:
            file.write(session, found.to_rows(), ("node", "own", "others", "total"), loaded)
        if running.as_json:
            typer.echo(json.dumps(found.to_rows(), default=str))
        session.answer(repr(found))


command = grouped_command(suggest)
