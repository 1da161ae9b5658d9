"""Arrays on the CPU: the stages by compiled kernels."""

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import SMALL, Problem
from pcfi.stages.channel_propagation import PropagationParameters, propagate, propagate_product
from pcfi.stages.diffusion import Diffused, Diffusion, InfluenceProduct, diffuse
from pcfi.stages.hops import Hops, count_hops
from pcfi.stages.neighbor_mean import fill_from_neighbors


class CpuBackend:
    """See `pcfi.backends.Backend`.

    Stage 2 is restricted to `propagation_nodes` (None: all nodes), because a cross-validation fold needs only some.
    """

    propagation_nodes: Array | None = None

    def start(self, problem: Problem, fill: Array) -> Array:
        """Copy the known values, row by row on each thread."""
        from pcfi._kernels.channel_stats import copy_known
        from pcfi._kernels.threads import run_rows

        filling = fill.astype(problem.values.dtype)
        out = np.empty_like(problem.values)
        run_rows(
            len(out),
            lambda first, last: copy_known(problem.values, problem.mask, filling, first, last, out),
            inline=out.size < SMALL,
        )
        return out

    def count_hops(self, problem: Problem, *, progress: bool) -> Hops:
        """See `stages.hops`."""
        return count_hops(problem, progress=progress)

    def diffuse(self, diffusion: Diffusion, out: Array, *, keep_product: bool) -> Diffused:
        """See `stages.diffusion`."""
        return diffuse(diffusion, out, keep_product=keep_product)

    def propagate_channels(
        self, diffusion: Diffusion, parameters: PropagationParameters, product: InfluenceProduct | None, out: Array
    ) -> None:
        """See `stages.channel_propagation`."""
        channels, hops, nodes = diffusion.varying, diffusion.hops, self.propagation_nodes
        units = diffusion.problem.channels.magnitude[channels]
        if product is not None:
            propagate_product(out, hops, product, units, parameters, nodes)
        elif len(channels) > 1:
            propagate(out, hops, channels, units, parameters, nodes, progress=diffusion.progress)

    def fill_from_neighbors(self, problem: Problem, out: Array) -> None:
        """See `stages.neighbor_mean`."""
        fill_from_neighbors(problem, out)

    def place_unreachable(self, hops: Hops, fill: Array, out: Array) -> None:
        """Write the values into the unreachable cells, channel by channel."""
        fill = fill.astype(out.dtype)
        for channel in np.flatnonzero(hops.n_unreachable[hops.patterns]):
            out[~hops.is_reachable(hops.codes[:, hops.patterns[channel]]), channel] = fill[channel]

    def channel_means(self, out: Array) -> Array:
        """Means in float64; NaN is ignored."""
        return np.asarray(np.nanmean(out, axis=0, dtype=np.float64))

    def channel_ranges(self, out: Array) -> tuple[Array, Array]:
        """Ranges in float64; NaN is ignored."""
        least, most = np.fmin.reduce(out, axis=0), np.fmax.reduce(out, axis=0)
        return least.astype(np.float64), most.astype(np.float64)
