"""Channels of a table that hold codes (FIPS, row numbers, postal codes) rather than measurements."""

import re
import warnings
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ColumnWarning
from pcfi.inputs.columns import ID_LIKE, EdgeColumns, shortened
from pcfi.inputs.ids import is_frame, narwhals
from pcfi.inputs.node_tables import NodeTable

CODE_LIKE = r"(?i:fips|geoid|zip|post(al)?_?code|^plz|code$|nuts|tract|key$|_$)|[_a-z]No$|NO$|^(?i:no|nr)$|" + ID_LIKE
MEASURED = r"(?i)^[xyz]$|^lat|^lon|year|month|week|day|date|time|hour"  # consecutive numbers that mean something
MIN_ROWS = 20  # of a table in which whole numbers that all differ are no chance


def code_columns(table: NodeTable, edges: Any = None, ends: EdgeColumns | None = None) -> list[str]:
    """Channels without missing cells whose values are whole numbers that all differ, and are consecutive or called so.

    Such a column says nothing about others, except by chance or by the order in which rows were numbered. One that
    holds what an edge table names is left to the warning about ids.
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
    is_called_so, is_measured = (re.search(pattern, str(name)) is not None for pattern in (CODE_LIKE, MEASURED))
    return (is_called_so and all_differ(values)) or (not is_measured and _are_numbers_of_rows(values))


def warn_of_codes(names: list[str], remedy: str, *, stacklevel: int) -> None:
    """Warn of such columns; `remedy` says how to leave them out."""
    if names:
        warnings.warn(f"{code_text(names)}: {remedy}", ColumnWarning, stacklevel=stacklevel + 1)


def code_text(names: list[str]) -> str:
    """What to say about such columns; the caller adds how to leave them out."""
    one = len(names) == 1
    listed = shortened([repr(name) for name in names], 6)
    return (
        f"the column{'' if one else 's'} {listed} {'holds' if one else 'hold'} whole numbers that all differ, as codes "
        f"do, and {'is' if one else 'are'} used like measurements"
    )


def all_differ(values: Array) -> bool:
    """Whether values are whole numbers that all differ."""
    return bool((values == np.rint(values)).all() and len(np.unique(values)) == len(values))


def _are_numbers_of_rows(values: Array) -> bool:
    return bool(values.max() - values.min() + 1 == len(values)) and all_differ(values)
