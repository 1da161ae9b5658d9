"""The stages of a run in their order, and what is gathered between them."""

import logging
import time
from collections.abc import Callable

import numpy as np

from pcfi._typing import Array
from pcfi.errors import counted
from pcfi.inputs.problem import group_by_key
from pcfi.outofcore.plan import check_layout
from pcfi.outofcore.run import Run, patterns_at_a_time
from pcfi.outofcore.runners import Runner
from pcfi.outofcore.tasks import SUM_GROUPS, sharing_of
from pcfi.pipeline.methods import refuse_unreachable
from pcfi.stages.channel_propagation import mixing_of
from pcfi.stages.diffusion import Outcome, active_channels, routes_of
from pcfi.stages.diffusion.job import Job

LOG = logging.getLogger("pcfi.scale")


def do_stages(run: Run, runner: Runner) -> Outcome:
    """All stages in their order; those that are in the journal take no time."""
    _do(run, runner, "survey", run.n_ranges)
    _once(run, "channels-n_known.npy", _gather_survey)
    _do(run, runner, "hops", -(-run.n_patterns // patterns_at_a_time()), run.plan.searches)
    _once(run, "hops.json", _gather_hops)
    refuse_unreachable(run.hops.unreachable_cells(), run.outline, run.settings)
    _once(run, "layout.json", _lay_out)
    check_layout(run)
    _do(run, runner, "split", run.n_ranges)
    _do(run, runner, "diffuse", len(run.layout.panels))
    entries = run.folder.finished("diffuse").values()
    if len(run.layout.sharers) > 1 and not any(entry["factored"] for entry in entries):
        _once(run, "mixing.npy", lambda run: _mix(run, runner))
    _once(run, "sinks.json", _make_sinks)
    _do(run, runner, "write", run.n_ranges)
    for sink in run.sinks().values():
        sink.finish()
    return Outcome.worst([Outcome(entry["steps"], entry["residual"]) for entry in entries])


def _do(run: Run, runner: Runner, stage: str, count: int, at_once: int = 1) -> None:
    """Do the tasks of a stage that are left, and log how long it took."""
    before, begin = len(run.folder.finished(stage)), time.perf_counter()
    runner.run(stage, count, at_once)
    earlier = f", {before:,} of them before" if before else ""
    LOG.info("%s: %s%s, %.1f s", stage, counted(count, "task"), earlier, time.perf_counter() - begin)


def _once(run: Run, name: str, make: Callable[[Run], None]) -> None:
    """Make what `name` is the last file of, unless it is there."""
    if not run.folder.has(name):
        make(run)


def _gather_survey(run: Run) -> None:
    """Facts of all ranges -> facts about each channel."""
    parts = [run.folder.load(f"survey-{index}.npy") for index in range(run.n_ranges)]
    n_known = np.sum([part[0] for part in parts], axis=0).astype(np.int64)
    low, high = (pick([part[k] for part in parts], axis=0) for k, pick in ((1, np.min), (2, np.max)))
    low[n_known == 0] = high[n_known == 0] = 0
    mean = np.clip(np.sum([part[3] for part in parts], axis=0) / np.maximum(n_known, 1), low, high)
    keys = np.zeros(run.n_channels, dtype=np.uint64)
    for part in parts:
        keys += part[4].view(np.uint64)
    patterns, representatives = group_by_key(keys)
    low, high = low.astype(run.dtype), high.astype(run.dtype)
    found = {"low": low, "high": high, "mean": mean, "patterns": patterns, "representatives": representatives}
    for name, array in (found | {"n_known": n_known}).items():
        run.folder.save(f"channels-{name}.npy", array)


def _gather_hops(run: Run) -> None:
    """Entries of all groups -> counts over all patterns."""
    entries = [entry for _, entry in sorted(run.folder.finished("hops").items())]
    dtypes = [entry["dtype"] for entry in entries]
    facts = {
        "dtype": max(dtypes, key=lambda dtype: np.dtype(dtype).itemsize),
        "dtypes": dtypes,
        "n_levels": max(entry["n_levels"] for entry in entries),
        "n_unreachable": [count for entry in entries for count in entry["n_unreachable"]],
    }
    run.folder.write("hops.json", facts)


def _lay_out(run: Run) -> None:
    """Channels that go together in `pcfi.impute` make a panel, so that they settle in the same way."""
    from pcfi._kernels.blocks import lane_count
    from pcfi.stages.diffusion import influence_matrix, sweeps

    settings = run.settings
    active = active_channels(run.outline, run.hops, run.weighting, settings.solver)
    loops, dtype = float(settings.self_loops), run.arithmetic
    job = Job(run.outline, run.hops, run.weighting, settings.solver, loops, dtype, run.outline.values, lambda _: None)
    routes = routes_of(job, active)  # those through influence come first
    panels: list[Array] = []
    for route, chosen in routes:
        if route is influence_matrix.diffuse:
            panels.append(chosen)
        elif route is sweeps.diffuse:
            panels += _by_pattern(chosen, run.channels.patterns[chosen], lane_count(np.float64))
        else:
            panels += [chosen[start : start + lane_count(dtype)] for start in range(0, len(chosen), lane_count(dtype))]
    sharers = run.varying if run.shares and run.outline.n_missing else run.varying[:0]
    factored = len(routes) == 1 and routes[0][0] is influence_matrix.diffuse and np.array_equal(routes[0][1], sharers)
    for number, panel in enumerate(panels):
        run.folder.create(f"panel-{number}.raw", (run.n_nodes, len(panel)), run.dtype)
    layout = {
        "panels": [panel.tolist() for panel in panels],
        "n_through_influence": sum(route is influence_matrix.diffuse for route, _ in routes),
        "sharers": sharers.tolist(),
        "factored": bool(factored),
    }
    run.folder.write("layout.json", layout)


def _by_pattern(chosen: Array, patterns: Array, lanes: int) -> list[Array]:
    """Groups of up to `lanes` channels of one pattern, two groups or so to a panel."""
    groups = []
    for pattern in np.unique(patterns):
        same = chosen[patterns == pattern]
        groups += [same[start : start + lanes] for start in range(0, len(same), lanes)]
    panels: list[Array] = []
    for group in groups:
        if panels and len(panels[-1]) + len(group) <= 2 * lanes:
            panels[-1] = np.concatenate([panels[-1], group])
        else:
            panels.append(group)
    return panels


def _mix(run: Run, runner: Runner) -> None:
    """The scatter of the sharing channels -> what a channel receives from each other one."""
    begin = time.perf_counter()
    sharers = run.layout.sharers
    scatter = runner.total("sums", min(SUM_GROUPS, run.n_ranges))
    units, counts = run.channels.magnitude[sharers], run.sums[1][sharers]
    with np.errstate(over="ignore", invalid="ignore"):
        mixing = mixing_of(scatter, units / np.sqrt(np.maximum(counts, 1)), sharing_of(run)).astype(run.dtype)
    seconds = time.perf_counter() - begin
    run.folder.record("sums", 0, {"seconds": seconds})
    LOG.info("sums: %.1f s", seconds)
    run.folder.save("mixing.npy", mixing)


def _make_sinks(run: Run) -> None:
    for sink in run.sinks().values():
        sink.create(run.plan.range_rows)
    run.folder.write("sinks.json", list(run.results))
