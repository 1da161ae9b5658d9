"""CSV and TSV -> a table of pyarrow."""

from collections.abc import Collection, Sequence
from typing import Any

from pcfi.errors import FileError
from pcfi.files.formats import DELIMITERS
from pcfi.files.opening import Source

NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
BLOCK = 1 << 22  # bytes parsed at a time; a row must fit


def read_text(source: Source, *, as_text: Collection[str] = (), missing: Sequence[str] = ()) -> Any:
    """The table; columns named in `as_text` stay the text they are, the others get the type that fits all rows."""
    import pyarrow as pa
    from pyarrow import csv

    names = header(source)
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in as_text if name in names},
        null_values=[*csv.ConvertOptions().null_values, *missing],
    )
    table = _read(source, convert)
    if table.num_rows == 0:
        raise FileError(f"{source.words} has a header but no rows")
    guessed = [field.name for field in table.schema if pa.types.is_temporal(field.type)]
    if guessed:  # dates and times pass through as they are written
        return read_text(source, as_text={*as_text, *guessed}, missing=missing)
    return table


def header(source: Source) -> list[str]:
    """The names of the columns, from the first rows."""
    import re

    from pyarrow import csv

    options = csv.ReadOptions(block_size=BLOCK)
    with source.arrow() as stream, csv.open_csv(stream, options, _parse(source)) as reader:
        names = list(reader.schema.names)
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise FileError(f"{source.words} has several columns named {twice[0]!r}: rename them")
    if names and all(re.match(NUMBER, name) for name in names):
        raise FileError(
            f"{source.words} begins with numbers ({', '.join(names[:3])}, ...): its first line must name the columns"
        )
    return names


def _read(source: Source, convert: Any) -> Any:
    from pyarrow import csv

    with source.arrow() as stream:
        return csv.read_csv(stream, csv.ReadOptions(block_size=BLOCK), _parse(source), convert)


def _parse(source: Source) -> Any:
    from pyarrow import csv

    return csv.ParseOptions(delimiter=DELIMITERS[source.format.name], newlines_in_values=True)


def refuse_mixed(table: Any, name: str, source: Source) -> None:
    """Raise `FileError` if a column of text holds numbers for the most part: it was meant to be a channel."""
    import pyarrow.compute as pc

    column = table[name].combine_chunks()
    if len(column) == 0 or str(column.type) not in ("string", "large_string"):
        return
    filled = pc.and_kleene(pc.is_valid(column), pc.not_equal(column, ""))
    numbers = pc.match_substring_regex(column, NUMBER)
    n_filled, n_numbers = (pc.sum(flags).as_py() or 0 for flags in (filled, pc.and_kleene(filled, numbers)))
    if n_numbers == n_filled or 2 * n_numbers < n_filled:
        return
    row = pc.index(pc.and_kleene(filled, pc.invert(numbers)), True).as_py()
    word = column[row].as_py()
    raise FileError(
        f"{source.words}: the column {name!r} mixes numbers and text, first {word!r} in row {row + 1}: if that means "
        f"missing, add --missing-value {word!r}; if it is no channel, add --exclude {name}"
    )
