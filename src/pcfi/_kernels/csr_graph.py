"""The graph as kernels take it, and the sum over the neighbours of a node, the innermost loop of stage 1.

The sum is written in LLVM instructions. As a numba loop it took eight instructions for each neighbour, because numba
cannot know that positions are not negative, it counted references to the arrays of the graph, and every addition waited
for the one before. Here it takes three, and the running sums are independent of each other.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from pcfi._kernels.vectors import ROW_BYTES, Vector, emit_prefetch, emit_splat, llvm_type, prefetch
from pcfi._typing import Array

PREFETCH_DISTANCE = 64  # edges between the prefetch of a row and its use
MAX_CACHED_BLOCK_BYTES = 1 << 22  # blocks of this size and above count as larger than the cache
N_SUMS = 4  # running sums of a node: an addition takes two to four cycles, a load from the cache about one


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
        start, stop = rows.edges_of(args[2])
        totals = []
        with builder.if_else(rows.is_weighted) as (weighted, plain):
            for branch, add in ((weighted, rows.add_weighted), (plain, rows.add)):
                with branch:
                    totals.append((_add_up(builder, start, stop, rows.zero, add), builder.block))
        return _choose(builder, totals)

    return Vector(block.dtype)(graph, block, types.intp), build


def _choose(builder: Any, incoming: list[tuple[Any, Any]]) -> Any:
    """Emit the value that belongs to the block of instructions that was executed last."""
    value = builder.phi(incoming[0][0].type)
    for one in incoming:
        value.add_incoming(*one)
    return value


class _NeighbourRows:
    """Emits instructions that add the row of a block at the end of an edge to a running sum."""

    def __init__(self, context: Any, builder: Any, kinds: Any, args: Any) -> None:
        graph, block, _ = kinds
        arrays = zip(graph, cgutils.unpack_tuple(builder, args[0]), strict=True)
        self.indptr, self.indices, self.weights = (
            context.make_array(kind)(context, builder, array) for kind, array in arrays
        )
        self.cast_weight = lambda weight: context.cast(builder, weight, graph[2].dtype, block.dtype)
        self.builder, self.prefetches = builder, graph.instance_class is LargeCsrGraph
        self.vector = llvm_type(Vector(block.dtype))
        data = context.make_array(block)(context, builder, args[1]).data
        self.block = builder.bitcast(data, self.vector.as_pointer())
        self.alignment = block.dtype.bitwidth // 8
        self.zero = ir.Constant(self.vector, [ir.Constant(self.vector.element, 0.0)] * self.vector.count)

    @property
    def is_weighted(self) -> Any:
        return self.builder.icmp_signed("!=", self.weights.nitems, _index(0))

    def edges_of(self, node: Any) -> tuple[Any, Any]:
        """First edge of a node, and the one after its last."""
        places = node, self.builder.add(node, _index(1))
        start, stop = (self._integer(self.indptr, place) for place in places)
        return start, stop

    def add(self, total: Any, edge: Any) -> Any:
        return self.builder.fadd(total, self._row(edge), flags=("contract",))

    def add_weighted(self, total: Any, edge: Any) -> Any:
        weight = self.builder.load(self.builder.gep(self.weights.data, [edge]))
        weights = emit_splat(self.builder, self.vector, self.cast_weight(weight))
        product = self.builder.fmul(weights, self._row(edge), flags=("contract",))
        return self.builder.fadd(total, product, flags=("contract",))

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


def _add_up(builder: Any, start: Any, stop: Any, zero: Any, add: Callable[[Any, Any], Any]) -> Any:
    """Emit the sum over the edges from `start` to `stop`: in `N_SUMS` running sums, then what is left one by one."""
    middle = builder.add(start, builder.and_(builder.sub(stop, start), _index(-N_SUMS)))
    totals = _loop(builder, start, middle, [zero] * N_SUMS, add)
    while len(totals) > 1:
        totals = [builder.fadd(*pair) for pair in zip(totals[::2], totals[1::2], strict=True)]
    return _loop(builder, middle, stop, totals, add)[0]


def _loop(builder: Any, start: Any, stop: Any, totals: list[Any], add: Callable[[Any, Any], Any]) -> list[Any]:
    """Emit a loop over the edges; each turn adds one edge to each of the running sums, which are returned."""
    before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", start, stop), body, after)
    builder.position_at_end(body)
    edge, running = builder.phi(start.type), [builder.phi(total.type) for total in totals]
    sums = [add(total, builder.add(edge, _index(k), flags=("nsw",))) for k, total in enumerate(running)]
    following = builder.add(edge, _index(len(totals)), flags=("nsw",))
    for phi, first, later in zip([edge, *running], [start, *totals], [following, *sums], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, body)
    builder.cbranch(builder.icmp_signed("<", following, stop), body, after)
    builder.position_at_end(after)
    return [_choose(builder, [(total, before), (later, body)]) for total, later in zip(totals, sums, strict=True)]


def prefetch_neighbour(graph: Any, block: Array, edge: int) -> None:
    """Prefetch the row that is used `PREFETCH_DISTANCE` edges later, if blocks do not fit into the cache."""
    raise NotImplementedError("prefetch_neighbour works inside compiled kernels only")


def _prefetch_later_row(graph, block, edge):
    prefetch(block, graph.indices[min(edge + PREFETCH_DISTANCE, len(graph.indices) - 1)])


@overload(prefetch_neighbour, jit_options={"forceinline": True}, strict=False)
def _choose_prefetch(graph, block, edge):
    return _prefetch_later_row if graph.instance_class is LargeCsrGraph else lambda graph, block, edge: None
