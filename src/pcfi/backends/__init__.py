"""Implementations of the stages: compiled kernels on the CPU, torch on other devices.

A backend fills the array that `start` returned. The order of the stages, policies, statuses and warnings are in
`pipeline`. Statistics of channels are numpy arrays in every backend; data of the size of the features is on the device
of the features. `StageBackend` is the interface of the stages; further implementations are runs on disk
(`pcfi.outofcore.backend`), cross-validation folds and new nodes.
"""

from typing import Any, Protocol

from pcfi._typing import Array
from pcfi.inputs.problem import Problem
from pcfi.stages.channel_propagation import PropagationParameters
from pcfi.stages.diffusion import Diffused, Diffusion, InfluenceProduct
from pcfi.stages.hops import Hops


class StageBackend(Protocol):
    """The stages, as the pipeline calls them. `out` is the array that `start` returned."""

    def start(self, problem: Problem, fill: Array) -> Any:
        """A new array with the known values; the missing cells of each channel get its entry of `fill`."""

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
        """Set the unreachable cells of each channel to its entry of `fill`."""


class Backend(StageBackend, Protocol):
    """The stages, the methods without stages, and what an `Imputation` reports."""

    def fill_from_neighbors(self, problem: Problem, out: Any) -> None:
        """Set missing cells to the weighted mean of their known neighbours, if they have any."""

    def channel_means(self, out: Any) -> Array:
        """Mean of each channel over all nodes, ignoring NaN, as a float64 array."""

    def channel_ranges(self, out: Any) -> tuple[Array, Array]:
        """Smallest and largest value of each channel, ignoring NaN, as float64 arrays."""


def backend_for(problem: Problem) -> Backend:
    """The backend for the device of the features."""
    if problem.on_device:
        from pcfi.backends.torch_device import TorchBackend

        return TorchBackend()
    from pcfi.backends.cpu import CpuBackend

    return CpuBackend()
