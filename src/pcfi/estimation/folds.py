"""Folds: known cells to hide, in the way cells are missing, so that what is filled in there can be judged.

The unit of hiding is a node in a pattern: whole nodes where all channels share one pattern, single cells where each
channel has its own, blocks in between. Where nodes tend to miss many patterns at once although no two patterns are
equal, as many of them are hidden whole.
"""

from dataclasses import dataclass, replace

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import Problem, known_mask, survey

PARTS = 5  # the known cells are split into this many parts, each of which can be hidden
FEW_UNITS = 40  # up to so many units every part counts
MOST_CELLS = 250_000  # that are hidden in a fold: more would not make an estimate better


@dataclass(frozen=True, eq=False)
class Fold:
    """A problem with more cells missing, and the truth about those.

    Attributes
    ----------
    problem : Problem
        The problem with the cells of this fold hidden.
    nodes, channels : ndarray of int
        Place of each hidden cell.
    truth : ndarray, float64
        Its value.
    """

    problem: Problem
    nodes: Array
    channels: Array
    truth: Array

    def at(self, values: Array) -> Array:
        """What an array of the shape of the features holds in the hidden cells, in float64."""
        return np.asarray(values[self.nodes, self.channels], dtype=np.float64)


def make_folds(problem: Problem, rng: "np.random.Generator", *, most: int, complete: bool = False) -> list[Fold]:
    """At most `most` folds, more if there are few units to hide; empty if nothing can be hidden.

    Only channels that miss cells take part (all, where none does and `complete` is set), and no cell is in two folds.
    """
    known, channels = known_mask(problem), problem.channels
    sizes = np.bincount(channels.patterns)
    of_patterns = known[:, channels.representatives]
    gapped = np.full(len(channels.n_known), complete) if problem.n_missing == 0 else channels.n_known < len(known)
    wanted = (channels.n_known > 1) & gapped
    of_patterns = of_patterns & wanted[channels.representatives]
    n_units = int(of_patterns.sum())
    if n_units < 2:
        return []
    n_cells = int(of_patterns.sum(axis=0) @ sizes)
    n_parts = max(PARTS, -(-n_cells // MOST_CELLS))
    if n_units <= FEW_UNITS:
        n_parts = most = min(n_units, PARTS)
    parts = _parts(of_patterns, _clustering(known[:, channels.representatives]), n_parts, rng)
    folds = (_fold(problem, known, parts == part) for part in range(min(n_parts, most)))
    return [fold for fold in folds if len(fold.truth)]


def _clustering(known: Array) -> float:
    """How alike the patterns of a node are, from 0 (as if by chance) to 1 (a node misses all or none).

    A pattern that misses every node or none says nothing about that.
    """
    rate = known.mean(axis=0)
    varied = (rate > 0) & (rate < 1)
    if varied.sum() < 2:
        return 0.0
    variance = (rate * (1 - rate))[varied]
    chance, most = float(variance.sum()), float(np.sqrt(variance).sum() ** 2)
    total = float(known[:, varied].sum(axis=1, dtype=np.float64).var())
    return float(np.clip((total - chance) / (most - chance), 0.0, 1.0))


def _parts(units: Array, clustering: float, n_parts: int, rng: "np.random.Generator") -> Array:
    """Part of each unit, -1 where there is none to hide; all units of some nodes are in one part."""
    parts = np.full(units.shape, -1, dtype=np.int32)
    parts[units] = rng.permutation(int(units.sum())) % n_parts
    nodes = np.flatnonzero(units.any(axis=1))
    whole = nodes[rng.random(len(nodes)) < clustering]
    parts[whole] = np.where(units[whole], (rng.permutation(len(whole)) % n_parts)[:, None], -1)
    return parts


def _fold(problem: Problem, known: Array, units: Array) -> Fold:
    nodes, channels = _cells(units, problem.channels.patterns)
    kept = known.copy()
    kept[nodes, channels] = False
    truth = np.asarray(problem.values[nodes, channels], dtype=np.float64)
    return Fold(replace(problem, mask=kept, channels=survey(problem.values, kept)), nodes, channels, truth)


def _cells(units: Array, patterns: Array) -> tuple[Array, Array]:
    """Node and channel of every cell of the given units."""
    nodes, of_units = np.nonzero(units)
    by_pattern, sizes = np.argsort(patterns, kind="stable"), np.bincount(patterns)
    counts = sizes[of_units]
    first = np.concatenate([[0], np.cumsum(sizes)])[of_units]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(nodes, counts), by_pattern[np.repeat(first, counts) + within]
