"""What a diffusion is given and what it reports: `Diffusion`, its weights and routes; `Diffused`, its outcome."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pcfi._typing import Array
from pcfi.errors import DivergenceError
from pcfi.inputs.graphs import Graph
from pcfi.inputs.problem import Channels, Problem
from pcfi.progress import Advance
from pcfi.stages.hops import Hops
from pcfi.stages.solvers import Solver, UntilSettled

MIN_CHANNELS_PER_SOURCE = 4  # from which a pattern is solved faster through its influence matrix
MIN_RTOL_FLOAT32 = 1e-5  # float32 residuals of values of order 1 do not get much smaller
MAX_ORDERED_NODES = 1 << 16  # blocks of 4 MB
WINDOW_ROWS = 64  # from 16 to 256 times differ by less than 10 %
MAX_WEIGHT_FLOAT32 = 1e18  # products of two weights stay within float32, whose largest number is 3e38


class Route(Enum):
    """How channels are solved."""

    BLOCKS = "blocks of channels in scaled form"
    INFLUENCE = "the influence matrix of one pattern"
    SWEEPS = "pattern by pattern with relative weights"


@dataclass(frozen=True, eq=False, kw_only=True)
class DiffusionWeights:
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


def confidence_weights(graph: Graph, hops: Hops, alpha: float) -> DiffusionWeights:
    """PCFI: values flow in proportion to their confidence."""
    by_hops = hops.confidence_by_code(alpha, np.float64)
    return DiffusionWeights(
        by_hops=by_hops, by_node=np.ones(graph.n_nodes), degree=None, alpha=alpha, keeps_constants=True
    )


def degree_weights(graph: Graph, hops: Hops, self_loops: bool) -> DiffusionWeights:
    """Feature Propagation: D^-1/2 A D^-1/2, D the degree (self-loop included if there is one)."""
    with np.errstate(divide="ignore"):
        by_node = 1.0 / np.sqrt(graph.degree + self_loops)
    by_node[~np.isfinite(by_node)] = 0.0
    by_hops = hops.confidence_by_code(1.0, np.float64)
    return DiffusionWeights(by_hops=by_hops, by_node=by_node, degree=graph.degree, alpha=1.0, keeps_constants=False)


@dataclass(frozen=True)
class DiffusionOutcome:
    """Convergence of a diffusion: the most steps of any channel, the largest relative |x - Px|."""

    steps: int = 0
    residual: float = 0.0

    def stuck(self, solver: Solver) -> bool:
        """Whether a steady state was not reached although there are steps left."""
        return isinstance(solver, UntilSettled) and not self.residual <= solver.rtol and self.steps < solver.max_steps

    @staticmethod
    def worst(outcomes: Sequence["DiffusionOutcome"]) -> "DiffusionOutcome":
        """The outcome of all parts together."""
        steps = max((outcome.steps for outcome in outcomes), default=0)
        return DiffusionOutcome(steps, float(np.max([outcome.residual for outcome in outcomes], initial=0.0)))


@dataclass(frozen=True, eq=False, kw_only=True)
class InfluenceProduct:
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

    def rows(self, nodes: Array) -> Array:
        """Values of the channels at some reachable nodes, in float64."""
        values = (self.influence[nodes] @ self.known).astype(np.float64) + self.shift
        return np.asarray(np.clip(values, *self.bounds.astype(np.float64)))


class Diffused(NamedTuple):
    """Result of stage 1; if there is a product, its channels are not yet in the array that was to be filled."""

    outcome: DiffusionOutcome
    product: InfluenceProduct | None = None


def needs_float64(weight_range: tuple[float, float], solver: Solver) -> bool:
    """Whether float32 arithmetic is not safe: a small rtol, or weights of very different magnitudes."""
    lightest, heaviest = weight_range
    is_strict = isinstance(solver, UntilSettled) and solver.rtol < MIN_RTOL_FLOAT32
    return is_strict or heaviest > MAX_WEIGHT_FLOAT32 or lightest < 1 / MAX_WEIGHT_FLOAT32


def varying_channels(channels: Channels, *, keeps_constants: bool) -> Array:
    """Channels that are not the same everywhere once filled: judged by the known values, not by noise."""
    return np.flatnonzero(~(channels.constant if keeps_constants else channels.silent))


@dataclass(frozen=True, eq=False, kw_only=True)
class Diffusion:
    """Stage 1 of one problem: its weights, its solver, and what follows from them.

    Attributes
    ----------
    problem : Problem
    hops : Hops
    weights : DiffusionWeights
    solver : FixedSteps or UntilSettled
    self_weight : float
        Weight of a self-loop in a step.
    dtype : dtype
        Of the arithmetic. None: float32 for float32 values where that is safe, float64 otherwise.
    progress : bool
        Whether to show progress bars.
    advance : callable
        Counts the channels that are done.
    """

    problem: Problem
    hops: Hops
    weights: DiffusionWeights
    solver: Solver
    self_weight: float = 1.0
    dtype: Any = None
    progress: bool = False
    advance: Advance = lambda _: None

    def __post_init__(self) -> None:
        if self.dtype is None:
            wide = needs_float64(self.problem.graph.weight_range, self.solver)
            object.__setattr__(self, "dtype", np.dtype(np.float64) if wide else self.problem.dtype)

    @property
    def settles(self) -> bool:
        """Whether the solver looks for the steady state."""
        return isinstance(self.solver, UntilSettled)

    @property
    def centred(self) -> bool:
        """Whether channels are shifted before they diffuse: the steady state allows it, a start at zero does not."""
        return self.settles and self.weights.keeps_constants

    @property
    def residual_self_weight(self) -> float:
        """Weight of a self-loop in the step that the residual is measured by; 0 for a steady state."""
        return 0.0 if self.settles else self.self_weight

    @cached_property
    def node_order(self) -> Array | None:
        """Nodes in windows of ascending numbers, by their number of neighbours within a window; None for large graphs.

        A processor foresees the end of the loop over neighbours if nodes with as many of them follow each other. Beyond
        the cache, it matters more that the graph is read from front to back.
        """
        n_nodes, indptr = self.problem.graph.n_nodes, self.problem.graph.indptr
        if n_nodes > MAX_ORDERED_NODES:
            return None
        n_neighbors = np.zeros(-(-n_nodes // WINDOW_ROWS) * WINDOW_ROWS, dtype=np.int64)
        n_neighbors[:n_nodes] = -np.diff(indptr)
        windows = n_neighbors.reshape(-1, WINDOW_ROWS)
        places = windows.argsort(axis=1, kind="stable") + WINDOW_ROWS * np.arange(len(windows))[:, None]
        order = places.ravel().astype(np.int32)
        return np.asarray(order[order < n_nodes])

    @cached_property
    def varying(self) -> Array:
        """Channels that are not the same everywhere once filled."""
        return varying_channels(self.problem.channels, keeps_constants=self.centred)

    @cached_property
    def active(self) -> Array:
        """Channels that diffuse: those that vary and have missing cells within reach."""
        n_known, n_unreachable = self.problem.channels.n_known, self.hops.n_unreachable[self.hops.patterns]
        has_missing = self.problem.values.shape[0] - n_known - n_unreachable > 0
        return np.asarray(self.varying[has_missing[self.varying]])

    @cached_property
    def routes(self) -> list[tuple[Route, Array]]:
        """Which of the active channels take which route; those of an influence matrix come first."""
        graph, channels, active = self.problem.graph, self.problem.channels, self.active
        lightest = min(1.0, graph.weight_range[0])
        vanishes = self.weights.by_hops[self.hops.n_levels] * lightest < 1e3 * np.finfo(self.dtype).tiny
        if vanishes or (self.settles and graph.directed):
            return [(Route.SWEEPS, active)]
        patterns = self.hops.patterns[active]
        n_channels = np.bincount(patterns, minlength=len(channels.representatives))
        few_sources = n_channels >= MIN_CHANNELS_PER_SOURCE * channels.n_known[channels.representatives]
        through_sources = few_sources[patterns]
        routes = [(Route.INFLUENCE, active[patterns == pattern]) for pattern in np.unique(patterns[through_sources])]
        rest = active[~through_sources]
        return [*routes, (Route.BLOCKS, rest)] if len(rest) else routes

    @property
    def is_one_product(self) -> bool:
        """Whether all channels that vary go through the same influence matrix."""
        one_matrix = len(self.routes) == 1 and self.routes[0][0] is Route.INFLUENCE
        return one_matrix and np.array_equal(self.active, self.varying)

    def after(self, taken: int) -> "Diffusion":
        """What is left to do when `taken` steps are done; at least one step is."""
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
