"""Values such as -999 that may mark missing cells, but were taken for measurements."""

import numpy as np

from pcfi.inputs.columns import shortened
from pcfi.inputs.problem import Problem

MISSING_MARKERS = (-999.0, -9999.0, -99999.0, 9999.0, 99999.0)  # values that often stand for missing cells


def missing_markers(problem: Problem) -> dict[float, list[str]]:
    """Smallest or largest values of columns that usually mark missing cells, and the names of these columns."""
    channels, columns, markers = problem.channels, problem.columns, dict[float, list[str]]()
    is_number = channels.n_known > 0
    is_number[problem.categorical] = False
    for ends in (channels.low, channels.high):
        for channel in np.flatnonzero(is_number & np.isin(ends, MISSING_MARKERS)):
            if int((problem.values[:, channel] == ends[channel]).sum()) == 1:
                continue  # one such value may be a measurement; from disk, values are not at hand, and none is found
            name = problem.column_names[columns[channel]] if problem.column_names else str(columns[channel])
            names = markers.setdefault(float(ends[channel]), [])
            names += [] if name in names else [name]
    return markers


def marker_text(value: float, names: list[str]) -> str:
    """Message about such a value; the caller adds what to do."""
    listed = shortened([repr(name) for name in names], 6)
    end = "smallest" if value < 0 else "largest"
    return f"{value:g} is the {end} value of {'column' if len(names) == 1 else 'columns'} {listed}"
