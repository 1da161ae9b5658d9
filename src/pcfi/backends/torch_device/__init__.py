"""The stages for tensors on any device, by torch operations."""

from typing import Any

import torch
from torch import Tensor

from pcfi._typing import Array
from pcfi.backends.torch_device.adjacency import Adjacency
from pcfi.backends.torch_device.channel_propagation import propagate
from pcfi.backends.torch_device.diffusion import diffuse
from pcfi.backends.torch_device.hops import count_hops
from pcfi.inputs import tensors
from pcfi.inputs.problem import Problem
from pcfi.stages.channel_propagation import PropagationParameters
from pcfi.stages.diffusion import Diffused, Diffusion, InfluenceProduct
from pcfi.stages.hops import Hops
from pcfi.stages.neighbor_mean import refuse_non_finite


class TorchBackend:
    """See `pcfi.backends.Backend`; what is an array there is a tensor here.

    Sums are in float64, or in float32 on devices without float64.
    """

    def start(self, problem: Problem, fill: Array) -> Any:
        """Known values, and `fill` elsewhere."""
        values: Tensor = problem.values
        filling = torch.as_tensor(fill).to(values.dtype).to(values.device)
        return torch.where(tensors.known_cells(values, problem.mask), values, filling)

    def count_hops(self, problem: Problem, *, progress: bool) -> Hops:
        """See `torch_device.hops`."""
        return count_hops(problem, progress=progress)

    def diffuse(self, diffusion: Diffusion, out: Any, *, keep_product: bool) -> Diffused:
        """See `torch_device.diffusion`; no product is kept."""
        del keep_product
        return Diffused(diffuse(diffusion, out))

    def propagate_channels(
        self, diffusion: Diffusion, parameters: PropagationParameters, product: InfluenceProduct | None, out: Any
    ) -> None:
        """See `torch_device.channel_propagation`."""
        del product
        if len(diffusion.varying) > 1:
            propagate(diffusion, parameters, out)

    def fill_from_neighbors(self, problem: Problem, out: Any) -> None:
        """Sums over the known neighbours, in blocks of columns."""
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

    def place_unreachable(self, hops: Hops, fill: Array, out: Any) -> None:
        """All channels at once."""
        codes: Tensor = hops.codes
        codes = codes.index_select(1, tensors.beside(out, hops.patterns))
        filling = torch.as_tensor(fill).to(out.dtype).to(out.device)
        out.copy_(torch.where(hops.is_reachable(codes), out, filling))

    def channel_means(self, out: Any) -> Array:
        """In the widest float of the device."""
        means = out.to(tensors.wide_dtype(out.device)).nanmean(dim=0)
        return tensors.to_array(means, "means").astype("float64")

    def channel_ranges(self, out: Any) -> tuple[Array, Array]:
        """For a channel of NaN: infinity, and minus infinity."""
        missing, infinity = out.isnan(), float("inf")
        ends = out.masked_fill(missing, infinity).amin(dim=0), out.masked_fill(missing, -infinity).amax(dim=0)
        least, most = (tensors.to_array(end, "ranges").astype("float64") for end in ends)
        return least, most
