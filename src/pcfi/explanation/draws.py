"""Draws of completed tables: the estimates plus random errors with realistic correlations."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends import backend_for
from pcfi.cell_info import CellInfo
from pcfi.errors import ParameterError
from pcfi.estimation.result import seed_of
from pcfi.estimation.sample import draw_sample
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.explanation.drawn_rows import RowDrawing, RowEstimates
from pcfi.explanation.error_fields import FieldSampler, FieldScale
from pcfi.explanation.error_relations import centre_model, centre_rows, fit_relations
from pcfi.inputs import tensors
from pcfi.inputs.columns import shortened
from pcfi.inputs.problem import Problem, survey
from pcfi.pipeline import fill
from pcfi.stages.hops import count_hops


def draw_tables(cells: CellInfo, m: int, random_state: Any) -> Iterator[Any]:
    """Completed tables, one at a time, in the caller's container; checks everything before the first."""
    check_count(m)
    if cells.hops is None or cells.model is None or cells.settings.unreachable != "mean":
        raise ParameterError(
            "draws need the model of values, and this result has none: impute with objective='values', method 'pcfi' "
            "and unreachable='mean'"
        )
    drawing = Drawing(cells, cells.model, seed_of(random_state))
    unknown = np.asarray(~np.isfinite(drawing.deviations).all(axis=0))
    if unknown.any():
        raise ParameterError(unknown_errors(cells.problem, unknown))
    return (drawing.table(number) for number in range(int(m)))


def unknown_errors(problem: Problem, unknown: Array) -> str:
    """Why nothing can be drawn."""
    names = shortened([problem.channel_name(channel) for channel in np.flatnonzero(unknown).tolist()])
    return f"draws need errors learned from hidden cells, and too few cells of {names} could be hidden"


def check_count(m: object, parameter: str = "m") -> None:
    """Refuse a number of draws that is no positive integer."""
    if isinstance(m, bool) or not isinstance(m, Integral) or m < 1:
        raise ParameterError(f"must be an integer of at least 1, got {m!r}", parameter=parameter)


@dataclass(frozen=True, eq=False)
class Drawing:
    """Data that all draws of a result share."""

    cells: CellInfo
    model: ValueModel
    seed: int

    @cached_property
    def rows(self) -> RowDrawing:
        """The arithmetic of rows."""
        cells = self.cells
        return RowDrawing(
            model=self.model,
            relations=fit_relations(draw_sample(cells.problem).problem, self.model, cells.settings),
            seed=self.seed,
            categorical=cells.categorical,
            empty=cells.problem.channels.n_known == 0,
            categories=[np.flatnonzero(cells.problem.columns == number) for number in cells.names.categories],
        )

    @cached_property
    def deviations(self) -> Array:
        """Standard deviation of every cell on the scale of the model; 0 if known."""
        cells, errors = self.cells, self.cells.standardized_errors
        return self.rows.deviations(np.zeros(cells.filled.shape) if errors is None else errors, cells.host_hops)

    @cached_property
    def centres(self) -> Array:
        """What draws lie around, on the scale of the model."""
        model = centre_model(self.model)
        return centre_rows(model, self._estimates(model), self.cells.host_hops)

    def _estimates(self, model: ValueModel) -> Array:
        """Values filled by a model, in the precision that values were filled in."""
        if model is self.model:
            return self.cells.host_values
        problem = self.cells.problem
        problem = replace(problem, values=problem.values.astype(self.cells.dtype))
        filled = fill(problem, replace(self.cells.settings, progress=False), backend_for(problem), model)
        return np.asarray(filled.values, dtype=np.float64)

    @cached_property
    def _sampler(self) -> FieldSampler:
        return FieldSampler(self.cells.graph)

    @cached_property
    def _scales(self) -> list[FieldScale]:
        """The field of each pattern."""
        hops, alpha = self.cells.host_hops, self.cells.settings.alpha
        return [self._sampler.scale(codes, hops.n_levels, alpha) for codes in hops.codes.T]

    @cached_property
    def _row_scale(self) -> FieldScale:
        """The field of the factors: on nodes that miss something."""
        problem = self.cells.problem
        complete = np.asarray(problem.mask.all(axis=1)).reshape(-1, 1)
        values = np.zeros(complete.shape)
        hops = count_hops(replace(problem, values=values, mask=complete, channels=survey(values, complete)))
        return self._sampler.scale(hops.codes[:, 0], hops.n_levels, self.cells.settings.alpha)

    def fields(self, draw: int) -> Array:
        """Errors of all nodes in each channel and factor, as neighbours have them in common."""
        hops, shares = self.cells.host_hops, self.rows.field_shares
        out = np.zeros((len(self.cells.filled), len(shares)), dtype=np.float32)
        incomplete = np.asarray(~self.cells.problem.mask.all(axis=0))
        for numbers in self.rows.field_groups(incomplete, self._sampler.lanes):
            scales = [
                self._row_scale if number >= len(hops.patterns) else self._scales[hops.patterns[number]]
                for number in numbers
            ]
            out[:, numbers] = self._sampler.draw(
                scales, shares[numbers], [self.rows.stream(draw, number) for number in numbers]
            )
        return out

    def table(self, draw: int) -> Any:
        """One completed table."""
        cells, fields = self.cells, self.fields(draw)
        drawn = np.empty((len(fields), len(cells.columns)))
        for rows in row_blocks(len(fields), len(cells.columns)):
            estimates = RowEstimates(
                start=rows.start,
                filled=cells.host_values[rows],
                centres=self.centres[rows],
                deviations=self.deviations[rows],
                known=cells.problem.mask[rows],
            )
            (drawn[rows],) = self.rows.tables(estimates, fields[None, rows], range(draw, draw + 1))
        drawn = drawn.astype(cells.dtype)
        return cells.wrap_values(drawn if isinstance(cells.filled, np.ndarray) else tensors.beside(cells.filled, drawn))
