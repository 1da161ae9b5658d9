"""Gaps in series: the kind of gap of each cell, and hiding known cells in the same pattern as the missing cells.

The kind depends on the time between the readings before and after, in typical steps. Hidden gaps are copies of real
gaps, of the same length, on other nodes and at other times; gaps at an end of the series stay at that end.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pcfi._typing import Array

KINDS = ("single reading", "short gap", "outage", "long outage", "open end", "never reported")
NEVER, OPEN = 5, 4
SPANS = (1.5, 8.5, 64.5)  # readings missing in a row: 1; 2 to 8; 9 to 64; more
MAX_SHARE_HIDDEN = 0.2  # of the known cells, for all kinds in one round
MAX_HIDDEN = 60_000  # cells of one kind in one round; enough to fit a few parameters
MIN_SENSORS_HIDDEN = 20  # whole sensors, over all rounds
SHARE_OF_SENSORS = 0.1  # of the sensors, over all rounds, if that is more; at most twice this share in one round


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of cells without a reading: node, first and last time (inclusive)."""

    node: Array
    first: Array
    last: Array

    @property
    def length(self) -> Array:
        """Number of times."""
        return self.last - self.first + 1


def find_runs(known: Array) -> Runs:
    """All runs of unknown cells."""
    edges = np.diff(np.pad(~known, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    node, first = np.nonzero(edges == 1)
    return Runs(node, first, np.nonzero(edges == -1)[1] - 1)


def kinds_of_runs(runs: Runs, steps: Array) -> Array:
    """Kind of each run; `steps` are times in typical steps."""
    last = len(steps) - 1
    at_start, at_end = runs.first == 0, runs.last == last
    missed = steps[np.minimum(runs.last + 1, last)] - steps[np.maximum(runs.first - 1, 0)] - 1
    kinds = np.asarray(np.searchsorted(SPANS, missed))
    kinds[at_start | at_end] = OPEN
    kinds[at_start & at_end] = NEVER
    return kinds


def kinds_of_cells(known: Array, steps: Array) -> Array:
    """Kind of gap of each cell; -1 where a reading is known."""
    return classify_cells(known, steps)[0]


def classify_cells(known: Array, steps: Array) -> tuple[Array, Array]:
    """Kind of gap of each cell, and the number of its gap; -1 where a reading is known."""
    runs = find_runs(known)
    kinds, gaps = np.full(known.shape, -1, dtype=np.int8), np.full(known.shape, -1, dtype=np.int32)
    kinds[~known] = np.repeat(kinds_of_runs(runs, steps), runs.length)
    gaps[~known] = np.repeat(np.arange(len(runs.node)), runs.length)
    return kinds, gaps


def typical_step(known: Array, times: Array) -> float:
    """Median time between two readings of a node."""
    if len(times) < 2:
        return 1.0
    node, place = np.nonzero(known)
    apart = np.diff(times[place])[node[1:] == node[:-1]]
    if not len(apart):
        apart = np.diff(times)
    return float(np.median(apart))


@dataclass(frozen=True, eq=False)
class CopiedCells:
    """Cells of gaps and the cells that they are copied to, as indices of a flattened array of nodes by times."""

    source: Array
    target: Array

    def copied(self, mask: Array) -> Array:
        """Mask of the targets whose source is in `mask`."""
        out = np.zeros(mask.shape, dtype=bool)
        out.flat[self.target[mask.ravel()[self.source]]] = True
        return out


@dataclass(frozen=True, eq=False)
class HiddenGaps:
    """Known cells of a column that are hidden in one round, and the gaps that they are copies of."""

    mask: Array
    cells: CopiedCells


def hide_gaps(known: Array, missing: Array, steps: Array, rng: np.random.Generator) -> tuple[HiddenGaps, int]:
    """Choose known cells to hide: copies of the gaps with missing cells, with the same number of cells for each kind.

    Also returns the smallest number of gaps of any kind. `hide_sensors` covers nodes that never reported.
    """
    runs = find_runs(known)
    kinds = kinds_of_runs(runs, steps)
    starts = np.cumsum(runs.length) - runs.length
    is_missing = np.bitwise_or.reduceat(missing[~known], starts) if len(kinds) else kinds > 0
    reporting = np.flatnonzero(known.any(axis=1))
    present = [kind for kind in range(NEVER) if (is_missing & (kinds == kind)).any()]
    quota = MAX_SHARE_HIDDEN * known.sum() / max(1, len(present))
    rate, counts, copies = known.mean(), [], [CopiedCells(np.empty(0, np.int64), np.empty(0, np.int64))]
    for kind in present:
        chosen = np.flatnonzero(is_missing & (kinds == kind))
        cells = min(quota, MAX_HIDDEN)
        count = max(1, int(cells / max(1.0, rate * runs.length[chosen].mean())))
        counts.append(count)
        copies.append(_copies(runs, rng.choice(chosen, count), reporting, known.shape[1], rng))
    cells = CopiedCells(*(np.concatenate([getattr(one, end) for one in copies]) for end in ("source", "target")))
    hidden = np.zeros(known.shape, dtype=bool)
    hidden.flat[cells.target] = True
    hidden &= known
    hidden[_last_readings(known, hidden)] = False
    return HiddenGaps(hidden, cells), min(counts, default=0)


def _copies(runs: Runs, chosen: Array, nodes: Array, n_times: int, rng: np.random.Generator) -> CopiedCells:
    """Copies of the chosen runs on random nodes, at random times unless they are at an end."""
    length, first, last = runs.length[chosen], runs.first[chosen], runs.last[chosen]
    start = rng.integers(0, n_times - length + 1)
    start = np.where(first == 0, 0, np.where(last == n_times - 1, n_times - length, start))
    node = rng.choice(nodes, len(chosen))
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    return CopiedCells(
        np.repeat(runs.node[chosen] * n_times + first, length) + within,
        np.repeat(node * n_times + start, length) + within,
    )


def _last_readings(known: Array, hidden: Array) -> Array:
    """Mask of the nodes that would have no reading left."""
    return np.asarray(known.any(axis=1) & ~(known & ~hidden).any(axis=1))


def hide_sensors(known: Array, rng: np.random.Generator) -> Iterator[HiddenGaps]:
    """Hide all readings of some nodes, as copies of nodes that never reported, each node at most once."""
    order = rng.permutation(np.flatnonzero(known.any(axis=1)))
    never, times = np.flatnonzero(~known.any(axis=1)), np.arange(known.shape[1])
    count = min(len(order), max(MIN_SENSORS_HIDDEN, round(SHARE_OF_SENSORS * len(order))))
    for chosen in np.array_split(order[:count], max(2, round(count / len(order) / SHARE_OF_SENSORS / 2))):
        hidden = np.zeros(known.shape, dtype=bool)
        hidden[chosen] = known[chosen]
        sources = np.resize(never, len(chosen))
        ends = ((nodes[:, None] * len(times) + times).ravel() for nodes in (sources, chosen))
        yield HiddenGaps(hidden, CopiedCells(*ends))
