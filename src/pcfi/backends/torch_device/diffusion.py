"""Stage 1 on a device: blocks of columns, each in the unit of its channel; see `pcfi.stages.diffusion` for the algebra.

A pattern with few sources and many channels diffuses the identity on its sources first. Fixed steps are then done; a
steady state starts from the product, which leaves little or nothing to settle.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcfi._typing import Array
from pcfi.backends.torch_device.adjacency import Adjacency
from pcfi.backends.torch_device.settling import settle, start_near_to_far
from pcfi.backends.torch_device.systems import Method, System
from pcfi.inputs import tensors
from pcfi.inputs.problem import Problem
from pcfi.progress import progress_bar
from pcfi.settings import Settings
from pcfi.stages.diffusion import INFLUENCE_PAYS, Outcome, active_channels
from pcfi.stages.diffusion.job import Job, Weighting
from pcfi.stages.hops import Hops
from pcfi.stages.solvers import FixedSteps, Solver, UntilSettled


def diffuse(problem: Problem, hops: Hops, weighting: Weighting, settings: Settings, out: Array) -> Outcome:
    """Fill the missing reachable cells of the channels that vary."""
    active = active_channels(problem, hops, weighting, settings.solver)
    dtype = _arithmetic(problem, settings.solver)
    with progress_bar("diffuse", len(active), show=settings.progress) as advance:
        job = Job(problem, hops, weighting, settings.solver, float(settings.self_loops), dtype, out, advance)
        method, vanishes = _method(job)
        outcomes = [_fill(job, method, chosen, vanishes) for chosen in _blocks(job, active, vanishes)]
    return Outcome.worst(outcomes)


def _arithmetic(problem: Problem, solver: Solver) -> Any:
    """float32 for float32 values where it is safe, the widest the device has otherwise."""
    values: Tensor = problem.values
    weights = problem.graph.weights
    wide = isinstance(solver, UntilSettled) and solver.rtol < 1e-5
    if weights is not None and len(weights):
        wide = wide or weights.max() > 1e18 or weights.min() < 1e-18
    return tensors.wide_dtype(values.device) if wide else values.dtype


def _method(job: Job) -> tuple[Method, bool]:
    """The graph and the scale on the device, and whether the scale may vanish."""
    graph, weighting = job.problem.graph, job.weighting
    weights, degree = graph.weights, weighting.degree
    heaviest = 1.0
    if weights is not None and len(weights) and job.settles:
        heaviest = float(weights.max())  # the unit of the weights does not matter to a steady state
        weights = weights / heaviest
        degree = None if degree is None else degree / heaviest

    def move(array: Array) -> Tensor:
        return torch.as_tensor(array).to(job.dtype).to(job.problem.values.device)

    lightest = 1.0 if weights is None or not len(weights) else min(1.0, float(weights.min()))
    vanishes = weighting.by_hops[job.hops.n_levels] * lightest < 1e3 * torch.finfo(job.dtype).tiny
    method = Method(
        Adjacency.of(graph, weights, job.problem.values.device, job.dtype),
        move(weighting.by_hops),
        move(weighting.by_node[:, None]),
        None if degree is None else move(degree[:, None]),
        weighting.alpha,
        graph.directed,
    )
    return method, bool(vanishes)


def _blocks(job: Job, active: Array, vanishes: bool) -> list[Array]:
    """Channels that are solved together: of one pattern where that is needed or pays, else as they come."""
    patterns = job.hops.patterns[active]
    n_channels = np.bincount(patterns, minlength=len(job.problem.channels.representatives))
    alone = vanishes | (n_channels >= INFLUENCE_PAYS * _n_sources(job)) | (n_channels == len(active))
    groups = [active[patterns == pattern] for pattern in np.unique(patterns[alone[patterns]])]
    groups.append(active[~alone[patterns]])
    width = max(1, tensors.CELLS_AT_A_TIME // job.problem.graph.n_nodes)
    return [group[start : start + width] for group in groups for start in range(0, len(group), width)]


def _n_sources(job: Job) -> Array:
    channels = job.problem.channels
    return channels.n_known[channels.representatives]


def _fill(job: Job, method: Method, chosen: Array, vanishes: bool) -> Outcome:
    """Diffuse one block and write it into `job.out`."""
    patterns, position = np.unique(job.hops.patterns[chosen], return_inverse=True)
    codes: Tensor = job.hops.codes.index_select(1, tensors.beside(job.out, patterns))  # type: ignore[attr-defined]
    system = method.relative(codes) if vanishes else method.scaled(_expand(codes, position))
    unit = _Unit(job, chosen)
    x = unit.open()
    start = None
    if len(patterns) == 1 and len(chosen) >= INFLUENCE_PAYS * _n_sources(job)[patterns[0]]:
        start, steps = _through_sources(job, system, x)
    x, outcome = _run(job, system, x) if start is None else _finish(job, system, start, steps)
    unit.close(system, x)
    job.advance(len(chosen))
    return outcome


def _expand(codes: Tensor, position: Array) -> Tensor:
    """Hops column by column; one column stays one."""
    return codes if codes.shape[1] == 1 else codes.index_select(1, tensors.beside(codes, position))


def _run(job: Job, system: System, x: Tensor, rtol: float | None = None) -> tuple[Tensor, Outcome]:
    """Diffuse a block that holds its known cells, and 0 elsewhere."""
    if isinstance(job.solver, FixedSteps):
        for _ in range(job.solver.steps):
            x = system.step(x, job.self_weight)
        return _finish(job, system, x, job.solver.steps)
    x, steps, residual = settle(system, start_near_to_far(system, x), rtol or job.solver.rtol, job.solver.max_steps)
    return x, Outcome(steps, residual)


def _finish(job: Job, system: System, x: Tensor, steps: int) -> tuple[Tensor, Outcome]:
    """Measure what one further step would move, and settle what has not."""
    if isinstance(job.solver, UntilSettled):
        x, more, residual = settle(system, x, job.solver.rtol, max(0, job.solver.max_steps - steps))
        return x, Outcome(steps + more, residual)
    return x, Outcome(steps, float((system.step(x, job.self_weight) - x).abs().max()))


def _through_sources(job: Job, system: System, x: Tensor) -> tuple[Tensor, int]:
    """The diffused identity on the sources, times their values."""
    sources = torch.nonzero(system.hops[:, 0] == 0)[:, 0]
    identity = torch.zeros((len(x), len(sources)), dtype=x.dtype, device=x.device)
    identity[sources, torch.arange(len(sources), device=x.device)] = 1
    rtol = job.solver.rtol / len(sources) if isinstance(job.solver, UntilSettled) else None
    influence, outcome = _run(job, system, identity, rtol)
    return torch.where(system.free, influence @ x[sources], x), outcome.steps


class _Unit:
    """Channels in units of their spread, less a shift where the diffusion allows it: in and out of a block."""

    def __init__(self, job: Job, chosen: Array) -> None:
        self._job = job
        channels = job.problem.channels
        self._wide = tensors.wide_dtype(job.out.device)
        self._chosen = tensors.beside(job.out, chosen)
        self._spread = self._row(job.spread(chosen))
        self._shift = self._row(channels.mean[chosen] if job.centred else np.zeros(len(chosen)))
        self._bounds = [self._row(channels.low[chosen]), self._row(channels.high[chosen])] if job.centred else None

    def _row(self, array: Array) -> Tensor:
        return torch.as_tensor(array).to(self._wide).to(self._job.out.device)

    def open(self) -> Tensor:
        """The block with the known cells, and 0 elsewhere."""
        problem = self._job.problem
        values = problem.values.index_select(1, self._chosen)  # type: ignore[attr-defined]
        mask = problem.mask.index_select(1, self._chosen) if len(problem.mask) else problem.mask  # type: ignore[attr-defined]
        known = tensors.known_cells(values, mask)
        scaled = (values.to(self._wide) - self._shift) / self._spread
        return torch.where(known, scaled, 0).to(self._job.dtype)

    def close(self, system: System, x: Tensor) -> None:
        """Write the free cells of a block into the channels."""
        filled = x.to(self._wide) * self._spread + self._shift
        if self._bounds is not None:
            filled = filled.clamp(*self._bounds)
        out: Tensor = self._job.out
        before = out.index_select(1, self._chosen)
        out.index_copy_(1, self._chosen, torch.where(system.free, filled.to(out.dtype), before))
