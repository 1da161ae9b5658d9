"""Columns of a table that may have another meaning than assumed: codes, and numbers that are stored as text."""

import re
import warnings
from numbers import Real
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import ColumnWarning
from pcfi.inputs.category_columns import gaps_text, is_text_number
from pcfi.inputs.columns import ID_LIKE, EdgeColumns, shortened
from pcfi.inputs.ids import ROWS_IN_SAMPLE, is_frame, narwhals
from pcfi.inputs.node_tables import NodeTable

CODE_NAMES = r"(?i:fips|geoid|zip|post(al)?_?code|^plz|code$|nuts|tract|key$|_$)|[_a-z]No$|NO$|^(?i:no|nr)$|" + ID_LIKE
MEASUREMENT_NAMES = r"(?i)^[xyz]$|^lat|^lon|year|month|week|day|date|time|hour"  # may be consecutive numbers
MIN_ROWS = 20  # in smaller tables, integers may be unique by chance


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
    """Warn about codes, `remedy` says how to leave them out, and about columns whose missing cells are not filled."""
    texts = [f"{code_text(codes)}: {remedy}"] if codes else []
    frame = narwhals().from_native(table.native, eager_only=True)
    used = {table.ids.column, *(column.name for column in table.columns)}
    unfilled = {name: frame.get_column(name) for name in frame.columns if name not in used}
    counts = {name: series.null_count() for name, series in unfilled.items()}
    for name, series in unfilled.items():
        text = unfilled_numbers_text(series) if counts[name] or _may_mix_numbers(series) else ""
        if text:
            counts[name] = 0
            texts.append(text)
    gaps = gaps_text(counts, "categorical=[...]")
    for text in [*texts, gaps] if gaps else texts:
        warnings.warn(text, ColumnWarning, stacklevel=stacklevel + 1)


def _may_mix_numbers(series: Any) -> bool:
    """Whether a complete column holds Python objects, or text that is a number in most of its first rows."""
    if series.dtype != narwhals().String:
        return bool(series.dtype == narwhals().Object)
    are_numbers = [is_text_number(value) for value in series.head(ROWS_IN_SAMPLE).to_list()]
    return 2 * sum(are_numbers) > len(are_numbers) > sum(are_numbers)


def unfilled_numbers_text(series: Any) -> str:
    """Message about a column of text or Python objects most of whose values are numbers; empty for other columns."""
    if series.dtype not in (narwhals().String, narwhals().Object):
        return ""
    values = series.drop_nulls().to_list()
    others = [value for value in values if not isinstance(value, Real) and not is_text_number(value)]
    if not values or 2 * len(others) >= len(values) or not all(isinstance(value, str) for value in others):
        return ""
    text = next((value for value in values if isinstance(value, str)), "")
    if not others:
        return f"the column {series.name!r} is not filled, because {text!r} is text: convert it to numbers first"
    listed = shortened([repr(value) for value in dict.fromkeys(others)], 4)
    return (
        f"the column {series.name!r} is not filled, because it holds numbers and the text {listed}: if that means "
        "missing, convert it with pandas.to_numeric(column, errors='coerce')"
    )


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
