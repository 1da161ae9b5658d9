"""Columns of a table that may have another meaning than assumed: codes, and numbers that are stored as text."""

import re
import warnings
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ColumnWarning
from pcfi.inputs.columns import ID_LIKE, EdgeColumns, shortened
from pcfi.inputs.ids import is_frame, narwhals
from pcfi.inputs.node_tables import NodeTable

CODE_NAMES = r"(?i:fips|geoid|zip|post(al)?_?code|^plz|code$|nuts|tract|key$|_$)|[_a-z]No$|NO$|^(?i:no|nr)$|" + ID_LIKE
MEASUREMENT_NAMES = r"(?i)^[xyz]$|^lat|^lon|year|month|week|day|date|time|hour"  # may be consecutive numbers
MIN_ROWS = 20  # in smaller tables, integers may be unique by chance
_DIGITS = r"(?!0\d)(\d{1,3}([., ']\d{3})+([.,]\d+)?|\d+([.,]\d+)?)"
TEXT_NUMBER = re.compile(rf"\s*[-+]?[$€£¥]?\s?[-+]?{_DIGITS}\s?[%$€£¥]?\s*")  # $1,234.50, 12 %, 1234, but not 007


def code_columns(table: NodeTable, edges: Any = None, ends: EdgeColumns | None = None) -> list[str]:
    """Complete channels of unique integers that are consecutive or have a name like a code.

    Such a column does not predict others, except by chance or through the order of the rows. A column that contains
    the ids of an edge table is covered by the warning about ids.
    """
    frame, names = narwhals().from_native(table.native, eager_only=True), []
    for column in table.columns:
        series = frame.get_column(column.name)
        is_complete = column.codes is None and series.dtype.is_numeric() and not column.missing.any()
        if not is_complete or len(series) < MIN_ROWS:
            continue
        if holds_codes(column.name, np.asarray(series.cast(narwhals().Float64).to_numpy())):
            names.append(column.name)
    if names and is_frame(edges):
        named = table.id_like_channel(edges, ends or EdgeColumns())
        return [name for name in names if name != named]
    return names


def holds_codes(name: str, values: Array) -> bool:
    """Whether the values of a channel without missing cells are codes."""
    is_called_so, is_measured = (
        re.search(pattern, str(name)) is not None for pattern in (CODE_NAMES, MEASUREMENT_NAMES)
    )
    return (is_called_so and are_unique_integers(values)) or (not is_measured and _are_consecutive(values))


def warn_of_columns(table: NodeTable, codes: list[str], remedy: str, *, stacklevel: int) -> None:
    """Warn about columns of codes, `remedy` says how to leave them out, and about numbers that are stored as text."""
    if codes:
        warnings.warn(f"{code_text(codes)}: {remedy}", ColumnWarning, stacklevel=stacklevel + 1)
    for name, value in text_numbers(table):
        text = f"the column {name!r} is not filled, because {value!r} is text: convert the column to numbers first"
        warnings.warn(text, ColumnWarning, stacklevel=stacklevel + 1)


def text_numbers(table: NodeTable) -> list[tuple[str, str]]:
    """Incomplete columns of text that are not filled though all their values look like numbers, and one such value."""
    frame, used = narwhals().from_native(table.native, eager_only=True), {column.name for column in table.columns}
    examples = []
    for name in frame.columns:
        series = frame.get_column(name)
        if name in used or name == table.ids.column or series.dtype != narwhals().String or not series.null_count():
            continue
        values = series.drop_nulls().to_list()
        if values and all(isinstance(value, str) and TEXT_NUMBER.fullmatch(value) for value in values):
            examples.append((name, values[0]))
    return examples


def code_text(names: list[str]) -> str:
    """Message about such columns; the caller adds how to leave them out."""
    one = len(names) == 1
    listed = shortened([repr(name) for name in names], 6)
    return (
        f"the column{'' if one else 's'} {listed} {'holds' if one else 'hold'} unique integers, like codes, but "
        f"{'is' if one else 'are'} used as measurements"
    )


def are_unique_integers(values: Array) -> bool:
    """Whether values are unique integers."""
    return bool((values == np.rint(values)).all() and len(np.unique(values)) == len(values))


def _are_consecutive(values: Array) -> bool:
    return bool(values.max() - values.min() + 1 == len(values)) and are_unique_integers(values)
