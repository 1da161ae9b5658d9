"""Tasks and rows of the expected errors and intervals of a run.

spread    some channels -> what the known neighbours of each cell add to the logarithm of its expected error
"""

from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.value_model import ValueModel, for_row_blocks
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
    name = file_names.spread(index)
    part = neighbour_part(run, index, run.graph)
    run.folder.write_array(name, part)
    return {"checksums": [run.folder.part_checksum(name, 0, part.nbytes)]}


def neighbour_part(run: OutOfCoreRun, index: int, graph: Graph, nodes: Array | None = None) -> Array:
    """What neighbours add to the logarithm of the errors of some channels, for all rows of a graph.

    `nodes` are those of the columns of the graph, the first of them those of its rows; None: all nodes.
    """
    errors, channels = _model(run).errors, spread_groups(run)[index]
    patterns, local = np.unique(run.channels.patterns[channels], return_inverse=True)
    hops = Hops(run.codes_of(patterns, nodes), run.hops.n_levels, run.hops.n_unreachable[patterns], local)
    known, counting_graph = _known_values(run, index, hops, nodes), errors.counting_graph(graph)
    out = np.empty((len(graph.indptr) - 1, len(channels)))

    def look(rows: slice) -> None:
        out[rows] = errors.neighbour_part_of_rows(counting_graph, hops, known, rows, channels)

    for_row_blocks(out.shape, look)
    return out


def _known_values(run: OutOfCoreRun, index: int, hops: Hops, nodes: Array | None) -> Array:
    """Known values of some channels at all nodes, or at some, on the scale of the model; NaN where one is missing."""
    model, name, channels = _model(run), file_names.panel(index), spread_groups(run)[index]
    degree = None if model.degree is None else model.degree.of_channels(channels)
    known = np.zeros((len(hops.codes), len(channels)))

    def read(rows: slice) -> None:
        chosen = rows if nodes is None else nodes[rows]
        if index < len(run.layout.panels):
            stored = run.folder.map(name, (run.n_nodes, len(channels)), run.dtype)
            part = np.asarray(stored[chosen], dtype=np.float64)
            part = part if degree is None else degree.multiplied(part, chosen)
            known[rows] = model.scale.standardized(part, channels)
        known[rows][hops.codes[rows][:, hops.patterns] != 0] = np.nan

    for_row_blocks(known.shape, read)
    return known


def _model(run: OutOfCoreRun) -> ValueModel:
    if run.model is None:
        raise ValueError("there are no intervals without a value model")
    return run.model


def error_rows(run: OutOfCoreRun, start: int, filled: Array, hops: Hops) -> Array:
    """Expected error of every cell of some filled rows, in standard deviations of its channel."""
    end, neighbours = start + len(filled), np.zeros((len(filled), run.n_channels))
    for number, channels in enumerate(spread_groups(run)):
        part = run.folder.read_rows(file_names.spread(number), start, end, len(channels), np.float64)
        neighbours[:, channels] = part
    with np.errstate(all="ignore"):
        return _model(run).expected_errors_of_rows(filled, hops, hops.codes[:, hops.patterns], neighbours)


def interval_rows(run: OutOfCoreRun, start: int, filled: Array, hops: Hops) -> Array:
    """Low end, high end and expected error of each numeric column, side by side, for some rows."""
    model, values = _model(run), filled.astype(np.float64)
    errors = error_rows(run, start, values, hops)
    with np.errstate(all="ignore"):
        low, high = model.intervals(values, hops, errors, run.coverage, np.float64)
        unit = np.where(model.scale.logarithmic, np.abs(values), 1.0) * model.scale.unit
    numbers = run.number_channels
    sides = np.stack([part[:, numbers] for part in (low, high, errors * unit)], axis=2)
    return sides.reshape(len(filled), -1).astype(run.dtype)
