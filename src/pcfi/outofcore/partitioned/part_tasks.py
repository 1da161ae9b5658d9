"""What a worker does with a partition and the files of a run: open panels, save them, count hops, put rows together.

`where` names the work folder and the call that works on it. Results of partitions are files of their own, in the order
of the partition; ranges of rows in the order of the nodes are put together from them, so that no two workers write to
the same page of a file.
"""

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from pcfi._kernels.blocks import aligned_block, lane_count
from pcfi._kernels.hop_relaxation import UNREACHED, relax
from pcfi._kernels.vectors import ROW_BYTES
from pcfi._typing import Array
from pcfi.files.atomic_output import atomic_output
from pcfi.outofcore import file_names
from pcfi.outofcore.interval_tasks import neighbour_part, spread_groups
from pcfi.outofcore.partitioned.blocks import Blocks, OpenBlock, PartSystem, Pieces, close_block, copied, open_block
from pcfi.outofcore.partitioned.layout import Partition, PartitionLayout, graph_of, open_partition
from pcfi.outofcore.run import OutOfCoreRun, patterns_at_a_time
from pcfi.outofcore.runners import opened_run
from pcfi.outofcore.tasks import WORD, channels_of
from pcfi.pipeline import diffusion_of
from pcfi.stages.channel_propagation import reachable_sums
from pcfi.stages.diffusion import Diffusion
from pcfi.stages.hops import Hops

Where = tuple[str, str]
Entry = dict[str, Any]

SAVED_BLOCKS = ("solution", "residual", "direction")


def read_partition(where: Where, number: int, dtype: str) -> Partition:
    """The graph of a partition."""
    return open_partition(opened_run(*where), number, np.dtype(dtype))


def _diffusion(run: OutOfCoreRun, partition: Partition, number: int) -> Diffusion:
    """Stage 1 of a panel at the nodes of a partition and its halo."""
    panel, nodes = run.layout.panels[number], partition.nodes
    patterns, local = np.unique(run.channels.patterns[panel], return_inverse=True)
    codes = run.codes_of(patterns, nodes)
    values = run.folder.map(file_names.panel(number), (run.n_nodes, len(panel)), run.dtype)[nodes]
    problem = run.part(values, np.empty((0, 1), dtype=np.bool_), channels_of(run, panel, local))
    hops = Hops(codes, run.hops.n_levels, run.hops.n_unreachable[patterns], local)
    return diffusion_of(replace(problem, graph=graph_of(run, partition)), hops, run.chosen)


def open_panels(partition: Partition, where: Where, panels: list[int]) -> list[OpenBlock]:
    """The panels of a batch in scaled form."""
    run = opened_run(*where)
    return [open_block(partition, _diffusion(run, partition, panel)) for panel in panels]


def close_panels(
    partition: Partition, where: Where, panels: list[int], systems: list[PartSystem], blocks: Blocks
) -> None:
    """Write the filled rows of a partition, for each panel of a batch."""
    run = opened_run(*where)
    run.check_owner()
    for place, panel in enumerate(panels):
        diffusion = _diffusion(run, partition, panel)
        filled = close_block(diffusion, systems[place], blocks.solution[place], blocks.scales[place])
        run.folder.write_array(file_names.filled_part(file_names.panel(panel), partition.number), filled)


# checkpoints


def save_blocks(partition: Partition, where: Where, slot: int, blocks: Blocks) -> list[Any]:
    """Write the blocks that a solver needs to go on, one after the other; returns their checksum."""
    run, name = opened_run(*where), file_names.checkpoint(partition.number, slot)
    run.check_owner()
    size = 0
    with atomic_output(run.folder.path / name) as file:
        for block in chain.from_iterable(getattr(blocks, one) for one in SAVED_BLOCKS):
            file.write(np.ascontiguousarray(block).data)
            size += block.nbytes
    return run.folder.part_checksum(name, 0, size)


def load_blocks(partition: Partition, where: Where, n_panels: int, slot: int, dtype: str, prepared: Blocks) -> Blocks:
    """Read the blocks of a checkpoint; leaves are those of `prepared`."""
    folder, name = opened_run(*where).folder, file_names.checkpoint(partition.number, slot)
    size = (folder.path / name).stat().st_size
    loaded: dict[str, Any] = {}
    shape = partition.n_own, lane_count(dtype)
    n_blocks = size // max(1, shape[0] * ROW_BYTES)
    stored = folder.map(name, (n_blocks, *shape), dtype)
    for number, block_name in enumerate(SAVED_BLOCKS[: n_blocks // n_panels]):
        loaded[block_name] = [copied(stored[number * n_panels + place]) for place in range(n_panels)]
    return prepared._replace(**loaded)


# hops


def first_hops(partition: Partition, where: Where, groups: list[int]) -> Blocks:
    """Hops of 0 at the sources of some groups of patterns, UNREACHED elsewhere, as blocks of bytes."""
    run = opened_run(*where)
    blocks = []
    for group in groups:
        size = patterns_at_a_time()
        chosen = run.channels.representatives[group * size : (group + 1) * size]
        block = aligned_block(partition.n_own, np.uint8)
        block[:] = 0
        block[:, : len(chosen)] = np.where(_known_at(run, partition.nodes[: partition.n_own], chosen), 0, UNREACHED)
        blocks.append(block)
    nothing: list[Any] = [np.empty(0)] * len(groups)
    return Blocks(blocks, *[nothing] * (len(Blocks._fields) - 1))


def _known_at(run: OutOfCoreRun, nodes: Array, chosen: Array) -> Array:
    """Known flags of some nodes in the chosen channels."""
    bits = run.folder.map(file_names.KNOWN, (-(-run.n_channels // WORD), run.n_nodes), np.uint64)
    known = np.empty((len(nodes), len(chosen)), dtype=np.bool_)
    words, places = np.divmod(chosen, WORD)
    for word in np.unique(words):
        here, part = np.flatnonzero(words == word), bits[word][nodes]
        for k in here:
            known[:, k] = (part >> np.uint64(places[k])) & np.uint64(1)
    return known


def hops_pass(partition: Partition, blocks: Blocks, pieces: Pieces, active: list[int]) -> Blocks:
    """Relax hops as far as the halo allows; `reduced`: how many rows of other halos have changed."""
    n_own, solution, counts = partition.n_own, list(blocks.solution), list(blocks.reduced)
    for place, group in enumerate(active):
        own = blocks.solution[group]
        block = aligned_block(len(partition.nodes), np.uint8)
        block[:n_own], block[n_own:] = own, UNREACHED
        done = n_own
        for piece in pieces:
            block[done : done + len(piece[place])] = piece[place]
            done += len(piece[place])
        while not relax(partition.indptr, partition.indices, block, np.zeros(1, dtype=np.uint8)):
            pass
        changed = (block[:n_own] != own).any(axis=1)
        counts[group] = np.array([[sum(int(changed[rows].sum()) for rows in partition.sent_rows)]])
        solution[group] = block[:n_own].copy()
    return blocks._replace(solution=solution, reduced=counts)


def write_hops(partition: Partition, where: Where, groups: list[int], blocks: Blocks) -> None:
    """Write the hops of a partition."""
    run = opened_run(*where)
    run.check_owner()
    for group, block in zip(groups, blocks.solution, strict=True):
        name = file_names.filled_part(file_names.hops(group), partition.number)
        run.folder.write_array(name, np.ascontiguousarray(block[:, : run.width(group)]))


# errors


def spread_part(partition: Partition, where: Where, index: int) -> None:
    """Write what neighbours add to the errors of some channels, at the nodes of a partition."""
    run = opened_run(*where)
    run.check_owner()
    name = file_names.filled_part(file_names.spread(index), partition.number)
    with atomic_output(run.folder.path / name) as file:
        file.write(neighbour_part(run, index, graph_of(run, partition), partition.nodes).data)


# ranges of rows


def _collected(run: OutOfCoreRun, name: str, width: int, dtype: Any, index: int) -> Array:
    """The rows of a range, in the order of the nodes, from the files of the partitions."""
    first, last = run.range_of(index)
    positions = run.folder.map(file_names.POSITIONS, (run.n_nodes,), np.int32)[first:last]
    bounds, rows = PartitionLayout.of_run(run).bounds, np.empty((last - first, width), dtype=dtype)
    owners = np.searchsorted(bounds, positions, side="right") - 1
    for number in np.unique(owners).tolist():
        here, n_own = owners == number, int(bounds[number + 1] - bounds[number])
        part = run.folder.map(file_names.filled_part(name, number), (n_own, width), dtype)
        rows[here] = part[positions[here] - bounds[number]]
    return rows


def _write_range(run: OutOfCoreRun, name: str, rows: Array, index: int) -> list[Any]:
    """Write a range of rows of a file; returns its checksum."""
    (first, last), size = run.range_of(index), rows.shape[1] * rows.itemsize
    run.folder.write_rows(name, first, rows)
    run.folder.sync(name)
    return run.folder.part_checksum(name, first * size, (last - first) * size)


def collect_spread(where: Where, number: int, index: int) -> list[Any]:
    """Write a range of rows of what neighbours add to errors; returns its checksum."""
    run, name = opened_run(*where), file_names.spread(number)
    run.check_owner()
    rows = _collected(run, name, len(spread_groups(run)[number]), np.float64, index)
    return _write_range(run, name, rows, index)


def collect_panels(where: Where, panels: list[int], index: int) -> list[Entry]:
    """Write a range of rows of filled panels; returns checksums, and sums over reachable cells for stage 2."""
    run = opened_run(*where)
    run.check_owner()
    (first, last), entries = run.range_of(index), []
    for number in panels:
        panel, name = run.layout.panels[number], file_names.panel(number)
        rows = _collected(run, name, len(panel), run.dtype, index)
        entry: Entry = {"checksums": _write_range(run, name, rows, index)}
        if run.propagation is not None:
            units, hops = run.prepared.magnitude[panel], run.hops_at(first, last)
            hops = replace(hops, patterns=hops.patterns[panel])
            entry["sums"], entry["counts"] = reachable_sums(rows, hops, np.arange(len(panel)), units)
        entries.append(entry)
    return entries


def collect_hops(where: Where, groups: list[int], index: int) -> list[Entry]:
    """Write a range of rows of hops; returns checksums, and how many nodes have how many hops in each pattern."""
    run = opened_run(*where)
    run.check_owner()
    entries = []
    for group in groups:
        name = file_names.hops(group)
        rows = _collected(run, name, run.width(group), np.uint8, index)
        levels = np.stack([np.bincount(column, minlength=UNREACHED + 1) for column in rows.T])
        entries.append({"checksums": _write_range(run, name, rows, index), "levels": levels})
    return entries
