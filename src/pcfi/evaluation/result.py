"""`Evaluation`: scores of methods on hidden cells, as data with a printed summary."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import counted
from pcfi.evaluation.reliability import Reliability


@dataclass(frozen=True)
class MethodScores:
    """Scores of one method over all hidden cells, their standard errors over folds, and the mean time of a fold.

    `rmse`, `mae`, `r2` and `cosine` of the hidden numbers (or, if there are none, of the categories' indicator
    channels); also `recall@10`, `ndcg@10` and `auc` if all values are 0 or 1, and `accuracy` if categories are hidden.
    """

    method: str
    scores: dict[str, float]
    standard_errors: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class ScoreAtHops:
    """RMSE of one method on the hidden cells at a number of hops (-1: unreachable)."""

    method: str
    hops: int
    cells: int
    rmse: float


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Scores of methods on known cells that were hidden.

    Attributes
    ----------
    methods : tuple of MethodScores
        One per method, in the order given.
    by_hops : tuple of ScoreAtHops
    by_channel : dict
        RMSE of each channel, by method; NaN for channels without a hidden number.
    n_hidden, n_folds : int
        Number of hidden cells and of folds.
    n_categories : int
        Number of hidden cells that hold a category.
    unit : {"deviation", "data"}
        Unit of errors: standard deviations of the channels, or the unit of the data.
    reliability : tuple of Reliability
        Coverage of intervals and quality of expected errors, for the methods that have them.
    """

    methods: tuple[MethodScores, ...]
    by_hops: tuple[ScoreAtHops, ...]
    by_channel: dict[str, Array] = field(repr=False)
    n_hidden: int
    n_folds: int
    unit: str = "deviation"
    reliability: tuple[Reliability, ...] = ()
    n_categories: int = 0

    @property
    def best(self) -> str:
        """Method with the smallest RMSE."""
        return min(self.methods, key=lambda one: one.scores["rmse"]).method

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary per method: its scores, and their standard errors as `<score>_se`."""
        return [
            {"method": one.method, **one.scores, **{f"{name}_se": value for name, value in one.standard_errors.items()}}
            for one in self.methods
        ]

    def to_frame(self) -> Any:
        """Return `to_rows` as a pandas DataFrame, with the methods as index."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("Evaluation.to_frame needs pandas: pip install pandas, or use to_rows()") from None
        return pd.DataFrame(self.to_rows()).set_index("method")

    def __repr__(self) -> str:
        names = list(self.methods[0].scores)
        unit = ", errors in standard deviations" if self.unit == "deviation" else ""
        hidden = describe_hidden(self.n_hidden, self.n_categories)
        lines = [f"Evaluation on {hidden} in {counted(self.n_folds, 'fold')}{unit}"]
        width = max(len("RMSE by hops"), *(len(one.method) for one in self.methods))
        lines.append(f"  {'method':<{width}}" + "".join(f"{name:>20}" for name in names))
        for one in self.methods:
            cells = (f"{_format(name, one.scores[name])} +- {one.standard_errors[name]:.1g}" for name in names)
            lines.append(f"  {one.method:<{width}}" + "".join(f" {text:>19}" for text in cells))
        found = {row.hops for row in self.by_hops}
        levels = sorted(found - {-1})[:8] + ([-1] if -1 in found else [])
        names = ["unreachable" if level < 0 else str(level) for level in levels]
        lines.append(f"  {'RMSE by hops':<{width}}" + "".join(f"{name:>12}" for name in names))
        for one in self.methods:
            rmse = {row.hops: row.rmse for row in self.by_hops if row.method == one.method}
            lines.append(f"  {one.method:<{width}}" + "".join(f"{rmse.get(level, np.nan):>12.4g}" for level in levels))
        lines += [f"  {one}" for one in self.reliability]
        return "\n".join(lines)


def describe_hidden(n_hidden: int, n_categories: int) -> str:
    """Return the number of hidden cells in words.

    >>> describe_hidden(1815, 602)
    '1,213 hidden numbers and 602 hidden categories'
    """
    if not n_categories:
        return counted(n_hidden, "hidden cell")
    categories = f"{n_categories:,} hidden {'category' if n_categories == 1 else 'categories'}"
    numbers = n_hidden - n_categories
    return f"{counted(numbers, 'hidden number')} and {categories}" if numbers else categories


def _format(name: str, value: float) -> str:
    is_error = name in ("rmse", "mae")  # the others are at most 1; + 0.0 turns -0.0 into 0.0
    return f"{value if is_error else round(value, 4) + 0.0:.4g}"
