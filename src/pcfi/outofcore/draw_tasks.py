"""Tasks and rows of the draws of a run: completed tables that are plausible together, as `Imputation.draws` gives them.

relate    the sample -> how errors go together
scale     a pattern -> what its random fields have in common
field     some channels of a draw -> their random fields, at all nodes
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import FeatureError
from pcfi.estimation.value_model import ValueModel
from pcfi.explanation.drawn_rows import RowDrawing, RowEstimates
from pcfi.explanation.draws import unknown_errors
from pcfi.explanation.error_fields import FieldSampler, FieldScale
from pcfi.explanation.error_relations import ErrorRelations, centre_model, centre_rows, fit_relations
from pcfi.inputs.problem import Channels
from pcfi.outofcore import file_names
from pcfi.outofcore.estimation_tasks import stored_sample
from pcfi.outofcore.interval_tasks import error_rows
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.outofcore.tasks import WORD, known_nodes
from pcfi.stages.hops import Hops, count_hops

Entry = dict[str, Any]


def relate(run: OutOfCoreRun, index: int) -> Entry:
    """Learn from the sample how errors go together, in the precision that draws in memory have."""
    del index
    problem = stored_sample(run).problem
    problem = replace(problem, values=problem.values.astype(np.float64))
    with np.errstate(all="ignore"):
        relations = fit_relations(problem, _model(run), run.chosen)
    run.folder.save(file_names.RELATION_ROOTS, relations.roots)
    run.folder.save(file_names.RELATION_SHARES, relations.shares)
    return {}


def row_drawing(run: OutOfCoreRun) -> RowDrawing:
    """The arithmetic of the rows of all draws."""
    problem, names = run.surveyed, (file_names.RELATION_SHARES, file_names.RELATION_ROOTS)
    columns = [problem.column_names.index(name) for name in run.categories]
    return RowDrawing(
        model=_model(run),
        relations=ErrorRelations(*map(run.folder.load, names)),
        seed=run.settings.random_state,
        categorical=problem.categorical,
        empty=run.channels.n_known == 0,
        categories=[np.flatnonzero(problem.columns == number) for number in columns],
    )


def scale_count(run: OutOfCoreRun) -> int:
    """Number of patterns that have fields; the factors have one of their own, the last."""
    return run.n_patterns + bool(row_drawing(run).n_factors)


def scale(run: OutOfCoreRun, index: int) -> Entry:
    """What the fields of a pattern have in common."""
    sampler, alpha = FieldSampler(run.graph), run.chosen.alpha
    if index < run.n_patterns:
        found = sampler.scale(run.codes_of(np.array([index]))[:, 0], run.hops.n_levels, alpha)
    else:
        hops = _row_hops(run)
        found = sampler.scale(hops.codes[:, 0], hops.n_levels, alpha)
    arrays = np.stack([found.inverse, found.spread])
    run.folder.write_array(file_names.field_scale(index), arrays)
    return {"checksums": [run.folder.part_checksum(file_names.field_scale(index), 0, arrays.nbytes)]}


def _row_hops(run: OutOfCoreRun) -> Hops:
    """Hops to the nearest node that misses nothing."""
    complete = np.ones((run.n_nodes, 1), dtype=np.bool_)
    for first in range(0, run.n_channels, WORD):
        chosen = np.arange(first, min(first + WORD, run.n_channels))
        complete &= known_nodes(run, chosen)
    one, zero = np.zeros(1, dtype=np.int64), np.zeros(1)
    channels = Channels(n_known=one, low=zero, high=zero, mean=zero, patterns=one, representatives=one)
    return count_hops(run.part(complete, complete, channels))


def field_groups(run: OutOfCoreRun) -> list[list[int]]:
    """Numbers of the fields that are drawn together."""
    return row_drawing(run).field_groups(run.channels.n_known < run.n_nodes, FieldSampler(run.graph).lanes)


def field(run: OutOfCoreRun, index: int) -> Entry:
    """Draw the fields of some channels."""
    groups, drawing = field_groups(run), row_drawing(run)
    draw, group = divmod(index, len(groups))
    sampler, numbers = FieldSampler(run.graph), groups[group]
    patterns = [run.n_patterns if one >= run.n_channels else int(run.channels.patterns[one]) for one in numbers]
    stored = {
        one: FieldScale(*run.folder.map(file_names.field_scale(one), (2, run.n_nodes), sampler.dtype))
        for one in set(patterns)
    }
    drawn = sampler.draw(
        [stored[one] for one in patterns], drawing.field_shares[numbers], [drawing.stream(draw, one) for one in numbers]
    )
    name = file_names.field(draw, group)
    run.folder.write_array(name, drawn)
    return {"checksums": [run.folder.part_checksum(name, 0, drawn.nbytes)]}


def refuse_unknown_errors(run: OutOfCoreRun) -> None:
    """Raise `FeatureError` if too little is known about errors to draw them."""
    model, hops = _model(run), run.hops
    reached = hops.n_levels + 1 + bool(hops.n_unreachable.any())
    codes = np.arange(reached)[:, None]
    levels = Hops(codes, hops.n_levels, hops.n_unreachable[:1], np.zeros(run.n_channels, dtype=np.int64))
    with np.errstate(all="ignore"):
        half = model.half_spreads(np.ones((reached, run.n_channels)), levels, 0.9)[1:]
    _refuse_unknown(run, half)


def _refuse_unknown(run: OutOfCoreRun, deviations: Array) -> None:
    drawn = (run.channels.n_known < run.n_nodes) & (run.channels.n_known > 0)
    drawn[run.surveyed.categorical] = False
    unknown = drawn & ~np.isfinite(deviations).all(axis=0)
    if unknown.any():
        raise FeatureError(unknown_errors(run.surveyed, unknown))


class RunDraws:
    """The rows of all draws of a run."""

    def __init__(self, run: OutOfCoreRun) -> None:
        self._run, self._drawing, self._groups = run, row_drawing(run), field_groups(run)
        self.centre_model = centre_model(_model(run))

    def rows(self, start: int, filled: Array, estimates: Array, hops: Hops) -> Iterator[Array]:
        """Some rows of each draw, given those of the values, and of the model that draws lie around."""
        run, drawing = self._run, self._drawing
        with np.errstate(all="ignore"):
            errors = error_rows(run, start, filled.astype(np.float64), hops)
            deviations = drawing.deviations(errors, hops)
            _refuse_unknown(run, deviations)
            rows = RowEstimates(
                start=start,
                filled=filled.astype(np.float64),
                centres=centre_rows(self.centre_model, estimates.astype(np.float64), hops),
                deviations=deviations,
                known=hops.codes[:, hops.patterns] == 0,
            )
            yield from drawing.tables(rows, self._fields(start, start + len(filled)), range(run.n_draws))

    def _fields(self, start: int, end: int) -> Array:
        run = self._run
        out = np.zeros((run.n_draws, end - start, len(self._drawing.field_shares)), dtype=np.float32)
        for draw in range(run.n_draws):
            for group, numbers in enumerate(self._groups):
                name = file_names.field(draw, group)
                out[draw][:, numbers] = run.folder.read_rows(name, start, end, len(numbers), np.float32)
        return out


def _model(run: OutOfCoreRun) -> ValueModel:
    if run.model is None:
        raise ValueError("there are no draws without a value model")
    return run.model
