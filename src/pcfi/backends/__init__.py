"""Who does the arithmetic of the stages: compiled kernels on the CPU, torch on any other device.

Both fill a new array in place and know nothing of policies, statuses or warnings: the policies are `filling`'s, the
rest is `imputation`'s. Facts about channels are in numpy for both; what has the size of the features lives
where the features do.
"""

from typing import Protocol

import numpy as np

from pcfi._typing import Array
from pcfi.inputs.problem import Problem
from pcfi.settings import Settings
from pcfi.stages.diffusion import Factors, Outcome
from pcfi.stages.diffusion.job import Weighting
from pcfi.stages.hops import Hops


class Backend(Protocol):
    """The stages, as `filling` calls them. `out` is what `start` returned, to be filled further."""

    def start(self, problem: Problem, fill: Array) -> Array:
        """A new array with the known values, and in the missing cells of each channel the number `fill` has for it."""

    def count_hops(self, problem: Problem, settings: Settings) -> Hops:
        """Hops from the sources of every pattern."""

    def diffuse(
        self, problem: Problem, hops: Hops, weighting: Weighting, settings: Settings, out: Array, sharers: Array | None
    ) -> tuple[Outcome, Factors | None]:
        """Stage 1: fill the missing reachable cells of the channels that vary.

        An backend may keep the channels `sharers` as factors instead, for `share` to finish.
        """

    def share(
        self,
        problem: Problem,
        hops: Hops,
        settings: Settings,
        sharers: Array,
        factors: Factors | None,
        out: Array,
    ) -> None:
        """Stage 2: refine the missing reachable cells of the channels `sharers`."""

    def fill_from_neighbors(self, problem: Problem, out: Array) -> None:
        """Give missing cells the weighted mean of their known neighbours, where they have one."""

    def place_unreachable(self, hops: Hops, fill: Array, out: Array) -> None:
        """Put the number `fill` has for each channel into its unreachable cells."""

    def shrink(self, hops: Hops, kept: Array, trust: Array, means: Array, out: Array) -> None:
        """Draw cells towards the mean of their channel.

        `kept` says by hops code how much of the distance stays; where cells are neither known nor unreachable, times
        the trust in the channel, and at most all of it.
        """

    def channel_means(self, out: Array) -> Array:
        """Mean of each channel over all nodes, NaN left out, as a float64 array."""

    def channel_ranges(self, out: Array) -> tuple[Array, Array]:
        """The least and the greatest value of each channel, NaN left out, as float64 arrays."""


def backend_for(problem: Problem) -> Backend:
    """The backend for the place where the features live."""
    if isinstance(problem.values, np.ndarray):
        from pcfi.backends.cpu import CpuBackend

        return CpuBackend()
    from pcfi.backends.torch_device import TorchBackend

    return TorchBackend()
