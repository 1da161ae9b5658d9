"""A text file of any length -> record batches whose types fit all rows; the file is read once to find the types."""

from collections.abc import Iterator
from typing import Any

from pcfi.errors import FileError
from pcfi.files.opening import InputFile
from pcfi.files.text import (
    BLOCK,
    dialect_of,
    empty_as_null,
    header,
    null_markers,
    parse_options,
    refuse_mixture,
    utf8_errors,
)
from pcfi.files.text_types import ColumnScan, cast_text, decide_types, plain_numbers, without_markers
from pcfi.inputs.columns import TEXT_MARKERS, NodeColumns, check_name, id_by_name


class TextBatches:
    """The rows of a text file as record batches.

    Attributes
    ----------
    file : InputFile
    n_rows : int
    schema : pyarrow.Schema
        Types as the values have them; ids, categories and codes such as 007 stay text.
    types : dict of ColumnType
        Of the columns that are not text for sure.
    decimal : str or None
        The decimal mark that the user names.
    """

    def __init__(self, file: InputFile, columns: NodeColumns) -> None:
        import pyarrow as pa

        self.file, self.decimal = file, columns.decimal
        self._missing = list(map(str, columns.missing_values))
        self._names = names = header(file)
        check_name("id", columns.id, names, file.words)
        columns.check(names, file.words)
        channels = set(columns.channels or ())
        others = set(names) - channels if columns.channels is not None else set(columns.exclude)
        texts = {*columns.categorical, id_by_name(names, columns)}
        scans = {name: ColumnScan.of_numbers() for name in names if name not in texts}
        self.n_rows = 0
        for batch in self.read(nulls=True):
            self.n_rows += batch.num_rows
            for name, scan in scans.items():
                numbers = plain_numbers(batch.column(name))
                scan.add(self.without_markers(batch, name) if numbers is None else batch.column(name), numbers)
        if not self.n_rows:
            raise FileError(f"{file.words} has a header but no rows")
        for name, scan in scans.items():
            if scan.has_codes and name not in channels:
                scan.keep_text()
        types = decide_types(scans, file.words, dialect_of(file).delimiter, columns.decimal)
        for name, scan in scans.items():
            if name not in others and pa.types.is_string(types[name].kind) and not scan.has_codes:
                refuse_mixture(file, name, scan)
        self.types = types
        self._markers = {name: TEXT_MARKERS if name in others else [*null_markers(), *self._missing] for name in types}
        self.decimals = {one.decimal for one in types.values()}
        self.schema = pa.schema([(name, types[name].kind if name in types else pa.string()) for name in names])

    def with_text(self, name: str) -> "TextBatches":
        """Keep a column as it is written, because it holds the ids."""
        import pyarrow as pa

        place = self.schema.get_field_index(name)
        self.schema = self.schema.set(place, pa.field(name, pa.string()))
        return self

    def batches(self) -> Iterator[Any]:
        """All rows, in tables of about 4 MB of text each."""
        import pyarrow as pa

        for batch in self.read(nulls=False):
            table = pa.Table.from_batches([batch])
            for name, one in self.types.items():
                if not pa.types.is_string(self.schema.field(name).type):
                    column = cast_text(without_markers(table[name], self._markers[name]), one.kind, one.decimal)
                    table = table.set_column(table.column_names.index(name), name, column)
            yield empty_as_null(table)

    def without_markers(self, batch: Any, name: str) -> Any:
        """A column of a record batch of text, with null where a cell is empty or holds a marker of missing cells."""
        return without_markers(batch.column(name), [*null_markers(), *self._missing])

    def read(self, *, nulls: bool = False) -> Iterator[Any]:
        """Record batches of text; with `nulls`, null where a cell holds a marker of missing cells."""
        import pyarrow as pa
        from pyarrow import csv

        options = csv.ConvertOptions(
            column_types=dict.fromkeys(self._names, pa.string()),
            null_values=[*null_markers(), *self._missing],
            strings_can_be_null=nulls,
        )
        with utf8_errors(self.file), self.file.arrow() as stream:
            yield from csv.open_csv(stream, csv.ReadOptions(block_size=BLOCK), parse_options(self.file), options)
