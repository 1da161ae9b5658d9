"""A text file of any length -> record batches whose types fit all rows; the file is read once to find the types."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pcfi.errors import FileError
from pcfi.files.opening import InputFile
from pcfi.files.text import (
    BLOCK,
    NUMBER,
    cast_text,
    code_columns,
    dialect_of,
    empty_as_null,
    header,
    parse_options,
    refuse_mixture,
    utf8_errors,
)
from pcfi.inputs.columns import NodeColumns, check_name, id_by_name


@dataclass
class ColumnScan:
    """What the values of a column of text have in common, over all batches so far."""

    n_rows: int = 0
    n_filled: int = 0
    n_numbers: int = 0
    first_text: tuple[str, int] | None = None  # the first value that is not a number, and its row
    types: list[Any] = field(default_factory=list)  # that fit all values so far
    has_codes: bool = False  # whether a value begins with 0, such as 007

    def add(self, column: Any, decimal: str) -> None:
        """Take the next values of the column into account."""
        import pyarrow.compute as pc

        if decimal == ",":
            column = pc.replace_substring(column, ",", ".")
        filled = pc.and_kleene(pc.is_valid(column), pc.not_equal(column, ""))
        numbers = pc.fill_null(pc.match_substring_regex(column, NUMBER), False)
        if self.first_text is None:
            row = pc.index(pc.and_kleene(filled, pc.invert(numbers)), True).as_py()
            self.first_text = None if row < 0 else (column[row].as_py(), self.n_rows + row)
        self.n_rows += len(column)
        self.n_filled += pc.sum(filled).as_py() or 0
        self.n_numbers += pc.sum(pc.and_kleene(filled, numbers)).as_py() or 0
        self.has_codes = self.has_codes or bool(pc.any(pc.match_substring_regex(column, r"^\s*[-+]?0\d")).as_py())
        values = pc.utf8_trim_whitespace(column.filter(filled))
        self.types = [kind for kind in self.types if _casts(values, kind)]

    @property
    def type(self) -> Any:
        """The type that fits all values; numbers if there are none."""
        import pyarrow as pa

        return pa.float64() if not self.n_filled else self.types[0] if self.types else pa.string()


def _casts(values: Any, kind: Any) -> bool:
    import pyarrow as pa

    try:
        values.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


class TextBatches:
    """The rows of a text file as record batches.

    Attributes
    ----------
    file : InputFile
    n_rows : int
    schema : pyarrow.Schema
        Types as the values have them; ids, categories and codes such as 007 stay text.
    """

    def __init__(self, file: InputFile, columns: NodeColumns) -> None:
        import pyarrow as pa

        self.file = file
        self._missing = list(map(str, columns.missing_values))
        self._decimal = dialect_of(file).decimal
        names = header(file)
        check_name("id", columns.id, names, file.words)
        columns.check(names, file.words)
        channels = set(columns.channels or ())
        others = set(names) - channels if columns.channels is not None else set(columns.exclude)
        texts = {*columns.categorical, id_by_name(names, columns), *(code_columns(file) - channels)}
        self._cast_later = others - texts  # a marker of missing cells does not count in them
        types = [pa.int64(), pa.bool_(), pa.float64()]
        scans = {name: ColumnScan(types=[] if name in texts else list(types)) for name in names}
        for batch in self._read(dict.fromkeys(names, pa.string())):
            for name, scan in scans.items():
                scan.add(batch.column(name), self._decimal)
        self.n_rows = next(iter(scans.values())).n_rows
        if not self.n_rows:
            raise FileError(f"{file.words} has a header but no rows")
        for name, scan in scans.items():
            if name not in texts | others and pa.types.is_string(scan.type):
                refuse_mixture(file, name, scan.n_filled, scan.n_numbers, scan.first_text)
        is_code = {name: name in texts or (name in others and scans[name].has_codes) for name in names}
        self.schema = pa.schema([(name, pa.string() if is_code[name] else scans[name].type) for name in names])

    def with_text(self, name: str) -> "TextBatches":
        """Keep a column as it is written, because it holds the ids."""
        import pyarrow as pa

        place = self.schema.get_field_index(name)
        self.schema = self.schema.set(place, pa.field(name, pa.string()))
        return self

    def batches(self) -> Iterator[Any]:
        """All rows, in tables of about 4 MB of text each."""
        import pyarrow as pa

        types = {one.name: pa.string() if one.name in self._cast_later else one.type for one in self.schema}
        for batch in self._read(types):
            table = empty_as_null(pa.Table.from_batches([batch]))
            for name in self._cast_later:
                column = cast_text(table[name], self.schema.field(name).type)
                table = table.set_column(table.column_names.index(name), name, column)
            yield table

    def _read(self, types: dict[str, Any]) -> Iterator[Any]:
        from pyarrow import csv

        options = csv.ConvertOptions(
            column_types=types,
            null_values=[*csv.ConvertOptions().null_values, *self._missing],
            strings_can_be_null=all(str(kind) == "string" for kind in types.values()),
            decimal_point=self._decimal,
        )
        with utf8_errors(self.file), self.file.arrow() as stream:
            yield from csv.open_csv(stream, csv.ReadOptions(block_size=BLOCK), parse_options(self.file), options)
