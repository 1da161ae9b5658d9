"""The value model: estimates each missing cell from the graph, the other columns of its node and its column's mean.

    x_c  =  mu_c  +  (what the other known columns of the node say)  +  k_c (graph estimate  -  what they let expect)

`channel_scale` puts every column on the scale of the model, `graph_estimates` supplies the graph's part (stage 1 of
PCFI), `factor_model` the other columns' part, `graph_link` weighs one against the other, and `error_model` says
how large errors are. Everything is estimated on known cells that were hidden; columns borrow from each other only as
far as their own evidence is thin.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.blas_threads import single_thread
from pcfi.estimation.category_probabilities import CategoryCalibration
from pcfi.estimation.cell_model import CellModel
from pcfi.estimation.channel_scale import ChannelScale
from pcfi.estimation.error_model import ErrorModel
from pcfi.estimation.graph_link import CellEstimate
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Problem
from pcfi.stages.degree_scaling import DegreeScale
from pcfi.stages.hops import Hops

MAX_BLOCK_CELLS = 1 << 16  # cells of a block of rows: its arrays stay in the cache


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueModel:
    """A fitted value model.

    Attributes
    ----------
    scale : ChannelScale
    cells : CellModel
    degree : DegreeScale or None
        What features are divided by while they diffuse.
    errors : ErrorModel
    categories : dict from the number of a column to CategoryCalibration
    """

    scale: ChannelScale
    cells: CellModel
    degree: DegreeScale | None
    errors: ErrorModel
    categories: dict[int, CategoryCalibration] = field(default_factory=dict)

    def prepare(self, problem: Problem) -> Problem:
        """The problem that is diffused: on the scale of the model, divided by powers of the degree if that helps."""
        transformed = self.scale.transformed(problem)
        return transformed if self.degree is None else self.degree.divide(transformed)

    @property
    def prepares(self) -> bool:
        """Whether values are changed before they diffuse."""
        return bool(self.scale.logarithmic.any()) or self.degree is not None

    def prepared_rows(self, values: Array, rows: slice) -> Array:
        """What `prepare` makes of the values of some rows."""
        transformed = self.scale.transformed_rows(values)
        return transformed if self.degree is None else self.degree.divided(transformed, rows)

    def of_rows(self, rows: slice) -> "ValueModel":
        """The model of a part of the nodes, which are numbered anew."""
        return self if self.degree is None else replace(self, degree=self.degree.of_rows(rows))

    def apply(self, problem: Problem, hops: Hops, out: Array, *, fill_unreachable: bool) -> None:
        """Turn the diffused values in `out` into estimates, in the units of `problem`; known cells get their values.

        Unreachable cells are estimated from the other columns of their node, or hold the mean, if `fill_unreachable`.
        """
        line = self._line()

        def fill(rows: slice) -> None:
            if line is None:
                self._apply_rows(problem, hops, rows, out[rows], fill_unreachable=fill_unreachable)
            else:
                self._apply_line(line, problem, hops, rows, out[rows], fill_unreachable=fill_unreachable)

        with single_thread():
            for_row_blocks(out.shape, fill)

    def _apply_rows(self, problem: Problem, hops: Hops, rows: slice, out: Array, *, fill_unreachable: bool) -> None:
        """`apply` for some rows."""
        codes = _expanded(hops, rows)
        known, filled = codes == 0, hops.is_filled(codes)
        diffused = out.astype(np.float64)
        if self.degree is not None:
            diffused = self.degree.multiplied(diffused, rows)
        diffused[~filled] = np.nan
        estimate = self.estimate(np.where(known, problem.values[rows], 0.0), known, diffused)
        values = self.scale.plausible(self.scale.original(estimate.value + self.scale.mean_shift(estimate.variance)))
        if hops.n_unreachable.any():
            nothing = ~hops.is_reachable(codes) & ~self._says_something(known)
            values = np.where(nothing, self.scale.typical, values)
        chosen = ~known if fill_unreachable else filled
        np.copyto(out, values, where=chosen, casting="same_kind")
        np.copyto(out, problem.values[rows], where=known)

    def _line(self) -> tuple[Array, Array] | None:
        """Intercept and slope of each channel's estimate in the diffused value; None if it is not on a line."""
        if self.cells.uses_rows or self.scale.logarithmic.any():
            return None
        ends = np.stack([self.scale.location, self.scale.location + self.scale.unit])
        nothing = np.zeros(ends.shape, dtype=np.bool_)
        low, high = self.scale.original(self.estimate(np.zeros(ends.shape), nothing, ends).value)
        slope = (high - low) / self.scale.unit
        return low - slope * self.scale.location, slope

    def _apply_line(
        self,
        line: tuple[Array, Array],
        problem: Problem,
        hops: Hops,
        rows: slice,
        out: Array,
        *,
        fill_unreachable: bool,
    ) -> None:
        """`apply` for some rows of estimates that are on a line in the diffused value."""
        codes, bounds = _expanded(hops, rows), (self.scale.low, self.scale.high)
        (intercept, slope), (low, high) = ([part.astype(out.dtype) for part in two] for two in (line, bounds))
        values = (
            out * slope if self.degree is None else out * (slope * self.degree.by_node[rows, None].astype(out.dtype))
        )
        values += intercept
        np.copyto(out, np.clip(values, low, high, out=values), where=hops.is_filled(codes))
        if fill_unreachable and hops.n_unreachable.any():
            np.copyto(out, self.scale.typical, where=~hops.is_reachable(codes), casting="same_kind")
        np.copyto(out, problem.values[rows], where=codes == 0)

    def estimate(self, values: Array, known: Array, diffused: Array) -> CellEstimate:
        """Estimate rows from known values (in their own units) and diffused ones (on the scale of the model)."""
        standardized = np.where(known, self._standardized(values), 0.0)
        return self.cells.estimate(standardized, known, self.scale.standardized(diffused))

    def _says_something(self, known: Array) -> Array:
        """Rows that know a column which explains others."""
        explains = (self.cells.factors.loadings != 0).any(axis=1)
        return np.asarray((known & explains).any(axis=1, keepdims=True))

    def standard_deviations(self, known: Array, reachable: Array) -> Array:
        """Standard deviation that the model gives every cell of some rows, from what is known in the row."""
        return np.sqrt(self.cells.variance(known, reachable))

    def expected_errors(self, graph: Graph, hops: Hops, filled: Array) -> Array:
        """Expected absolute error of every cell, in standard deviations of its channel; 0 if known."""
        out, known = np.empty(filled.shape), np.empty(filled.shape)
        counting_graph = self.errors.counting_graph(graph)

        def standardize(rows: slice) -> None:
            known[rows] = np.where(_expanded(hops, rows) == 0, self._standardized(filled[rows]), np.nan)

        def expect(rows: slice) -> None:
            neighbours = self.errors.neighbour_part_of_rows(counting_graph, hops, known, rows)
            out[rows] = self.expected_errors_of_rows(filled[rows], hops, _expanded(hops, rows), neighbours)

        for_row_blocks(filled.shape, standardize)
        for_row_blocks(filled.shape, expect)
        return out

    def expected_errors_of_rows(self, filled: Array, hops: Hops, codes: Array, neighbours: Array) -> Array:
        """The same for some rows, given their hops codes and what their neighbours add to the logarithm."""
        reachable = hops.is_reachable(codes)
        deviations = self.standard_deviations(codes == 0, reachable)
        out = self.errors.expected_of_rows(np.log(deviations), neighbours, self._standardized(filled), codes)
        ratio = deviations / np.sqrt(self.cells.marginal_variance)
        out = np.where(reachable, out, self.errors.expected_deviation() * np.minimum(ratio, 1.0))
        out = np.where(np.isnan(self.errors.of_constants), out, self.errors.of_constants)
        out = np.where(np.logical_or(*self.scale.is_cut(filled)), np.maximum(out, self.scale.margin), out)
        out[codes == 0] = 0.0
        return out

    def _standardized(self, filled: Array) -> Array:
        if not self.scale.logarithmic.any():
            return self.scale.standardized(filled)
        with np.errstate(divide="ignore", invalid="ignore"):
            transformed = np.where(self.scale.logarithmic, np.log(filled), filled)
        return self.scale.standardized(transformed)

    def half_spreads(self, expected: Array, hops: Hops, coverage: float) -> Array:
        """How far the errors of every cell spread, in standard deviations, given its expected error."""
        factors, out = self.errors.spread_factors(coverage), np.empty(expected.shape)

        def multiply(rows: slice) -> None:
            codes = _expanded(hops, rows)
            out[rows] = factors.half_widths(expected[rows], codes, hops.is_reachable(codes))

        for_row_blocks(expected.shape, multiply)
        return out

    def intervals(self, filled: Array, hops: Hops, expected: Array, coverage: float, dtype: Any) -> tuple[Array, Array]:
        """Lowest and highest value of every cell, given its expected error; known cells have their value twice."""
        factors = self.errors.interval_factors(coverage)
        low, high = np.empty(filled.shape, dtype=dtype), np.empty(filled.shape, dtype=dtype)

        def fill(rows: slice) -> None:
            codes = _expanded(hops, rows)
            half = factors.half_widths(expected[rows], codes, hops.is_reachable(codes))
            low[rows], high[rows] = self._ends(filled[rows].astype(np.float64), hops, codes, half)

        for_row_blocks(filled.shape, fill)
        return low, high

    def _ends(self, filled: Array, hops: Hops, codes: Array, half_widths: Array) -> tuple[Array, Array]:
        """Ends of the intervals of some rows, within what is possible."""
        standardized, is_known = self._standardized(filled), half_widths == 0
        if self.scale.logarithmic.any():
            deviations = self.standard_deviations(codes == 0, hops.is_reachable(codes))
            standardized -= self.scale.mean_shift(deviations**2)
        low = np.maximum(self.scale.original(standardized - half_widths), self.scale.least)
        high = np.minimum(self.scale.original(standardized + half_widths), self.scale.greatest)
        below, above = self.scale.is_cut(filled)
        low, high = np.where(below, self.scale.least, low), np.where(above, self.scale.greatest, high)
        low, high = self.scale.reach_mode(filled, np.minimum(low, filled), np.maximum(high, filled))
        return np.where(is_known, filled, low), np.where(is_known, filled, high)


def _expanded(hops: Hops, rows: slice) -> Array:
    """Codes of every channel in some rows; not to be written to."""
    codes, n_channels = hops.codes[rows], len(hops.patterns)
    return np.broadcast_to(codes, (len(codes), n_channels)) if codes.shape[1] == 1 else codes[:, hops.patterns]


def row_blocks(n_rows: int, n_channels: int) -> Iterator[slice]:
    """Slices of rows with a bounded number of cells each."""
    size = max(1, MAX_BLOCK_CELLS // max(n_channels, 1))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def for_row_blocks(shape: tuple[int, int], work: Callable[[slice], None]) -> None:
    """Call `work` with slices of rows that cover a table, on all threads."""
    from pcfi._kernels.threads import run_tasks

    def task(rows: slice) -> Callable[[Any], None]:
        return lambda _: work(rows)

    blocks = list(row_blocks(*shape))
    run_tasks([task(rows) for rows in blocks], inline=len(blocks) == 1)
