"""`pcfi suggest`: nodes whose measurement would reduce the total expected error most, as a list and as a table."""

import json
from dataclasses import dataclass

import typer

import pcfi
from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.lists import check_list, load_and_fill
from pcfi.cli.session import open_session


@dataclass(frozen=True)
class SuggestionOptions:
    """How many nodes, and where to write them."""

    most: int = o.filling_option("--most", "NUMBER", "Nodes to measure.", default=20)
    output: str | None = o.output_option("--output -o", "FILE", "File for the table of these nodes.")
    force: bool = o.output_option("--force -f", None, "Overwrite an existing file.", default=False)


def suggest(
    files: o.FileOptions,
    maps: o.MapOptions,
    suggestions: SuggestionOptions,
    columns: o.ColumnOptions,
    estimation: o.EstimationOptions,
    running: o.RunOptions,
) -> None:
    """Print the nodes whose measurement would reduce the total expected error most, best first.

    Example: pcfi suggest nodes.csv edges.csv --most 20 -o measure.csv
    """
    with open_session(**vars(running)) as session:
        file = check_list(suggestions.most, suggestions.output, force=suggestions.force)
        loaded, result = load_and_fill(session, files, maps, columns, estimation)
        with session.stage("suggest"):
            found = pcfi.suggest(result, suggestions.most)
        if file is not None:
            file.write(session, found.to_rows(), ("node", "own", "others", "total"), loaded)
        if running.as_json:
            typer.echo(json.dumps(found.to_rows(), default=str))
        session.answer(repr(found))


command = grouped_command(suggest)
