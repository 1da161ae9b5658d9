"""The backend for runs on disk: the pipeline calls the stages, and a runner executes their tasks with a journal."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import StorageError, counted
from pcfi.imputation import check_bounds
from pcfi.inputs.problem import Problem, group_by_key
from pcfi.outofcore import draw_tasks, file_names
from pcfi.outofcore.estimation_tasks import choose_sample
from pcfi.outofcore.filled_rows import FilledRows
from pcfi.outofcore.interval_tasks import spread_groups
from pcfi.outofcore.plan import check_layout
from pcfi.outofcore.run import OutOfCoreRun, patterns_at_a_time
from pcfi.outofcore.run_settings import needs_fit
from pcfi.outofcore.run_sinks import sinks_of
from pcfi.outofcore.runners import Runner
from pcfi.outofcore.tasks import MAX_SUM_GROUPS
from pcfi.pipeline import Filled, run_stages
from pcfi.stages.channel_propagation import PropagationParameters
from pcfi.stages.diffusion import Diffused, Diffusion, DiffusionOutcome, InfluenceProduct, Route
from pcfi.stages.hops import Hops

LOG = logging.getLogger("pcfi.scale")


def fill_run(run: OutOfCoreRun, backend: "OutOfCoreBackend") -> Filled:
    """Read the features, run the pipeline, write the results; tasks that are in the journal take no time."""
    problem = backend.read_problem()
    if needs_fit(run.settings):
        backend.fit(problem)
    filled = run_stages(run.outline, run.chosen, backend)
    backend.write_results()
    return filled


class OutOfCoreBackend:
    """See `pcfi.backends.StageBackend`; what is an array there is a handle to stored rows here.

    A method returns when its tasks are finished and what is gathered from them is in the work folder, so that a call
    that resumes goes through the same methods and does only what is left.
    """

    def __init__(self, run: OutOfCoreRun, runner: Runner) -> None:
        self._run, self._runner = run, runner
        self._hops: Hops | None = None

    def read_problem(self) -> Problem:
        """The problem with the facts about its channels; its values stay in their file."""
        self._do("survey", self._run.n_ranges)
        self._once(file_names.channels("n_known"), self._gather_survey)
        check_bounds(self._run.limits, self._run.surveyed)
        return self._run.surveyed

    def count_hops(self, problem: Problem, *, progress: bool) -> Hops:
        """Count hops in groups of patterns; return counts only, the codes stay in their files."""
        del problem, progress
        run = self._run
        if self._hops is None:
            self._count_hops_of_groups(-(-run.n_patterns // patterns_at_a_time()))
            self._once(file_names.HOPS, self._gather_hops)
            self._hops = run.hops
        return self._hops

    def fit(self, problem: Problem) -> None:
        """Fit the value model to a sample, and survey the channels as they diffuse if that makes a difference."""
        run = self._run
        self.count_hops(problem, progress=False)
        self._once(file_names.SAMPLE_NODES, lambda: choose_sample(run))
        self._do("sample", run.n_ranges)
        self._do("fit", 1)
        if run.model is not None and run.model.prepares:
            self._do("prepare", run.n_ranges)
            surveys = (file_names.prepared_survey(index) for index in range(run.n_ranges))
            self._once(file_names.prepared("n_known"), lambda: self._gather(surveys, file_names.prepared))

    def start(self, problem: Problem, fill: Array) -> FilledRows:
        """Panels of channels that diffuse together, with the known values and the means that are in the work folder."""
        del problem, fill
        self._once(file_names.LAYOUT, self._lay_out)
        check_layout(self._run)
        self._do("split", self._run.n_ranges)
        return FilledRows(self._run)

    def diffuse(self, diffusion: Diffusion, out: FilledRows, *, keep_product: bool) -> Diffused:
        """Diffuse panel by panel; a product stays in the work folder."""
        del diffusion, out, keep_product
        self._diffuse_panels(len(self._run.layout.panels))
        entries = self._run.folder.finished("diffuse").values()
        return Diffused(DiffusionOutcome.worst([DiffusionOutcome(one["steps"], one["residual"]) for one in entries]))

    def propagate_channels(
        self, diffusion: Diffusion, parameters: PropagationParameters, product: InfluenceProduct | None, out: FilledRows
    ) -> None:
        """Compute the propagation matrix; rows are refined when they are written."""
        del diffusion, product
        is_product = self._run.folder.has(file_names.INFLUENCE)
        if len(self._run.layout.propagating) > 1 and not is_product:
            self._once(file_names.MATRIX, lambda: self._make_matrix(parameters, out))

    def place_unreachable(self, hops: Hops, fill: Array, out: FilledRows) -> None:
        """Save the values; rows get them when they are written."""
        del hops, out
        self._run.folder.save(file_names.UNREACHABLE, fill.astype(self._run.dtype))

    def write_results(self) -> None:
        """Write values, confidence, hops, intervals and draws, range by range."""
        if self._run.has_errors:
            self._spread_errors(len(spread_groups(self._run)))
        if self._run.n_draws:
            self._draw_fields()
        self._once(file_names.SINKS, self._make_sinks)
        self._do("write", self._run.n_ranges)
        self._check_results()
        identities = self._run.folder.read(file_names.SINKS)
        for name, sink in sinks_of(self._run).items():
            sink.finish(identities[name])

    def _count_hops_of_groups(self, count: int) -> None:
        self._do("hops", count, self._run.plan.searches)

    def _diffuse_panels(self, count: int) -> None:
        self._do("diffuse", count)

    def _spread_errors(self, count: int) -> None:
        self._do("spread", count)

    def _draw_fields(self) -> None:
        """Draw the errors of all cells, as far as neighbours have them in common."""
        run = self._run
        draw_tasks.refuse_unknown_errors(run)
        self._do("relate", 1)
        self._do("scale", draw_tasks.scale_count(run))
        self._do("field", run.n_draws * len(draw_tasks.field_groups(run)))

    def _routes(self) -> list[tuple[Route, Array]]:
        """Which channels take which route through stage 1."""
        return self._run.diffusion.routes

    def _check_results(self) -> None:
        """Raise `StorageError` if a part of a result is gone; the next call writes it again."""
        run = self._run
        for sink in sinks_of(run).values():
            for index in sink.absent_ranges(run.n_ranges):
                run.folder.forget("write", index)
                raise StorageError(
                    f"a part of {sink.partial!r} was removed while the run was going on: run it again, to write that "
                    "part anew"
                )

    def _do(self, stage: str, count: int, at_once: int = 1) -> None:
        """Do the tasks of a stage that are left, and log how long it took."""
        before, begin = len(self._run.folder.finished(stage)), time.perf_counter()
        self._runner.run(stage, count, at_once)
        earlier = f", {before:,} of them before" if before else ""
        LOG.info("%s: %s%s, %.1f s", stage, counted(count, "task"), earlier, time.perf_counter() - begin)

    def _once(self, name: str, make: Callable[[], None]) -> None:
        """Create the files of a step unless its last file, `name`, exists."""
        if not self._run.folder.has(name):
            make()

    def _gather_survey(self) -> None:
        surveys = (file_names.survey(index) for index in range(self._run.n_ranges))
        self._gather(surveys, file_names.channels)

    def _gather(self, surveys: Iterable[str], name: Callable[[str], str]) -> None:
        """Facts of all ranges -> facts about each channel."""
        run = self._run
        parts = [run.folder.load(survey) for survey in surveys]
        n_known = np.sum([part[0] for part in parts], axis=0).astype(np.int64)
        low, high = (pick([part[k] for part in parts], axis=0) for k, pick in ((1, np.min), (2, np.max)))
        low[n_known == 0] = high[n_known == 0] = 0
        mean = np.clip(np.sum([part[3] for part in parts], axis=0) / np.maximum(n_known, 1), low, high)
        keys = np.zeros(run.n_channels, dtype=np.uint64)
        for part in parts:
            keys += part[4].view(np.uint64)
        patterns, representatives = group_by_key(keys)
        low, high = low.astype(run.dtype), high.astype(run.dtype)
        facts = {"low": low, "high": high, "mean": mean, "patterns": patterns, "representatives": representatives}
        for fact, array in (facts | {"n_known": n_known}).items():
            run.folder.save(name(fact), array)

    def _gather_hops(self) -> None:
        """Entries of all groups -> counts over all patterns."""
        entries = [entry for _, entry in sorted(self._run.folder.finished("hops").items())]
        dtypes = [entry["dtype"] for entry in entries]
        facts = {
            "dtype": max(dtypes, key=lambda dtype: np.dtype(dtype).itemsize),
            "dtypes": dtypes,
            "n_levels": max(entry["n_levels"] for entry in entries),
            "n_unreachable": [count for entry in entries for count in entry["n_unreachable"]],
        }
        self._run.folder.write(file_names.HOPS, facts)

    def _lay_out(self) -> None:
        """Channels that go together in `pcfi.impute` make a panel, so that they settle in the same way."""
        run, diffusion = self._run, self._run.diffusion
        routes = self._routes()
        panels = [panel for route, chosen in routes for panel in _panels(route, chosen, diffusion)]
        propagates = run.propagation is not None and run.surveyed.n_missing > 0
        for number, panel in enumerate(panels):
            run.folder.create(file_names.panel(number), (run.n_nodes, len(panel)), run.dtype)
        layout: dict[str, Any] = {
            "panels": [panel.tolist() for panel in panels],
            "n_through_influence": sum(route is Route.INFLUENCE for route, _ in routes),
            "propagating": diffusion.varying.tolist() if propagates else [],
            "is_product": propagates and diffusion.is_one_product and routes[0][0] is Route.INFLUENCE,
        }
        run.folder.write(file_names.LAYOUT, layout)

    def _make_matrix(self, parameters: PropagationParameters, out: FilledRows) -> None:
        begin = time.perf_counter()
        scatter = self._runner.total("sums", min(MAX_SUM_GROUPS, self._run.n_ranges))
        matrix = out.propagation().matrix(scatter, parameters)
        seconds = time.perf_counter() - begin
        self._run.folder.record("sums", 0, {"seconds": seconds})
        LOG.info("sums: %.1f s", seconds)
        self._run.folder.save(file_names.MATRIX, matrix)

    def _make_sinks(self) -> None:
        for sink in sinks_of(self._run).values():
            sink.create(self._run.plan.range_rows)
        identities = {name: sink.identity for name, sink in sinks_of(self._run).items()}
        self._run.folder.write(file_names.SINKS, identities)


def _panels(route: Route, chosen: Array, diffusion: Diffusion) -> list[Array]:
    """The channels of a route, cut where `pcfi.impute` would cut them."""
    from pcfi._kernels.blocks import lane_count

    if route is Route.INFLUENCE:
        return [chosen]
    if route is Route.SWEEPS:
        return _panels_by_pattern(chosen, diffusion.hops.patterns[chosen], lane_count(np.float64))
    lanes = lane_count(diffusion.dtype)
    return [chosen[start : start + lanes] for start in range(0, len(chosen), lanes)]


def _panels_by_pattern(chosen: Array, patterns: Array, lanes: int) -> list[Array]:
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
