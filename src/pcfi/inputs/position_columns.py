"""Names of the columns that hold position channels in a table."""

from collections.abc import Iterable, Sequence

from pcfi.errors import FeatureError


def position_names(n_channels: int) -> list[str]:
    """Names of the columns of position channels."""
    return [f"position_{number}" for number in range(1, n_channels + 1)]


def refuse_position_names(names: Sequence[str], columns: Iterable[str]) -> None:
    """Raise if the table has columns of these names already."""
    taken = sorted(set(names) & set(columns))
    if taken:
        raise FeatureError(
            f"the node table has a column {taken[0]!r} already, which is the name of a position channel: rename it"
        )
