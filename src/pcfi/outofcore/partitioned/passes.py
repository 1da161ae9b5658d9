"""What a worker does with the blocks of a partition between two exchanges: the passes of stage 1.

Blocks come as lists, one for each panel of a batch; `active` lists the panels that are worked on, and those of the
others are passed on.
"""

from functools import partial

import numpy as np

from pcfi._kernels.blocks import aligned_block
from pcfi._kernels.conjugate_gradients import Workspace
from pcfi._kernels.leaf_elimination import restore_leaves
from pcfi._kernels.row_groups import (
    fill_next_level,
    next_direction,
    product_by_group,
    residual_by_group,
    solution_by_group,
)
from pcfi._kernels.steps import max_residual, take_steps
from pcfi._kernels.thread_team import SerialExecutor
from pcfi._typing import Array
from pcfi.outofcore.partitioned.blocks import (
    Blocks,
    PartSystem,
    PassSettings,
    Pieces,
    copied,
    csr_graph,
    filled_like,
    scratch_rows,
    updated,
    with_halo,
)
from pcfi.outofcore.partitioned.layout import Partition

# the initial guess


def begin_guess(settings: PassSettings, systems: list[PartSystem], blocks: Blocks) -> Blocks:
    """Blocks without a guess: NaN at free cells; a fixed number of steps begins at zero."""
    scales, solution = [system.scales for system in systems], []
    for system, known in zip(systems, blocks.solution, strict=True):
        block = copied(known)
        if settings.settles:
            block[system.diagonal > 0] = np.nan
        solution.append(block)
    return blocks._replace(solution=solution, scales=scales)


def without_solution(blocks: Blocks) -> Blocks:
    """What stays the same until panels are solved: scales and leaves."""
    return blocks._replace(solution=[])


def guess_level(
    partition: Partition, systems: list[PartSystem], blocks: Blocks, pieces: Pieces, active: list[int]
) -> Blocks:
    """Fill free cells with means of neighbours that have a value; `reduced`: how many were filled."""
    graph, solution, counts = csr_graph(partition), [], []
    for place, panel in enumerate(active):
        out = copied(blocks.solution[panel])
        block = with_halo(partition, blocks.solution[panel], pieces, place)
        counts.append(np.array([[fill_next_level(graph, systems[panel].rows, block, out)]]))
        solution.append(out)
    return updated(blocks, active, solution=solution, reduced=counts)


def end_guess(settings: PassSettings, systems: list[PartSystem], blocks: Blocks) -> Blocks:
    """The guess in scaled form, and a first direction of zero."""
    solution = []
    for system, guess in zip(systems, blocks.solution, strict=True):
        block = copied(np.nan_to_num(guess, nan=0.0, posinf=np.inf, neginf=-np.inf))
        if settings.keeps_constants:
            np.multiply(block, system.scales, out=block, where=system.diagonal > 0)
        solution.append(block)
    return blocks._replace(solution=solution, direction=[filled_like(block, 0) for block in solution])


# conjugate gradients


def _workspace(system: PartSystem, **blocks: Array) -> Workspace:
    """The blocks of a pass; those that it does not touch are any block of the right type."""
    return Workspace(**{"diagonal": system.diagonal, "scales": system.scales, **blocks})


def residual_pass(
    partition: Partition, systems: list[PartSystem], blocks: Blocks, pieces: Pieces, active: list[int]
) -> Blocks:
    """Compute residuals from solutions; `reduced`: their maxima over groups."""
    graph, residuals, maxima = csr_graph(partition), [], []
    for place, panel in enumerate(active):
        system, direction = systems[panel], blocks.direction[panel]
        residual = filled_like(direction, 0)
        solution = with_halo(partition, blocks.solution[panel], pieces, place)
        work = _workspace(system, solution=solution, residual=residual, direction=direction, image=direction)
        scratch, largest = scratch_rows(partition, direction.dtype)
        residual_by_group(graph, system.rows, system.starts, work, scratch, largest)
        residuals.append(residual)
        maxima.append(largest)
    return updated(blocks, active, residual=residuals, reduced=maxima)


def product_pass(
    partition: Partition, systems: list[PartSystem], blocks: Blocks, source: str, pieces: Pieces, active: list[int]
) -> Blocks:
    """Multiply residuals by I + P, or directions by I - P; `reduced`: products with the source, summed over groups."""
    graph, sign, images, sums = csr_graph(partition), 1.0 if source == "residual" else -1.0, [], []
    for place, panel in enumerate(active):
        system, own = systems[panel], getattr(blocks, source)[panel]
        block, image = with_halo(partition, own, pieces, place), aligned_block(len(own), own.dtype)
        work = _workspace(system, solution=block, residual=own, direction=own, image=image)
        scratch, _ = scratch_rows(partition, own.dtype)
        products = np.empty((len(system.starts) - 1, own.shape[1]))
        product_by_group(graph, system.rows, system.starts, work, block, sign, scratch, products)
        images.append(image)
        sums.append(products)
    return updated(blocks, active, image=images, reduced=sums)


def direction_pass(systems: list[PartSystem], blocks: Blocks, vectors: list[Array], active: list[int]) -> Blocks:
    """The next directions."""
    directions = []
    for panel, lanes in zip(active, vectors, strict=True):
        direction, image = copied(blocks.direction[panel]), blocks.image[panel]
        work = _workspace(systems[panel], solution=image, residual=image, direction=direction, image=image)
        next_direction(systems[panel].rows, work, lanes)
        directions.append(direction)
    return updated(blocks, active, direction=directions)


def solution_pass(
    partition: Partition, systems: list[PartSystem], blocks: Blocks, vectors: list[Array], active: list[int]
) -> Blocks:
    """Move solutions along directions; `reduced`: maximum residuals over groups."""
    solutions, residuals, maxima = [], [], []
    for panel, lanes in zip(active, vectors, strict=True):
        system, solution = systems[panel], copied(blocks.solution[panel])
        residual, direction, image = copied(blocks.residual[panel]), blocks.direction[panel], blocks.image[panel]
        work = _workspace(system, solution=solution, residual=residual, direction=direction, image=image)
        scratch, largest = scratch_rows(partition, solution.dtype)
        solution_by_group(system.rows, system.starts, work, lanes, scratch, largest)
        solutions.append(solution)
        residuals.append(residual)
        maxima.append(largest)
    return updated(blocks, active, solution=solutions, residual=residuals, reduced=maxima)


# a fixed number of steps


def step_pass(
    partition: Partition,
    settings: PassSettings,
    systems: list[PartSystem],
    blocks: Blocks,
    pieces: Pieces,
    active: list[int],
) -> Blocks:
    """Take a step."""
    graph, solutions = csr_graph(partition), []
    for place, panel in enumerate(active):
        system, own = systems[panel], blocks.solution[panel]
        block, out = with_halo(partition, own, pieces, place), copied(own)
        arguments = graph, system.rows, block, out, system.diagonal, settings.self_weight, 1
        SerialExecutor(np.zeros(1, dtype=np.uint8)).run_team(partial(take_steps, *arguments))
        solutions.append(out)
    return updated(blocks, active, solution=solutions)


def move_pass(
    partition: Partition,
    settings: PassSettings,
    systems: list[PartSystem],
    blocks: Blocks,
    pieces: Pieces,
    active: list[int],
) -> Blocks:
    """`reduced`: the most that one further step would move."""
    graph, maxima = csr_graph(partition), []
    for place, panel in enumerate(active):
        system, own = systems[panel], blocks.solution[panel]
        block, largest = with_halo(partition, own, pieces, place), np.zeros((1, own.shape[1]), dtype=own.dtype)
        weight = settings.residual_self_weight
        max_residual(graph, system.rows, block, system.diagonal, system.scales, weight, largest)
        maxima.append(largest)
    return updated(blocks, active, reduced=maxima)


# leaves


def restore_pass(
    partition: Partition, blocks: Blocks, pieces: Pieces, scale_pieces: Pieces, number: int, active: list[int]
) -> Blocks:
    """Give the leaves of a round the values of their parents."""
    solutions, all_scales = [], []
    for place, panel in enumerate(active):
        solution = with_halo(partition, blocks.solution[panel], pieces, place)
        scales = with_halo(partition, blocks.scales[panel], scale_pieces, place)
        restore_leaves(*blocks.rounds[panel][number], solution, scales)
        solutions.append(copied(solution[: partition.n_own]))
        all_scales.append(copied(scales[: partition.n_own]))
    return updated(blocks, active, solution=solutions, scales=all_scales)
