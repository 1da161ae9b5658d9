"""Hops from each node to its nearest source, per pattern, and the confidence that follows from them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array, ArrayOrTensor
from pcfi.errors import DivergenceError
from pcfi.inputs.problem import Problem
from pcfi.progress import progress_bar

UNREACHABLE = int(np.iinfo(np.int32).max)
"""Hops of a cell that no source can reach; its confidence is 0."""


@dataclass(frozen=True, eq=False)
class Hops:
    """Hops per pattern, in the smallest integers that hold them.

    "Unreachable" is a code above `n_levels`, and nothing else, wherever hops are kept: ask `is_reachable` or
    `is_filled`. `UNREACHABLE` stands for it in the array of hops that a caller gets, null in a table.

    Attributes
    ----------
    codes : ndarray of shape (n_nodes, n_patterns), or a tensor
        Hops (0 = known), or a code for unreachable.
    n_levels : int
        The largest number of hops of a reachable cell.
    n_unreachable : ndarray of int, one per pattern
        Unreachable cells in one channel of the pattern.
    patterns : ndarray of int, one per channel
        Pattern of each channel.
    """

    codes: ArrayOrTensor
    n_levels: int
    n_unreachable: Array
    patterns: Array

    def is_reachable(self, codes: Any) -> Any:
        """Mask of the codes that stand for a number of hops."""
        return codes <= self.n_levels

    def is_filled(self, codes: Any) -> Any:
        """Mask of the codes of cells that are missing and reachable, which are those that diffusion fills."""
        return (codes > 0) & (codes <= self.n_levels)

    def table_index(self, codes: Array) -> Array:
        """Codes as indices of a table by hops code, whose last entry is for unreachable cells."""
        return np.minimum(codes, self.n_levels + 1)

    def codes_at(self, nodes: Array, channels: Array) -> Array:
        """Codes of single cells."""
        return np.asarray(self.codes[nodes, self.patterns[channels]])

    def unreachable_cells(self, channels: Any = slice(None)) -> int:
        """Number of unreachable cells in these channels."""
        return int(self.n_unreachable[self.patterns[channels]].sum())

    def confidence_by_code(self, alpha: float, dtype: npt.DTypeLike) -> Array:
        """Table from hops to confidence, alpha^hops (Def. 2); the last entry, for unreachable cells, is 0."""
        table = np.power(float(alpha), np.arange(self.n_levels + 2, dtype=np.float64))
        table[-1] = 0.0
        return table.astype(dtype)

    def expand(self) -> Array:
        """Hops of every cell as int32, with `UNREACHABLE` where no source can reach it."""
        table = np.arange(self.n_levels + 2, dtype=np.int32)
        table[-1] = UNREACHABLE
        return self.look_up(table)

    def confidence(self, alpha: float, dtype: npt.DTypeLike) -> Array:
        """Confidence of every cell."""
        return self.look_up(self.confidence_by_code(alpha, dtype))

    def unreachable(self) -> Array:
        """Mask of the unreachable cells."""
        table = np.zeros(self.n_levels + 2, dtype=np.bool_)
        table[-1] = True
        return self.look_up(table)

    @staticmethod
    def of_known(n_nodes: int, n_channels: int) -> "Hops":
        """Hops of features without a missing cell."""
        codes = np.zeros((n_nodes, 1), dtype=np.uint8)
        return Hops(codes, 0, np.zeros(1, dtype=np.int64), np.zeros(n_channels, dtype=np.int64))

    def look_up(self, table: Array) -> Array:
        """The entry for every cell in a table by hops code, whose last entry is for unreachable cells."""
        per_pattern = table[self.table_index(self.codes)]
        one_pattern_each = len(self.patterns) == self.codes.shape[1] and (np.diff(self.patterns) == 1).all()
        return per_pattern if one_pattern_each else per_pattern[:, self.patterns]


def cells_by_hops(hops: Hops, sizes: Array) -> Array:
    """Number of reachable cells by their hops, given the number of channels of each pattern."""
    levels = np.zeros(hops.n_levels + 2, dtype=np.int64)
    for pattern, size in enumerate(sizes.tolist()):
        levels += size * np.bincount(hops.table_index(hops.codes[:, pattern]), minlength=len(levels))
    return levels[:-1]


def count_hops(problem: Problem, *, progress: bool = False) -> Hops:
    """Hops from the sources of every pattern, along the direction of the edges, many patterns at a time."""
    with progress_bar("hops", len(problem.channels.representatives), show=progress) as advance:
        for dtype in (np.uint8, np.uint16, np.int32):
            hops = _search_all(problem, dtype, advance)
            if hops is not None:
                return hops
    raise DivergenceError("a shortest way has more than 2^31 edges")  # pragma: no cover


def _search_all(problem: Problem, dtype: npt.DTypeLike, advance: Any) -> Hops | None:
    """Hops in integers of `dtype`, or None if they do not fit."""
    from pcfi._kernels.blocks import aligned_block
    from pcfi._kernels.hop_relaxation import mark_sources, read_hops, relax
    from pcfi._kernels.hop_search import PATTERNS_AT_A_TIME, Sources, search
    from pcfi._kernels.threads import run_tasks

    sources = Sources(problem.values, problem.mask, problem.channels.representatives)
    n_patterns = len(sources.channels)
    codes = np.empty((len(problem.values), n_patterns), dtype=dtype)
    unreached = np.zeros(n_patterns, dtype=np.int64)
    graph = problem.graph

    def search_group(first: int) -> Any:
        def task(stop: Any) -> int:
            level = -1
            if dtype is np.uint8:
                block = aligned_block(graph.n_nodes, np.uint8)
                mark_sources(sources, first, block)
                if relax(graph.indptr, graph.indices, block, stop):
                    level = read_hops(block, first, codes, unreached)
            if level < 0:
                level = search(*graph.outgoing, sources, first, codes, stop, unreached)
            advance(min(PATTERNS_AT_A_TIME, n_patterns - first))
            return int(level)

        return task

    firsts = range(0, n_patterns, PATTERNS_AT_A_TIME)
    small = len(graph.indices) * len(firsts) < 200_000
    levels = run_tasks([search_group(first) for first in firsts], inline=small)
    if min(levels, default=0) < 0:
        advance(-n_patterns)
        return None
    return Hops(codes, max(levels, default=0), unreached, problem.channels.patterns)
