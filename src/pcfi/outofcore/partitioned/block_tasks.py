"""What a worker does with the blocks of a partition between two exchanges.

The functions are pure: they return new blocks and leave those that they get, so that Dask can repeat them when a worker
is lost. Blocks come as lists, one for each panel of a batch; `active` lists the panels that are worked on, and those of
the others are passed on. Own rows are kept; rows of the halo are put together from `pieces` for one pass.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pcfi._kernels.blocks import (
    AnyCsrGraph,
    BlockCells,
    aligned_block,
    confidence_diagonal,
    degree_diagonal,
    gather_block,
    make_csr_graph,
    scatter_block,
)
from pcfi._kernels.conjugate_gradients import PIECE_ROWS, Workspace
from pcfi._kernels.leaf_elimination import restore_leaves
from pcfi._kernels.row_groups import (
    eliminate_part,
    fill_next_level,
    next_direction,
    product_by_group,
    residual_by_group,
    solution_by_group,
)
from pcfi._kernels.steps import invert_diagonal, max_residual, take_steps
from pcfi._kernels.thread_team import SerialExecutor
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


class System(NamedTuple):
    """The system of a panel in a partition, which does not change while it is solved.

    `scales` and `diagonal`, > 0 at free cells, are blocks of own rows; for a fixed number of steps, the diagonal is
    inverted. `rows` are unknown, in groups that begin at `starts`.
    """

    scales: Array
    diagonal: Array
    rows: Array
    starts: Array


class Method(NamedTuple):
    """What the passes need to know about a diffusion."""

    settles: bool
    centred: bool
    keeps_constants: bool
    self_weight: float
    residual_self_weight: float

    @staticmethod
    def of(diffusion: Diffusion) -> "Method":
        """The facts of a diffusion."""
        return Method(
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


def _with_halo(partition: Partition, own: Array, pieces: Pieces, place: int) -> Array:
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


def _empty_like(block: Array, value: float) -> Array:
    filled = aligned_block(len(block), block.dtype)
    filled[:] = value
    return filled


def _with(blocks: Blocks, active: list[int], **new: list[Any]) -> Blocks:
    """The blocks with new ones for the active panels."""
    changed = {}
    for name, found in new.items():
        kept = list(getattr(blocks, name))
        for panel, block in zip(active, found, strict=True):
            kept[panel] = block
        changed[name] = kept
    return blocks._replace(**changed)


def _csr_graph(partition: Partition) -> AnyCsrGraph:
    return make_csr_graph(partition.indptr, partition.indices, partition.weights)


def _scratch(partition: Partition, dtype: Any) -> tuple[Array, Array]:
    """Rows for the pieces of a group, and for the results of all groups."""
    n_groups = -(-partition.n_own // partition.group_rows)
    return tuple(aligned_block(count, dtype) for count in (-(-partition.group_rows // PIECE_ROWS), n_groups))


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
    graph, is_sent = _csr_graph(partition), np.zeros(partition.n_own, dtype=np.bool_)
    for sent in partition.sent_rows:
        is_sent[sent] = True
    all_gone, all_rounds, counts = [], [], []
    for place, panel in enumerate(active):
        gone = _with_halo(partition, blocks.gone[panel], pieces, place)
        leaves, parents, remaining = np.empty((3, partition.n_own), dtype=np.int32)
        count = eliminate_part(graph, opened[panel].free, widths[panel], gone, remaining, leaves, parents)
        found = leaves[:count].copy(), parents[:count].copy()
        all_gone.append(gone)
        all_rounds.append([*blocks.rounds[panel], found])
        counts.append(np.array([[np.count_nonzero(is_sent[found[0]])]]))
    return _with(blocks, active, gone=all_gone, rounds=all_rounds, reduced=counts)


def make_systems(partition: Partition, method: Method, opened: list[OpenBlock], blocks: Blocks) -> list[System]:
    """The systems of a batch, without the leaves."""
    graph, own, systems = _csr_graph(partition), partition.n_own, []
    for block, gone in zip(opened, blocks.gone, strict=True):
        scales, diagonal = copied(block.scales), copied(block.free)
        scales[gone > 0] = 0
        rows = block.rows[gone[block.rows] == 0]
        if len(block.degree):
            degree_diagonal(rows, block.degree, diagonal, diagonal)
        else:
            confidence_diagonal(graph, rows, scales, diagonal, diagonal)
        if not method.settles:
            invert_diagonal(rows, diagonal, method.self_weight, diagonal)
        systems.append(System(copied(scales[:own]), diagonal, rows, partition.group_starts(rows)))
    return systems


# the initial guess


def begin_guess(method: Method, systems: list[System], blocks: Blocks) -> Blocks:
    """Blocks without a guess: NaN at free cells; a fixed number of steps begins at zero."""
    scales, solution = [system.scales for system in systems], []
    for system, known in zip(systems, blocks.solution, strict=True):
        block = copied(known)
        if method.settles:
            block[system.diagonal > 0] = np.nan
        solution.append(block)
    return blocks._replace(solution=solution, scales=scales)


def without_solution(blocks: Blocks) -> Blocks:
    """What stays the same until panels are solved: scales and leaves."""
    return blocks._replace(solution=[])


def guess_level(
    partition: Partition, systems: list[System], blocks: Blocks, pieces: Pieces, active: list[int]
) -> Blocks:
    """Fill free cells with means of neighbours that have a value; `reduced`: how many were filled."""
    graph, solution, counts = _csr_graph(partition), [], []
    for place, panel in enumerate(active):
        out = copied(blocks.solution[panel])
        block = _with_halo(partition, blocks.solution[panel], pieces, place)
        counts.append(np.array([[fill_next_level(graph, systems[panel].rows, block, out)]]))
        solution.append(out)
    return _with(blocks, active, solution=solution, reduced=counts)


def end_guess(method: Method, systems: list[System], blocks: Blocks) -> Blocks:
    """The guess in scaled form, and a first direction of zero."""
    solution = []
    for system, guess in zip(systems, blocks.solution, strict=True):
        block = copied(np.nan_to_num(guess, nan=0.0, posinf=np.inf, neginf=-np.inf))
        if method.keeps_constants:
            np.multiply(block, system.scales, out=block, where=system.diagonal > 0)
        solution.append(block)
    return blocks._replace(solution=solution, direction=[_empty_like(block, 0) for block in solution])


# conjugate gradients


def _workspace(system: System, **blocks: Array) -> Workspace:
    """The blocks of a pass; those that it does not touch are any block of the right type."""
    return Workspace(**{"diagonal": system.diagonal, "scales": system.scales, **blocks})


def residual_pass(
    partition: Partition, systems: list[System], blocks: Blocks, pieces: Pieces, active: list[int]
) -> Blocks:
    """Compute residuals from solutions; `reduced`: their maxima over groups."""
    graph, residuals, maxima = _csr_graph(partition), [], []
    for place, panel in enumerate(active):
        system, direction = systems[panel], blocks.direction[panel]
        residual = _empty_like(direction, 0)
        solution = _with_halo(partition, blocks.solution[panel], pieces, place)
        work = _workspace(system, solution=solution, residual=residual, direction=direction, image=direction)
        scratch, largest = _scratch(partition, direction.dtype)
        residual_by_group(graph, system.rows, system.starts, work, scratch, largest)
        residuals.append(residual)
        maxima.append(largest)
    return _with(blocks, active, residual=residuals, reduced=maxima)


def product_pass(
    partition: Partition, systems: list[System], blocks: Blocks, source: str, pieces: Pieces, active: list[int]
) -> Blocks:
    """Multiply residuals by I + P, or directions by I - P; `reduced`: products with the source, summed over groups."""
    graph, sign, images, sums = _csr_graph(partition), 1.0 if source == "residual" else -1.0, [], []
    for place, panel in enumerate(active):
        system, own = systems[panel], getattr(blocks, source)[panel]
        block, image = _with_halo(partition, own, pieces, place), aligned_block(len(own), own.dtype)
        work = _workspace(system, solution=block, residual=own, direction=own, image=image)
        scratch, _ = _scratch(partition, own.dtype)
        products = np.empty((len(system.starts) - 1, own.shape[1]))
        product_by_group(graph, system.rows, system.starts, work, block, sign, scratch, products)
        images.append(image)
        sums.append(products)
    return _with(blocks, active, image=images, reduced=sums)


def direction_pass(systems: list[System], blocks: Blocks, vectors: list[Array], active: list[int]) -> Blocks:
    """The next directions."""
    directions = []
    for panel, lanes in zip(active, vectors, strict=True):
        direction, image = copied(blocks.direction[panel]), blocks.image[panel]
        work = _workspace(systems[panel], solution=image, residual=image, direction=direction, image=image)
        next_direction(systems[panel].rows, work, lanes)
        directions.append(direction)
    return _with(blocks, active, direction=directions)


def solution_pass(
    partition: Partition, systems: list[System], blocks: Blocks, vectors: list[Array], active: list[int]
) -> Blocks:
    """Move solutions along directions; `reduced`: maximum residuals over groups."""
    solutions, residuals, maxima = [], [], []
    for panel, lanes in zip(active, vectors, strict=True):
        system, solution = systems[panel], copied(blocks.solution[panel])
        residual, direction, image = copied(blocks.residual[panel]), blocks.direction[panel], blocks.image[panel]
        work = _workspace(system, solution=solution, residual=residual, direction=direction, image=image)
        scratch, largest = _scratch(partition, solution.dtype)
        solution_by_group(system.rows, system.starts, work, lanes, scratch, largest)
        solutions.append(solution)
        residuals.append(residual)
        maxima.append(largest)
    return _with(blocks, active, solution=solutions, residual=residuals, reduced=maxima)


# a fixed number of steps


def step_pass(
    partition: Partition, method: Method, systems: list[System], blocks: Blocks, pieces: Pieces, active: list[int]
) -> Blocks:
    """Take a step."""
    graph, solutions = _csr_graph(partition), []
    for place, panel in enumerate(active):
        system, own = systems[panel], blocks.solution[panel]
        block, out = _with_halo(partition, own, pieces, place), copied(own)
        arguments = graph, system.rows, block, out, system.diagonal, method.self_weight, 1
        SerialExecutor(np.zeros(1, dtype=np.uint8)).run_team(partial(take_steps, *arguments))
        solutions.append(out)
    return _with(blocks, active, solution=solutions)


def move_pass(
    partition: Partition, method: Method, systems: list[System], blocks: Blocks, pieces: Pieces, active: list[int]
) -> Blocks:
    """`reduced`: the most that one further step would move."""
    graph, maxima = _csr_graph(partition), []
    for place, panel in enumerate(active):
        system, own = systems[panel], blocks.solution[panel]
        block, largest = _with_halo(partition, own, pieces, place), np.zeros((1, own.shape[1]), dtype=own.dtype)
        weight = method.residual_self_weight
        max_residual(graph, system.rows, block, system.diagonal, system.scales, weight, largest)
        maxima.append(largest)
    return _with(blocks, active, reduced=maxima)


# from solutions to features


def restore_pass(
    partition: Partition, blocks: Blocks, pieces: Pieces, scale_pieces: Pieces, number: int, active: list[int]
) -> Blocks:
    """Give the leaves of a round the values of their parents."""
    solutions, all_scales = [], []
    for place, panel in enumerate(active):
        solution = _with_halo(partition, blocks.solution[panel], pieces, place)
        scales = _with_halo(partition, blocks.scales[panel], scale_pieces, place)
        restore_leaves(*blocks.rounds[panel][number], solution, scales)
        solutions.append(copied(solution[: partition.n_own]))
        all_scales.append(copied(scales[: partition.n_own]))
    return _with(blocks, active, solution=solutions, scales=all_scales)


def close_block(diffusion: Diffusion, system: System, solution: Array, scales: Array) -> Array:
    """The filled features of own rows."""
    channels = np.arange(len(diffusion.problem.channels.mean))
    columns, bounds = columns_of(diffusion, channels), bounds_of(diffusion, channels)
    out: Array = diffusion.problem.values[: len(solution)].copy()
    scatter_block(solution, scales, system.diagonal, columns, bounds, out, 0, len(out))
    return out
