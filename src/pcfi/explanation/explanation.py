"""The explanation of a filled value as data; prints as text, or as a picture in a notebook; `to_frame()` is a table."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import counted

MAX_SHOWN = 5  # known cells that are named in the text


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownCells:
    """Known cells that a filled value comes from, the largest contribution first.

    Attributes
    ----------
    nodes : list
        What the caller calls the node of each cell.
    columns : list of str
    values : ndarray
        The known values.
    hops : ndarray of int
        Steps through missing cells from the filled cell to the node; 0 for other columns of the same node.
    weights : ndarray
        By how much the filled value grows if the known value grows by 1, on the scale of the model.
    contributions : ndarray
        What the cell adds to the mean of the column, on the scale of the model.
    categories : list of str or None
        Category that the value, 1 or 0, is about; None for numbers.
    """

    nodes: list[Any] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    values: Array = field(default_factory=lambda: np.empty(0))
    hops: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    weights: Array = field(default_factory=lambda: np.empty(0))
    contributions: Array = field(default_factory=lambda: np.empty(0))
    categories: list[str | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.nodes)

    def words(self, place: int, name: str) -> str:
        """A known cell in words, such as `'ann', 3.5`, `'ann' is red` or `income = 3.5`."""
        category = self.categories[place]
        if category is not None:
            return f"{name} is {'' if self.values[place] > 0.5 else 'not '}{category}"
        return f"{name}{', ' if name != self.columns[place] else ' = '}{number(self.values[place])}"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Explanation:
    """Known cells and other terms that the value of a cell is computed from.

    `mean + constant + known.contributions.sum() + bounds + calibration + rest` is the value, or its logarithm if
    `logarithmic`.

    Attributes
    ----------
    node, column : as the caller names them
    category : str or None
        Of a categorical column: the one that was filled; its probability is what is explained.
    value : float
        The filled value; of a categorical column the probability of the category.
    note : str
        Why there is nothing to add up, or what to mind; empty if there is nothing to say.
    logarithmic : bool
        Whether the column is modelled by its logarithm.
    mean : float
        Of the column, on the scale of the model.
    weight_of_mean : float
        What is left of 1 after the weights of the cells of the same column.
    constant : float
        What the model adds whatever the values are.
    bounds : float
        What was cut off so that the value is plausible.
    calibration : float
        What turns the estimate of a category into its probability, as learned from hidden cells.
    rest : float
        Difference between the value and the sum: how far the solver was from the steady state, and rounding.
    known : KnownCells
    paths : list of list
        Nodes from the cell to the nodes of the largest contributions through the graph.
    """

    node: Any
    column: str
    value: float
    category: str | None = None
    note: str = ""
    logarithmic: bool = False
    mean: float = 0.0
    weight_of_mean: float = 1.0
    constant: float = 0.0
    bounds: float = 0.0
    calibration: float = 0.0
    rest: float = 0.0
    known: KnownCells = field(default_factory=KnownCells)
    paths: list[list[Any]] = field(default_factory=list)
    is_sum: bool = True

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary per known cell and per other part, as a DataFrame takes it; contributions add up."""
        known = self.known
        rows = [
            {"node": node, "column": column, "value": value, "hops": int(hops), "weight": weight, "contribution": part}
            for node, column, value, hops, weight, part in zip(
                known.nodes,
                known.columns,
                known.values.tolist(),
                known.hops,
                known.weights.tolist(),
                known.contributions.tolist(),
                strict=True,
            )
        ]
        others: list[tuple[str, float | None, float]] = (
            [("mean", self.weight_of_mean, self.mean)] if self.is_sum else []
        )
        others += [
            (name, None, part)
            for name in ("constant", "bounds", "calibration", "rest")
            if (part := getattr(self, name))
        ]
        return rows + [
            {"node": None, "column": name, "value": None, "hops": None, "weight": weight, "contribution": part}
            for name, weight, part in others
        ]

    def to_frame(self) -> Any:
        """The same as a DataFrame of pandas."""
        from pcfi.optional import load

        names = ["node", "column", "value", "hops", "weight", "contribution"]
        return load("pandas", "to_frame", "frames").DataFrame(self.to_rows(), columns=names)

    @property
    def title(self) -> str:
        """The cell and its value."""
        if self.category is not None:
            return f"{self.column} of {self.node!r}: {self.category}, with a probability of {share(self.value)}"
        return f"{self.column} of {self.node!r}: {number(self.value)}"

    def lines(self) -> list[tuple[str, str]]:
        """Weight and description for each line of the text."""
        if not self.is_sum:
            return []
        own = np.array([column == self.column for column in self.known.columns], dtype=np.bool_)
        own &= self.known.hops > 0
        own &= np.array([category == self.category for category in self.known.categories], dtype=np.bool_)
        lines = self._sources(own)
        mean = share(self.unscaled(self.mean)) if self.category is not None else number(self.unscaled(self.mean))
        name = "the share of the category in the column" if self.category is not None else "the mean of the column"
        name = "the geometric mean of the column" if self.logarithmic else name
        lines.append((share(self.weight_of_mean), f"{name}, {mean}") if lines else (mean, f"{name}, to start from"))
        lines += self._other_columns(~own)
        words = {
            "constant": "because the mean of skewed values lies above their median"
            if self.logarithmic
            else "whatever the values are",
            "bounds": "cut off, so that the value is plausible (bounds= allows more)",
            "calibration": "to make it a probability, as hidden cells of the column say",
            "rest": "not settled by the solver",
        }
        least = 1e-6 * (abs(self.value) + abs(self.mean))
        return lines + [
            (self.signed(part), text) for name, text in words.items() if abs(part := getattr(self, name)) > least
        ]

    def _sources(self, own: Array) -> list[tuple[str, str]]:
        order = np.flatnonzero(own)
        order = order[np.argsort(-np.abs(self.known.weights[order]), kind="stable")]
        known, lines = self.known, []
        for one in order[:MAX_SHOWN]:
            text = f"{known.words(one, repr(known.nodes[one]))}, {counted(int(known.hops[one]), 'hop')}"
            lines.append((share(known.weights[one]), text))
        rest = order[MAX_SHOWN:]
        if len(rest):
            lines.append((share(self.known.weights[rest].sum()), f"{counted(len(rest), 'other node')}"))
        return lines

    def _other_columns(self, others: Array) -> list[tuple[str, str]]:
        known, lines = self.known, []
        in_row = self._by_column(np.flatnonzero(others & (known.hops == 0)))
        for one, part in in_row[:MAX_SHOWN]:
            lines.append((self.signed(part), f"as {known.words(one, known.columns[one])} at the same node"))
        if len(in_row) > MAX_SHOWN:
            text = f"from {counted(len(in_row) - MAX_SHOWN, 'other column')} of the same node"
            lines.append((self.signed(sum(part for _, part in in_row[MAX_SHOWN:])), text))
        elsewhere = np.flatnonzero(others & (known.hops > 0))
        if len(elsewhere):
            names = sorted({known.columns[one] for one in elsewhere})
            columns = ", ".join(names[:MAX_SHOWN]) + (", ..." if len(names) > MAX_SHOWN else "")
            lines.append((self.signed(known.contributions[elsewhere].sum()), f"from {columns} of other nodes"))
        return lines

    def _by_column(self, places: Array) -> list[tuple[int, float]]:
        """One known cell per column, with the contributions of all its channels, the largest first."""
        known = self.known
        shown: dict[str, int] = {}
        total: dict[str, float] = {}
        for one in places.tolist():
            name = known.columns[one]
            total[name] = total.get(name, 0.0) + float(known.contributions[one])
            if name not in shown or known.values[one] > known.values[shown[name]]:  # the category that the node has
                shown[name] = one
        return [(shown[name], total[name]) for name in sorted(total, key=lambda name: -abs(total[name]))]

    def signed(self, part: float) -> str:
        """A contribution: a number with its sign, points of a probability, or a factor if logarithms are modelled."""
        if self.category is not None:
            return f"{100 * part:+.2g} %"
        return f"times {np.exp(part):.4g}" if self.logarithmic else f"{part:+,.4g}"

    def unscaled(self, value: float) -> float:
        """A value on the scale of the model in the column's unit."""
        return float(np.exp(value)) if self.logarithmic else value

    @property
    def remarks(self) -> list[str]:
        """Sentences below the list."""
        log = (
            "The logarithm of the column is modelled: the value is the geometric mean of the lines in per cent, "
            "weighted by them, times the factors."
        )
        return ([self.note] if self.note else []) + ([log] if self.logarithmic and self.is_sum else [])

    def __repr__(self) -> str:
        lines = self.lines()
        width = max((len(amount) for amount, _ in lines), default=0)
        return "\n".join([self.title, *(f"  {amount:>{width}}  {text}" for amount, text in lines), *self.remarks])

    def _repr_html_(self) -> str:
        from pcfi.explanation.explanation_html import explanation_html

        return explanation_html(self)


class Explanations(tuple[Explanation, ...]):
    """Explanations of several cells; prints one after the other, `to_frame()` has all of their rows."""

    __slots__ = ()

    def to_frame(self) -> Any:
        """A DataFrame of pandas with a row per known cell and filled cell: `filled_node` and `filled_column` first."""
        from pcfi.optional import load

        rows = [{"filled_node": one.node, "filled_column": one.column, **row} for one in self for row in one.to_rows()]
        return load("pandas", "to_frame", "frames").DataFrame(rows)

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        return "".join(one._repr_html_() for one in self)


def number(value: float) -> str:
    """A number in a text."""
    return f"{value:,.5g}" if abs(value) < 1e5 else f"{value:,.0f}"


def share(weight: float) -> str:
    """A weight in per cent; small ones are not rounded to 0."""
    percent = 100 * float(weight)
    if 0 < abs(percent) < 0.1:
        return "< 0.1 %" if percent > 0 else "> -0.1 %"
    return f"{percent:.1f} %" if abs(percent) < 10 else f"{percent:.0f} %"
