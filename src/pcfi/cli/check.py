"""`pcfi check`: known cells that the others would not have expected, as a list and as a table."""

import json
from dataclasses import dataclass
from typing import Any

import typer

from pcfi.cli import options as o
from pcfi.cli.arguments import grouped_command
from pcfi.cli.loading import fill_loaded, load
from pcfi.cli.output_tables import as_written, delimiter
from pcfi.cli.session import open_session
from pcfi.errors import ParameterError
from pcfi.files.formats import TABLE_FORMATS, format_of
from pcfi.files.writing import check_output, write_table


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
        if listing.most < 1:
            raise ParameterError(f"--most must be at least 1, got {listing.most}")
        form = None if listing.output is None else format_of(listing.output, TABLE_FORMATS, "the table")
        if listing.output is not None:
            check_output(listing.output, force=listing.force)
        parameters = estimation.parameters(directed=columns.directed)
        selection = columns.node_columns(), columns.edge_columns()
        loaded = load(session, maps.sources(files), *selection, directed=bool(columns.directed))
        result = fill_loaded(session, loaded, parameters)
        with session.stage("check"):
            found = result.surprise
        if listing.output is not None and form is not None:
            table = _table(found)
            table = as_written("check", table, loaded) if form.is_text else table
            write_table(table, listing.output, form, force=listing.force, delimiter=delimiter(form, loaded))
            session.say(f"Wrote {listing.output}")
        if running.as_json:
            typer.echo(json.dumps(found.to_rows(listing.most), default=str))
        session.answer("\n".join(_line(row) for row in found.to_rows(listing.most)))


def _line(row: dict[str, Any]) -> str:
    from pcfi.explanation.explanation import number

    values = f"{number(row['value'])}, expected {number(row['expected'])}"
    return f"{row['surprise']:8.1f}  {row['column']} of {row['node']}: {values}"


def _table(found: Any) -> Any:
    import pyarrow as pa

    rows = found.to_rows()
    names = ("node", "column", "value", "expected", "surprise")
    return pa.table({name: [row[name] for row in rows] for name in names})


command = grouped_command(check)
