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
MIN_ROWS = 20  # of a table in which integers that all differ are no chance


def code_columns(table: NodeTable, edges: Any = None, ends: EdgeColumns | None = None) -> list[str]:
    """Channels without missing cells whose values are integers that all differ, and are consecutive or called so.

    Such a column says nothing about others, except by chance or by the order in which rows were numbered. One that
    holds what an edge table names is left to the warning about ids.
    """
    frame, names = narwhals().from_native(table.native, eager_only=True), []
    for column in table.columns:
        series = frame.get_column(column.name)
        if column.codes is None and len(series) >= MIN_ROWS and series.dtype.is_numeric() and not column.missing.any():
            values = np.asarray(series.cast(narwhals().Float64).to_numpy())
            is_called_so = re.search(CODE_LIKE, str(column.name)) is not None
            is_measured = re.search(MEASURED, str(column.name)) is not None
            if (is_called_so and _all_differ(values)) or (_are_numbers_of_rows(values) and not is_measured):
                names.append(column.name)
    if names and is_frame(edges):
        named = table.id_like_channel(edges, ends or EdgeColumns())
        return [name for name in names if name != named]
    return names


def warn_of_codes(names: list[str], remedy: str, *, stacklevel: int) -> None:
    """Warn of such columns; `remedy` says how to leave them out."""
    if names:
        warnings.warn(f"{code_text(names)}: {remedy}", ColumnWarning, stacklevel=stacklevel + 1)


def code_text(names: list[str]) -> str:
    """What to say about such columns; the caller adds how to leave them out."""
    one = len(names) == 1
    listed = shortened([repr(name) for name in names], 6)
    return (
        f"the column{'' if one else 's'} {listed} {'holds' if one else 'hold'} integers that all differ, as codes "
        f"do, and {'is' if one else 'are'} used like measurements"
    )


def _all_differ(values: Array) -> bool:
    return bool((values == np.rint(values)).all() and len(np.unique(values)) == len(values))


def _are_numbers_of_rows(values: Array) -> bool:
    return bool(values.max() - values.min() + 1 == len(values)) and _all_differ(values)
