"""Commands that print a list and write it as a table: what `pcfi check` and `pcfi suggest` have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pcfi.cli import options as o
from pcfi.cli.loading import Loaded, fill_loaded, load
from pcfi.cli.output_tables import as_written, delimiter
from pcfi.cli.session import Session
from pcfi.errors import ParameterError
from pcfi.files.formats import TABLE_FORMATS, Format, format_of
from pcfi.files.writing import check_output, write_table


@dataclass(frozen=True)
class ListFile:
    """A file for the table, checked before any work is done."""

    path: str
    format: Format
    force: bool

    def write(self, session: Session, rows: Sequence[dict[str, Any]], names: Sequence[str], loaded: Loaded) -> None:
        """Write these columns of the rows; a text file looks as the node file does."""
        import pyarrow as pa

        table = pa.table({name: [row[name] for row in rows] for name in names})
        table = as_written("list", table, loaded) if self.format.is_text else table
        write_table(table, self.path, self.format, force=self.force, delimiter=delimiter(self.format, loaded))
        session.say(f"Wrote {self.path}")


def check_list(most: int, output: str | None, *, force: bool) -> ListFile | None:
    """Refuse what cannot be printed or written; the file for the table, if one is named."""
    if most < 1:
        raise ParameterError(f"--most must be at least 1, got {most}")
    if output is None:
        return None
    check_output(output, force=force)
    return ListFile(output, format_of(output, TABLE_FORMATS, "the table"), force)


def load_and_fill(
    session: Session,
    files: o.FileOptions,
    maps: o.MapOptions,
    columns: o.ColumnOptions,
    estimation: o.EstimationOptions,
) -> tuple[Loaded, Any]:
    """The files as they were read, and the result of filling them."""
    selection = columns.node_columns(), columns.edge_columns()
    loaded = load(session, maps.sources(files), *selection, directed=bool(columns.directed))
    return loaded, fill_loaded(session, loaded, estimation.parameters(directed=columns.directed))
