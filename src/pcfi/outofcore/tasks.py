"""The tasks of a run. Each reads its input from the work folder, writes its part, and can be repeated.

survey    a range of rows -> statistics of each channel, and the known cells as bits
hops      64 patterns -> hops of all nodes
split     a range of rows -> its part of every panel: the known values, the mean elsewhere
diffuse   a panel -> the same panel, filled (known cells are read, missing ones written, so it can be repeated)
sums      some ranges of rows -> their part of the scatter matrix of stage 2
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import DivergenceError
from pcfi.inputs.problem import Channels, refuse_non_finite
from pcfi.outofcore import file_names
from pcfi.outofcore.filled_rows import FACTORS, FilledRows
from pcfi.outofcore.folder import flush
from pcfi.outofcore.run import ROWS_IN_CACHE, OutOfCoreRun, patterns_at_a_time
from pcfi.pipeline.policies import refuse_divergence
from pcfi.stages.channel_propagation import ProductPropagation, PropagationParameters, reachable_sums
from pcfi.stages.diffusion import InfluenceProduct, diffuse
from pcfi.stages.hops import Hops, cells_by_hops, count_hops

Entry = dict[str, Any]

WORD = 64  # known flags in one number
MAX_SUM_GROUPS = 16  # of ranges, whose sums are added up in a tree: few, as each is channels x channels


def survey(run: OutOfCoreRun, index: int) -> Entry:
    """Facts about the known cells of a range of rows."""

    def rows() -> Iterator[tuple[int, Array, Array]]:
        for start, values, mask in run.chunks(index):
            known = mask if len(mask) else values == values
            run.folder.write_columns(file_names.KNOWN, start, _packed(known), run.n_nodes)
            yield start, values, mask

    facts = channel_statistics(run, rows())
    run.folder.sync(file_names.KNOWN)
    run.folder.save(file_names.survey(index), facts)
    first, last = run.range_of(index)
    n_words, size = -(-run.n_channels // WORD), np.dtype(np.uint64).itemsize
    bits = (first * size, (last - first) * size, run.n_nodes * size, n_words)
    return {"checksums": [run.folder.part_checksum(file_names.KNOWN, *bits)]}


def channel_statistics(run: OutOfCoreRun, chunks: Iterator[tuple[int, Array, Array]]) -> Array:
    """Number, least, greatest and sum of the known values of each channel, and a key of its known nodes."""
    from pcfi._kernels.channel_stats import ChannelStats, add_channel_stats

    n_channels = run.n_channels
    facts = ChannelStats(
        n_known=np.zeros(n_channels, dtype=np.int64),
        low=np.full(n_channels, np.inf, dtype=run.dtype),
        high=np.full(n_channels, -np.inf, dtype=run.dtype),
        total=np.zeros(n_channels),
        key=np.zeros(n_channels, dtype=np.uint64),
    )
    for start, values, mask in chunks:
        add_channel_stats(values, mask, 0, n_channels, facts, start)
        _refuse_non_finite(run, start, values, mask, facts)
    return np.stack([*(fact.astype(np.float64) for fact in facts[:4]), facts.key.view(np.float64)])


def _refuse_non_finite(run: OutOfCoreRun, start: int, values: Array, mask: Array, facts: Any) -> None:
    some = facts.n_known > 0
    if all(np.isfinite(fact[some]).all() for fact in (facts.low, facts.high, facts.total)):
        return
    refuse_non_finite(values, mask, run.channel_name, start)
    raise DivergenceError("the sum of the known values of a channel is beyond what a float64 holds: rescale it")


def _packed(known: Array) -> Array:
    """Flags of (rows, channels) as bits of (words, rows)."""
    n_words = -(-known.shape[1] // WORD)
    packed = np.zeros((len(known), n_words * 8), dtype=np.uint8)
    packed[:, : -(-known.shape[1] // 8)] = np.packbits(known, axis=1, bitorder="little")
    return np.ascontiguousarray(packed.view(np.uint64).T)


def hops(run: OutOfCoreRun, index: int) -> Entry:
    """Hops of all nodes in 64 patterns."""
    size = patterns_at_a_time()
    chosen = run.channels.representatives[index * size : (index + 1) * size]
    known = _known_in(run, chosen)
    numbers, zeros = np.arange(len(chosen)), np.zeros(len(chosen))
    channels = Channels(n_known=numbers, low=zeros, high=zeros, mean=zeros, patterns=numbers, representatives=numbers)
    counted = count_hops(run.part(known, known, channels))
    run.folder.write_array(file_names.hops(index), counted.codes)
    sizes = np.bincount(run.channels.patterns)[index * size : (index + 1) * size]
    return {
        "dtype": counted.codes.dtype.name,
        "n_levels": int(counted.n_levels),
        "n_unreachable": counted.n_unreachable.tolist(),
        "levels": cells_by_hops(counted, sizes).tolist(),
        "checksums": [run.folder.part_checksum(file_names.hops(index), 0, counted.codes.nbytes)],
    }


def _known_in(run: OutOfCoreRun, chosen: Array) -> Array:
    """Known flags of all nodes in the chosen channels."""
    known = np.empty((run.n_nodes, len(chosen)), dtype=np.bool_)
    for rows, part in _known_flags(run, chosen):
        known[rows] = part
    return known


def known_nodes(run: OutOfCoreRun, chosen: Array) -> Array:
    """Flags, in a column, of the nodes that know all of the chosen channels."""
    known = np.empty((run.n_nodes, 1), dtype=np.bool_)
    for rows, part in _known_flags(run, chosen):
        known[rows, 0] = part.all(axis=1)
    return known


def _known_flags(run: OutOfCoreRun, chosen: Array) -> Iterator[tuple[slice, Array]]:
    """Known flags of some rows at a time in the chosen channels."""
    bits = run.folder.map(file_names.KNOWN, (-(-run.n_channels // WORD), run.n_nodes), np.uint64)
    words, places = np.divmod(chosen, WORD)
    for first in range(0, run.n_nodes, ROWS_IN_CACHE):
        rows = slice(first, min(first + ROWS_IN_CACHE, run.n_nodes))
        flags = np.empty((rows.stop - first, len(chosen)), dtype=np.bool_)
        for word in np.unique(words):
            part = np.ascontiguousarray(bits[word, rows]).view(np.uint8).reshape(-1, 8)
            here = np.flatnonzero(words == word)
            flags[:, here] = np.unpackbits(part, axis=1, bitorder="little")[:, places[here]]
        yield rows, flags


def split(run: OutOfCoreRun, index: int) -> Entry:
    """Write a range of rows of every panel that has not diffused yet."""
    diffused = run.folder.finished("diffuse")
    waiting = {number: place for number, place in enumerate(run.layout.places) if number not in diffused}
    for start, values, mask in run.chunks(index):
        rows = run.start_values(start, values, mask)
        run.check_owner()
        for number, place in waiting.items():
            run.folder.write_rows(file_names.panel(number), start, np.ascontiguousarray(rows[:, place]))
    run.folder.sync(*map(file_names.panel, waiting))
    return {"checksums": [_panel_checksum(run, number, *run.range_of(index)) for number in waiting]}


def _panel_checksum(run: OutOfCoreRun, number: int, first: int, last: int) -> list[Any]:
    row = len(run.layout.panels[number]) * run.dtype.itemsize
    return run.folder.part_checksum(file_names.panel(number), first * row, (last - first) * row)


def diffuse_panel(run: OutOfCoreRun, index: int) -> Entry:
    """Fill a panel; return steps and residual, and the sums over its reachable cells for stage 2."""
    panel = run.layout.panels[index]
    run.folder.mark(file_names.begun(index))
    patterns, local = np.unique(run.channels.patterns[panel], return_inverse=True)
    panel_hops = Hops(run.codes_of(patterns), run.hops.n_levels, run.hops.n_unreachable[patterns], local)
    values = run.folder.map(file_names.panel(index), (run.n_nodes, len(panel)), run.dtype)
    problem = run.part(values, np.empty((0, 1), dtype=np.bool_), channels_of(run, panel, local))
    diffusion = replace(run.diffusion, problem=problem, hops=panel_hops)
    outcome, product = diffuse(diffusion, values, keep_product=run.layout.is_product)
    refuse_divergence(outcome)
    entry: Entry = {"steps": int(outcome.steps), "residual": float(outcome.residual)}
    if product is not None and run.propagation is not None:
        _keep_product(run, product, panel_hops, run.propagation)
        size = product.influence.nbytes
        return entry | {"checksums": [run.folder.part_checksum(file_names.INFLUENCE, 0, size)]}
    if run.propagation is not None:
        sums, counts = reachable_sums(values, panel_hops, np.arange(len(panel)), problem.channels.magnitude)
        entry |= {"sums": sums.tolist(), "counts": counts.tolist()}
    flush(values)
    return entry | {"checksums": [_panel_checksum(run, index, 0, run.n_nodes)]}


def channels_of(run: OutOfCoreRun, panel: Array, patterns: Array) -> Channels:
    """Facts about the channels of a panel, whose patterns are numbered anew."""
    facts = run.prepared
    return Channels(
        n_known=facts.n_known[panel],
        low=facts.low[panel],
        high=facts.high[panel],
        mean=facts.mean[panel],
        patterns=patterns,
        representatives=np.unique(patterns, return_index=True)[1],
    )


def _keep_product(
    run: OutOfCoreRun, product: InfluenceProduct, panel_hops: Hops, parameters: PropagationParameters
) -> None:
    is_reachable = panel_hops.is_reachable(panel_hops.codes[:, 0])
    stage = ProductPropagation.of(product, is_reachable, run.prepared.magnitude[run.layout.propagating], parameters)
    factors = (product.known, product.shift, product.bounds, stage.mean, stage.received)
    for name, array in zip(FACTORS, factors, strict=True):
        run.folder.save(file_names.product(name), array)
    # written last: if it exists, all files do
    run.folder.write_array(file_names.INFLUENCE, np.ascontiguousarray(product.influence))


def sums(run: OutOfCoreRun, index: int) -> Array:
    """The part of some ranges in the scatter matrix of stage 2."""
    filled, n_channels = FilledRows(run), len(run.layout.propagating)
    stage, scatter = filled.propagation(), np.zeros((n_channels, n_channels))
    groups = np.array_split(np.arange(run.n_ranges), min(MAX_SUM_GROUPS, run.n_ranges))
    for start, rows in chain.from_iterable(filled.diffused(number) for number in groups[index].tolist()):
        scatter += stage.scatter(rows, run.hops_at(start, start + len(rows)).codes)
    return scatter
