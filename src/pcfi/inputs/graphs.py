"""Every accepted kind of graph -> one checked CSR structure, `Graph`, which can be reused across calls."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from pcfi._typing import Array
from pcfi.errors import GraphError, ParameterError, UnsupportedTypeError
from pcfi.inputs import tensors
from pcfi.inputs.edge_frames import read_edges
from pcfi.inputs.ids import Ids, is_frame
from pcfi.inputs.sorted_rows import sorted_rows
from pcfi.inputs.spatial_weights import adjacency, is_spatial_weights
from pcfi.system_memory import refuse_allocation

GraphLike = Any

_KNOWN_TYPES = (
    "a scipy or torch sparse adjacency (N x N), an integer edge index of shape (2, E), a pair (edge_index, weights), "
    "a table of edges, a networkx graph, a graph of PyTorch Geometric, spatial weights of libpysal (Graph or W), a "
    "graph from pcfi.prepare_graph, 'knn', or a function features -> graph"
)
NODE_BYTES = 24  # least memory per node while a graph is built
_LARGEST_NODE = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class Graph:
    """A checked graph in compressed sparse rows: row i lists the nodes whose values flow into node i.

    Created by `prepare_graph`; pass it wherever a graph is accepted, to avoid repeated conversion.

    Attributes
    ----------
    n_nodes : int
        Number of nodes.
    indptr, indices : ndarray
        In-neighbours of node i are `indices[indptr[i]:indptr[i + 1]]`, sorted.
    weights : ndarray or None
        Weight of each entry of `indices`; None if all are 1.
    directed : bool
        Whether values flow only along the direction of an edge.
    """

    n_nodes: int
    indptr: Array
    indices: Array
    weights: Array | None = None
    directed: bool = False
    _cast: dict[str, Array] = field(default_factory=dict, repr=False)

    @property
    def n_edges(self) -> int:
        """Number of edges; an undirected edge counts once."""
        return len(self.indices) if self.directed else len(self.indices) // 2

    @cached_property
    def degree(self) -> Array:
        """Sum of the weights that flow into each node, in float64."""
        if self.weights is None:
            return np.diff(self.indptr).astype(np.float64)
        summed, filled = np.zeros(self.n_nodes), np.diff(self.indptr) > 0
        with np.errstate(over="ignore"):
            summed[filled] = np.add.reduceat(self.weights, self.indptr[:-1][filled])
        return summed

    @cached_property
    def weight_range(self) -> tuple[float, float]:
        """The smallest and the largest weight; 1 and 1 if there are none."""
        if self.weights is None or not len(self.weights):
            return 1.0, 1.0
        return float(self.weights.min()), float(self.weights.max())

    @cached_property
    def outgoing(self) -> tuple[Array, Array]:
        """`indptr` and `indices` of the out-neighbours."""
        if not self.directed:
            return self.indptr, self.indices
        flipped = _as_csr(self.matrix().T)
        return flipped.indptr.astype(np.int64), flipped.indices.astype(np.int32)

    def weights_as(self, dtype: npt.DTypeLike) -> Array:
        """Weights in `dtype`; an empty array stands for "all are 1"."""
        key = np.dtype(dtype).name
        if key not in self._cast:
            weights = np.empty(0) if self.weights is None else self.weights
            self._cast[key] = weights.astype(dtype, copy=False)
        return self._cast[key]

    def matrix(self) -> Any:
        """The weights as a scipy sparse matrix: row i has what flows into node i."""
        from scipy import sparse

        data = np.ones(len(self.indices)) if self.weights is None else self.weights
        return sparse.csr_array((data, self.indices, self.indptr), shape=(self.n_nodes, self.n_nodes))

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        weighted = "unweighted" if self.weights is None else "weighted"
        return f"Graph({self.n_nodes:,} nodes, {self.n_edges:,} edges, {kind}, {weighted})"


def prepare_graph(graph: GraphLike, n_nodes: int | None = None, *, directed: bool = False) -> Graph:
    """Turn any accepted graph into a checked `Graph`.

    Weights of duplicate edges in one direction are added. An undirected graph then uses the larger weight of the two
    directions, so an edge may be given in one direction or in both. Self-loops and edges of weight zero are dropped.

    Parameters
    ----------
    graph : sparse adjacency, (2, E) edge index, (edge_index, weights), edge table, networkx graph, PyG Data, or Graph
        Also libpysal's spatial weights, `Graph` or `W`, with their weights unchanged. In an adjacency matrix, entry
        (i, j) is an edge from i to j; in an edge index, column e is an edge from `edge_index[0, e]` to
        `edge_index[1, e]` (a list of two pairs is also read as two rows, not as two edges). Weights are similarities
        (>= 0), not distances. The columns of an edge table (pandas, polars, pyarrow) are chosen by common names:
        "source", "target" and, if present, "weight" (docs/reading-tables.md). The nodes of a networkx graph are
        numbered in its own order, and its edges have weight 1 (weights in networkx may be distances;
        `pcfi.networkx.impute` has `weight=`). A Graph is returned unchanged, and stays directed if it is.
    n_nodes : int, default=None
        Number of nodes. None takes it from an adjacency, or as the largest index of an edge index plus one.
    directed : bool, default=False
        Whether values flow only from the first to the second node of an edge.

    Returns
    -------
    Graph

    Examples
    --------
    >>> prepare_graph([[0, 1, 2], [1, 2, 3]])
    Graph(4 nodes, 3 edges, undirected, unweighted)
    """
    check_n_nodes(n_nodes)
    return read_graph(graph, n_nodes, f"n_nodes is {n_nodes}", directed=directed)


def check_n_nodes(n_nodes: object) -> None:
    """Raise an error if this is not a number of nodes."""
    if n_nodes is not None and (isinstance(n_nodes, bool) or not isinstance(n_nodes, Integral) or n_nodes < 0):
        raise ParameterError(f"n_nodes must be an integer of at least 0, or None, got {n_nodes!r}")


def read_graph(graph: GraphLike, n_nodes: int | None, n_nodes_origin: str, *, directed: bool) -> Graph:
    """Like `prepare_graph`; `n_nodes_origin` says in errors where the number of nodes comes from."""
    if not isinstance(directed, bool | np.bool_):
        raise ParameterError(f"directed must be True or False, got {directed!r}")
    if isinstance(graph, Graph):
        return _check_prepared(graph, n_nodes, n_nodes_origin, directed)
    return _build(*_read(graph, n_nodes, n_nodes_origin), directed)


def is_graph(graph: object) -> bool:
    """Whether this is a graph of a known type."""
    return isinstance(graph, Graph) or any(recognises(graph) for recognises, _ in _READERS)


def _read(graph: GraphLike, n_nodes: int | None, n_nodes_origin: str) -> "_Edges":
    for recognises, read in _READERS:
        if recognises(graph):
            return read(graph, n_nodes, n_nodes_origin)
    if isinstance(graph, str):
        raise UnsupportedTypeError(f"graph is {graph!r}: the only graph with a name is 'knn'; else pass {_KNOWN_TYPES}")
    name = f"{type(graph).__module__}.{type(graph).__qualname__}"
    raise UnsupportedTypeError(f"graph is a {name}, which is not supported: pass {_KNOWN_TYPES}")


def _check_prepared(graph: Graph, n_nodes: int | None, n_nodes_origin: str, directed: bool) -> Graph:
    if n_nodes is not None and graph.n_nodes != n_nodes:
        raise GraphError(f"the graph has {graph.n_nodes} nodes, but {n_nodes_origin}: both must be the same")
    if directed and not graph.directed:
        raise GraphError(
            "directed=True, but this graph was prepared as undirected: use prepare_graph(..., directed=True)"
        )
    return graph


def _build(source: Array, target: Array, weights: Array | None, n_nodes: int, directed: bool) -> Graph:
    data = np.empty(0) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    # row = target: a row lists the nodes whose values flow into it
    indptr, indices, merged = sorted_rows(target, source, data, n_nodes, both_sides=not directed)
    built = Graph(n_nodes=n_nodes, indptr=indptr, indices=indices, weights=merged, directed=directed)
    refuse_overflow(built.degree)
    return built


def refuse_overflow(degree: Array, first: int = 0) -> None:
    """Raise an error if the sum of a node's weights overflows; `degree` starts at node `first`."""
    beyond = np.flatnonzero(~np.isfinite(degree))
    if len(beyond):
        raise GraphError(
            f"the sum of the edge weights of node {first + beyond[0]} overflows float64: rescale the weights, for "
            "example by the largest one"
        )


def _as_csr(matrix: Any) -> Any:
    csr = matrix.tocsr()
    csr.sum_duplicates()
    return csr


# Readers: graph -> (source, target, weights or None, number of nodes), checked.

_Edges = tuple[Array, Array, Array | None, int]


def _read_tensors(graph: Any, n_nodes: int | None, n_nodes_origin: str) -> _Edges:
    return _read(tensors.to_arrays(graph), n_nodes, n_nodes_origin)


def _is_sparse(graph: object) -> bool:
    return hasattr(graph, "tocoo") and hasattr(graph, "nnz") and hasattr(graph, "shape")


def _read_sparse(graph: Any, n_nodes: int | None, n_nodes_origin: str) -> _Edges:
    shape = tuple(graph.shape)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise GraphError(f"the adjacency has shape {shape}, but it must be square: one row and column per node")
    if n_nodes is not None and shape[0] != n_nodes:
        raise GraphError(
            f"the adjacency has shape {shape}, but {n_nodes_origin}: one row and column per node is needed"
        )
    edges = graph.tocoo()
    row, column = (edges.coords if hasattr(edges, "coords") else (edges.row, edges.col))[:2]
    check_edge_index_range(np.stack([row, column]), shape[0], f"the adjacency has shape {shape}")
    return row, column, check_weights(np.asarray(edges.data), len(row)), shape[0]


def _is_weighted_pair(graph: object) -> bool:
    return isinstance(graph, tuple) and len(graph) == 2 and _array(graph[0], "edge index").ndim == 2


def _read_weighted_pair(graph: tuple[Any, Any], n_nodes: int | None, n_nodes_origin: str) -> _Edges:
    source, target, _, size = _read_edge_index(graph[0], n_nodes, n_nodes_origin)
    weights = graph[1]
    if weights is None:
        return source, target, None, size
    return source, target, check_weights(_array(weights, "weights"), len(source)), size


def _is_array(graph: object) -> bool:
    return isinstance(graph, np.ndarray | list | tuple)


def _read_edge_index(graph: Any, n_nodes: int | None, n_nodes_origin: str) -> _Edges:
    index = _array(graph, "edge index")
    check_edge_index_shape(index)
    index = whole_numbers(index)
    size = n_nodes
    if size is None:
        size = int(index.max()) + 1 if index.size else 0
        refuse_allocation(NODE_BYTES * size, f"a graph of {size:,} nodes (the largest node number plus 1)")
    check_edge_index_range(index, size, n_nodes_origin if n_nodes is not None else "nodes are numbered from 0")
    if index.dtype not in (np.int32, np.int64):
        index = index.astype(np.int64)
    return index[0], index[1], None, int(size)


def _read_edge_table(graph: Any, n_nodes: int | None, n_nodes_origin: str) -> _Edges:
    return _read_weighted_pair(read_edges(graph, Ids.of_rows()), n_nodes, n_nodes_origin)


def is_networkx(graph: object) -> bool:
    """Whether this is a graph of networkx; does not load it."""
    kind = getattr(sys.modules.get("networkx"), "Graph", None)
    return kind is not None and isinstance(graph, kind)


def _read_networkx(graph: Any, n_nodes: int | None, n_nodes_origin: str) -> _Edges:
    return _read_sparse(networkx_adjacency(graph, None), n_nodes, n_nodes_origin)


def _read_spatial_weights(graph: Any, n_nodes: int | None, n_nodes_origin: str) -> _Edges:
    return _read_sparse(adjacency(graph), n_nodes, n_nodes_origin)


def networkx_adjacency(graph: Any, weight: str | None) -> Any:
    """Adjacency of a networkx graph in the order of its nodes; weights of parallel edges are added."""
    from scipy import sparse

    if len(graph) == 0:
        return sparse.coo_array((0, 0))
    import networkx as nx

    return nx.to_scipy_sparse_array(graph, weight=weight, format="coo", dtype=np.float64)


def _array(value: Any, what: str) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise UnsupportedTypeError(f"the {what} is a masked array: pass only the edges that exist, as a plain array")
    try:
        return np.asarray(value)
    except ValueError:
        raise GraphError(
            f"the {what} is ragged: its rows must have the same length (edges with weights are a tuple, not a list: "
            "(edge_index, weights))"
        ) from None


_READERS: list[tuple[Callable[[Any], bool], Callable[[Any, int | None, str], _Edges]]] = [
    (tensors.holds_tensors, _read_tensors),
    (_is_sparse, _read_sparse),
    (_is_weighted_pair, _read_weighted_pair),
    (_is_array, _read_edge_index),
    (is_frame, _read_edge_table),
    (is_networkx, _read_networkx),
    (is_spatial_weights, _read_spatial_weights),
]


def check_edge_index_shape(index: Array) -> None:
    """Raise an error if an edge index does not have shape (2, E)."""
    shape = index.shape
    if len(shape) == 2 and shape[0] == 2:
        return
    if len(shape) == 2 and shape[1] == 2:
        advice = (
            f"it looks like an (E, 2) list of edges: pass its transpose, np.asarray(graph).T, of shape (2, {shape[0]})"
        )
    elif len(shape) == 2 and shape[0] == shape[1]:
        advice = "it looks like a dense adjacency: pass scipy.sparse.csr_array(graph)"
    else:
        advice = "pass an integer array of shape (2, E), np.empty((2, 0), int) if there are no edges"
    raise GraphError(f"an edge index has shape (2, E), but the graph has shape {shape}: {advice}")


def whole_numbers(index: Array) -> Array:
    """The edge index, if it holds integers."""
    if index.size == 0:
        return np.zeros(index.shape, dtype=np.int64)
    if index.dtype.kind in "iu":
        return index
    if index.dtype.kind != "f":
        raise GraphError(f"an edge index holds integers, but this one has dtype {index.dtype}: convert it to int64")
    fractional = ~(np.isfinite(index) & (index == np.floor(index)))
    if fractional.any():
        row, edge = np.argwhere(fractional)[0]
        raise GraphError(f"edge {edge} refers to node {index[row, edge]}, but nodes are numbered by integers from 0")
    return index


def check_edge_index_range(index: Array, n_nodes: int, n_nodes_origin: str) -> None:
    """Raise an error if an edge index refers to a node that does not exist."""
    if n_nodes > _LARGEST_NODE:
        raise GraphError(f"the graph has {n_nodes} nodes, but at most {_LARGEST_NODE} are supported")
    if index.size and (index.min() < 0 or index.max() >= n_nodes):
        outside = (index < 0) | (index >= n_nodes)
        row, edge = np.argwhere(outside)[0]
        node = index[row, edge]
        advice = "number the nodes from 0" if node < 0 else "drop the edge or add the rows"
        raise GraphError(f"edge {edge} refers to node {node}, but {n_nodes_origin}: {advice}")


def check_weights(weights: Array, n_edges: int) -> Array:
    """The weights, if they are finite and at least 0."""
    if weights.shape != (n_edges,):
        raise GraphError(f"weights has shape {weights.shape}, but there are {n_edges} edges: pass one weight per edge")
    if weights.dtype.kind == "b":
        weights = weights.astype(np.float64)
    if weights.dtype.kind not in "iuf":
        raise GraphError(f"edge weights must be real numbers, got dtype {weights.dtype}")
    if weights.dtype == np.longdouble and np.longdouble != np.float64:
        weights = weights.astype(np.float64)
    wrong = ~((weights >= 0) & np.isfinite(weights))
    if wrong.any():
        edge = int(np.flatnonzero(wrong)[0])
        raise GraphError(
            f"edge {edge} has weight {weights[edge]}, but weights are finite similarities of at least 0: "
            "drop the edge, or turn distances into similarities first"
        )
    return weights
