"""`position`: a graph -> channels that encode where each node lies; and their scale relative to features."""

import warnings
from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.backends.cpu import CpuBackend
from pcfi.errors import GraphError, ParameterError, PcfiWarning, UnreachableWarning, counted
from pcfi.estimation.result import seed_of
from pcfi.inputs.graphs import Graph, GraphLike, prepare_graph
from pcfi.inputs.problem import Problem, survey
from pcfi.memory import POSITIONS_AT_A_TIME, position_bytes
from pcfi.pipeline import run_stages
from pcfi.progress import progress_bar
from pcfi.settings import RULES, Settings
from pcfi.stages.solvers import UntilSettled
from pcfi.system_memory import refuse_allocation

# one choice for all data sets, by validation accuracy: benchmarks/position.py
DEFAULT_CHANNELS = 256
RELATIVE_SIZE = 1.0  # of the channels against the features, as root of the sum of variances
MAX_SOURCES = 64  # of a channel
DIFFUSION = Settings(alpha=0.9, beta=0.0, solver=UntilSettled(rtol=1e-5), objective="representation", unreachable="nan")

NODES_PER_SOURCE = 32  # at least, in small graphs
MIN_SIZE = 1e-4  # root mean square of the channels, whose sources are of size 1; below, only solver errors are left
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

    In each column 64 random nodes (in small graphs one of 32) hold a normal random number, stage 1 of PCFI fills in the
    others with alpha 0.9, and the mean of the column is subtracted: a node is similar to the random nodes near it.
    Neither features nor labels are used. A single column has no meaning; the similarity of two nodes over all columns
    does. `impute(..., objective="representation", position=256)` and `pcfi.pyg.ImputeFeatures(position=256)` append
    such channels to filled features.

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
    channels = source_positions(both_ways, n_channels, seed_of(random_state), progress=progress)
    isolated = (np.diff(both_ways.indptr) == 0)[nodes]
    if not isolated.any():
        return channels, []
    text = f"{isolated.sum():,} of {counted(len(isolated), 'node')} have no edges: their position is 0"
    return channels, [UnreachableWarning(text)]


def source_positions(graph: Graph, n_channels: int, seed: int, *, progress: bool = False) -> Array:
    """Position channels in float32, scaled together to a root mean square of 1; nodes without edges have 0.

    The graph must be undirected. With w_is the share of the source s in what node i is filled with, x_i . x_j estimates
    the kernel E[sum_s w_is w_js], whichever nodes are drawn: how much the nearest sources of two nodes are the same.
    The mean of each channel is subtracted, as it says nothing about positions; cells that no source reaches hold 0.
    """
    out = np.empty((graph.n_nodes, n_channels), dtype=np.float32)
    with progress_bar("position", n_channels, show=progress) as advance:
        for start in range(0, n_channels, POSITIONS_AT_A_TIME):
            part = out[:, start : start + POSITIONS_AT_A_TIME]
            part[:] = run_stages(_random_sources(graph, part.shape[1], seed, start), DIFFUSION, CpuBackend()).values
            for column in part.T:
                reached = np.isfinite(column)
                column -= np.mean(column, where=reached, dtype=np.float64) if reached.any() else 0.0
                column[~reached] = 0
            advance(part.shape[1])
    size = np.sqrt(sum(float(np.square(rows, dtype=np.float64).sum()) for rows in _row_blocks(out)) / out.size)
    out *= np.float32(1 / size if size > MIN_SIZE else 0)
    return out


def _random_sources(graph: Graph, n_channels: int, seed: int, first: int) -> Problem:
    """Channels that are known at random nodes only, those with edges.

    Each channel has a seed of its own, and each node its own number in it, of which the lowest are sources: further
    channels change nothing, and further nodes take the place of a few sources at most.
    """
    from scipy.special import ndtri

    rows = np.flatnonzero(np.diff(graph.indptr))
    n_sources = min(MAX_SOURCES, max(2, len(rows) // NODES_PER_SOURCE), len(rows))
    values = np.full((graph.n_nodes, n_channels), np.nan, dtype=np.float32)
    for channel in range(n_channels if n_sources else 0):
        drawn = np.random.PCG64([seed, first + channel]).random_raw(graph.n_nodes)[rows]
        lowest = np.argpartition(drawn, n_sources - 1)[:n_sources]
        low_bits = drawn[lowest] & np.uint64(2**32 - 1)  # the high ones decide who is a source
        values[rows[lowest], channel] = ndtri((low_bits + 0.5) / 2**32)
    mask = np.empty((0, 1), dtype=np.bool_)  # NaN decides
    return Problem(
        values=values,
        mask=mask,
        graph=graph,
        channels=survey(values, mask),
        wrap_values=lambda filled: filled,
        wrap_cells=lambda cells: cells,
    )


def sized_like(channels: Array, features: Array) -> Array:
    """Scale position channels to the size of filled features, by the root of the sum of the variances."""
    spread, own = _spread(features), _spread(channels)
    size = RELATIVE_SIZE * spread / own if spread > 0 and own > 0 else 1.0
    return channels * np.float32(size) if size < np.finfo(np.float32).max else channels.astype(np.float64) * size


def _spread(values: Array) -> float:
    """Root of the sum of the channels' variances; NaN is ignored."""
    n_finite, mean = np.zeros(values.shape[1]), np.zeros(values.shape[1])
    largest = [np.fmax.reduce(np.abs(rows), axis=None, initial=0.0) for rows in _row_blocks(values)]
    unit = float(max(largest, default=0.0)) or 1.0  # so that squares are finite
    for rows in _row_blocks(values):
        n_finite += np.isfinite(rows).sum(axis=0)
        mean += np.nansum(rows / unit, axis=0, dtype=np.float64)
    mean /= np.maximum(n_finite, 1)
    squares = sum(float(np.nansum(np.square(rows / unit - mean))) for rows in _row_blocks(values))
    return unit * float(np.sqrt(squares / len(values)))


def _row_blocks(values: Array) -> Iterator[Array]:
    return (values[start : start + ROWS_AT_A_TIME] for start in range(0, len(values), ROWS_AT_A_TIME))
