"""A row of a block as a vector register: load, arithmetic and store, for use inside compiled kernels.

A row of a block (see `blocks`) has 64 bytes: 16 channels in float32, 8 in float64, 64 in bytes. A `Vector` holds one
row in registers, so a kernel can add up the rows of all neighbours of a node without writing the running sum to
memory. LLVM compiles the vectors to the registers that the processor has, such as AVX2 or NEON.

The functions below are numba intrinsics: each emits the LLVM instruction named in its body.
"""

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

ROW_BYTES = 64  # a cache line


class Vector(types.Type):
    """Numba type of one row of a block."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.lanes = ROW_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype} x {self.lanes})")


def llvm_type(vector: Vector) -> ir.VectorType:
    """Return the LLVM type of a row."""
    width = vector.dtype.bitwidth
    if isinstance(vector.dtype, types.Integer):
        return ir.VectorType(ir.IntType(width), vector.lanes)
    return ir.VectorType(ir.FloatType() if width == 32 else ir.DoubleType(), vector.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, llvm_type(vector))


def _row_pointer(context: Any, builder: Any, array_type: Any, array: Any, row: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    vector = Vector(array_type.dtype)
    offset = builder.mul(row, ir.Constant(row.type, vector.lanes))
    return builder.bitcast(builder.gep(data, [offset]), llvm_type(vector).as_pointer())


def _alignment(array_type: Any) -> int:
    return int(array_type.dtype.bitwidth // 8)


@intrinsic
def load(typing: Any, block: Any, row: Any) -> Any:
    """Return row `row` of `block` as a vector."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _row_pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.load(pointer, align=_alignment(signature.args[0]))

    return Vector(block.dtype)(block, types.intp), build


@intrinsic
def store(typing: Any, block: Any, row: Any, vector: Any) -> Any:
    """Write `vector` into row `row` of `block`."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _row_pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], pointer, align=_alignment(signature.args[0]))
        return context.get_dummy_value()

    return types.void(block, types.intp, vector), build


def emit_prefetch(builder: Any, pointer: Any) -> None:
    """Emit the instruction that starts to fetch what is at `pointer` into the cache."""
    address = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [address, *(ir.Constant(number, flag) for flag in (0, 3, 1))])  # read, keep, data


def emit_splat(builder: Any, shape: ir.VectorType, scalar: Any) -> Any:
    """Emit a vector of type `shape` with `scalar` in every lane."""
    index, undefined = ir.IntType(32), ir.Constant(shape, ir.Undefined)
    single = builder.insert_element(undefined, scalar, ir.Constant(index, 0))
    lanes = ir.Constant(ir.VectorType(index, shape.count), [0] * shape.count)
    return builder.shuffle_vector(single, undefined, lanes)


@intrinsic
def splat(typing: Any, block: Any, value: Any) -> Any:
    """Return a vector of the dtype of `block` with `value` in every lane."""
    vector = Vector(block.dtype)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scalar = context.cast(builder, args[1], signature.args[1], vector.dtype)
        return emit_splat(builder, llvm_type(vector), scalar)

    return vector(block, value), build


def _define_operator(symbol: Any, instruction: str) -> None:
    """Define the operator `symbol` on vectors as one LLVM instruction; `contract` allows fused multiply-add."""

    @type_callable(symbol)
    def _type(context: Any) -> Any:
        return lambda left, right: left if isinstance(left, Vector) and left == right else None

    @lower_builtin(symbol, Vector, Vector)
    def _lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return getattr(builder, instruction)(args[0], args[1], flags=("contract",))


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define_operator(_symbol, _instruction)


def _call(builder: Any, name: str, vector: Vector, *args: Any) -> Any:
    shape = llvm_type(vector)
    signature = ir.FunctionType(shape, [shape] * len(args))
    kind = "i" if isinstance(vector.dtype, types.Integer) else "f"
    full_name = f"llvm.{name}.v{vector.lanes}{kind}{vector.dtype.bitwidth}"
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, full_name), args)


@intrinsic
def maximum(typing: Any, left: Any, right: Any) -> Any:
    """Return the maximum of two vectors lane by lane; NaN if either is NaN."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # not `llvm.maximum`: versions of LLVM before 17 abort on it
        is_nan = builder.fcmp_unordered("uno", args[0], args[0])
        ordered = builder.select(builder.fcmp_ordered(">", args[0], args[1]), *args)
        return builder.select(is_nan, args[0], ordered)

    return left(left, right), build


@intrinsic
def absolute(typing: Any, vector: Any) -> Any:
    """Return the absolute value, lane by lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, "fabs", vector, *args)

    return vector(vector), build


@intrinsic
def where_positive(typing: Any, test: Any, chosen: Any, otherwise: Any) -> Any:
    """Return `chosen` in the lanes where `test` > 0, `otherwise` in the rest."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, [ir.Constant(args[0].type.element, 0.0)] * test.lanes)
        return builder.select(builder.fcmp_ordered(">", args[0], zero), args[1], args[2])

    return chosen(test, chosen, otherwise), build


@intrinsic
def where_not_nan(typing: Any, test: Any, chosen: Any, otherwise: Any) -> Any:
    """Return `chosen` in the lanes where `test` is not NaN, `otherwise` where it is."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("ord", args[0], args[0]), args[1], args[2])

    return chosen(test, chosen, otherwise), build


@intrinsic
def count_nan(typing: Any, vector: Any) -> Any:
    """Return the number of lanes that are NaN."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(builder.fcmp_unordered("uno", args[0], args[0]), ir.IntType(vector.lanes))
        return builder.zext(builder.ctpop(bits), ir.IntType(64))

    return types.int64(vector), build


# Vectors of bytes (unsigned integers)


@intrinsic
def minimum(typing: Any, left: Any, right: Any) -> Any:
    """Return the smaller of two vectors of bytes, lane by lane."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, "umin", left, *args)

    return left(left, right), build


@intrinsic
def saturating_add(typing: Any, left: Any, right: Any) -> Any:
    """Return the sum of two vectors of bytes, lane by lane, at most 255."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, "uadd.sat", left, *args)

    return left(left, right), build


@intrinsic
def any_less(typing: Any, left: Any, right: Any) -> Any:
    """Return whether any lane of `left` is less than that of `right`."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        below = builder.icmp_unsigned("<", args[0], args[1])
        bits = builder.bitcast(below, ir.IntType(left.lanes))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(left, right), build
