"""Position channels as table columns: their names, and how to append them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError
from pcfi.inputs.ids import narwhals


def position_names(n_channels: int) -> list[str]:
    """Names of the columns of position channels."""
    return [f"position_{number}" for number in range(1, n_channels + 1)]


def refuse_position_names(names: Sequence[str], columns: Iterable[str]) -> None:
    """Raise an error if the table already has columns with these names."""
    taken = sorted(set(names) & set(columns))
    if taken:
        raise FeatureError(
            f"the node table already has a column {taken[0]!r}, which is the name of a position channel: rename it"
        )


def append_to_table(table: Any, channels: Array) -> Any:
    """The table with position channels as further columns: position_1, position_2, ..."""
    frame = narwhals().from_native(table, eager_only=True)
    names = position_names(channels.shape[1])
    refuse_position_names(names, frame.columns)
    columns = [
        narwhals().new_series(name, np.ascontiguousarray(column), backend=frame.implementation)
        for name, column in zip(names, channels.T, strict=True)
    ]
    return frame.with_columns(*columns).to_native()
