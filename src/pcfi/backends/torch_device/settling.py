"""The steady state of a block of columns: conjugate gradients, then sweeps from near to far if they stagnate.

As in the compiled kernels (`_kernels/settling.py`, `_kernels/sweeping.py`), a column stops when the largest |x - Px|
over its free cells is small enough, regardless of the norm of conjugate gradients. A sweep updates all cells with the
same number of hops at once.
"""

import torch
from torch import Tensor

from pcfi.backends.torch_device.systems import System


def start_near_to_far(system: System, x: Tensor) -> Tensor:
    """Set each free cell to the weighted mean of its neighbours that are one hop nearer."""
    for level in range(1, system.deepest + 1):
        nearer = system.hops < level
        weight = system.flow(nearer.to(x.dtype))
        here = system.free & (system.hops == level) & (weight > 0)  # a node without in-edges has no weight in FP
        x = torch.where(here, system.flow(torch.where(nearer, x, 0)) / weight, x)
    return x


def settle(system: System, x: Tensor, rtol: float, max_steps: int) -> tuple[Tensor, int, float]:
    """The steady state from the start x; returns it with the most steps and the largest |x - Px| of any column."""
    steps = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)
    largest = _moves(system, x).abs().amax(dim=0)
    if system.symmetric:
        x, steps, largest = _by_conjugate_gradients(system, x, largest, rtol, max_steps)
    unfinished = ~(largest <= rtol) & (steps < max_steps)
    if bool(unfinished.any()):
        x, steps, largest = _by_sweeps(system, x, largest, steps, rtol, max_steps)
    return x, int(steps.max()), float(largest.max())


def _moves(system: System, x: Tensor) -> Tensor:
    return system.step(x) - x


def _by_conjugate_gradients(
    system: System, x: Tensor, largest: Tensor, rtol: float, max_steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Restart conjugate gradients as long as each run at least halves the recomputed residual."""
    steps = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)
    before = torch.full_like(largest, torch.inf)
    while bool(((largest > rtol) & (steps < max_steps) & (largest < before / 2)).any()):
        before = largest
        tried = _descend(system, x, rtol, max_steps, steps)
        largest = _moves(system, tried).abs().amax(dim=0)
        better = largest < before
        x, largest = torch.where(better, tried, x), torch.where(better, largest, before)
    return x, steps, largest


def _descend(system: System, x: Tensor, rtol: float, max_steps: int, steps: Tensor) -> Tensor:
    """One run; a column stops when its residual is small or its norm is at rounding level. Counts in `steps`."""
    residual = _moves(system, x)
    direction = residual
    norm = system.inner(residual, residual)
    noise = norm * 16 * torch.finfo(x.dtype).eps ** 2
    resting = torch.zeros_like(steps, dtype=torch.bool)
    while True:
        resting |= ~(residual.abs().amax(dim=0) > rtol) | ~(norm > noise) | (steps >= max_steps)
        if bool(resting.all()):
            return x
        image = -_moves(system, direction)
        curvature = system.inner(direction, image)
        resting |= ~(curvature > 0)
        length = torch.where(resting, 0, norm / curvature).to(x.dtype)
        steps += ~resting
        x = x + length * direction
        residual = residual - length * image
        previous, norm = norm, system.inner(residual, residual)
        direction = residual + torch.where(previous > 0, norm / previous, 0).to(x.dtype) * direction


def _by_sweeps(
    system: System, x: Tensor, largest: Tensor, steps: Tensor, rtol: float, max_steps: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Set each free cell to the mean of its neighbours, near cells before far ones, until all columns settle."""
    levels = range(1, system.deepest + 1)
    while True:
        unfinished = ~(largest <= rtol) & (steps < max_steps)
        if not bool(unfinished.any()) or not bool(largest.isfinite().all()):
            return x, steps, largest
        for level in levels:
            x = torch.where(unfinished & (system.hops == level), system.step(x), x)
        steps = steps + unfinished
        largest = _moves(system, x).abs().amax(dim=0)
