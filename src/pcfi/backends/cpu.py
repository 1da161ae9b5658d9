"""Arrays on the CPU: the stages by compiled kernels."""

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import SMALL, Problem
from pcfi.settings import Settings
from pcfi.stages.channel_propagation import Sharing, share, share_factored
from pcfi.stages.diffusion import Factors, Outcome, diffuse
from pcfi.stages.diffusion.job import Weighting
from pcfi.stages.hops import Hops, count_hops
from pcfi.stages.neighbor_mean import fill_from_neighbors

CELLS_AT_A_TIME = 1 << 16


class CpuBackend:
    """See `pcfi.backends.Backend`."""

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

    def count_hops(self, problem: Problem, settings: Settings) -> Hops:
        """See `hops`."""
        return count_hops(problem, progress=settings.progress)

    def diffuse(
        self, problem: Problem, hops: Hops, weighting: Weighting, settings: Settings, out: Array, sharers: Array | None
    ) -> tuple[Outcome, Factors | None]:
        """See `diffusion`."""
        return diffuse(
            problem,
            hops,
            weighting,
            settings.solver,
            out,
            self_loops=settings.self_loops,
            keep_factored=sharers,
            progress=settings.progress,
        )

    def share(
        self,
        problem: Problem,
        hops: Hops,
        settings: Settings,
        sharers: Array,
        factors: Factors | None,
        out: Array,
    ) -> None:
        """See `channels`."""
        units = problem.channels.magnitude[sharers]
        sharing = Sharing(settings.alpha, settings.beta, bool(settings.standardize))
        if factors is not None:
            share_factored(out, hops, factors, units, sharing)
        elif len(sharers) > 1:
            share(out, hops, sharers, units, sharing, progress=settings.progress)

    def fill_from_neighbors(self, problem: Problem, out: Array) -> None:
        """See `neighbors`."""
        fill_from_neighbors(problem, out)

    def place_unreachable(self, hops: Hops, fill: Array, out: Array) -> None:
        """Channel by channel, where there are such cells."""
        fill = fill.astype(out.dtype)
        for channel in np.flatnonzero(hops.n_unreachable[hops.patterns]):
            out[hops.codes[:, hops.patterns[channel]] > hops.n_levels, channel] = fill[channel]

    def shrink(self, hops: Hops, kept: Array, trust: Array, means: Array, out: Array) -> None:
        """A block of rows at a time, small enough for the cache."""
        alike = bool((trust == 1).all())
        size = max(1, CELLS_AT_A_TIME // max(out.shape[1], 1))
        one_pattern = hops.codes.shape[1] == 1
        for start in range(0, len(out), size):
            rows = slice(start, start + size)
            codes = np.minimum(hops.codes[rows], hops.n_levels + 1)
            if not one_pattern:
                codes = codes[:, hops.patterns]
            share_kept = kept[codes]
            if not alike:
                filled = (codes > 0) & (codes <= hops.n_levels)
                share_kept = np.where(filled, np.minimum(share_kept * trust, 1.0), share_kept)
            drawn = out[rows] - means
            drawn *= share_kept
            drawn += means
            np.copyto(out[rows], drawn, where=share_kept < 1, casting="same_kind")

    def channel_means(self, out: Array) -> Array:
        """In float64."""
        return np.asarray(np.nanmean(out, axis=0, dtype=np.float64))

    def channel_ranges(self, out: Array) -> tuple[Array, Array]:
        """Past NaN."""
        least, most = np.fmin.reduce(out, axis=0), np.fmax.reduce(out, axis=0)
        return least.astype(np.float64), most.astype(np.float64)
