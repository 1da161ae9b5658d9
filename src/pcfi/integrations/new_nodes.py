"""Fill new nodes from the nodes of a finished imputation, which do not change.

Values flow only towards a new node. With w_ij the weights of its links, xi and X-hat the confidence and the diffused
values of the existing nodes, its missing cells settle at

    x_i = sum_j w_ij xi_j x_j / sum_j w_ij xi_j,      with one hop more than the nearest linked node

The rest is the usual pipeline: stage 2 with the channel means and correlations of the existing nodes, the value model,
and the policy for unreachable cells.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends.cpu import CpuBackend
from pcfi.estimation import Resolved
from pcfi.inputs.graphs import prepare_graph
from pcfi.inputs.problem import Channels, Problem, survey
from pcfi.pipeline import fill, propagation_of
from pcfi.stages.channel_propagation import ChannelPropagation, PropagationParameters, row_blocks
from pcfi.stages.diffusion import Diffused, Diffusion, DiffusionOutcome, InfluenceProduct
from pcfi.stages.diffusion.definition import varying_channels
from pcfi.stages.hops import Hops
from pcfi.stages.solvers import UntilSettled

MAX_ROWS = 4096  # new nodes at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class SettledNodes:
    """The nodes of a finished imputation.

    Attributes
    ----------
    values : ndarray of shape (n_nodes, n_channels)
        The result of stage 1, on the scale of the value model if there is one.
    hops : Hops
    channels : Channels
        Statistics of the known values that were diffused.
    resolved : Resolved
        The settings of the imputation, and its tuning if there was one.
    """

    values: Array
    hops: Hops
    channels: Channels
    resolved: Resolved

    def fill(self, features: Array, links: Any) -> Array:
        """The rows of `features`, filled; `links` is a sparse matrix of similarities (new x existing nodes)."""
        links = links.copy()
        links.eliminate_zeros()
        parts = [slice(start, start + MAX_ROWS) for start in range(0, len(features), MAX_ROWS)]
        return np.concatenate([self._fill(features[rows], links[rows]) for rows in parts])

    def _fill(self, features: Array, links: Any) -> Array:
        mask = np.empty((0, 1), dtype=np.bool_)
        problem = Problem(
            values=np.ascontiguousarray(features),
            mask=mask,
            graph=prepare_graph(np.empty((2, 0), dtype=np.int64), len(features)),
            channels=replace(survey(features, mask), mean=self.channels.mean),
        )
        model = self.resolved.model
        if model is not None and model.degree is not None:
            degree = model.degree.of_new(np.asarray(links.sum(axis=1), dtype=np.float64).ravel())
            model = replace(model, degree=degree)
        return np.asarray(fill(problem, self.resolved.settings, NewNodesBackend(self, links), model).values)

    @cached_property
    def confidence(self) -> Array:
        """Confidence of every cell."""
        return self.hops.confidence(self.resolved.settings.alpha, np.float64)

    @cached_property
    def carried(self) -> Array:
        """Confidence times value of every cell; 0 if unreachable."""
        return np.where(self.confidence > 0, self.confidence * self.values, 0.0)

    @cached_property
    def propagation(self) -> tuple[ChannelPropagation, Array]:
        """Stage 2 of these nodes, and its matrix."""
        parameters = propagation_of(self.resolved.settings)
        if parameters is None:
            raise ValueError("there is no stage 2")
        hops = self.hops
        values = np.where(hops.unreachable(), 0.0, self.values.astype(np.float64))  # which may hold NaN
        settles = isinstance(self.resolved.settings.solver, UntilSettled)
        channels = varying_channels(self.channels, keeps_constants=settles)
        stage = ChannelPropagation.of(values, hops, channels, self.channels.magnitude[channels], parameters.alpha)
        scatter = np.zeros((len(channels), len(channels)))
        for rows in row_blocks(len(values), max(1, len(channels)) * values.itemsize):
            scatter += stage.scatter(values[rows], hops.codes[rows])
        return stage, stage.matrix(scatter, parameters)


class NewNodesBackend(CpuBackend):
    """The stages for new nodes that are linked to settled nodes."""

    def __init__(self, settled: SettledNodes, links: Any) -> None:
        self._settled, self._links = settled, links

    def count_hops(self, problem: Problem, *, progress: bool) -> Hops:  # noqa: ARG002
        """One more than the smallest hop count of the linked nodes; each channel is its own pattern."""
        settled, links, n_channels = self._settled.hops, self._links, problem.values.shape[1]
        n_levels = settled.n_levels + 1
        codes = np.full((links.shape[0], n_channels), n_levels + 1, dtype=np.int32)
        linked = np.flatnonzero(np.diff(links.indptr))
        if len(linked):
            nearest = np.minimum.reduceat(
                settled.table_index(settled.codes)[links.indices], links.indptr[linked], axis=0
            )
            codes[linked] = nearest[:, settled.patterns].astype(np.int32) + 1
        codes[~np.isnan(problem.values)] = 0
        return Hops(codes, n_levels, (codes > n_levels).sum(axis=0), np.arange(n_channels))

    def diffuse(self, diffusion: Diffusion, out: Array, *, keep_product: bool) -> Diffused:  # noqa: ARG002
        """The weighted mean over the links, which is the steady state."""
        weight = self._links @ self._settled.confidence
        filled = diffusion.hops.is_filled(diffusion.hops.codes) & (weight > 0)
        received = np.divide(self._links @ self._settled.carried, weight, out=np.zeros_like(weight), where=filled)
        out[filled] = received[filled]
        return Diffused(DiffusionOutcome())

    def propagate_channels(
        self, diffusion: Diffusion, parameters: PropagationParameters, product: InfluenceProduct | None, out: Array
    ) -> None:
        """Stage 2 with the means and the matrix of the settled nodes."""
        del product
        stage, matrix = self._settled.propagation
        rows = out.astype(np.float64)
        stage.for_hops(diffusion.hops, parameters.alpha).refine(rows, diffusion.hops.codes, matrix)
        np.copyto(out, rows, where=diffusion.hops.is_filled(diffusion.hops.codes), casting="same_kind")
