"""Text columns of a node table that hold categories, and columns whose missing cells nobody fills."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pcfi.errors import counted
from pcfi.inputs.columns import shortened
from pcfi.inputs.ids import narwhals
from pcfi.inputs.node_columns import missing_cells

MAX_FOUND_CATEGORIES = 64  # each is a channel, so columns with more of them have to be named
_DIGITS = r"(?!0\d)(\d{1,3}([., ']\d{3})+([.,]\d+)?|\d+([.,]\d+)?)"
TEXT_NUMBER = re.compile(rf"\s*[-+]?[$€£¥]?\s?[-+]?{_DIGITS}\s?[%$€£¥]?\s*")  # $1,234.50, 12 %, 1234, but not 007


def finds_categories(
    *, method: str = "pcfi", unreachable: str = "mean", objective: str = "values", **_others: Any
) -> bool:
    """Whether `impute` with these options fills categorical columns that nobody named: not with zeros."""
    return objective == "values" and "zero" not in (method, unreachable)


def find_categories(frame: Any, apart: Collection[str], markers: Sequence[Any]) -> list[str]:
    """Columns with missing cells that hold categories, except those `apart`."""
    return [name for name in frame.columns if name not in apart and _holds_categories(frame.get_column(name), markers)]


def _holds_categories(series: Any, markers: Sequence[Any]) -> bool:
    is_declared = series.dtype in (narwhals().Categorical, narwhals().Enum) or holds_objects(series, "boolean")
    if not is_declared and series.dtype != narwhals().String:
        return False
    missing = missing_cells(series, markers)
    if not missing.any() or missing.all():
        return False
    counts = series.filter((~missing).tolist()).value_counts(name="count")
    if not are_categories(counts.get_column("count").to_list()):
        return False
    return is_declared or not are_mostly_numbers(
        dict(zip(counts.get_column(series.name).to_list(), counts.get_column("count").to_list(), strict=True))
    )


def holds_objects(series: Any, *kinds: str) -> bool:
    """Whether a column of pandas holds Python objects of one of these kinds, as pandas calls them."""
    if series.dtype != narwhals().Object:
        return False
    from pandas.api.types import infer_dtype

    return infer_dtype(series.to_native(), skipna=True) in kinds


def are_mostly_numbers(counts: Mapping[str, int]) -> bool:
    """Whether half of the cells or more, given how often each value occurs, are text that looks like a number.

    >>> are_mostly_numbers({"1.5": 3, "n.a.": 2}), are_mostly_numbers({"1st": 3, "2": 2})
    (True, False)
    """
    return 2 * sum(count for value, count in counts.items() if is_text_number(value)) >= sum(counts.values())


def are_categories(counts: Sequence[int]) -> bool:
    """Whether values that occur so often each are categories, not names.

    By Good and Turing, the next value is a new one with a probability of (values that occurred once) / (all that
    occurred). A missing cell has a category of the others if that is below one half.

    >>> are_categories([2, 1]), are_categories([2, 1, 1])
    (True, False)
    """
    return len(counts) <= MAX_FOUND_CATEGORIES and 2 * sum(count == 1 for count in counts) < sum(counts)


def is_text_number(value: object) -> bool:
    """Whether a value is text that looks like a number."""
    return isinstance(value, str) and TEXT_NUMBER.fullmatch(value) is not None


def gaps_text(counts: Mapping[str, int], option: str, noun: str = "column") -> str:
    """Message about the missing cells of columns that are not filled, by column; empty if there are none.

    >>> gaps_text({"joined": 3, "name": 0}, "categorical=[...]")
    "3 missing cells of the column 'joined' stay missing: name it with categorical=[...] if it holds categories"
    """
    names, n_missing = [repr(name) for name, count in counts.items() if count], sum(counts.values())
    if not names:
        return ""
    stay, cells = ("stays" if n_missing == 1 else "stay"), counted(n_missing, "missing cell")
    if len(names) == 1:
        return f"{cells} of the {noun} {names[0]} {stay} missing: name it with {option} if it holds categories"
    return f"{cells} of the {noun}s {shortened(names)} {stay} missing: name those with {option} that hold categories"
