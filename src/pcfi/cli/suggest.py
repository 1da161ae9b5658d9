"""`pcfi suggest`: nodes whose measurement would reduce the total expected error most, as a list and as a table."""

import json
from dataclasses import dataclass
from typing import Any

import typer

import pcfi
from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.loading import fill_loaded, load
from pcfi.cli.session import open_session
from pcfi.errors import ParameterError
from pcfi.files.formats import TABLE_FORMATS, format_of
from pcfi.files.writing import check_output, write_table


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
        if suggestions.most < 1:
            raise ParameterError(f"--most must be at least 1, got {suggestions.most}")
        form = None if suggestions.output is None else format_of(suggestions.output, TABLE_FORMATS, "the table")
        if suggestions.output is not None:
            check_output(suggestions.output, force=suggestions.force)
        parameters = estimation.parameters(directed=columns.directed)
        selection = columns.node_columns(), columns.edge_columns()
        loaded = load(session, maps.sources(files), *selection, directed=bool(columns.directed))
        result = fill_loaded(session, loaded, parameters)
        with session.stage("suggest"):
            found = pcfi.suggest(result, suggestions.most)
        if suggestions.output is not None and form is not None:
            write_table(_table(found), suggestions.output, form, force=suggestions.force)
            session.say(f"Wrote {suggestions.output}")
        if running.as_json:
            typer.echo(json.dumps(found.to_rows(), default=str))
        session.answer(repr(found))


def _table(found: Any) -> Any:
    import pyarrow as pa

    rows = found.to_rows()
    return pa.table({name: [row[name] for row in rows] for name in ("node", "own", "others", "total")})


command = grouped_command(suggest)
