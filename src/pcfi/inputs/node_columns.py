"""Columns of a node table: which cells are missing, which categories there are, and how columns lie in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError, counted
from pcfi.inputs.columns import Kind, marker_values
from pcfi.inputs.ids import kind_of, locate, narwhals

LINE_BYTES = 64  # of a row that columns are copied into at a time: a cache line
ROWS_IN_CACHE = 1 << 12
MAX_CATEGORIES = 1000  # each becomes a channel; columns with more are names, not categories


@dataclass(frozen=True, eq=False, kw_only=True)
class NodeColumn:
    """A column that becomes one channel, or several: one per category.

    Attributes
    ----------
    name : str
    missing : ndarray of bool
        Cells that are null, NaN or a missing-value marker.
    codes : ndarray of int or None
        For a categorical column: the category of each row, -1 if missing.
    samples : ndarray of int
        For a categorical column: one row of each category.
    """

    name: str
    missing: Array
    codes: Array | None = None
    samples: Array | None = None

    @property
    def width(self) -> int:
        """Number of channels."""
        return 1 if self.samples is None else len(self.samples)


def missing_cells(series: Any, markers: Sequence[Any]) -> Array:
    """Cells that are null, NaN or a missing-value marker."""
    missing = _is_null(series)
    coded = series.dtype in (narwhals().Categorical, narwhals().Enum)
    values = marker_values(markers, Kind.TEXT if coded else kind_of(series.dtype))
    if values:
        same = (series.cast(narwhals().String) if coded else series).is_in(values)
        missing = missing | np.asarray(same.fill_null(False).to_numpy())
    return missing


def _is_null(series: Any) -> Array:
    """Where a column is null or NaN."""
    if series.implementation.is_pyarrow():
        from pyarrow import compute

        return np.asarray(compute.is_null(series.to_native(), nan_is_null=True).to_numpy())
    missing = np.asarray(series.is_null().to_numpy())
    return missing | np.isnan(np.asarray(series.to_numpy(), dtype=np.float64)) if series.dtype.is_float() else missing


def category_column(series: Any, markers: Sequence[Any]) -> NodeColumn:
    """A column of categories as several channels."""
    nw = narwhals()
    missing = missing_cells(series, markers)
    labels = series if series.dtype == nw.String else series.cast(nw.String)
    categories = labels.filter((~missing).tolist()).unique().sort()
    if len(categories) == 0:
        raise FeatureError(f"the column {series.name!r} has no known category", remedy="leave it out of {categorical}")
    if len(categories) > MAX_CATEGORIES:
        raise FeatureError(
            f"the column {series.name!r} has {counted(len(categories), 'different value')}, and each would become a "
            f"channel: at most {MAX_CATEGORIES:,} are allowed, so leave it out if it holds ids"
        )
    codes = locate(categories, labels, "categories", "itself")
    codes = np.where(missing, -1, codes)
    used, rows = np.unique(codes, return_index=True)
    return NodeColumn(name=series.name, missing=missing, codes=codes, samples=rows[used >= 0])


def copy_columns(columns: Sequence[Array], out: Array) -> None:
    """Copy the columns, arrays of one or more channels, into `out`, rows at a time that fit into the cache."""
    for start in range(0, len(out), ROWS_IN_CACHE):
        first = 0
        for column in columns:
            last = first + column.shape[1]
            out[start : start + ROWS_IN_CACHE, first:last] = column[start : start + ROWS_IN_CACHE]
            first = last


def contiguous_columns(values: Array, channels: Sequence[int]) -> Array:
    """Some columns of an array, each contiguous: the rows of a new array."""
    out = np.empty((len(channels), len(values)), dtype=values.dtype)
    for start in range(0, len(values), ROWS_IN_CACHE):
        part = values[start : start + ROWS_IN_CACHE]
        for place, channel in enumerate(channels):
            out[place, start : start + ROWS_IN_CACHE] = part[:, channel]
    return out
