"""`position`: a graph -> channels that encode where each node lies; and their scale relative to features."""

import warnings
from numbers import Integral
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import GraphError, ParameterError, PcfiWarning, UnreachableWarning, counted
from pcfi.estimation.result import seed_of
from pcfi.inputs.graphs import Graph, GraphLike, prepare_graph
from pcfi.memory import position_bytes
from pcfi.settings import RULES
from pcfi.stages.position import walk_positions
from pcfi.system_memory import refuse_allocation

DEFAULT_CHANNELS = 256  # chosen once for all data sets by validation accuracy: benchmarks/position.py
RELATIVE_SIZE = 0.5  # of the channels to the features, by root of the sum of variances; chosen likewise
ROWS_AT_A_TIME = 2048


def position(
    graph: GraphLike,
    n_channels: int = DEFAULT_CHANNELS,
    *,
    n_nodes: int | None = None,
    random_state: "int | np.random.Generator | None" = None,
    progress: bool = False,
) -> Array:
    """Channels that are similar for nodes that lie close together in the graph, for graph neural networks.

    Random columns take 60 steps of a lazy random walk, x <- (x + D^-1 A x) / 2, without the constant part of each
    connected component. Neither features nor labels are used. A single column has no meaning; the similarity of two
    nodes over all columns does. `impute(..., objective="representation", position=256)` and
    `pcfi.pyg.ImputeFeatures(position=256)` append such channels to filled features.

    Parameters
    ----------
    graph : any graph that `impute` accepts
        Weights are used. Directions are ignored: the larger weight of the two directions is used.
    n_channels : int, default=256
        Number of columns, at most the number of nodes. More columns distinguish positions better.
    n_nodes : int, default=None
        Number of nodes, as in `prepare_graph`.
    random_state : int, numpy Generator or None, default=None
        Seed of the random start. None is a fixed seed. Results are bit-identical for any number of threads.
    progress : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    ndarray of shape (n_nodes, n_channels), float32
        With a root mean square of 1 over all columns. Nodes without edges get 0, and a warning counts them.

    Examples
    --------
    Two triangles, joined by an edge: nodes of one triangle are alike.

    >>> import numpy as np, pcfi
    >>> edges = [[0, 0, 1, 2, 3, 3, 4], [1, 2, 2, 3, 4, 5, 5]]
    >>> place = pcfi.position(edges, 6)
    >>> np.sign(place @ place[0]).astype(int)
    array([ 1,  1,  1, -1, -1, -1])
    """
    prepared = prepare_graph(graph, n_nodes, directed=isinstance(graph, Graph) and graph.directed)
    if isinstance(n_channels, bool) or not isinstance(n_channels, Integral) or n_channels < 1:
        raise ParameterError(f"must be an integer of at least 1, got {n_channels!r}", parameter="n_channels")
    if not RULES["random_state"].accepts(random_state):
        allowed = RULES["random_state"].allowed
        raise ParameterError(f"must be {allowed}, got {random_state!r}", parameter="random_state")
    channels, notices = graph_position(prepared, int(n_channels), random_state, "n_channels", progress=progress)
    for notice in notices:
        warnings.warn(notice, stacklevel=2)
    return channels


def graph_position(
    graph: Graph,
    n_channels: int,
    random_state: Any,
    parameter: str,
    nodes: Any = slice(None),
    *,
    progress: bool = False,
) -> tuple[Array, list[PcfiWarning]]:
    """Position channels of a checked graph, and warnings for the caller.

    `parameter` is the name of `n_channels` in errors; nodes without edges are counted among `nodes`.
    """
    if graph.n_nodes == 0:
        raise GraphError("the graph has no nodes: pass a graph with at least one node")
    if n_channels > graph.n_nodes:
        raise ParameterError(
            f"must be at most the number of nodes, got {n_channels} for {counted(graph.n_nodes, 'node')}",
            parameter=parameter,
        )
    what = f"computing {n_channels} position channels of {counted(graph.n_nodes, 'node')}"
    refuse_allocation(position_bytes(graph, n_channels), what, "ask for fewer channels")
    both_ways = prepare_graph(graph.matrix().T) if graph.directed else graph
    channels = walk_positions(both_ways, n_channels, seed_of(random_state), progress=progress)
    isolated = (np.diff(both_ways.indptr) == 0)[nodes]
    if not isolated.any():
        return channels, []
    text = f"{isolated.sum():,} of {counted(len(isolated), 'node')} have no edges: their position is 0"
    return channels, [UnreachableWarning(text)]


def sized_like(channels: Array, features: Array) -> Array:
    """Scale position channels to half the size of filled features, by the root of the sum of the variances."""
    spread, own = _spread(features), _spread(channels)
    size = RELATIVE_SIZE * spread / own if spread > 0 and own > 0 else 1.0
    return channels * np.float32(size) if size < np.finfo(np.float32).max else channels.astype(np.float64) * size


def _spread(values: Array) -> float:
    """Root of the sum of the channels' variances; NaN is ignored."""
    n_finite, mean = np.zeros(values.shape[1]), np.zeros(values.shape[1])
    blocks = [slice(start, start + ROWS_AT_A_TIME) for start in range(0, len(values), ROWS_AT_A_TIME)]
    largest = [np.fmax.reduce(np.abs(values[rows]), axis=None, initial=0.0) for rows in blocks]
    unit = float(max(largest, default=0.0)) or 1.0  # so that squares are finite
    for rows in blocks:
        n_finite += np.isfinite(values[rows]).sum(axis=0)
        mean += np.nansum(values[rows] / unit, axis=0, dtype=np.float64)
    mean /= np.maximum(n_finite, 1)
    squares = sum(float(np.nansum(np.square(values[rows] / unit - mean))) for rows in blocks)
    return unit * float(np.sqrt(squares / len(values)))
