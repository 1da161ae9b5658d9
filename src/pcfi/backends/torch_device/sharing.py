"""Stage 2 on a device: sums over blocks of rows for the correlation, then the correction; see `channel_propagation`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcfi._typing import Array
from pcfi.inputs import tensors
from pcfi.inputs.problem import Problem
from pcfi.progress import progress_bar
from pcfi.settings import Settings
from pcfi.stages.channel_propagation import refuse_non_finite
from pcfi.stages.hops import Hops


def share(problem: Problem, hops: Hops, settings: Settings, sharers: Array, out: Array) -> None:
    """Refine the missing reachable cells of the channels `sharers`, in place."""
    stage = _Stage(problem, hops, settings, sharers, out)
    blocks = list(tensors.row_blocks(len(out), len(sharers)))
    with progress_bar("share", 2 * len(out), show=settings.progress) as advance:
        means, counts = stage.means(blocks)
        wide = tensors.wide_dtype(means.device)
        scatter = torch.zeros((len(sharers), len(sharers)), dtype=wide, device=means.device)
        for rows in blocks:
            values, codes = stage.rows(rows)
            part = torch.where(codes <= hops.n_levels, (values - means) / stage.units, 0)
            scatter += part.T @ part
            advance(len(part))
        mixing = _mixing(scatter, stage.units / counts.clamp(min=1).sqrt(), settings, stage.out.dtype)
        finite = True
        for rows in blocks:
            values, codes = stage.rows(rows)
            confidence = stage.confidence[codes.int()]
            received = (confidence * (values - means)) @ mixing
            free = (codes > 0) & (codes <= hops.n_levels)
            refined = torch.where(free, values + (1 - confidence) * received, values)
            finite = finite and bool(refined[free].isfinite().all())
            stage.out[rows] = stage.out[rows].index_copy(1, stage.sharers, refined)
            advance(len(values))
    refuse_non_finite(finite)


class _Stage:
    """The features being refined, and what every block of rows needs to know."""

    def __init__(self, problem: Problem, hops: Hops, settings: Settings, sharers: Array, out: Array) -> None:
        self.out: Tensor = out
        self.sharers = tensors.beside(out, sharers)
        self._codes: Tensor = hops.codes
        self._patterns = tensors.beside(out, hops.patterns[sharers])
        self._n_levels = hops.n_levels
        self._wide = tensors.wide_dtype(self.out.device)
        self.units = self._move(problem.channels.magnitude[sharers])
        self.confidence = self._move(hops.confidence_by_code(settings.alpha, np.float64)).to(self.out.dtype)

    def _move(self, array: Array) -> Tensor:
        return torch.as_tensor(array).to(self._wide).to(self.out.device)

    def rows(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Values and hops of the sharing channels in a block of rows."""
        return self.out[rows].index_select(1, self.sharers), self._codes[rows].index_select(1, self._patterns)

    def means(self, blocks: list[slice]) -> tuple[Tensor, Tensor]:
        """Mean of the reachable cells of each channel, and their number."""
        total, counts = torch.zeros_like(self.units), torch.zeros_like(self.units)
        for rows in blocks:
            values, codes = self.rows(rows)
            reachable = codes <= self._n_levels
            total += torch.where(reachable, values.to(self._wide) / self.units, 0).sum(dim=0)
            counts += reachable.sum(dim=0)
        return (total * self.units / counts.clamp(min=1)).to(self.out.dtype), counts


def _mixing(scatter: Tensor, units: Tensor, settings: Settings, dtype: Any) -> Tensor:
    """Beta R (eq. 6), with each column in its own channel's unit if `standardize`; overwrites `scatter`.

    `units` turns the root of a channel's scatter into its standard deviation.
    """
    spread = scatter.diagonal().clamp(min=0).sqrt()
    spread = torch.where(spread > 16 * torch.finfo(dtype).eps, spread, 0)  # less is only rounding
    inverse = torch.where(spread > 0, 1 / spread, 0)
    scatter.fill_diagonal_(0)
    scatter *= inverse[:, None]
    scatter *= inverse[None, :]
    scatter.clamp_(-1, 1)
    if settings.standardize:
        deviation = spread * units
        scatter *= torch.where(deviation > 0, 1 / deviation, 0)[:, None]
        scatter *= deviation[None, :]
    return (scatter * settings.beta).to(dtype)
