"""Stage 1 of a batch of panels in partitions: what is done when, seen from the process of the caller.

Between two passes over the edges, rows of the halos go from worker to worker, and small sums and maxima come here. All
calls are of pure functions, so a lost worker costs the calls since the last checkpoint, which Dask makes again.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcfi._kernels.blocks import lane_count
from pcfi._kernels.conjugate_gradients import (
    MAX_RESIDUAL,
    PRODUCTS_PER_ITERATION,
    StoppingRule,
    make_lane_state,
    make_stopping_rule,
)
from pcfi._kernels.row_groups import active_lanes, choose_ratios, choose_step_sizes, start_lanes
from pcfi._typing import Array
from pcfi.outofcore.partitioned import checkpoints, part_tasks, passes
from pcfi.outofcore.partitioned.blocks import (
    PassSettings,
    eliminate,
    first_blocks,
    joined_maxima,
    joined_sums,
    make_systems,
)
from pcfi.outofcore.partitioned.checkpoints import Progress
from pcfi.outofcore.partitioned.exchange import Partitions, PerPartition
from pcfi.outofcore.run import OutOfCoreRun
from pcfi.progress import Advance
from pcfi.stages.diffusion import DiffusionOutcome
from pcfi.stages.diffusion.block_solver import columns_of
from pcfi.stages.solvers import FixedSteps

STEPS_BETWEEN_CHECKPOINTS = 10  # passes over the edges; the blocks that are written cost about as much as one


class BatchSolver:
    """Fills the panels of a batch; `panels` are their numbers, and places in the batch are counted from 0."""

    def __init__(self, run: OutOfCoreRun, parts: Partitions, panels: list[int], advance: Advance) -> None:
        self._run, self._parts, self._panels, self._advance = run, parts, panels, advance
        self._all = list(range(len(panels)))
        self._settings = PassSettings.of(run.diffusion)
        self._n_rounds = [0] * len(panels)
        self._systems, self._kept = PerPartition(), PerPartition()

    def fill(self, checkpoint: dict[str, Any] | None) -> list[DiffusionOutcome]:
        """Solve the panels, from a checkpoint if there is one, and write the rows of each partition to a file."""
        dtype = self._run.diffusion.dtype
        progress = Progress(
            running=self._all.copy(), lanes=[make_lane_state(lane_count(dtype), dtype) for _ in self._all]
        )
        blocks = self._open()
        if checkpoint is not None:
            progress = checkpoints.progress_of(checkpoint, progress.lanes)
            blocks = self._loaded(checkpoint["slot"])
        elif self._settings.settles:
            blocks = self._guess(blocks)
        blocks, moves = (self._settle if self._settings.settles else self._step)(blocks, progress)
        blocks = self._restore(blocks)
        written = self._parts.on_each(
            part_tasks.close_panels, self._parts.graphs, self._parts.where, self._panels, self._systems, blocks
        )
        self._parts.fetch(written)
        return [self._outcome(place, moves[place], progress.lanes[place].steps) for place in self._all]

    def _call(self, function: Callable[..., object], *arguments: object) -> PerPartition:
        return self._parts.on_each(function, self._parts.graphs, *arguments)

    def _open(self) -> PerPartition:
        """Known values in scaled form; leaves are eliminated in rounds, until no partition has news for another."""
        opened = self._call(part_tasks.open_panels, self._parts.where, self._panels)
        blocks = self._call(first_blocks, opened)
        widths = [len(self._run.layout.panels[panel]) for panel in self._panels]
        active, pieces = self._all if self._settings.centred else [], PerPartition([] for _ in self._parts.graphs)
        while active:
            blocks = self._call(eliminate, opened, widths, blocks, pieces, active)
            for place in active:
                self._n_rounds[place] += 1
            active = self._with_news(blocks, active)
            if active:
                pieces = self._parts.halos(blocks, "gone", active)
        self._systems = self._call(make_systems, self._settings, opened, blocks)
        blocks = self._parts.on_each(passes.begin_guess, self._settings, self._systems, blocks)
        self._kept = self._parts.on_each(passes.without_solution, blocks)
        return blocks

    def _with_news(self, blocks: PerPartition, active: list[int]) -> list[int]:
        counts = self._parts.joined(joined_sums, blocks, active)
        return [place for place, count in zip(active, counts, strict=True) if count[0]]

    def _guess(self, blocks: PerPartition) -> PerPartition:
        """The initial guess, level by level."""
        active = self._all
        while active:
            pieces = self._parts.halos(blocks, "solution", active)
            blocks = self._call(passes.guess_level, self._systems, blocks, pieces, active)
            active = self._with_news(blocks, active)
        return self._parts.on_each(passes.end_guess, self._settings, self._systems, blocks)

    def _settle(self, blocks: PerPartition, progress: Progress) -> tuple[PerPartition, list[Array]]:
        """Conjugate gradients, as `conjugate_gradients.solve_steady_state` does it for a block of all nodes."""
        rules, lanes, running = [self._rule(place) for place in self._all], progress.lanes, progress.running
        while running:
            restarting = [place for place in running if not lanes[place].active.any()]
            if restarting:
                pieces = self._parts.halos(blocks, "solution", restarting)
                blocks = self._call(passes.residual_pass, self._systems, blocks, pieces, restarting)
                self._receive_residuals(blocks, progress, restarting)
                for place in restarting:
                    if not start_lanes(lanes[place], rules[place]):
                        running.remove(place)
                if not running:
                    break
            blocks = self._multiplied(blocks, "residual", running)
            for place, norm in zip(running, self._parts.joined(joined_sums, blocks, running), strict=True):
                lanes[place].norm[:] = norm
                choose_ratios(lanes[place], rules[place])
            vectors = [lanes[place].vectors.copy() for place in running]
            blocks = self._parts.on_each(passes.direction_pass, self._systems, blocks, vectors, running)
            blocks = self._multiplied(blocks, "direction", running)
            for place, curvature in zip(running, self._parts.joined(joined_sums, blocks, running), strict=True):
                lanes[place].curvature[:] = curvature
                choose_step_sizes(lanes[place])
            vectors = [lanes[place].vectors.copy() for place in running]
            blocks = self._call(passes.solution_pass, self._systems, blocks, vectors, running)
            self._receive_residuals(blocks, progress, running)
            for place in running:
                active_lanes(lanes[place], rules[place])
            blocks = self._advanced(blocks, progress, PRODUCTS_PER_ITERATION)
        return blocks, [one.max_residual for one in lanes]

    def _multiplied(self, blocks: PerPartition, source: str, active: list[int]) -> PerPartition:
        pieces = self._parts.halos(blocks, source, active)
        return self._call(passes.product_pass, self._systems, blocks, source, pieces, active)

    def _receive_residuals(self, blocks: PerPartition, progress: Progress, active: list[int]) -> None:
        for place, largest in zip(active, self._parts.joined(joined_maxima, blocks, active), strict=True):
            progress.lanes[place].vectors[MAX_RESIDUAL] = largest

    def _step(self, blocks: PerPartition, progress: Progress) -> tuple[PerPartition, list[Array]]:
        """A fixed number of steps, and what one more would move."""
        solver = self._run.chosen.solver
        steps = solver.steps if isinstance(solver, FixedSteps) else 0
        while progress.steps < steps:
            pieces = self._parts.halos(blocks, "solution", self._all)
            blocks = self._call(passes.step_pass, self._settings, self._systems, blocks, pieces, self._all)
            blocks = self._advanced(blocks, progress, 1)
        pieces = self._parts.halos(blocks, "solution", self._all)
        moved = self._call(passes.move_pass, self._settings, self._systems, blocks, pieces, self._all)
        return blocks, self._parts.joined(joined_maxima, moved, self._all)

    def _advanced(self, blocks: PerPartition, progress: Progress, steps: int) -> PerPartition:
        """Count steps; every few of them, write a checkpoint and go on from there, so that nothing older is needed."""
        progress.steps += steps
        self._advance(steps)
        if progress.steps % STEPS_BETWEEN_CHECKPOINTS:
            return blocks
        return self._loaded(checkpoints.save(self._run, self._parts, self._panels, progress, blocks))

    def _loaded(self, slot: int) -> PerPartition:
        name = self._run.diffusion.dtype.name
        return self._call(part_tasks.load_blocks, self._parts.where, len(self._panels), slot, name, self._kept)

    def _restore(self, blocks: PerPartition) -> PerPartition:
        """Give leaves the values of their parents, round by round in reverse."""
        for number in reversed(range(max(self._n_rounds))):
            active = [place for place in self._all if self._n_rounds[place] > number]
            values, scales = (self._parts.halos(blocks, name, active) for name in ("solution", "scales"))
            blocks = self._call(passes.restore_pass, blocks, values, scales, number, active)
        return blocks

    def _unit(self, place: int) -> Array:
        """The range of the known values of each channel, as they diffuse."""
        diffusion, panel = self._run.diffusion, self._run.layout.panels[self._panels[place]]
        return np.asarray(columns_of(diffusion, panel).factor.astype(np.float64) * diffusion.spread(panel))

    def _rule(self, place: int) -> StoppingRule:
        solver = self._run.chosen.solver
        if isinstance(solver, FixedSteps):
            raise TypeError("a fixed number of steps has no stopping rule")
        return make_stopping_rule(solver.rtol * self._unit(place).min(), solver.max_steps, self._run.diffusion.dtype)

    def _outcome(self, place: int, moves: Array, steps: Array) -> DiffusionOutcome:
        solver, unit = self._run.chosen.solver, self._unit(place)
        residual = float((moves[: len(unit)] / unit).max())
        if isinstance(solver, FixedSteps):
            return DiffusionOutcome(solver.steps, residual)
        return DiffusionOutcome(int(min(steps[: len(unit)].max(), solver.max_steps)), residual)
