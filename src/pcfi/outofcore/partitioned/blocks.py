"""Blocks of the panels of a batch in one partition: from features to systems and back, and what other partitions get.

Own rows are kept; rows of the halo are put together from the `pieces` of other partitions for one pass over the edges.
Functions return new blocks and leave those that they get, so that Dask can repeat them when a worker is lost.
"""

from typing import Any, NamedTuple

import numpy as np

from pcfi._kernels.blocks import (
    BlockCells,
    aligned_block,
    confidence_diagonal,
    degree_diagonal,
    gather_block,
    scatter_block,
)
from pcfi._kernels.conjugate_gradients import PIECE_ROWS
from pcfi._kernels.csr_graph import AnyCsrGraph, make_csr_graph
from pcfi._kernels.row_groups import eliminate_part
from pcfi._kernels.steps import invert_diagonal
from pcfi._typing import Array
from pcfi.outofcore.partitioned.layout import Partition
from pcfi.stages.diffusion import Diffusion
from pcfi.stages.diffusion.block_solver import bounds_of, columns_of, scale_of

Pieces = list[list[Array]]  # of each partition that a halo comes from, in their order: rows of each active panel


class OpenBlock(NamedTuple):
    """A panel in a partition before leaves are eliminated; `scales` have all rows, the others own rows."""

    solution: Array
    scales: Array
    free: Array
    rows: Array
    degree: Array


class Blocks(NamedTuple):
    """Blocks of own rows of all panels of a batch; `gone`, which flags leaves, has all rows.

    `rounds` are leaves and their parents, as found between two exchanges. `reduced` are small arrays that are joined
    over partitions.
    """

    solution: list[Array]
    scales: list[Array]
    residual: list[Array]
    direction: list[Array]
    image: list[Array]
    gone: list[Array]
    rounds: list[list[tuple[Array, Array]]]
    reduced: list[Array]


class PartSystem(NamedTuple):
    """The system of a panel in a partition, which does not change while it is solved.

    `scales` and `diagonal`, > 0 at free cells, are blocks of own rows; for a fixed number of steps, the diagonal is
    inverted. `rows` are unknown, in groups that begin at `starts`.
    """

    scales: Array
    diagonal: Array
    rows: Array
    starts: Array


class PassSettings(NamedTuple):
    """What the passes need to know about a diffusion."""

    settles: bool
    centred: bool
    keeps_constants: bool
    self_weight: float
    residual_self_weight: float

    @staticmethod
    def of(diffusion: Diffusion) -> "PassSettings":
        """The facts of a diffusion."""
        return PassSettings(
            diffusion.settles,
            diffusion.centred,
            diffusion.weights.keeps_constants,
            diffusion.self_weight,
            diffusion.residual_self_weight,
        )


# exchange between partitions


def halo_rows(partition: Partition, blocks: Blocks, name: str, to: int, active: list[int]) -> list[Array]:
    """The rows of some blocks that another partition has in its halo."""
    rows = partition.sent_rows[to]
    return [getattr(blocks, name)[panel][rows] for panel in active]


def reduced_of(blocks: Blocks, active: list[int]) -> list[Array]:
    """The small arrays of some panels."""
    return [blocks.reduced[panel] for panel in active]


def joined_sums(parts: list[list[Array]]) -> list[Array]:
    """Sums over the groups of all partitions, for each panel, in an order that does not depend on the partitions."""
    return [np.concatenate(groups).sum(axis=0) for groups in zip(*parts, strict=True)]


def joined_maxima(parts: list[list[Array]]) -> list[Array]:
    """Maxima over the groups of all partitions, for each panel."""
    return [np.concatenate(groups).max(axis=0, initial=0) for groups in zip(*parts, strict=True)]


def with_halo(partition: Partition, own: Array, pieces: Pieces, place: int) -> Array:
    """A block of all rows: the own ones, and those of the `place`-th active panel that came from other partitions."""
    n_rows, done = len(partition.nodes), partition.n_own
    block = aligned_block(n_rows, own.dtype) if own.ndim == 2 else np.zeros(n_rows, dtype=own.dtype)
    block[:done] = own[:done]
    for piece in pieces:
        block[done : done + len(piece[place])] = piece[place]
        done += len(piece[place])
    return block


def copied(block: Array) -> Array:
    """A copy whose rows are cache lines."""
    copy = aligned_block(len(block), block.dtype)
    copy[:] = block
    return copy


def filled_like(block: Array, value: float) -> Array:
    """A block of the same shape with one value in all cells."""
    filled = aligned_block(len(block), block.dtype)
    filled[:] = value
    return filled


def updated(blocks: Blocks, active: list[int], **new: list[Any]) -> Blocks:
    """The blocks with new ones for the active panels."""
    changed = {}
    for name, found in new.items():
        kept = list(getattr(blocks, name))
        for panel, block in zip(active, found, strict=True):
            kept[panel] = block
        changed[name] = kept
    return blocks._replace(**changed)


def csr_graph(partition: Partition) -> AnyCsrGraph:
    """The graph as the kernels take it."""
    return make_csr_graph(partition.indptr, partition.indices, partition.weights)


def scratch_rows(partition: Partition, dtype: Any) -> tuple[Array, Array]:
    """Rows for the pieces of a group, and for the results of all groups."""
    n_pieces, n_groups = -(-partition.group_rows // PIECE_ROWS), -(-partition.n_own // partition.group_rows)
    return aligned_block(n_pieces, dtype), aligned_block(n_groups, dtype)


# from features to systems


def open_block(partition: Partition, diffusion: Diffusion) -> OpenBlock:
    """Known values of a panel in scaled form, and which own rows are free."""
    n_rows, own = len(partition.nodes), slice(partition.n_own)
    columns = columns_of(diffusion, np.arange(len(diffusion.problem.channels.mean)))
    cells = BlockCells(*(aligned_block(n_rows, diffusion.dtype) for _ in range(3)))
    rows = np.empty(n_rows, dtype=np.int32)
    values, codes = diffusion.problem.values, diffusion.hops.codes
    count = gather_block(values, codes, columns, scale_of(diffusion), cells, rows, 0, n_rows)
    rows = rows[: np.searchsorted(rows[:count], partition.n_own)].copy()
    degree = np.empty(0) if diffusion.weights.degree is None else diffusion.weights.degree[own]
    return OpenBlock(copied(cells.solution[own]), cells.scales, copied(cells.free[own]), rows, degree)


def first_blocks(partition: Partition, opened: list[OpenBlock]) -> Blocks:
    """Blocks of a batch in which no leaf is eliminated."""
    nothing: list[Array] = [np.empty(0)] * len(opened)
    gone = [np.zeros(len(partition.nodes), dtype=np.uint8) for _ in opened]
    solution = [one.solution for one in opened]
    return Blocks(solution, nothing, nothing, nothing, nothing, gone, [[] for _ in opened], nothing)


def eliminate(
    partition: Partition, opened: list[OpenBlock], widths: list[int], blocks: Blocks, pieces: Pieces, active: list[int]
) -> Blocks:
    """Eliminate the leaves that follow from those of other partitions; `reduced`: how many these must know of."""
    graph, is_sent = csr_graph(partition), np.zeros(partition.n_own, dtype=np.bool_)
    for sent in partition.sent_rows:
        is_sent[sent] = True
    all_gone, all_rounds, counts = [], [], []
    for place, panel in enumerate(active):
        gone = with_halo(partition, blocks.gone[panel], pieces, place)
        leaves, parents, remaining = np.empty((3, partition.n_own), dtype=np.int32)
        count = eliminate_part(graph, opened[panel].free, widths[panel], gone, remaining, leaves, parents)
        found = leaves[:count].copy(), parents[:count].copy()
        all_gone.append(gone)
        all_rounds.append([*blocks.rounds[panel], found])
        counts.append(np.array([[np.count_nonzero(is_sent[found[0]])]]))
    return updated(blocks, active, gone=all_gone, rounds=all_rounds, reduced=counts)


def make_systems(
    partition: Partition, settings: PassSettings, opened: list[OpenBlock], blocks: Blocks
) -> list[PartSystem]:
    """The systems of a batch, without the leaves."""
    graph, own, systems = csr_graph(partition), partition.n_own, []
    for block, gone in zip(opened, blocks.gone, strict=True):
        scales, diagonal = copied(block.scales), copied(block.free)
        scales[gone > 0] = 0
        rows = block.rows[gone[block.rows] == 0]
        if len(block.degree):
            degree_diagonal(rows, block.degree, diagonal, diagonal)
        else:
            confidence_diagonal(graph, rows, scales, diagonal, diagonal)
        if not settings.settles:
            invert_diagonal(rows, diagonal, settings.self_weight, diagonal)
        systems.append(PartSystem(copied(scales[:own]), diagonal, rows, partition.group_starts(rows)))
    return systems


def close_block(diffusion: Diffusion, system: PartSystem, solution: Array, scales: Array) -> Array:
    """The filled features of own rows."""
    channels = np.arange(len(diffusion.problem.channels.mean))
    columns, bounds = columns_of(diffusion, channels), bounds_of(diffusion, channels)
    out: Array = diffusion.problem.values[: len(solution)].copy()
    scatter_block(solution, scales, system.diagonal, columns, bounds, out, 0, len(out))
    return out
