"""Tasks and rows of the expected errors and intervals of a run.

spread    some channels -> what the known neighbours of each cell add to the logarithm of its expected error
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.error_model import cell_features
from pcfi.estimation.value_model import ValueModel, row_blocks
from pcfi.inputs.graphs import Graph
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
    name, n_channels = file_names.spread(index), len(spread_groups(run)[index])
    run.folder.create(name, (run.n_nodes, n_channels), np.float64)
    for start, part in neighbour_parts(run, index, run.graph):
        run.folder.write_rows(name, start, part)
    run.folder.sync(name)
    return {"checksums": [run.folder.part_checksum(name, 0, run.n_nodes * n_channels * 8)]}


def neighbour_parts(
    run: OutOfCoreRun, index: int, graph: Graph, nodes: Array | None = None
) -> Iterator[tuple[int, Array]]:
    """What neighbours add to the errors of some rows of a graph at a time, each part with the number of its first row.

    `nodes` are those of the columns of the graph, the first of them those of its rows; None: all nodes.
    """
    model, channels = _model(run), spread_groups(run)[index]
    patterns, local = np.unique(run.channels.patterns[channels], return_inverse=True)
    hops = Hops(run.codes_of(patterns, nodes), run.hops.n_levels, run.hops.n_unreachable[patterns], local)
    values, usual = _standardized(run, index, channels, nodes), model.errors.usual_spread[channels]
    for rows in row_blocks(len(graph.indptr) - 1, len(channels)):
        codes = hops.codes[rows][:, local]
        cells, places = np.nonzero(hops.is_filled(codes))
        features = cell_features(graph, hops, values, cells + rows.start, places, usual, model.errors.edge_weight)
        part = np.zeros(codes.shape)
        part[cells, places] = model.errors.neighbour_part(features)
        yield rows.start, part


def _standardized(run: OutOfCoreRun, index: int, channels: Array, nodes: Array | None) -> Array:
    """Known values of some channels at all nodes, or at some, on the scale of the model."""
    values = np.zeros((run.n_nodes if nodes is None else len(nodes), len(channels)))
    if index >= len(run.layout.panels):
        return values
    model, name = _model(run), file_names.panel(index)
    degree = None if model.degree is None else model.degree.of_channels(channels)
    for rows in row_blocks(*values.shape):
        if nodes is None:
            part = run.folder.read_rows(name, rows.start, rows.stop, len(channels), run.dtype)
        else:
            part = run.folder.map(name, (run.n_nodes, len(channels)), run.dtype)[nodes[rows]]
        part = part.astype(np.float64)
        if degree is not None:
            part = degree.multiplied(part, rows if nodes is None else nodes[rows])
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
