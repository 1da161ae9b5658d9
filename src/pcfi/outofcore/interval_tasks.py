"""Tasks and rows of the expected errors and intervals of a run.

spread    some channels -> what the known neighbours of each cell add to the logarithm of its expected error
"""

from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.error_model import cell_features
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.outofcore import file_names
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.stages.hops import Hops

CHANNELS_AT_A_TIME = 16  # of those that do not diffuse

Entry = dict[str, Any]


def spread_groups(run: OutOfCoreRun) -> list[Array]:
    """Channels that are looked at together: those of a panel, then those that need not diffuse, being constant."""
    panels = run.layout.panels
    others = np.flatnonzero(run.channels.n_known < run.n_nodes)
    others = np.setdiff1d(others, np.concatenate([*panels, others[:0]]))
    return [*panels, *(others[k : k + CHANNELS_AT_A_TIME] for k in range(0, len(others), CHANNELS_AT_A_TIME))]


def spread(run: OutOfCoreRun, index: int) -> Entry:
    """Look at the known neighbours of every missing cell of some channels."""
    model, channels, name = _model(run), spread_groups(run)[index], file_names.spread(index)
    patterns, local = np.unique(run.channels.patterns[channels], return_inverse=True)
    hops = Hops(run.codes_of(patterns), run.hops.n_levels, run.hops.n_unreachable[patterns], local)
    values, usual = _standardized(run, index, channels), model.errors.usual_spread[channels]
    run.folder.create(name, values.shape, np.float64)
    for rows in row_blocks(*values.shape):
        codes = hops.codes[rows][:, local]
        nodes, places = np.nonzero(hops.is_filled(codes))
        features = cell_features(run.graph, hops, values, nodes + rows.start, places, usual, model.errors.edge_weight)
        part = np.zeros(codes.shape)
        part[nodes, places] = model.errors.neighbour_part(features)
        run.folder.write_rows(name, rows.start, part)
    run.folder.sync(name)
    return {"checksums": [run.folder.part_checksum(name, 0, values.nbytes)]}


def _standardized(run: OutOfCoreRun, index: int, channels: Array) -> Array:
    """Known values of some channels at all nodes, on the scale of the model."""
    values = np.zeros((run.n_nodes, len(channels)))
    if index >= len(run.layout.panels):
        return values
    model = _model(run)
    degree = None if model.degree is None else model.degree.of_channels(channels)
    for rows in row_blocks(*values.shape):
        last = min(rows.stop, run.n_nodes)
        part = run.folder.read_rows(file_names.panel(index), rows.start, last, len(channels), run.dtype)
        part = part.astype(np.float64) if degree is None else degree.multiplied(part.astype(np.float64), rows)
        values[rows] = model.scale.standardized(part, channels)
    return values


def _model(run: OutOfCoreRun) -> ValueModel:
    if run.model is None:
        raise ValueError("there are no intervals without a value model")
    return run.model


def error_rows(run: OutOfCoreRun, start: int, end: int, hops: Hops) -> Array:
    """Expected error of every cell of some rows, in standard deviations of its channel."""
    neighbours = np.zeros((end - start, run.n_channels))
    for number, channels in enumerate(spread_groups(run)):
        part = run.folder.read_rows(file_names.spread(number), start, end, len(channels), np.float64)
        neighbours[:, channels] = part
    with np.errstate(all="ignore"):
        return _model(run).expected_errors_of_rows(hops, hops.codes[:, hops.patterns], neighbours)


def interval_rows(run: OutOfCoreRun, start: int, filled: Array, hops: Hops) -> Array:
    """Low end, high end and expected error of each column of numbers, side by side, for some rows."""
    model, values = _model(run), filled.astype(np.float64)
    errors = error_rows(run, start, start + len(filled), hops)
    with np.errstate(all="ignore"):
        half = model.half_widths(errors, hops, run.coverage)
        low, high = model.intervals(values, hops, half)
        unit = np.where(model.scale.logarithmic, np.abs(values), 1.0) * model.scale.unit
    numbers = run.number_channels
    sides = np.stack([part[:, numbers] for part in (low, high, errors * unit)], axis=2)
    return sides.reshape(len(filled), -1).astype(run.dtype)
