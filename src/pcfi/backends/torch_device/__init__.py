"""Tensors on any device: the stages by torch operations, on the device."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pcfi._typing import Array
from pcfi.backends.torch_device.adjacency import Adjacency
from pcfi.backends.torch_device.diffusion import diffuse
from pcfi.backends.torch_device.hops import count_hops
from pcfi.backends.torch_device.sharing import share
from pcfi.inputs import tensors
from pcfi.inputs.problem import Problem
from pcfi.settings import Settings
from pcfi.stages.diffusion import Factors, Outcome
from pcfi.stages.diffusion.job import Weighting
from pcfi.stages.hops import Hops
from pcfi.stages.neighbor_mean import refuse_non_finite


class TorchBackend:
    """See `pcfi.backends.Backend`; what is an array there is a tensor here.

    Sums are in float64, or in float32 on devices that have nothing wider.
    """

    def start(self, problem: Problem, fill: Array) -> Any:
        """Known values where they are known."""
        values: Tensor = problem.values
        filling = torch.as_tensor(fill).to(values.dtype).to(values.device)
        return torch.where(tensors.known_cells(values, problem.mask), values, filling)

    def count_hops(self, problem: Problem, settings: Settings) -> Hops:
        """See `device.hops`."""
        return count_hops(problem, progress=settings.progress)

    def diffuse(
        self, problem: Problem, hops: Hops, weighting: Weighting, settings: Settings, out: Array, sharers: Array | None
    ) -> tuple[Outcome, Factors | None]:
        """See `device.diffusion`; nothing is kept as factors."""
        del sharers
        return diffuse(problem, hops, weighting, settings, out), None

    def share(
        self,
        problem: Problem,
        hops: Hops,
        settings: Settings,
        sharers: Array,
        factors: Factors | None,
        out: Array,
    ) -> None:
        """See `device.sharing`."""
        del factors
        if len(sharers) > 1:
            share(problem, hops, settings, sharers, out)

    def fill_from_neighbors(self, problem: Problem, out: Array) -> None:
        """Sums over the known neighbours, some columns at a time."""
        values: Tensor = problem.values
        wide = tensors.wide_dtype(values.device)
        links = Adjacency.of(problem.graph, problem.graph.weights, values.device, wide)
        width = max(1, tensors.CELLS_AT_A_TIME // len(values))
        finite = True
        for start in range(0, values.shape[1], width):
            columns = slice(start, start + width)
            known = tensors.known_cells(values[:, columns], problem.mask[:, columns])
            total = links @ torch.where(known, values[:, columns], 0).to(wide)
            weight = links @ known.to(wide)
            to_fill = ~known & (weight > 0)
            filled = (total / weight).to(values.dtype)
            finite = finite and bool(filled[to_fill].isfinite().all()) and bool(weight.isfinite().all())
            out[:, columns] = torch.where(to_fill, filled, out[:, columns])
        refuse_non_finite(finite)

    def place_unreachable(self, hops: Hops, fill: Array, out: Array) -> None:
        """All channels at once."""
        target: Tensor = out
        codes = hops.codes.index_select(1, tensors.beside(out, hops.patterns))  # type: ignore[attr-defined]
        filling = torch.as_tensor(fill).to(target.dtype).to(target.device)
        target.copy_(torch.where(codes > hops.n_levels, filling, target))

    def shrink(self, hops: Hops, kept: Array, trust: Array, means: Array, out: Array) -> None:
        """All channels at once."""
        target: Tensor = out
        wide, trusted = (
            torch.as_tensor(one).to(target.device, tensors.wide_dtype(target.device)) for one in (means, trust)
        )
        filled = np.full(len(kept), True)
        filled[[0, -1]] = False
        share_kept = hops.look_up(kept)
        share_kept = torch.where(hops.look_up(filled), (share_kept * trusted).clamp(max=1.0), share_kept)
        drawn = (wide + share_kept * (target - wide)).to(target.dtype)
        target.copy_(torch.where(share_kept < 1, drawn, target))

    def channel_means(self, out: Array) -> Array:
        """In the widest numbers of the device."""
        values: Tensor = out
        means = values.to(tensors.wide_dtype(values.device)).nanmean(dim=0)
        return tensors.to_array(means, "means").astype("float64")

    def channel_ranges(self, out: Array) -> tuple[Array, Array]:
        """A channel of NaN has none: infinity, and minus infinity."""
        values: Tensor = out
        missing, infinity = values.isnan(), float("inf")
        ends = values.masked_fill(missing, infinity).amin(dim=0), values.masked_fill(missing, -infinity).amax(dim=0)
        least, most = (tensors.to_array(end, "ranges").astype("float64") for end in ends)
        return least, most
