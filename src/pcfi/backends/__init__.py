"""The arithmetic of the stages: compiled kernels on the CPU, torch on any other device.

A backend fills what `start` returned and knows nothing of the order of the stages, of policies, statuses or warnings:
those are `pipeline`'s. Facts about channels are numpy arrays for every backend; what has the size of the features is
where the features are. `StageBackend` is what the stages need; other implementations are the run in files
(`pcfi.outofcore.backend`), a cross-validation fold and new nodes.
"""

from typing import Any, Protocol

from pcfi._typing import Array
from pcfi.inputs.problem import Problem
from pcfi.stages.channel_propagation import PropagationParameters
from pcfi.stages.diffusion import Diffused, Diffusion, InfluenceProduct
from pcfi.stages.hops import Hops


class StageBackend(Protocol):
    """The stages, as the pipeline calls them. `out` is what `start` returned, to be filled further."""

    def start(self, problem: Problem, fill: Array) -> Any:
        """A new array with the known values, and in the missing cells of each channel the number `fill` has for it."""

    def count_hops(self, problem: Problem, *, progress: bool) -> Hops:
        """Hops from the sources of every pattern."""

    def diffuse(self, diffusion: Diffusion, out: Any, *, keep_product: bool) -> Diffused:
        """Stage 1: fill the missing reachable cells of the channels that vary.

        With `keep_product`, a backend may return the channels as a product instead, for stage 2 to fill.
        """

    def propagate_channels(
        self, diffusion: Diffusion, parameters: PropagationParameters, product: InfluenceProduct | None, out: Any
    ) -> None:
        """Stage 2: refine the missing reachable cells of the channels that vary."""

    def place_unreachable(self, hops: Hops, fill: Array, out: Any) -> None:
        """Put the number `fill` has for each channel into its unreachable cells."""


class Backend(StageBackend, Protocol):
    """The stages, the methods without stages, and what an `Imputation` reports."""

    def fill_from_neighbors(self, problem: Problem, out: Any) -> None:
        """Give missing cells the weighted mean of their known neighbours, where they have one."""

    def channel_means(self, out: Any) -> Array:
        """Mean of each channel over all nodes, NaN left out, as a float64 array."""

    def channel_ranges(self, out: Any) -> tuple[Array, Array]:
        """The least and the greatest value of each channel, NaN left out, as float64 arrays."""


def backend_for(problem: Problem) -> Backend:
    """The backend for the place where the features are."""
    if problem.on_device:
        from pcfi.backends.torch_device import TorchBackend

        return TorchBackend()
    from pcfi.backends.cpu import CpuBackend

    return CpuBackend()
