"""The tasks of a run. Each reads what it needs from the work folder, writes its part, and can be done again.

survey    a range of rows -> facts about its part of each channel, and who is known, as bits
hops      64 patterns -> hops of all nodes
split     a range of rows -> its part of every panel: the known values, the mean elsewhere
diffuse   a panel -> the same panel, filled (known cells are read, free cells written, so it can be done again)
sums      some ranges of rows -> their part of the scatter of the channels that share
write     a range of rows -> its part of the results
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import DivergenceError, FeatureError
from pcfi.inputs.problem import Channels, to_half
from pcfi.outofcore.folder import flush
from pcfi.outofcore.run import ROWS_IN_CACHE, Run, patterns_at_a_time
from pcfi.pipeline.methods import refuse_divergence
from pcfi.stages.channel_propagation import Exchange, Sharing, received_by_influence, refine_factored, refuse_non_finite
from pcfi.stages.diffusion import Factors, diffuse
from pcfi.stages.hops import Hops, count_hops

Entry = dict[str, Any]

WORD = 64  # known flags in one number
SUM_GROUPS = 16  # of ranges, whose sums are added up in a tree
FACTORS = ("known", "shift", "bounds", "mean", "received")


def survey(run: Run, index: int) -> Entry:
    """Facts about the known cells of a range of rows."""
    from pcfi._kernels.channel_stats import ChannelStats, add_channel_stats

    n_channels = run.n_channels
    facts = ChannelStats(
        n_known=np.zeros(n_channels, dtype=np.int64),
        low=np.full(n_channels, np.inf, dtype=run.dtype),
        high=np.full(n_channels, -np.inf, dtype=run.dtype),
        total=np.zeros(n_channels),
        key=np.zeros(n_channels, dtype=np.uint64),
    )
    for start, values, mask in run.chunks(index):
        add_channel_stats(values, mask, 0, n_channels, facts, start)
        _refuse_non_finite(run, start, values, mask, facts)
        known = mask if len(mask) else values == values
        run.folder.write_columns("known.raw", start, _packed(known), run.n_nodes)
    run.folder.sync("known.raw")
    rows = [fact.astype(np.float64) for fact in facts[:4]]
    run.folder.save(f"survey-{index}.npy", np.stack([*rows, facts.key.view(np.float64)]))
    return {}


def _refuse_non_finite(run: Run, start: int, values: Array, mask: Array, facts: Any) -> None:
    some = facts.n_known > 0
    if all(np.isfinite(fact[some]).all() for fact in (facts.low, facts.high, facts.total)):
        return
    wrong = (mask & ~np.isfinite(values)) if len(mask) else np.isinf(values)
    if not wrong.any():
        raise DivergenceError("the sum of the known values of a channel is beyond what a float64 holds: rescale it")
    node, channel = np.argwhere(wrong)[0]
    raise FeatureError(
        f"row {start + node}, channel {run.store.names[channel]} is {values[node, channel]}, but known values must be "
        "finite: use NaN or null if it is missing, or set known to False there"
    )


def _packed(known: Array) -> Array:
    """Flags of (rows, channels) as bits of (words, rows)."""
    n_words = -(-known.shape[1] // WORD)
    packed = np.zeros((len(known), n_words * 8), dtype=np.uint8)
    packed[:, : -(-known.shape[1] // 8)] = np.packbits(known, axis=1, bitorder="little")
    return np.ascontiguousarray(packed.view(np.uint64).T)


def hops(run: Run, index: int) -> Entry:
    """Hops of all nodes in 64 patterns."""
    size = patterns_at_a_time()
    chosen = run.channels.representatives[index * size : (index + 1) * size]
    known = _known_in(run, chosen)
    numbers, zeros = np.arange(len(chosen)), np.zeros(len(chosen))
    found = count_hops(run.part(known, known, Channels(numbers, zeros, zeros, zeros, numbers, numbers)))
    run.folder.write_array(f"hops-{index}.raw", found.codes)
    return {
        "dtype": found.codes.dtype.name,
        "n_levels": int(found.n_levels),
        "n_unreachable": found.n_unreachable.tolist(),
    }


def _known_in(run: Run, chosen: Array) -> Array:
    """Known flags of all nodes in the chosen channels."""
    bits = run.folder.map("known.raw", (-(-run.n_channels // WORD), run.n_nodes), np.uint64)
    known = np.empty((run.n_nodes, len(chosen)), dtype=np.bool_)
    words, places = np.divmod(chosen, WORD)
    for first in range(0, run.n_nodes, ROWS_IN_CACHE):
        rows = slice(first, first + ROWS_IN_CACHE)
        for word in np.unique(words):
            part = np.ascontiguousarray(bits[word, rows]).view(np.uint8).reshape(-1, 8)
            here = np.flatnonzero(words == word)
            known[rows, here] = np.unpackbits(part, axis=1, bitorder="little")[:, places[here]]
    return known


def split(run: Run, index: int) -> Entry:
    """A range of rows of every panel."""
    for start, values, mask in run.chunks(index):
        rows = _start(run, values, mask)
        run.check_owner()
        for number, place in enumerate(run.layout.places):
            run.folder.write_rows(f"panel-{number}.raw", start, np.ascontiguousarray(rows[:, place]))
    run.folder.sync(*(f"panel-{number}.raw" for number in range(len(run.layout.panels))))
    return {}


def _start(run: Run, values: Array, mask: Array) -> Array:
    """The known values, and the channel's mean elsewhere."""
    from pcfi._kernels.channel_stats import copy_known

    rows = np.empty_like(values)
    copy_known(values, mask, run.channels.mean.astype(run.dtype), 0, len(values), rows)
    return rows


def diffuse_panel(run: Run, index: int) -> Entry:
    """Fill a panel; returns how it went, and the sums over its reachable cells that sharing needs."""
    panel, settings = run.layout.panels[index], run.settings
    patterns, local = np.unique(run.channels.patterns[panel], return_inverse=True)
    channels = _channels_of(run, panel, local)
    codes = run.codes_of(patterns)
    found = Hops(codes, run.hops.n_levels, run.hops.n_unreachable[patterns], local)
    values = run.folder.map(f"panel-{index}.raw", (run.n_nodes, len(panel)), run.dtype)
    outcome, factors = diffuse(
        run.part(values, np.empty((0, 1), dtype=np.bool_), channels),
        found,
        run.weighting,
        settings.solver,
        values,
        self_loops=settings.self_loops,
        keep_factored=np.arange(len(panel)) if run.layout.factored else None,
    )
    refuse_divergence(outcome)
    entry = {"steps": int(outcome.steps), "residual": float(outcome.residual), "factored": factors is not None}
    if factors is not None:
        _keep_factors(run, factors, codes[:, 0])
    elif run.shares:
        entry |= _sums(run, panel, values, found)
    flush(values)
    return entry


def _channels_of(run: Run, panel: Array, local: Array) -> Channels:
    facts = run.channels
    representatives = np.unique(local, return_index=True)[1]
    return Channels(
        facts.n_known[panel], facts.low[panel], facts.high[panel], facts.mean[panel], local, representatives
    )


def _sums(run: Run, panel: Array, values: Array, found: Hops) -> Entry:
    from pcfi._kernels.channel_propagation import ChannelMeans, channel_sums

    sums, counts = np.zeros(len(panel)), np.zeros(len(panel), dtype=np.int64)
    sharers = ChannelMeans(np.arange(len(panel)), found.patterns, sums)
    channel_sums(values, found.codes, sharers, found.n_levels, run.channels.magnitude[panel], sums, counts)
    return {"sums": sums.tolist(), "counts": counts.tolist()}


def _keep_factors(run: Run, factors: Factors, codes: Array) -> None:
    units = run.channels.magnitude[run.layout.sharers]
    mean, received = received_by_influence(factors, codes <= run.hops.n_levels, units, sharing_of(run))
    for name, array in zip(FACTORS, (factors.known, factors.shift, factors.bounds, mean, received), strict=True):
        run.folder.save(f"factors-{name}.npy", array)
    run.folder.write_array("influence.raw", np.ascontiguousarray(factors.influence))


def sharing_of(run: Run) -> Sharing:
    """Parameters of the second stage."""
    return Sharing(run.settings.alpha, run.settings.beta, bool(run.settings.standardize))


def sums(run: Run, index: int) -> Array:
    """The part that some ranges have in the scatter of the sharing channels, in their units."""
    sharers = run.layout.sharers
    units = run.channels.magnitude[sharers]
    scatter = np.zeros((len(sharers), len(sharers)))
    groups = np.array_split(np.arange(run.n_ranges), min(SUM_GROUPS, run.n_ranges))
    for start, raw, _ in chain.from_iterable(_rows(run, number, batches=False) for number in groups[index].tolist()):
        rows = _filled(run, start, raw)
        exchange = _exchange(run, rows, run.codes_at(start, start + len(rows)))
        part = exchange.deviations(slice(None), exchange.reachable, 1 / units)
        scatter += part.T @ part
    return scatter


def _rows(run: Run, index: int, *, batches: bool = True) -> Iterator[tuple[int, Array, Any]]:
    """Rows of a range as they start, with their record batch if wanted; mere room if the panels hold them all."""
    if run.in_panels:
        for start, count, batch in run.batches(index) if batches else run.pieces(index):
            yield start, np.empty((count, run.n_channels), dtype=run.dtype), batch
        return
    for start, values, mask, batch in run.chunks_with_batches(index):
        yield start, _start(run, values, mask), batch


def _filled(run: Run, start: int, rows: Array) -> Array:
    """Rows of the filled features: the panels put in their places."""
    end = start + len(rows)
    for number, (panel, place) in enumerate(zip(run.layout.panels, run.layout.places, strict=True)):
        rows[:, place] = run.folder.read_rows(f"panel-{number}.raw", start, end, len(panel), run.dtype)
    return rows


def _exchange(run: Run, rows: Array, codes: Array) -> Exchange:
    sharers, facts = run.layout.sharers, run.channels
    totals, counts = run.sums
    hops_here = Hops(codes, run.hops.n_levels, run.hops.n_unreachable, facts.patterns)
    units = facts.magnitude[sharers]
    return Exchange.of_sums(rows, hops_here, sharers, units, run.settings.alpha, totals[sharers], counts[sharers])


def write(run: Run, index: int) -> Entry:
    """A range of rows of every result."""
    sinks = run.sinks()
    refine = _refining(run)
    with ExitStack() as stack:
        writers = {name: stack.enter_context(sink.range(index)) for name, sink in sinks.items()}
        for start, rows, batch in _rows(run, index):
            codes = run.codes_at(start, start + len(rows))
            refine(start, rows, codes)
            _place_unreachable(run, rows, codes)
            writers["values"](start, to_half(rows) if sinks["values"].dtype == np.float16 else rows, batch)
            found = Hops(codes, run.hops.n_levels, run.hops.n_unreachable, run.channels.patterns)
            named = run.named(batch)
            if "confidence" in writers:
                writers["confidence"](start, found.confidence(run.settings.alpha, run.dtype), named)
            if "hops" in writers:
                writers["hops"](start, found.expand(), named)
    return {}


def _refining(run: Run) -> Callable[[int, Array, Array], None]:
    """What turns rows of known values into filled rows, in place."""
    if run.folder.has("influence.raw"):
        return _factored_refining(run)
    if not run.folder.has("mixing.npy"):
        return lambda start, rows, _: np.copyto(rows, _filled(run, start, rows))
    mixing = run.folder.load("mixing.npy")

    def refine(start: int, rows: Array, codes: Array) -> None:
        exchange = _exchange(run, _filled(run, start, rows), codes)
        with np.errstate(over="ignore", invalid="ignore"):
            part = exchange.deviations(slice(None), exchange.confidence, np.ones(len(mixing)))
            finite = exchange.correct(slice(None), part @ mixing)
        refuse_non_finite(finite)

    return refine


def _factored_refining(run: Run) -> Callable[[int, Array, Array], None]:
    known, shift, bounds, mean, received = (run.folder.load(f"factors-{name}.npy") for name in FACTORS)
    pattern = int(run.channels.patterns[run.layout.sharers[0]])
    factors = Factors(pattern, run.layout.sharers, np.empty((0, 0), known.dtype), known, shift, bounds)

    def refine(start: int, rows: Array, codes: Array) -> None:
        influence = run.folder.read_rows("influence.raw", start, start + len(rows), len(known), known.dtype)
        here = replace(factors, influence=influence)
        refine_factored(rows, codes[:, pattern], run.hops.n_levels, here, mean, received, sharing_of(run))

    return refine


def _place_unreachable(run: Run, rows: Array, codes: Array) -> None:
    """Put what the policy says into the unreachable cells (they hold the mean until now)."""
    if run.settings.unreachable == "mean" or not run.hops.unreachable_cells():
        return
    fill = np.nan if run.settings.unreachable == "nan" else 0.0
    for channel in np.flatnonzero(run.hops.n_unreachable[run.channels.patterns]):
        rows[codes[:, run.channels.patterns[channel]] > run.hops.n_levels, channel] = fill


TASKS: dict[str, Callable[[Run, int], Any]] = {
    "survey": survey,
    "hops": hops,
    "split": split,
    "diffuse": diffuse_panel,
    "sums": sums,
    "write": write,
}
