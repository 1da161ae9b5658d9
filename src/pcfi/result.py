"""The result of `impute`: the filled values, their confidence and expected error, and convergence diagnostics."""

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.cell_info import CellInfo
from pcfi.errors import ParameterError, counted
from pcfi.estimation.result import ColumnReports, Tuning
from pcfi.inputs import tensors
from pcfi.inputs.columns import shortened
from pcfi.settings import check_coverage


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Imputation:
    """Filled features, with convergence diagnostics and the confidence of every cell.

    Attributes
    ----------
    values : array of the shape of the features
        The features with the missing cells filled, in their container and dtype (integers become float64); known cells
        are bit-identical to the input.
    method : str
        The method used.
    alpha, beta : float or None
        The parameters used; None for methods that have none.
    objective : {"values", "representation"} or None
        What the result is for; None for methods other than "pcfi".
    steps : int
        Diffusion steps taken by the channel that took the most.
    residual : float
        The largest change of any missing cell in one further diffusion step, relative to the range of its channel's
        known values (including 0 where diffusion starts from 0, and for "fp"). For `UntilSettled` it is measured by a
        step without self-loops, which changes more.
    status : str
        Convergence in a sentence.
    converged : bool
        Whether the solver reached its goal: its `rtol`, or its number of steps.
    n_missing : int
        Number of cells that were missing.
    n_unreachable : int
        Number of missing cells that no source can reach; `unreachable=` sets their value. For methods that do not
        count hops, the cells in channels without any known value (none for "zero").
    shape : tuple of int
        Number of nodes and channels; a categorical column counts as one.
    column_names : tuple of str
        Names of the filled columns; empty if the features have none.
    tuning : Tuning or None
        Parameters that "auto" chose, and the evidence for them.
    center : ndarray or None
        Mean of each channel, subtracted in `representation`; None if nothing is subtracted.
    position : ndarray or None
        Position channels, scaled to the features; None if none were requested.
    cells : CellInfo
        Per-cell data, before it is put into the caller's container.
    parameters : dict
        Options of `impute` that reproduce the result: `impute(features, graph, **result.parameters)`.
    """

    values: Any
    method: str
    alpha: float | None
    beta: float | None
    objective: str | None
    steps: int
    residual: float
    status: str
    converged: bool
    n_missing: int
    n_unreachable: int
    shape: tuple[int, int]
    column_names: tuple[str, ...]
    tuning: Tuning | None
    center: Array | None
    position: Array | None
    cells: CellInfo
    parameters: dict[str, Any]

    @cached_property
    def hops(self) -> Any:
        """Hops from every cell to its nearest source: 0 if known, `pcfi.UNREACHABLE` if no source reaches it.

        None for methods that do not count hops. Computed when first used. A table if the features are a table.
        """
        hops = self.cells.hops
        return None if hops is None else self.cells.wrap(hops.expand())

    @cached_property
    def confidence(self) -> Any:
        """Confidence of every cell, alpha^hops: 1 if known, 0 if unreachable. None for methods without confidence.

        A table if the features are a table.
        """
        hops = self.cells.hops
        if hops is None or self.alpha is None:
            return None
        return self.cells.wrap(hops.confidence(self.alpha, self.cells.dtype))

    @cached_property
    def representation(self) -> Any:
        """Features to train a network on: the values minus `center`, and the `position` channels, if any.

        In a table, position channels are the columns position_1, position_2, ...
        """
        features = self.values if self.center is None else self._centred(self.center)
        return features if self.position is None else self.cells.append(features, self.position)

    def _centred(self, center: Array) -> Any:
        filled, center = self.cells.filled, center.astype(self.cells.dtype)
        is_array = isinstance(filled, np.ndarray)
        return self.cells.wrap(filled - (center if is_array else tensors.beside(filled, center)))

    @cached_property
    def expected_error(self) -> Any:
        """Expected absolute error of every cell, in its column's unit: 0 if known. None without a value model.

        Learned from hidden known cells. Categorical columns have none (NaN in a table).
        """
        errors, model = self.cells.standardized_errors, self.cells.model
        if errors is None or model is None:
            return None
        scale = np.where(model.scale.logarithmic, np.abs(self.cells.host_values), 1.0) * model.scale.unit
        return self.cells.wrapped(errors * scale)

    def interval(self, coverage: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper bound of every cell: the true value lies between them with a probability of `coverage`.

        Learned from hidden known cells, and limited to the possible values (see `bounds` of `impute`). For known cells
        both bounds equal the value. If too few cells could be hidden, intervals are infinite. Returns two tables if the
        features are a table; categorical columns have no intervals.
        """
        check_coverage(coverage)
        cells, errors = self.cells, self.cells.standardized_errors
        if errors is None or cells.model is None:
            raise ParameterError(
                "intervals are available only for method='pcfi' with objective='values': this result has no errors "
                "learned from hidden cells"
            )
        low, high = cells.model.intervals(cells.host_values, cells.host_hops, errors, coverage, cells.dtype)
        low[:, cells.categorical] = high[:, cells.categorical] = np.nan
        return cells.wrapped(low), cells.wrapped(high)

    def probabilities(self, column: str) -> Any:
        """Probability of each category of a column at every node, as a table with one column per category.

        Calibrated on hidden known cells; a known cell has probability 1 for its category.
        """
        cells = self.cells
        categories = {} if cells.model is None else cells.model.categories
        numbers = {self.column_names[number]: number for number in categories}
        if column not in numbers or cells.wrap_categories is None or cells.model is None:
            names = shortened(list(numbers)) if numbers else "this result has none"
            raise ParameterError(
                f"must be a categorical column that was filled by the value model ({names}), got {column!r}",
                parameter="column",
            )
        number = numbers[column]
        channels = np.flatnonzero(cells.columns == number)
        estimates, known = cells.host_values[:, channels], cells.host_hops.expand()[:, channels[:1]] == 0
        calibrated = categories[number].probabilities(estimates)
        return cells.wrap_categories(number, np.where(known, estimates, calibrated))

    def explain(self, node: Any, column: Any) -> Any:
        """Show which known cells the value of a cell is computed from, and with what weight.

        Exact, given the fitted parameters: the parts add up to the value, and a weight is the derivative of the value
        with respect to a known value.

        Parameters
        ----------
        node : id or row number, or a list of them
            Id in a table, row number in an array.
        column : name or number, or a list of them
            Two lists are matched pairwise.

        Returns
        -------
        Explanation, or Explanations for a list
            Prints as text and, in a notebook, with a picture; `to_frame()` returns a table.

        Examples
        --------
        >>> import numpy as np, pcfi
        >>> table = np.stack([np.arange(30.0), np.arange(30.0) % 7], axis=1)
        >>> table[[4, 11, 12, 20], 0] = np.nan
        >>> result = pcfi.impute(table, [np.arange(29), np.arange(1, 30)])
        >>> explanation = result.explain(4, 0)
        >>> sorted(explanation.known.nodes[:2])
        [3, 5]
        >>> parts = explanation.to_rows()
        >>> bool(np.isclose(sum(part["contribution"] for part in parts), result.values[4, 0]))
        True
        """
        from pcfi.explanation.explaining import explain

        return explain(self.cells, node, column)

    @cached_property
    def surprise(self) -> Any:
        """Known cells, sorted by how much they differ from the model's prediction without them.

        The first ones may be data errors. A `Surprises` object: prints the first ten, `to_frame()` returns a table.
        Computed when first used, which takes about as long as `impute`.
        """
        from pcfi.explanation.surprise import find_surprises

        return find_surprises(self.cells)

    def draws(self, m: int = 20, *, random_state: Any = None) -> Any:
        """Random completed tables for multiple imputation.

        Analyse each table and combine the results with `pcfi.pool`. Known cells do not change. Errors of neighbouring
        cells and of the columns of a node are correlated, and each cell's spread matches its 90 % interval.

        Parameters
        ----------
        m : int, default=20
            Number of tables. They are generated one at a time, so memory does not grow with m.
        random_state : int, numpy Generator or None, default=None
            None is a fixed seed: the same call gives the same tables.

        Returns
        -------
        iterator of tables
            In the container of `values`.
        """
        from pcfi.explanation.draws import draw_tables

        return draw_tables(self.cells, m, random_state)

    @property
    def columns(self) -> ColumnReports:
        """Errors on hidden cells, predictors and a verdict for each column."""
        return ColumnReports() if self.tuning is None else self.tuning.columns

    @cached_property
    def unreachable(self) -> Any:
        """Mask of the cells that no source can reach."""
        return self.cells.wrap(self.cells.unreachable)

    def _facts(self) -> list[tuple[str, str]]:
        nodes, channels = self.shape
        facts = [
            ("method", self.method),
            ("features", f"{counted(nodes, 'node')} x {counted(channels, 'channel')}"),
            *([("channels", shortened(self.column_names))] if self.column_names else []),
            ("missing", f"{counted(self.n_missing, 'cell')} ({self.n_missing / (nodes * channels):.1%})"),
        ]
        if self.alpha is not None:
            facts.append(("parameters", f"alpha={self.alpha:g}, beta={self.beta:.3g}"))
            facts.append(("objective", f"{self.objective}" + (", centred" if self.center is not None else "")))
        if self.position is not None:
            facts.append(("position", counted(self.position.shape[1], "channel")))
        if self.n_unreachable:
            facts.append(("unreachable", counted(self.n_unreachable, "cell")))
        return [*facts, ("status", self.status)]

    def __repr__(self) -> str:
        lines = [f"  {name:<12}{text}" for name, text in self._facts()]
        return "Imputation\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._facts()
        )
        return f"<table><caption>Imputation</caption><tbody>{rows}</tbody></table>"
