"""`HeteroData` -> one graph of the nodes of all types, with a weight for each edge type."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcfi._typing import Array
from pcfi.errors import GraphError, counted
from pcfi.inputs import tensors
from pcfi.inputs.graphs import Graph, check_edge_index_range, check_edge_index_shape, read_graph
from pcfi.integrations.pyg_stores import edge_list, first_nodes

EdgeType = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class TypedGraph:
    """Nodes of all types with a common numbering, graph by graph of a batch, and the edges of each type.

    Attributes
    ----------
    numbers : dict
        For each node type, the number of each of its nodes.
    ptr : ndarray of int
        First node of each graph of a batch, and the number of nodes as the last entry.
    edges : dict
        For each edge type, an edge index of these numbers, and weights (None: all are 1).
    """

    numbers: dict[str, Array]
    ptr: Array
    edges: dict[EdgeType, tuple[Array, Array | None]]

    @classmethod
    def of(cls, data: Any) -> "TypedGraph":
        """Number the nodes of a `HeteroData`, and read its edges."""
        edges = {kind: _read_edges(data[kind], kind) for kind in data.edge_types}
        sizes = {name: _size(data, name, edges) for name in data.node_types}
        numbers, ptr = _number(data, sizes)
        numbered = {kind: (_numbered(index, kind, numbers), weights) for kind, (index, weights) in edges.items()}
        return cls(numbers, ptr, numbered)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of all types."""
        return int(self.ptr[-1])

    @property
    def relations(self) -> list[tuple[EdgeType, ...]]:
        """Edge types, each together with its reverse edge type, if there is one."""
        left, found = list(self.edges), []
        while left:
            kind = left.pop(0)
            reverse = [one for one in left if self._is_reverse(kind, one)][:1]
            found.append((kind, *reverse))
            left = [one for one in left if one not in reverse]
        return found

    def _is_reverse(self, kind: EdgeType, other: EdgeType) -> bool:
        if (kind[0], kind[2]) != (other[2], other[0]):
            return False
        (one, _), (two, _) = self.edges[kind], self.edges[other]
        return one.shape == two.shape and np.array_equal(_sorted(one), _sorted(two[::-1]))

    def graph(self, weights: Mapping[EdgeType, float], *, directed: bool) -> Graph:
        """The graph of all edges, with weights multiplied by the weight of their type (1 by default)."""
        index = [part for part, _ in self.edges.values()]
        if not index:
            return read_graph(np.empty((2, 0), dtype=np.int64), self.n_nodes, "", directed=directed)
        factors = [weights.get(kind, 1.0) for kind in self.edges]
        own = [np.ones(part.shape[1]) if given is None else given for part, given in self.edges.values()]
        scaled = [factor * part for factor, part in zip(factors, own, strict=True)]
        joined = (np.concatenate(index, axis=1), np.concatenate(scaled))
        return read_graph(joined, self.n_nodes, counted(self.n_nodes, "node"), directed=directed)


def _read_edges(store: Any, kind: EdgeType) -> tuple[Array, Array | None]:
    index, weights = edge_list(tensors.edges_of(store, f"edge type {kind!r}"))
    array = tensors.to_array(index, "the edge index")
    check_edge_index_shape(array)
    return array, None if weights is None else tensors.to_array(weights, "edge_weight").astype(np.float64)


def _size(data: Any, name: str, edges: Mapping[EdgeType, tuple[Array, Array | None]]) -> int:
    """Number of nodes of a type: as the data says, or as its edges need."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns if it has to guess
        size = data[name].num_nodes
    if size is not None:
        return int(size)
    ends = [index[end] for kind, (index, _) in edges.items() for end in (0, 1) if kind[2 * end] == name]
    return max((int(end.max()) + 1 for end in ends if len(end)), default=0)


def _number(data: Any, sizes: Mapping[str, int]) -> tuple[dict[str, Array], Array]:
    """Number nodes by graph of the batch, then by type; also returns the first node of each graph."""
    starts = {name: first_nodes(data[name], size) for name, size in sizes.items()}
    n_graphs = max((len(start) - 1 for start in starts.values()), default=1)
    counts = np.array([_counts(name, start, n_graphs) for name, start in starts.items()], dtype=np.int64)
    counts = counts.reshape(len(starts), n_graphs)
    ptr = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    before = ptr[:-1] + np.cumsum(counts, axis=0) - counts  # of each type in each graph, its first number
    numbers = {}
    for row, name in enumerate(starts):
        own = np.concatenate([[0], np.cumsum(counts[row])])[:-1]
        numbers[name] = np.repeat(before[row] - own, counts[row]) + np.arange(sizes[name])
    return numbers, ptr


def _counts(name: str, start: Array, n_graphs: int) -> Array:
    """Number of nodes of a type in each graph of a batch."""
    if start[-1] == 0:
        return np.zeros(n_graphs, dtype=np.int64)
    if len(start) - 1 != n_graphs:
        raise GraphError(
            f"node type {name!r} does not say which graph of the batch its nodes belong to: "
            f"set data[{name!r}].num_nodes before the data is batched"
        )
    return np.diff(start)


def _numbered(index: Array, kind: EdgeType, numbers: Mapping[str, Array]) -> Array:
    ends = []
    for end, name in ((0, kind[0]), (1, kind[2])):
        origin = f"edge type {kind!r} leads to node type {name!r} with {counted(len(numbers[name]), 'node')}"
        check_edge_index_range(index[end : end + 1], len(numbers[name]), origin)
        ends.append(numbers[name][index[end]])
    return np.stack(ends)


def _sorted(index: Array) -> Array:
    return index[:, np.lexsort(index[::-1])]
