"""Tables of DuckDB <-> tables of pyarrow: FILE.duckdb/TABLE names a table, FILE.duckdb?QUERY the rows of a query."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcfi.errors import FileError
from pcfi.optional import load

PLACE = re.compile(r"^(?P<file>.*?\.duckdb)(?:/(?P<table>[^/?]+)|\?(?P<query>.*))?$", re.DOTALL | re.IGNORECASE)
ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class DuckdbPlace:
    """A table or a query of a database; without both, its only table."""

    file: str
    table: str | None = None
    query: str | None = None

    @staticmethod
    def of(path: str) -> "DuckdbPlace | None":
        """The table or query that a path names; None if it is not a database.

        >>> DuckdbPlace.of("shop.duckdb/people")
        DuckdbPlace(file='shop.duckdb', table='people', query=None)
        """
        found = PLACE.match(path)
        return None if found is None else DuckdbPlace(**found.groupdict())

    @contextmanager
    def connection(self, *, read_only: bool) -> Iterator[Any]:
        """An open database."""
        duckdb = load("duckdb", f"reading {self.file}", "duckdb")
        with duckdb.connect(self.file, read_only=read_only) as connection:
            yield connection

    @contextmanager
    def batches(self) -> Iterator[Any]:
        """A pyarrow RecordBatchReader of the rows, always in the same order."""
        with self.connection(read_only=True) as connection:
            connection.execute("set preserve_insertion_order = true")
            query = self.query or f"select * from {_quoted(self.table or self._only_table(connection))}"
            found = connection.execute(query)
            reader = getattr(found, "to_arrow_reader", None) or found.fetch_record_batch  # older versions
            yield reader(ROWS_AT_A_TIME)

    def _only_table(self, connection: Any) -> str:
        names = [name for (name,) in connection.execute("show tables").fetchall()]
        if len(names) != 1:
            listed = ", ".join(map(repr, names)) or "none"
            raise FileError(f"{self.file} holds these tables: {listed}; name one, as in {self.file}/TABLE, or a query")
        return str(names[0])

    def has_table(self) -> bool:
        """Whether the table is there."""
        if not Path(self.file).exists():
            return False
        with self.connection(read_only=True) as connection:
            return (self.table,) in connection.execute("show tables").fetchall()


def check_place(path: str, *, force: bool) -> None:
    """Raise an error if the table cannot be written."""
    place = DuckdbPlace.of(path)
    if place is None or place.table is None:
        raise FileError(f"{path}: name the table to write, as in shop.duckdb/filled")
    if place.has_table() and not force:
        raise FileError(f"{path} exists already: choose another name, or overwrite it with --force")


def read_duckdb(path: str) -> Any:
    """All rows as a table."""
    place = DuckdbPlace.of(path) or DuckdbPlace(path)
    with place.batches() as batches:
        return batches.read_all()


def duckdb_schema(path: str) -> Any:
    """The columns and their types."""
    place = DuckdbPlace.of(path) or DuckdbPlace(path)
    with place.batches() as batches:
        return batches.schema


def write_duckdb(tables: Iterator[Any], path: str) -> None:
    """Write tables with the same columns as one table, atomically."""
    import pyarrow as pa

    place, first = DuckdbPlace.of(path) or DuckdbPlace(path), next(tables)
    batches = (batch for part in ([first], tables) for table in part for batch in table.to_batches())
    with place.connection(read_only=False) as connection:
        connection.register("filled_rows", pa.RecordBatchReader.from_batches(first.schema, batches))
        connection.execute(f"create or replace table {_quoted(place.table or '')} as select * from filled_rows")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
