"""A graph folder -> partitions of its nodes, each with its rows of the graph and the list of neighbours it lacks.

order       once: an order of the nodes in which neighbours are near each other
partition   a range of that order -> the graph of these nodes, whose columns are their own nodes and their halo: the
            neighbours that other partitions have
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pcfi._typing import Array
from pcfi.estimation.sample import row_portions
from pcfi.inputs.graph_rows import row_entries
from pcfi.inputs.graphs import Graph
from pcfi.outofcore import file_names
from pcfi.outofcore.run import OutOfCoreRun

Entry = dict[str, Any]

GROUP_ROWS = 4096  # summed together; partitions begin at multiples of it, so that sums do not depend on them
REFERENCE_RANGES = 16  # of equal size: an order is better if fewer edges lead from one to another
STARTS_AT_A_TIME = 1024  # nodes looked at for the next component
ROW_COST = 4  # cost of a row besides its edges, in edges


@dataclass(frozen=True, eq=False)
class PartitionLayout:
    """Where partitions begin and end in the order of the nodes, and the rows that are summed together."""

    bounds: Array
    group_rows: int

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self.bounds) - 1

    @staticmethod
    def of_run(run: OutOfCoreRun) -> "PartitionLayout":
        """The layout in the work folder."""
        facts = run.folder.read(file_names.PARTITIONS)
        return PartitionLayout(np.array(facts["bounds"], dtype=np.int64), facts["group_rows"])


class Partition(NamedTuple):
    """The graph of a partition. Its rows are its own nodes; its columns are these and its halo.

    Attributes
    ----------
    number, group_rows : int
    nodes : ndarray of int
        Own nodes, then the halo, as they are numbered in the complete graph.
    indptr, indices, weights : ndarray
        Neighbours of the own nodes; no weights mean 1.
    halo_starts : ndarray of int
        Where the nodes of each partition begin in the halo.
    sent_rows : list of ndarray
        The own rows that are in the halo of each partition.
    """

    number: int
    group_rows: int
    nodes: Array
    indptr: Array
    indices: Array
    weights: Array
    halo_starts: Array
    sent_rows: list[Array]

    @property
    def n_own(self) -> int:
        """Number of own nodes."""
        return len(self.indptr) - 1

    def group_starts(self, rows: Array) -> Array:
        """Where each group begins among `rows`, own rows in ascending order, and where the last one ends."""
        edges = np.append(np.arange(0, self.n_own, self.group_rows), self.n_own)
        return np.searchsorted(rows, edges)


@dataclass(frozen=True, eq=False)
class PartitionGraph(Graph):
    """The graph of a partition for the functions that take a graph; facts about nodes are those of the complete one."""

    full_degree: Array = field(default_factory=lambda: np.empty(0))
    full_weight_range: tuple[float, float] = (1.0, 1.0)

    @cached_property
    def degree(self) -> Array:
        """Sum of the weights that flow into each node in the complete graph."""
        return self.full_degree

    @cached_property
    def weight_range(self) -> tuple[float, float]:
        """The smallest and the largest weight of the complete graph."""
        return self.full_weight_range


def graph_of(run: OutOfCoreRun, partition: Partition) -> PartitionGraph:
    """The graph of a partition as an object."""
    full, nodes = run.graph, partition.nodes
    degree = full.degree[nodes] if full.weights is not None else (full.indptr[nodes + 1] - full.indptr[nodes])
    return PartitionGraph(
        n_nodes=len(nodes),
        indptr=partition.indptr,
        indices=partition.indices,
        weights=partition.weights if full.weights is not None else None,
        directed=full.directed,
        full_degree=degree.astype(np.float64),
        full_weight_range=full.weight_range,
    )


def order_nodes(run: OutOfCoreRun, index: int) -> Entry:
    """Write an order of the nodes in which neighbours are near each other, and the work of each group of rows."""
    del index
    folder = run.folder
    order, positions, crossing = locality_order(run.graph)
    folder.write_array(file_names.ORDER, order)
    folder.write_array(file_names.POSITIONS, positions)
    folder.save(file_names.GROUP_COSTS, group_costs(run.graph, order))
    names = (file_names.ORDER, file_names.POSITIONS)
    return {
        "group_rows": GROUP_ROWS,
        "crossing": crossing,
        "checksums": [folder.part_checksum(name, 0, order.nbytes) for name in names],
    }


def locality_order(graph: Graph) -> tuple[Array, Array, dict[str, int]]:
    """The nodes as they are numbered, or breadth-first if that leaves fewer edges between ranges of equal size.

    Returns the order, the position of each node in it, and the number of entries between ranges for both.
    """
    from pcfi._kernels.locality_order import count_crossing

    numbers, size = np.arange(graph.n_nodes, dtype=np.int32), -(-graph.n_nodes // REFERENCE_RANGES)
    order = breadth_first_order(graph)
    positions = np.empty_like(order)
    positions[order] = numbers
    crossing = {
        name: int(count_crossing(graph.indptr, graph.indices, places, size))
        for name, places in (("as numbered", numbers), ("breadth-first", positions))
    }
    if crossing["breadth-first"] < crossing["as numbered"]:
        return order, positions, crossing
    return numbers, numbers, crossing


def group_costs(graph: Graph, order: Array) -> Array:
    """The work of each group of rows."""
    costs = graph.indptr[order + 1] - graph.indptr[order] + ROW_COST
    return np.add.reduceat(costs, np.arange(0, len(order), GROUP_ROWS))


def breadth_first_order(graph: Graph) -> Array:
    """The nodes level by level from the first node of each component; those without a neighbour come last.

    Within a level, nodes are ordered by their first neighbour in the level before, as Cuthill and McKee do. A level
    is read in ascending order of the nodes, because the graph may be a mapped file.
    """
    from pcfi._kernels.locality_order import reach_next_level

    n_nodes = graph.n_nodes
    position, first_parent = np.full((2, n_nodes), -1, dtype=np.int32)
    order, reached = np.empty((2, n_nodes), dtype=np.int32)
    starts, n_placed, n_tried = np.flatnonzero(np.diff(graph.indptr)).astype(np.int32), 0, 0
    while True:
        n_tried = _next_start(starts, position, n_tried)
        level = starts[n_tried : n_tried + 1]
        if not len(level):
            break
        while len(level):
            order[n_placed : n_placed + len(level)] = level
            position[level] = np.arange(n_placed, n_placed + len(level))
            n_placed += len(level)
            count = reach_next_level(graph.indptr, graph.indices, np.sort(level), position, first_parent, reached)
            level = np.sort(reached[:count])
            level = level[np.argsort(first_parent[level], kind="stable")]
    order[n_placed:] = np.flatnonzero(position < 0)
    return order


def _next_start(starts: Array, position: Array, n_tried: int) -> int:
    """The next of the starts that has no position, or their number."""
    while n_tried < len(starts):
        free = position[starts[n_tried : n_tried + STARTS_AT_A_TIME]] < 0
        if free.any():
            return n_tried + int(np.argmax(free))
        n_tried += len(free)
    return n_tried


def divide(run: OutOfCoreRun, n_partitions: int) -> None:
    """Write down where partitions begin."""
    costs, group_rows = run.folder.load(file_names.GROUP_COSTS), run.folder.finished("order")[0]["group_rows"]
    bounds = np.minimum(group_bounds(costs, n_partitions) * group_rows, run.n_nodes)
    run.folder.write(file_names.PARTITIONS, {"bounds": bounds.tolist(), "group_rows": group_rows})


def group_bounds(costs: Array, n_partitions: int) -> Array:
    """The groups at which partitions begin and the last one ends, so that each has about as much work."""
    total = np.cumsum(costs)
    inner = np.searchsorted(total, total[-1] * np.arange(1, n_partitions) / n_partitions) + 1
    return np.unique(np.clip(np.concatenate([[0], inner, [len(costs)]]), 0, len(costs)))


def make_partition(run: OutOfCoreRun, index: int) -> Entry:
    """Write the graph of a partition; entries of a row stay in the order of the complete graph."""
    graph, layout, folder = run.graph, PartitionLayout.of_run(run), run.folder
    first, last = layout.bounds[index : index + 2].tolist()
    order, positions = (folder.map(name, (run.n_nodes,), np.int32) for name in (file_names.ORDER, file_names.POSITIONS))
    nodes = np.array(order[first:last])
    column = np.zeros(run.n_nodes, dtype=np.int32)  # of each position; first, whether it has one
    for part in row_portions(graph, nodes):
        column[positions[graph.indices[row_entries(graph, part)[0]]]] = 1
    column[first:last] = 0
    halo = np.flatnonzero(column).astype(np.int32)
    column[first:last] = np.arange(len(nodes))
    column[halo] = len(nodes) + np.arange(len(halo))
    indptr = np.concatenate([[0], np.cumsum(graph.indptr[nodes + 1] - graph.indptr[nodes])])
    indices = np.empty(indptr[-1], dtype=np.int32)
    weights = np.empty(0 if graph.weights is None else indptr[-1])
    done = 0
    for part in row_portions(graph, nodes):
        entries = row_entries(graph, part)[0]
        place = slice(done, done + len(entries))
        indices[place] = column[positions[graph.indices[entries]]]
        if graph.weights is not None:
            weights[place] = graph.weights[entries]
        done += len(entries)
    arrays: dict[str, Array] = {"halo": halo, "indptr": indptr.astype(np.int64), "indices": indices, "weights": weights}
    for name, array in arrays.items():
        folder.write_array(file_names.partition(index, name), array)
    starts = np.searchsorted(halo, layout.bounds)
    return {
        "halo_starts": starts.tolist(),
        "checksums": [
            folder.part_checksum(file_names.partition(index, name), 0, array.nbytes) for name, array in arrays.items()
        ],
    }


def open_partition(run: OutOfCoreRun, number: int, dtype: Any) -> Partition:
    """Read the graph of a partition, with weights of `dtype`."""
    layout, finished = PartitionLayout.of_run(run), run.folder.finished("partition")
    first, last = layout.bounds[number : number + 2].tolist()

    def read(name: str, of: int, kind: Any) -> Array:
        return np.fromfile(run.folder.path / file_names.partition(of, name), dtype=kind)

    halo, starts = read("halo", number, np.int32), np.array(finished[number]["halo_starts"])
    order = run.folder.map(file_names.ORDER, (run.n_nodes,), np.int32)
    sent_rows = []
    for other in range(layout.n_partitions):
        begin, end = finished[other]["halo_starts"][number : number + 2]
        rows = run.folder.read_rows(file_names.partition(other, "halo"), begin, end, 1, np.int32)
        sent_rows.append(rows[:, 0] - np.int32(first))
    return Partition(
        number=number,
        group_rows=layout.group_rows,
        nodes=np.concatenate([order[first:last], order[halo]]),
        indptr=read("indptr", number, np.int64),
        indices=read("indices", number, np.int32),
        weights=read("weights", number, np.float64).astype(dtype, copy=False),
        halo_starts=starts,
        sent_rows=sent_rows,
    )
