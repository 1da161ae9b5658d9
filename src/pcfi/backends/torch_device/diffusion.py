"""Stage 1 on a device: blocks of columns, each in the unit of its channel; see `pcfi.stages.diffusion` for the algebra.

For a pattern with few sources and many channels, the identity on the sources is diffused first. With fixed steps the
product with the known values is the result; a steady state uses it as initial guess.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pcfi._typing import Array
from pcfi.backends.torch_device.adjacency import Adjacency
from pcfi.backends.torch_device.settling import settle, start_near_to_far
from pcfi.backends.torch_device.systems import Method, System
from pcfi.inputs import tensors
from pcfi.progress import progress_bar
from pcfi.stages.diffusion import Diffusion, DiffusionOutcome
from pcfi.stages.diffusion.definition import MIN_CHANNELS_PER_SOURCE, needs_float64
from pcfi.stages.solvers import FixedSteps, UntilSettled


def diffuse(diffusion: Diffusion, out: Tensor) -> DiffusionOutcome:
    """Fill the missing reachable cells of the channels that vary."""
    values: Tensor = diffusion.problem.values
    wide = needs_float64(diffusion.problem.graph.weight_range, diffusion.solver)
    with progress_bar("diffuse", len(diffusion.active), show=diffusion.progress) as advance:
        dtype = tensors.wide_dtype(values.device) if wide else values.dtype
        diffusion = replace(diffusion, dtype=dtype, advance=advance)
        method, vanishes = _method(diffusion)
        blocks = _blocks(diffusion, vanishes)
        return DiffusionOutcome.worst([_fill(diffusion, method, chosen, vanishes, out) for chosen in blocks])


def _method(diffusion: Diffusion) -> tuple[Method, bool]:
    """The graph and the scale on the device, and whether the scale may underflow."""
    graph, scale = diffusion.problem.graph, diffusion.weights
    weights, degree = graph.weights, scale.degree
    heaviest = 1.0
    if weights is not None and len(weights) and diffusion.settles:
        heaviest = float(weights.max())  # a steady state does not depend on the unit of the weights
        weights = weights / heaviest
        degree = None if degree is None else degree / heaviest

    def move(array: Array) -> Tensor:
        return torch.as_tensor(array).to(diffusion.dtype).to(diffusion.problem.values.device)

    lightest = 1.0 if weights is None or not len(weights) else min(1.0, float(weights.min()))
    vanishes = scale.by_hops[diffusion.hops.n_levels] * lightest < 1e3 * torch.finfo(diffusion.dtype).tiny
    method = Method(
        Adjacency.of(graph, weights, diffusion.problem.values.device, diffusion.dtype),
        move(scale.by_hops),
        move(scale.by_node[:, None]),
        None if degree is None else move(degree[:, None]),
        scale.alpha,
        graph.directed,
    )
    return method, bool(vanishes)


def _blocks(diffusion: Diffusion, vanishes: bool) -> list[Array]:
    """Channels that are solved together: of one pattern if necessary or faster, else in their order."""
    active = diffusion.active
    patterns = diffusion.hops.patterns[active]
    n_channels = np.bincount(patterns, minlength=len(diffusion.problem.channels.representatives))
    alone = vanishes | (n_channels >= MIN_CHANNELS_PER_SOURCE * _n_sources(diffusion)) | (n_channels == len(active))
    groups = [active[patterns == pattern] for pattern in np.unique(patterns[alone[patterns]])]
    groups.append(active[~alone[patterns]])
    width = max(1, tensors.CELLS_AT_A_TIME // diffusion.problem.graph.n_nodes)
    return [group[start : start + width] for group in groups for start in range(0, len(group), width)]


def _n_sources(diffusion: Diffusion) -> Array:
    channels = diffusion.problem.channels
    return channels.n_known[channels.representatives]


def _fill(diffusion: Diffusion, method: Method, chosen: Array, vanishes: bool, out: Tensor) -> DiffusionOutcome:
    """Diffuse one block and write it into `out`."""
    patterns, position = np.unique(diffusion.hops.patterns[chosen], return_inverse=True)
    all_codes: Tensor = diffusion.hops.codes
    codes = all_codes.index_select(1, tensors.beside(out, patterns))
    system = method.relative(codes) if vanishes else method.scaled(_expand(codes, position))
    unit = _Unit(diffusion, chosen, out)
    x = unit.open()
    start = None
    if len(patterns) == 1 and len(chosen) >= MIN_CHANNELS_PER_SOURCE * _n_sources(diffusion)[patterns[0]]:
        start, steps = _through_sources(diffusion, system, x)
    x, outcome = _run(diffusion, system, x) if start is None else _finish(diffusion, system, start, steps)
    unit.close(system, x)
    diffusion.advance(len(chosen))
    return outcome


def _expand(codes: Tensor, position: Array) -> Tensor:
    """Hops column by column; one column stays one."""
    return codes if codes.shape[1] == 1 else codes.index_select(1, tensors.beside(codes, position))


def _run(diffusion: Diffusion, system: System, x: Tensor, rtol: float | None = None) -> tuple[Tensor, DiffusionOutcome]:
    """Diffuse a block with its known cells, and 0 elsewhere."""
    if isinstance(diffusion.solver, FixedSteps):
        for _ in range(diffusion.solver.steps):
            x = system.step(x, diffusion.self_weight)
        return _finish(diffusion, system, x, diffusion.solver.steps)
    x, steps, residual = settle(
        system, start_near_to_far(system, x), rtol or diffusion.solver.rtol, diffusion.solver.max_steps
    )
    return x, DiffusionOutcome(steps, residual)


def _finish(diffusion: Diffusion, system: System, x: Tensor, steps: int) -> tuple[Tensor, DiffusionOutcome]:
    """Measure the change of one further step, and continue if it has not settled."""
    if isinstance(diffusion.solver, UntilSettled):
        x, more, residual = settle(system, x, diffusion.solver.rtol, max(0, diffusion.solver.max_steps - steps))
        return x, DiffusionOutcome(steps + more, residual)
    return x, DiffusionOutcome(steps, float((system.step(x, diffusion.self_weight) - x).abs().max()))


def _through_sources(diffusion: Diffusion, system: System, x: Tensor) -> tuple[Tensor, int]:
    """The diffused identity on the sources, times their values."""
    sources = torch.nonzero(system.hops[:, 0] == 0)[:, 0]
    identity = torch.zeros((len(x), len(sources)), dtype=x.dtype, device=x.device)
    identity[sources, torch.arange(len(sources), device=x.device)] = 1
    rtol = diffusion.solver.rtol / len(sources) if isinstance(diffusion.solver, UntilSettled) else None
    influence, outcome = _run(diffusion, system, identity, rtol)
    return torch.where(system.free, influence @ x[sources], x), outcome.steps


class _Unit:
    """Conversion between channels and a block: units of the spread, minus a shift if the diffusion allows it."""

    def __init__(self, diffusion: Diffusion, chosen: Array, out: Tensor) -> None:
        self._diffusion, self._out = diffusion, out
        channels = diffusion.problem.channels
        self._wide = tensors.wide_dtype(out.device)
        self._chosen = tensors.beside(out, chosen)
        self._spread = self._row(diffusion.spread(chosen))
        self._shift = self._row(channels.mean[chosen] if diffusion.centred else np.zeros(len(chosen)))
        self._bounds = (
            [self._row(channels.low[chosen]), self._row(channels.high[chosen])] if diffusion.centred else None
        )

    def _row(self, array: Array) -> Tensor:
        return torch.as_tensor(array).to(self._wide).to(self._out.device)

    def open(self) -> Tensor:
        """The block with the known cells, and 0 elsewhere."""
        values: Tensor = self._diffusion.problem.values
        mask: Tensor = self._diffusion.problem.mask
        values, mask = (each.index_select(1, self._chosen) if len(each) else each for each in (values, mask))
        known = tensors.known_cells(values, mask)
        scaled = (values.to(self._wide) - self._shift) / self._spread
        return torch.where(known, scaled, 0).to(self._diffusion.dtype)

    def close(self, system: System, x: Tensor) -> None:
        """Write the free cells of a block into the channels."""
        filled = x.to(self._wide) * self._spread + self._shift
        if self._bounds is not None:
            filled = filled.clamp(*self._bounds)
        out = self._out
        before = out.index_select(1, self._chosen)
        out.index_copy_(1, self._chosen, torch.where(system.free, filled.to(out.dtype), before))
