"""The graph as kernels take it, and sums over the neighbours of a node, the innermost loops of stage 1.

They are written in LLVM instructions. As numba loops they took eight instructions for each neighbour, because numba
cannot know that positions are not negative, it counts references to the arrays of the graph, and every addition
waits for the one before. Here they take three, and the running sums are independent of each other.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from pcfi._kernels.vectors import ROW_BYTES, Vector, emit_prefetch, emit_splat, llvm_type
from pcfi._typing import Array

PREFETCH_DISTANCE = 64  # edges between the prefetch of a row and its use
MAX_CACHED_BLOCK_BYTES = 1 << 22  # blocks of this size and above count as larger than the cache
N_SUMS = 4  # running sums of a node: an addition takes two to four cycles, a load from the cache about one


Terms = Callable[[Any, Any], list[Any]]  # what a row and its weight add to each sum
Add = Callable[[list[Any], Any], list[Any]]  # sums with the row of an edge added


class CsrGraph(NamedTuple):
    """In-neighbours of each node in compressed sparse rows; empty `weights` mean that all are 1."""

    indptr: Array
    indices: Array
    weights: Array


class LargeCsrGraph(NamedTuple):
    """The same for a graph whose blocks do not fit into the cache: kernels prefetch the rows of neighbours."""

    indptr: Array
    indices: Array
    weights: Array


AnyCsrGraph = CsrGraph | LargeCsrGraph


def make_csr_graph(indptr: Array, indices: Array, weights: Array) -> AnyCsrGraph:
    """Wrap the arrays in the class that suits the size of the graph."""
    kind = LargeCsrGraph if (len(indptr) - 1) * ROW_BYTES >= MAX_CACHED_BLOCK_BYTES else CsrGraph
    return kind(indptr, indices, weights)


@intrinsic
def neighbour_sum(typing: Any, graph: Any, block: Any, node: Any) -> Any:
    """Return the weighted sum of the rows of `block` over the in-neighbours of `node`, as a vector.

    The order of the additions follows from the order of the edges, whether rows are prefetched or not.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows = _NeighbourRows(context, builder, signature.args, args)
        (total,) = rows.add_up([rows.zero], lambda row, weight: [rows.times(weight, row)])
        return total

    return Vector(block.dtype)(graph, block, types.intp), build


@intrinsic
def known_neighbour_mean(typing: Any, graph: Any, block: Any, node: Any) -> Any:
    """Return the weighted mean of the rows that are not NaN, lane by lane; NaN in lanes where all are."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows = _NeighbourRows(context, builder, signature.args, args)

        def terms(row: Any, weight: Any) -> list[Any]:
            is_known = builder.fcmp_ordered("ord", row, row)
            own = rows.one if weight is None else weight
            return [builder.select(is_known, term, rows.zero) for term in (rows.times(weight, row), own)]

        return builder.fdiv(*rows.add_up([rows.zero, rows.zero], terms))

    return Vector(block.dtype)(graph, block, types.intp), build


class _NeighbourRows:
    """Emits the loop over the rows of a block that belong to the neighbours of a node."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        graph, block, _ = kinds
        arrays = zip(graph, cgutils.unpack_tuple(builder, args[0]), strict=True)
        self.indptr, self.indices, self.weights = (
            context.make_array(kind)(context, builder, array) for kind, array in arrays
        )
        self.builder, self.node, self.prefetches = builder, args[2], graph.instance_class is LargeCsrGraph
        self.cast_weight = lambda weight: context.cast(builder, weight, graph[2].dtype, block.dtype)
        self.vector = llvm_type(Vector(block.dtype))
        data = context.make_array(block)(context, builder, args[1]).data
        self.block = builder.bitcast(data, self.vector.as_pointer())
        self.alignment = block.dtype.bitwidth // 8
        self.zero, self.one = (
            ir.Constant(self.vector, [ir.Constant(self.vector.element, value)] * self.vector.count)
            for value in (0.0, 1.0)
        )

    def add_up(self, zeros: list[Any], terms: Terms) -> list[Any]:
        """Sums over the edges of what `terms` gives for each; its weight is None in a graph without weights."""
        builder, start, stop = self.builder, *self._edges()
        is_weighted = builder.icmp_signed("!=", self.weights.nitems, _index(0))
        results = []
        with builder.if_else(is_weighted) as branches:
            for branch, weight_of in zip(branches, (self._weight, lambda edge: None), strict=True):
                with branch:

                    def add(sums: list[Any], edge: Any, weight_of: Any = weight_of) -> list[Any]:
                        found = terms(self._row(edge), weight_of(edge))
                        return [builder.fadd(*pair, flags=("contract",)) for pair in zip(sums, found, strict=True)]

                    results.append((_add_up(builder, start, stop, zeros, add), builder.block))
        (weighted, weighted_end), (plain, plain_end) = results
        return [
            _choose(builder, [(one, weighted_end), (other, plain_end)])
            for one, other in zip(weighted, plain, strict=True)
        ]

    def times(self, weight: Any, row: Any) -> Any:
        """The row times its weight."""
        return row if weight is None else self.builder.fmul(weight, row, flags=("contract",))

    def _edges(self) -> tuple[Any, Any]:
        """First edge of the node, and the one after its last."""
        following = self.builder.add(self.node, _index(1))
        return self._integer(self.indptr, self.node), self._integer(self.indptr, following)

    def _weight(self, edge: Any) -> Any:
        weight = self.builder.load(self.builder.gep(self.weights.data, [edge]))
        return emit_splat(self.builder, self.vector, self.cast_weight(weight))

    def _row(self, edge: Any) -> Any:
        if self.prefetches:
            last = self.builder.sub(self.indices.nitems, _index(1))
            later = self.builder.add(edge, _index(PREFETCH_DISTANCE))
            later = self.builder.select(self.builder.icmp_signed("<", later, last), later, last)
            emit_prefetch(self.builder, self._pointer(later))
        return self.builder.load(self._pointer(edge), align=self.alignment)

    def _pointer(self, edge: Any) -> Any:
        return self.builder.gep(self.block, [self._integer(self.indices, edge)])

    def _integer(self, array: Any, place: Any) -> Any:
        return self.builder.sext(self.builder.load(self.builder.gep(array.data, [place])), ir.IntType(64))


def _index(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _choose(builder: Any, incoming: list[tuple[Any, Any]]) -> Any:
    """Emit the value that belongs to the block of instructions that was executed last."""
    value = builder.phi(incoming[0][0].type)
    for one in incoming:
        value.add_incoming(*one)
    return value


def _add_up(builder: Any, start: Any, stop: Any, zeros: list[Any], add: Add) -> list[Any]:
    """Emit sums over the edges from `start` to `stop`: in `N_SUMS` running sums each, then what is left one by one."""
    middle = builder.add(start, builder.and_(builder.sub(stop, start), _index(-N_SUMS)))
    running = _loop(builder, start, middle, [zeros] * N_SUMS, add)
    while len(running) > 1:
        pairs = zip(running[::2], running[1::2], strict=True)
        running = [[builder.fadd(*both) for both in zip(*pair, strict=True)] for pair in pairs]
    return _loop(builder, middle, stop, running, add)[0]


def _loop(builder: Any, start: Any, stop: Any, sums: list[list[Any]], add: Add) -> list[list[Any]]:
    """Emit a loop over the edges; each turn adds one edge to each of the running sums, which are returned."""
    before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", start, stop), body, after)
    builder.position_at_end(body)
    edge, running = builder.phi(start.type), [[builder.phi(one.type) for one in group] for group in sums]
    added = [add(group, builder.add(edge, _index(k), flags=("nsw",))) for k, group in enumerate(running)]
    following = builder.add(edge, _index(len(sums)), flags=("nsw",))
    phis, first, later = ([one for group in groups for one in group] for groups in (running, sums, added))
    for phi, incoming, returning in zip([edge, *phis], [start, *first], [following, *later], strict=True):
        phi.add_incoming(incoming, before)
        phi.add_incoming(returning, body)
    builder.cbranch(builder.icmp_signed("<", following, stop), body, after)
    builder.position_at_end(after)
    groups = zip(sums, added, strict=True)
    return [
        [_choose(builder, [(one, before), (other, body)]) for one, other in zip(*group, strict=True)]
        for group in groups
    ]
