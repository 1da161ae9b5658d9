"""Commands that print a list and write it as a table: code shared by `pcfi check` and `pcfi suggest`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pcfi.cli import options as o
from pcfi.cli.loading import Loaded, fill_loaded
from pcfi.cli.output_tables import as_written, delimiter
from pcfi.cli.session import Session
from pcfi.errors import ParameterError
from pcfi.files.formats import TABLE_FORMATS, Format, format_of
from pcfi.files.writing import check_output, write_table


@dataclass(frozen=True)
class ListFile:
    """The file for the table, checked before any computation."""

    path: str
    format: Format
    force: bool

    def write(self, session: Session, rows: Sequence[dict[str, Any]], names: Sequence[str], loaded: Loaded) -> None:
        """Write these columns of the rows; a text file has the format of the node file."""
        import pyarrow as pa

        table = pa.table({name: [row[name] for row in rows] for name in names})
        table = as_written("list", table, loaded) if self.format.is_text else table
        write_table(table, self.path, self.format, force=self.force, delimiter=delimiter(self.format, loaded))
        session.say(f"Wrote {self.path}")


@dataclass(frozen=True)
class ListOptions:
    """Length of the list, and file for the table."""

    most: int = o.filling_option("--most", "NUMBER", "Number of rows to print.", default=20)
    output: str | None = o.output_option("--output -o", "FILE", "File for the table.")
    force: bool = o.output_option("--force -f", None, "Overwrite an existing file.", default=False)

    def file(self) -> ListFile | None:
        """Check the options, and return the file for the table if one is named."""
        if self.most < 1:
            raise ParameterError(f"--most must be at least 1, got {self.most}")
        if self.output is None:
            return None
        check_output(self.output, force=self.force)
        return ListFile(self.output, format_of(self.output, TABLE_FORMATS, "the table"), self.force)


def load_and_fill(session: Session, inputs: o.InputOptions, estimation: o.EstimationOptions) -> tuple[Loaded, Any]:
    """Read the files and fill them; return both."""
    loaded = inputs.load(session)
    return loaded, fill_loaded(session, loaded, estimation.parameters(directed=inputs.directed))
