"""What a diffusion is given and what it reports: `Weighting`, `Job`, `Outcome`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import DivergenceError
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Problem
from pcfi.progress import Advance
from pcfi.stages.hops import Hops
from pcfi.stages.solvers import Solver, UntilSettled


@dataclass(frozen=True, eq=False)
class Weighting:
    """What a method multiplies values with before they flow: scale(cell) = by_hops[hops] * by_node[node].

    Attributes
    ----------
    by_hops : ndarray, float64
        One entry per number of hops, and a last one, 0, for unreachable cells.
    by_node : ndarray, float64
    degree : ndarray or None
        The diagonal d; None if it follows from the scale.
    alpha : float
        Ratio of two successive entries of `by_hops`.
    keeps_constants : bool
        Whether the steady state of a constant channel is that constant; then values stay within the known range.
    """

    by_hops: Array
    by_node: Array
    degree: Array | None
    alpha: float
    keeps_constants: bool


def confidence_weighting(graph: Graph, hops: Hops, alpha: float) -> Weighting:
    """PCFI: values flow in proportion to their confidence."""
    by_hops = hops.confidence_by_code(alpha, np.float64)
    return Weighting(by_hops, np.ones(graph.n_nodes), None, alpha, keeps_constants=True)


def degree_weighting(graph: Graph, hops: Hops, self_loops: bool) -> Weighting:
    """Feature Propagation: D^-1/2 A D^-1/2, D the degree (self-loop included if there is one)."""
    with np.errstate(divide="ignore"):
        by_node = 1.0 / np.sqrt(graph.degree + self_loops)
    by_node[~np.isfinite(by_node)] = 0.0
    return Weighting(hops.confidence_by_code(1.0, np.float64), by_node, graph.degree, 1.0, keeps_constants=False)


@dataclass(frozen=True)
class Outcome:
    """How a diffusion went: the most steps of any channel, the largest relative |x - Px|."""

    steps: int = 0
    residual: float = 0.0

    def stuck(self, solver: Solver) -> bool:
        """Whether a steady state was not reached although there are steps left."""
        return isinstance(solver, UntilSettled) and not self.residual <= solver.rtol and self.steps < solver.max_steps

    @staticmethod
    def worst(outcomes: Sequence["Outcome"]) -> "Outcome":
        """The outcome of all parts together."""
        steps = max((outcome.steps for outcome in outcomes), default=0)
        return Outcome(steps, float(np.max([outcome.residual for outcome in outcomes], initial=0.0)))


@dataclass(frozen=True, eq=False)
class Factors:
    """Filled channels of one pattern as a product: shift + influence @ known, for every reachable node.

    Attributes
    ----------
    pattern : int
    channels : ndarray of int
    influence : ndarray of shape (n_nodes, n_sources)
        Influence of each source on each node; 0 in unreachable rows.
    known : ndarray of shape (n_sources, n_channels)
        Known values less the shift.
    shift : ndarray, one per channel
    bounds : ndarray of shape (2, n_channels)
        Lowest and highest value that a filled cell may take.
    """

    pattern: int
    channels: Array
    influence: Array
    known: Array
    shift: Array
    bounds: Array


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a route needs: the problem, the way of weighting, the solver, and the array to write into."""

    problem: Problem
    hops: Hops
    weighting: Weighting
    solver: Solver
    self_weight: float
    dtype: npt.DTypeLike
    out: Array
    advance: Advance

    @property
    def settles(self) -> bool:
        """Whether the steady state is wanted."""
        return isinstance(self.solver, UntilSettled)

    @property
    def centred(self) -> bool:
        """Whether channels are shifted before they diffuse: the steady state allows it, a start at zero does not."""
        return self.settles and self.weighting.keeps_constants

    @property
    def judged_self_weight(self) -> float:
        """Weight of a self-loop in the step that the residual speaks of; a steady state is judged without."""
        return 0.0 if self.settles else self.self_weight

    def after(self, taken: int) -> "Job":
        """What is left of the job when `taken` of its steps are done; at least one is."""
        if not isinstance(self.solver, UntilSettled):
            return self
        return replace(self, solver=replace(self.solver, max_steps=max(1, self.solver.max_steps - taken)))

    def spread(self, chosen: Array) -> Array:
        """Range of the known values of the chosen channels, together with 0 unless they are centred, in float64."""
        low = self.problem.channels.low[chosen].astype(np.float64)
        high = self.problem.channels.high[chosen].astype(np.float64)
        if not self.centred:
            low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        with np.errstate(over="ignore"):
            spread = high - low
        if not np.isfinite(spread).all():
            channel = chosen[np.flatnonzero(~np.isfinite(spread))[0]]
            name = self.problem.channel_name(int(channel))
            raise DivergenceError(f"the known values of {name} span more than a float64 holds: rescale it")
        return spread
