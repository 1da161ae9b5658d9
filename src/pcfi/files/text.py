"""CSV and TSV <-> a table of pyarrow."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from pcfi.errors import FileError
from pcfi.files.formats import DELIMITERS
from pcfi.files.opening import InputFile
from pcfi.files.text_types import (
    NUMBER,
    ColumnScan,
    ColumnType,
    cast_text,
    decide_types,
    plain_numbers,
    without_markers,
)
from pcfi.inputs.columns import TEXT_MARKERS, check_distinct
from pcfi.inputs.node_tables import kind_of_arrow

_ENGLISH = r"(\d{1,3}([,' \x{a0}\x{202f}]\d{3})+|\d+)(\.\d+)?"  # 1,234.50
_EUROPEAN = r"(\d{1,3}([.' \x{a0}\x{202f}]\d{3})+|\d+)(,\d+)?"  # 1.234,50
DRESSED = rf"^\s*[-+]?[$€£¥]?\s?[-+]?({_ENGLISH}|{_EUROPEAN})\s?[%$€£¥]?\s*$"  # also $1,234.50, 12 %
BLOCK = 1 << 22  # bytes parsed at a time; a row must fit
ROWS = 1 << 13  # rows written at a time
PIECES_PER_THREAD = 4  # of so many rows, which are turned into text before they are written
SAMPLE = 1 << 18  # bytes that tell how numbers and columns are written
FIRST_LINES = 50  # that tell the delimiter
MIN_THREADED_ROWS = 10_000  # below, threads cost more than they save

Result = TypeVar("Result")


@dataclass(frozen=True)
class Dialect:
    """The delimiter; `usual` is whether it is the default of the suffix."""

    delimiter: str
    usual: bool = True

    def words(self, decimals: Collection[str] = ()) -> str:
        """Differences from the default format, as text; `decimals` are the decimal marks of its columns."""
        between = "tabs" if self.delimiter == "\t" else repr(self.delimiter)
        parts = ([] if self.usual else [f"separated by {between}"]) + (["decimal commas"] if "," in decimals else [])
        return f" ({', '.join(parts)})" if parts else ""


def dialect_of(source: InputFile) -> Dialect:
    """The dialect of a text file: semicolons, tabs or vertical bars if these separate the cells of its first lines."""
    with source.arrow() as stream:
        sample = bytes(stream.read(SAMPLE))
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in sample:
        raise _notutf8_errors(source)
    usual = DELIMITERS[source.format.name]
    text = re.sub(r'"[^"]*"', "", sample.decode("utf-8", errors="replace"))
    lines = [line for line in text.splitlines()[: FIRST_LINES + 1] if line.strip()]
    mark = _delimiter(lines[:FIRST_LINES] or [""], usual)
    return Dialect(mark, usual=mark == usual)


def _delimiter(lines: Sequence[str], usual: str) -> str:
    """The delimiter of these lines without quoted text: one that all of them have equally often.

    >>> _delimiter(["id;spending, $1000;pay", "AL;4,041;7", "AK;7;8"], ",")
    ';'
    """
    header, *rows = lines
    others = [mark for mark in ";\t|" if mark in header and mark != usual]
    separates = [mark for mark in others if len({line.count(mark) for line in lines}) == 1]
    if usual not in header:
        return next(iter(separates or others), usual)
    is_usual = len({line.count(usual) for line in lines}) == 1
    are_decimal = usual == "," and bool(rows) and not any(re.search(r"(?<!\d),|,(?!\d)", row) for row in rows)
    return separates[0] if separates and (not is_usual or are_decimal) else usual


@contextmanager
def utf8_errors(source: InputFile) -> Iterator[None]:
    """Raise an error that explains how to convert text in another encoding."""
    import pyarrow as pa

    try:
        yield
    except UnicodeDecodeError:
        raise _notutf8_errors(source) from None
    except pa.ArrowInvalid as error:
        if "invalid UTF8" in str(error):
            raise _notutf8_errors(source) from None
        raise


def _notutf8_errors(source: InputFile) -> FileError:
    name = "FILE" if source.data is not None else source.path
    return FileError(
        f"{source.words} is not valid UTF-8: convert it, as in iconv -f LATIN1 -t UTF-8 {name} > utf8.csv "
        "(UTF-16 instead of LATIN1, if that is what it is)"
    )


@dataclass(frozen=True, eq=False)
class DelimitedTable:
    """The columns of a text file as they are written.

    Attributes
    ----------
    source : InputFile
    cells : pyarrow.Table of strings
    missing : sequence of str
        Further values that mean missing.
    decimal : str or None
        The decimal mark that the user names.
    """

    source: InputFile
    cells: Any
    missing: Sequence[str] = ()
    decimal: str | None = None
    _numbers: dict[str, Any] = field(default_factory=dict, repr=False)  # columns that are read already

    def types(self, as_text: Collection[str], *, channels: Collection[str] = ()) -> dict[str, ColumnType]:
        """The type that fits all values of each column; `as_text` stays text, and codes such as 007 unless channels."""

        def scanned(name: str) -> ColumnScan:
            scan, cells = ColumnScan.of_numbers(), self.cells[name]
            numbers = None if self.missing else plain_numbers(cells)
            scan.add(self.without_markers(name) if numbers is None else cells, numbers)
            if scan.type == "double":
                self._numbers[name] = numbers
            if scan.has_codes and name not in channels:
                scan.keep_text()
            return scan

        names = [name for name in self.cells.column_names if name not in as_text]
        scans = each_column(scanned, names, self.cells.num_rows)
        return decide_types(scans, self.source.words, dialect_of(self.source).delimiter, self.decimal)

    def typed(self, types: Mapping[str, ColumnType]) -> Any:
        """The table with these columns in their types; the others stay text."""
        table = self.cells

        def cast(name: str) -> Any:
            numbers = self._numbers.pop(name, None)
            if numbers is not None and types[name] == ColumnType(numbers.type):
                return numbers
            return cast_text(self.without_markers(name), types[name].kind, types[name].decimal)

        names = [name for name, one in types.items() if str(one.kind) != "string"]
        columns = each_column(cast, names, self.cells.num_rows)
        for name, column in columns.items():
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def without_markers(self, name: str) -> Any:
        """A column with null where a cell is empty or holds a marker of missing cells."""
        return without_markers(self.cells[name], [*null_markers(), *self.missing])


def each_column(function: Callable[[str], Result], names: Sequence[str], n_rows: int) -> dict[str, Result]:
    """What a function makes of each column, on all threads; pyarrow works on one column with one thread."""
    if n_rows < MIN_THREADED_ROWS:
        return {name: function(name) for name in names}
    from pcfi._kernels.threads import run_tasks

    return dict(zip(names, run_tasks([partial(lambda name, _: function(name), name) for name in names]), strict=True))


def null_markers() -> list[str]:
    """What pyarrow reads as null in numeric columns."""
    from pyarrow import csv

    return list(csv.ConvertOptions().null_values)


def read_text(source: InputFile, *, missing: Sequence[str] = (), decimal: str | None = None) -> DelimitedTable:
    """All cells of a text file, as they are written."""
    import pyarrow as pa
    from pyarrow import csv

    names = header(source)
    cells = _read(source, csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())))
    if cells.num_rows == 0:
        raise FileError(f"{source.words} has a header but no rows")
    return DelimitedTable(source, cells, missing, decimal)


def first_rows(source: InputFile) -> Any:
    """The first rows as a table of text; without rows if they cannot be read, which reading the file will say."""
    import pyarrow as pa
    from pyarrow import csv

    names = header(source)
    as_text = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    with source.arrow() as stream:
        sample = bytes(stream.read(SAMPLE))
    rows = sample[: sample.rfind(b"\n") + 1] if len(sample) == SAMPLE else sample
    try:
        return csv.read_csv(pa.BufferReader(rows), parse_options=parse_options(source), convert_options=as_text)
    except pa.ArrowInvalid:  # a value that goes on over several lines was cut, or the file is broken
        return pa.table({name: pa.array([], pa.string()) for name in names})


def holds_integers(column: Any) -> bool:
    """Whether every value of a text column is an integer as numbers are written: 7, but not 007."""
    import pyarrow.compute as pc

    return bool(len(column) and pc.all(pc.match_substring_regex(column, r"^\s*[-+]?(0|[1-9]\d*)\s*$")).as_py())


def header(source: InputFile) -> list[str]:
    """The names of the columns, from the first rows."""
    from pyarrow import csv

    options = csv.ReadOptions(block_size=BLOCK)
    with utf8_errors(source), source.arrow() as stream, csv.open_csv(stream, options, parse_options(source)) as reader:
        names = list(reader.schema.names)
    check_distinct(names, source.words, FileError)
    if names and all(re.match(NUMBER, name) for name in names):
        raise FileError(
            f"{source.words} begins with numbers ({', '.join(names[:3])}, ...): its first line must name the columns"
        )
    return names


def _read(source: InputFile, convert: Any) -> Any:
    from pyarrow import csv

    with utf8_errors(source), source.arrow() as stream:
        return csv.read_csv(stream, csv.ReadOptions(block_size=BLOCK), parse_options(source), convert)


def parse_options(source: InputFile) -> Any:
    """How pyarrow splits the file into rows and columns."""
    from pyarrow import csv

    return csv.ParseOptions(delimiter=dialect_of(source).delimiter, newlines_in_values=True)


def refuse_mixed(table: Any, name: str, source: InputFile, missing: Sequence[str] = ()) -> None:
    """Raise `FileError` if a text column holds numbers for the most part: it was meant to be a channel.

    `missing` are values that mean missing, besides the usual ones.
    """
    column = table[name]
    if len(column) == 0 or str(column.type) not in ("string", "large_string"):
        return
    scan = ColumnScan.of_numbers()
    scan.add(without_markers(column, [*null_markers(), *missing]))
    refuse_mixture(source, name, scan)


def refuse_mixture(source: InputFile, name: str, scan: ColumnScan) -> None:
    """The same, by what is known about all values of the column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = scan.texts[scan.mark]
    if not texts or 2 * scan.n_numbers[scan.mark] < scan.n_filled:
        return
    (first, row), *others = texts.items()
    also = f", also {', '.join(repr(text) for text, _ in others)}" if others else ""
    words = [text for text in texts if not pc.match_substring_regex(pa.scalar(text), DRESSED).as_py()]
    advice = ["if the column is no channel, use {exclude}"]
    if words:
        advice.insert(0, f"if {'they mean' if len(words) > 1 else 'that means'} missing, add {{missing_values}}")
    if len(words) < len(texts):
        advice.insert(0, "write formatted numbers as plain ones" if others else "write it as a plain number")
    raise FileError(
        f"{source.words}: the column {name!r} mixes numbers and text; first {first!r} in row {row + 1}{also}",
        remedy="; ".join(advice),
        arguments={"missing_values": words, "exclude": [name]},
    )


def empty_as_null(table: Any) -> Any:
    """The table with null for every text that is empty, as an empty cell is read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, one in enumerate(table.schema):
        if pa.types.is_string(one.type):
            column = table.column(place)
            kept = pc.if_else(pc.equal(column, ""), pa.scalar(None, one.type), column)
            table = table.set_column(place, one, kept)
    return table


def typed(column: Any) -> Any:
    """A text column in the type that all its values have: integers, numbers, truth values, else text.

    >>> import pyarrow as pa
    >>> str(typed(pa.chunked_array([["3", None]])).type), str(typed(pa.chunked_array([["007"]])).type)
    ('int64', 'string')
    """
    import pyarrow as pa

    if not pa.types.is_string(column.type) or column.null_count == len(column):
        return column
    scan = ColumnScan.of_numbers()
    scan.add(without_markers(column, TEXT_MARKERS))
    is_long = scan.is_whole and pa.int64() not in scan.types
    return column if scan.has_codes or is_long else cast_text(column, scan.type)


def write_rows(tables: Iterable[Any], file: Any, delimiter: str) -> None:
    """Write a header and the rows of all tables; quotes only where needed, and empty cells for null."""
    has_header = False
    for table in tables:
        if not has_header:
            _write_header(table.column_names, file, delimiter)
            has_header = True
        _write_table(table, file, delimiter)


def _write_header(names: list[str], file: Any, delimiter: str) -> None:
    import pyarrow as pa

    texts = _as_text(pa.array(names, pa.string()), delimiter).to_pylist()
    file.write((delimiter.join(texts) + "\n").encode())


def _write_table(table: Any, file: Any, delimiter: str) -> None:
    """Write the rows; pieces of them are turned into text on all threads."""
    pieces = table.to_batches(max_chunksize=ROWS)
    if table.num_rows < MIN_THREADED_ROWS:
        for piece in pieces:
            file.write(_lines(piece, delimiter))
        return
    from pcfi._kernels.threads import run_tasks, thread_count

    size = thread_count() * PIECES_PER_THREAD
    for start in range(0, len(pieces), size):
        tasks = [partial(lambda piece, _: _lines(piece, delimiter), piece) for piece in pieces[start : start + size]]
        for lines in run_tasks(tasks):
            file.write(lines)


def _lines(batch: Any, delimiter: str) -> Any:
    """The rows of a record batch as a buffer of text."""
    import pyarrow.compute as pc

    nothing = '""' if batch.num_columns == 1 else ""  # an empty line would be no row
    cells = [pc.fill_null(_as_text(column, delimiter), nothing) for column in batch.columns]
    cells[-1] = pc.binary_join_element_wise(cells[-1], "\n", "")
    lines = pc.binary_join_element_wise(*cells, delimiter)
    return lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())


def _as_text(column: Any, delimiter: str) -> Any:
    """A column as it is written, in quotes where a value would be read as something else."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.cast(pa.string())
    if kind_of_arrow(column.type).is_number or not _may_need_quotes(texts, delimiter):
        return texts
    special = pc.match_substring_regex(texts, f'^$|["\\r\\n{re.escape(delimiter)}]')
    if not pc.any(special).as_py():
        return texts
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return pc.if_else(special, quoted, texts)


def _may_need_quotes(texts: Any, delimiter: str) -> bool:
    """Whether a value is empty, or has a quote, a delimiter or the end of a line in it, by the bytes of all values."""
    import pyarrow.compute as pc

    if pc.any(pc.equal(pc.binary_length(texts), 0)).as_py():
        return True
    _, offsets, data = texts.buffers()
    if offsets is None or data is None:  # all values are null
        return False
    first, last = np.frombuffer(offsets, dtype=np.int32)[[texts.offset, texts.offset + len(texts)]]
    cells = np.frombuffer(data, dtype=np.uint8)[first:last]
    return any((cells == mark).any() for mark in f'"\r\n{delimiter}'.encode())
