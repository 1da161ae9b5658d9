"""Cross-validation folds: known cells that are hidden in the same pattern as the missing cells.

The unit of hiding is a node in a pattern: whole nodes where all channels share one pattern, single cells where each
channel has its own, blocks in between. Where nodes tend to miss many patterns at once although no two patterns are
equal, as many of them are hidden together. Where cells are missing in gaps, which makes them farther from known cells
than single hidden cells would be, gaps of the same depth are hidden.

Which cells a fold hides depends on the content of a small table, not on the order of its rows and columns.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Problem, hide_cells, known_mask, places, survey
from pcfi.stages.hops import Hops, count_hops

N_PARTS = 5  # parts of the known cells, one of which a fold hides
N_PARTS_OF_BUILT = 10  # the same if the graph is built from the table: it should be as good in a fold as without
MAX_HIDDEN = 250_000  # cells that a fold hides: more would not make an estimate better
MAX_COUNTED_CELLS = 1_000_000  # missing cells whose hops are looked at
MAX_CONTENT_CELLS = 200_000  # cells of a table up to which its content, not its order, decides


@dataclass(frozen=True, eq=False)
class Fold:
    """A problem with more cells missing, and the truth about those.

    Attributes
    ----------
    problem : Problem
        The problem with the cells of this fold hidden.
    hops : Hops
        Hops in that problem.
    nodes, channels : ndarray of int
        Place of each hidden cell.
    truth : ndarray, float64
        Its value.
    joint : ndarray of bool, one per node
        Nodes whose cells are hidden all at once; at others, a hidden cell stands for one that is missing in its pattern
        alone.
    """

    problem: Problem
    hops: Hops
    nodes: Array
    channels: Array
    truth: Array
    joint: Array

    def at(self, values: Array) -> Array:
        """The entries of an array of the shape of the features at the hidden cells, in float64."""
        return np.asarray(values[self.nodes, self.channels], dtype=np.float64)


def make_folds(
    problem: Problem,
    n_folds: int,
    seed: int,
    *,
    with_constants: bool = False,
    nodes: Array | None = None,
    incomplete: Array | None = None,
) -> list[Fold]:
    """Up to `n_folds` folds; empty if there are not two units to hide.

    Only channels with missing cells take part, and those with one known value only `with_constants`. Of a sample,
    cells are hidden at some `nodes` only, and `incomplete` are the channels with missing cells in the complete table.
    """
    known, channels = known_mask(problem), problem.channels
    takes_part = channels.n_known > 1 if with_constants else ~channels.constant
    if incomplete is None and problem.n_missing:
        incomplete = channels.n_known < len(known)
    if incomplete is not None:
        takes_part = takes_part & incomplete
    patterns = np.flatnonzero(np.bincount(channels.patterns, weights=takes_part))
    units = np.zeros((len(known), len(channels.representatives)), dtype=np.bool_)
    units[:, patterns] = known[:, channels.representatives[patterns]]
    share = _clustering(units)
    if nodes is not None:
        units[np.setdiff1d(np.arange(len(units)), nodes)] = False
    n_units = int(units.sum())
    if n_units < 2:
        return []
    n_cells = int(units.sum(axis=0) @ np.bincount(channels.patterns))
    n_parts = min(max(number_of_parts(problem), -(-n_cells // MAX_HIDDEN)), n_units)
    keys = _keys(problem, known, seed)
    joint = units.any(axis=1) & (_mixed(keys.nodes) < np.uint64(share * (2**64 - 2**12)))
    parts = _parts(units, keys, n_parts, joint)
    folds = [_fold(problem, known, parts == part, joint) for part in range(min(n_parts, n_folds))]
    radii = _gap_radii(problem, folds, patterns, slice(None) if nodes is None else nodes)
    if radii is not None:
        folds = [
            _fold(problem, known, _gaps(problem, units, parts == part, keys, radius), joint)
            for part, radius in zip(range(len(folds)), radii, strict=False)
        ]
    return [fold for fold in folds if len(fold.truth)]


def number_of_parts(problem: Problem) -> int:
    """Parts of the known cells, one of which a fold hides."""
    return N_PARTS if problem.build_graph is None else N_PARTS_OF_BUILT


def _parts(units: Array, keys: "Keys", n_parts: int, joint: Array) -> Array:
    """Part of each unit, -1 where there is none to hide; all units of a `joint` node are in one part."""
    parts = np.full(units.shape, -1, dtype=np.int32)
    at = places(units)
    numbers = keys.numbers(*at)
    if len(numbers) > MAX_CONTENT_CELLS:
        parts[at] = ((numbers >> np.uint64(32)) * np.uint64(n_parts)) >> np.uint64(32)
    else:  # parts of equal size
        parts.flat[np.flatnonzero(units)[np.argsort(numbers, kind="stable")]] = np.arange(len(numbers)) % n_parts
    together = np.flatnonzero(joint)
    together = together[np.argsort(keys.nodes[together], kind="stable")]
    parts[together] = np.where(units[together], (np.arange(len(together)) % n_parts)[:, None], -1)
    return parts


def _clustering(known: Array) -> float:
    """How alike the patterns of a node are, from 0 (as if by chance) to 1 (a node misses all or none).

    A pattern that misses every node or none says nothing about that.
    """
    rate = np.count_nonzero(known, axis=0) / len(known)
    varied = (rate > 0) & (rate < 1)
    if varied.sum() < 2:
        return 0.0
    variance = (rate * (1 - rate))[varied]
    chance, most = float(variance.sum()), float(np.sqrt(variance).sum() ** 2)
    total = float(np.count_nonzero(known[:, varied], axis=1).var())
    return float(np.clip((total - chance) / (most - chance), 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Keys:
    """A random number for each node and each pattern; both together make one for each node in each pattern."""

    nodes: Array
    patterns: Array

    def sorted(self, units: Array) -> Array:
        """Nodes in patterns, given by their places in an array of both, in the order of their random numbers."""
        return np.asarray(units[np.argsort(self.numbers(*np.divmod(units, len(self.patterns))), kind="stable")])

    def numbers(self, nodes: Array, patterns: Array) -> Array:
        """The random numbers of nodes in patterns."""
        return _mixed(self.nodes[nodes] ^ self.patterns[patterns])


def _keys(problem: Problem, known: Array, seed: int) -> Keys:
    """Random numbers from the content of a small table, else from the places of nodes and patterns."""
    n_nodes, channels = len(known), problem.channels
    start, n_patterns = _mixed(np.array([seed], dtype=np.uint64)), len(channels.representatives)
    if known.size > MAX_CONTENT_CELLS:
        nodes = _mixed(np.arange(n_nodes, dtype=np.uint64) + start)
        patterns = _mixed(np.arange(n_patterns, dtype=np.uint64) ^ _mixed(start))
        return Keys(nodes, patterns)
    active = np.flatnonzero(~channels.constant)
    ranks = [_ranks(problem.values[:, channel], known[:, channel]) for channel in active]
    nodes = start + np.diff(problem.graph.indptr).astype(np.uint64)
    nodes += sum((_mixed(of_channel + start) for of_channel in ranks), np.zeros(n_nodes, dtype=np.uint64))
    for _ in range(2):  # nodes that are alike are told apart by their neighbours
        nodes = _mixed(nodes + _neighbour_sums(problem.graph, _mixed(nodes)))
    patterns = np.zeros(n_patterns, dtype=np.uint64)
    sums = np.array([_mixed(of_channel ^ nodes).sum(dtype=np.uint64) for of_channel in ranks], dtype=np.uint64)
    np.add.at(patterns, channels.patterns[active], sums)
    return Keys(nodes, _mixed(patterns))


def _neighbour_sums(graph: Graph, keys: Array) -> Array:
    """Sum of the keys of each node's neighbours."""
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(keys[graph.indices], dtype=np.uint64)])
    return np.asarray(sums[graph.indptr[1:]] - sums[graph.indptr[:-1]])


def _ranks(values: Array, known: Array) -> Array:
    """Ranks of the known values, the same whatever the unit and the origin of the column; 0 if missing."""
    ranks = np.zeros(len(values), dtype=np.uint64)
    ranks[known] = np.unique(values[known], return_inverse=True)[1].astype(np.uint64) + np.uint64(1)
    return ranks


def _mixed(keys: Array) -> Array:
    """Well-mixed bits of unsigned integers (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        keys = keys + np.uint64(0x9E3779B97F4A7C15)
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(keys ^ (keys >> np.uint64(31)))


def _fold(problem: Problem, known: Array, units: Array, joint: Array) -> Fold:
    nodes, channels = _cells(units, problem.channels.patterns)
    kept = known.copy()
    kept[nodes, channels] = False
    truth = np.asarray(problem.values[nodes, channels], dtype=np.float64)
    hidden = hide_cells(problem, kept)
    return Fold(hidden, count_hops(hidden), nodes, channels, truth, joint)


def both_hidden(one: Fold, other: Fold) -> Fold:
    """A fold that hides the cells of two, in their order, in the graph of the first.

    A graph that is built from the table links a node by the columns that it knows, of which the first fold has hidden
    those it estimates.
    """
    kept = known_mask(one.problem).copy()
    kept[other.nodes, other.channels] = False
    hidden = replace(one.problem, mask=kept, channels=survey(one.problem.values, kept))
    nodes, channels, truth = (
        np.concatenate([getattr(fold, name) for fold in (one, other)]) for name in ("nodes", "channels", "truth")
    )
    return Fold(hidden, count_hops(hidden), nodes, channels, truth, one.joint)


def _cells(units: Array, patterns: Array) -> tuple[Array, Array]:
    """Node and channel of every cell of the given units."""
    nodes, of_units = places(units)
    by_pattern, sizes = np.argsort(patterns, kind="stable"), np.bincount(patterns)
    counts = sizes[of_units]
    first = np.concatenate([[0], np.cumsum(sizes)])[of_units]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(nodes, counts), by_pattern[np.repeat(first, counts) + within]


def _gap_radii(problem: Problem, folds: list[Fold], patterns: Array, nodes: Any) -> list[int] | None:
    """Depth of the gaps that each fold should hide; None if hidden cells are as far from known ones as missing ones."""
    if not folds or problem.n_missing == 0:
        return None
    hops = count_hops(problem)
    codes = hops.codes[nodes]
    codes = codes[:: 1 + codes.size // MAX_COUNTED_CELLS][:, patterns]
    n_cells = np.bincount(hops.table_index(codes).ravel(), minlength=hops.n_levels + 2)[:-1]
    n_cells[0] = 0  # of missing cells, by hops
    reach, depths = np.cumsum(n_cells), np.arange(len(n_cells))
    hidden = np.concatenate([fold.hops.codes_at(fold.nodes, fold.channels) for fold in folds])
    reached = hidden[hidden <= max(fold.hops.n_levels for fold in folds)]
    if not reach[-1] or not len(reached) or n_cells @ depths / reach[-1] <= 1.5 * reached.mean():
        return None
    quantiles = [int((part + 0.5) / len(folds) * reach[-1]) for part in range(len(folds))]
    return [int(depth) for depth in np.searchsorted(reach, quantiles, side="right")]


def _gaps(problem: Problem, units: Array, part: Array, keys: Keys, radius: int) -> Array:
    """Units less than `radius` hops from some of the part's; of these, as many as do not hide more than the part."""
    if radius <= 1:
        return part
    centres = np.zeros_like(part)
    order = keys.sorted(np.flatnonzero(part))
    n_units, low, high = int(part.sum()), 1, len(order)
    representatives = problem.channels.representatives
    while low < high:  # the largest number of centres whose gaps hide at most as many units as the part has
        middle = (low + high + 1) // 2
        hidden = _within(problem, representatives, units, order[:middle], radius)
        low, high = (middle, high) if hidden.sum() <= n_units else (low, middle - 1)
    centres = _within(problem, representatives, units, order[:low], radius)
    return centres if (units & ~centres)[:, units.any(axis=0)].any(axis=0).all() else part


def _within(problem: Problem, representatives: Array, units: Array, centres: Array, radius: int) -> Array:
    """Units whose node is less than `radius` hops from a centre of their pattern."""
    mask = np.zeros(units.shape, dtype=np.bool_)
    mask.flat[centres] = True
    values = np.ascontiguousarray(problem.values[:, representatives])
    part = replace(problem, values=values, mask=mask, channels=survey(np.where(mask, values, 0), mask))
    distances = count_hops(part)
    near = distances.codes < radius
    return units & near[:, distances.patterns]
