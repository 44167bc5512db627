"""Runs the samples of an operator through its lowering: kernels generated, compiled, loaded and compared with the reference."""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from anycann.codegen.contract import refuse
from anycann.codegen.contract_routine import generate_routine
from anycann.codegen.kernel import Kernel
from anycann.codegen.kernel_cache import compile_kernels
from anycann.codegen.nest_kernel import Output, generate
from anycann.graph.evaluate import evaluate_node
from anycann.graph.registry import OPSET, Lowering, Operator, Sample, TensorType, dtype_of, schema
from anycann.runtime.loader import LoadedCode
from anycann.support.errors import AnyCANNError
from anycann.target.target import Target
from anycann.te import dtypes
from anycann.te.expression import Expr, Load
from anycann.te.layout import NC1HWC0, ND, physical_shape
from anycann.te.nest import CannotFuse, contractions
from anycann.te.routines import Routine
from anycann.te.tensor import Compute, Constant, Placeholder, Reduction, Tensor, compute
from anycann.te.traversal import rewrite
from tests.ops.exact_convolution import exact_convolution
from tests.ops.naive_contractions import naive

# onnx.reference ignores paddings, ceil_mode or dilations of some of these, or sums in the wrong order.
BY_ONNX_RUNTIME = frozenset(
    {
        "MaxPool",
        "AveragePool",
        "LpPool",
        "GlobalLpPool",
        "GlobalMaxPool",
        "QLinearMatMul",
        "ConvInteger",
        "ScatterElements",
        "ScatterND",
    }
)
RUNTIME_OPSET = 21
POISON = 0xA5
GUARD_BYTES = 64
TOLERANCE = {"float32": 3e-5, "float64": 1e-11, "float16": 2e-3, "bfloat16": 1.6e-2}


@dataclass
class Step:
    """One kernel of a case; `arrays` are its arguments in memory order."""

    kernel: Kernel
    arrays: list[np.ndarray]


@dataclass
class Case:
    """A sample, lowered for one storage of its 4-D tensors."""

    name: str
    steps: list[Step]
    outputs: list[np.ndarray]
    layouts: list[str]
    types: tuple[TensorType, ...]
    wanted: list[np.ndarray]


def build_node(operator: Operator, sample: Sample) -> ir.Node:
    """The node of a sample: operands named x0, x1 ..., outputs y0, y1 ..."""
    values: list[ir.Value | None] = []
    for number, array in enumerate(sample.operands):
        if array is None:
            values.append(None)
            continue
        tensor = ir.tensor(array, name=f"x{number}")
        known = tensor if number in sample.constant else None
        values.append(ir.Value(name=f"x{number}", type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=known))
    attributes: dict[str, Any] = {name: _as_stored(value) for name, value in sample.attributes.items() if value is not None}
    outputs = [ir.Value(name=f"y{n}") for n in range(sample.outputs)]
    return ir.node(operator.op_type, values, attributes, domain=operator.domain, outputs=outputs, name="sample")


def _as_stored(value: object) -> object:
    """An attribute as a model file gives it back: its floats have 32 bits."""
    if isinstance(value, float):
        return float(np.float32(value))
    return [_as_stored(v) for v in value] if isinstance(value, list) else value


def infer_types(operator: Operator, node: ir.Node, sample: Sample) -> tuple[TensorType, ...]:
    """Types of the outputs, as the specialising pass gets them."""
    if operator.infer is not None:
        return tuple(operator.infer(node, [None if a is None else TensorType(dtypes.of(a.dtype), a.shape) for a in sample.operands]))
    found = schema(operator.domain, operator.op_type)
    assert found is not None, f"{operator.op_type} has neither a schema nor infer"
    known = [(f"x{n}", v, a) for n, (v, a) in enumerate(zip(node.inputs, sample.operands, strict=True)) if v is not None and a is not None]
    types = {name: onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, _, a in known}
    data = {name: onnx.numpy_helper.from_array(a, name) for name, v, a in known if v.const_value is not None}
    inferred = onnx.shape_inference.infer_node_outputs(
        found, ir.to_proto(node), types, data, opset_imports=[onnx.helper.make_opsetid("", OPSET)]
    )
    result = []
    for number in range(len(node.outputs)):
        proto = inferred[f"y{number}"].tensor_type
        dtype = dtype_of(ir.DataType(proto.elem_type))
        assert dtype is not None
        assert proto.HasField("shape"), f"no shape inferred for {operator.op_type}"
        result.append(TensorType(dtype, tuple(d.dim_value for d in proto.shape.dim)))
    return tuple(result)


def by_onnx_runtime(node: ir.Node, sample: Sample, types: Sequence[TensorType]) -> list[np.ndarray]:
    """What ONNX Runtime gives, for operators that `onnx.reference` computes otherwise than specified. Half is computed as float."""
    import onnxruntime

    half = {"float16", "bfloat16"}
    arrays = {f"x{n}": a.astype(np.float32) if str(a.dtype) in half else a for n, a in enumerate(sample.operands) if a is not None}
    inputs = [onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for k, a in arrays.items()]
    wide = [np.dtype(np.float32) if t.dtype.name in half else t.dtype.numpy for t in types]
    outputs = [onnx.helper.make_tensor_value_info(f"y{n}", onnx.helper.np_dtype_to_tensor_dtype(d), None) for n, d in enumerate(wide)]
    graph = onnx.helper.make_graph([ir.to_proto(node)], "sample", inputs, outputs)
    opsets = [onnx.helper.make_opsetid("", RUNTIME_OPSET), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(r) for r in session.run(None, arrays)]


def reference(operator: Operator, node: ir.Node, sample: Sample, upcast: bool, types: Sequence[TensorType]) -> list[np.ndarray]:
    """What the outputs should be, computed in float64 where the operator takes that."""
    if operator.op_type in BY_ONNX_RUNTIME and all(a is None or a.dtype != np.float64 for a in sample.operands):
        return by_onnx_runtime(node, sample, types)
    if operator.op_type == "QLinearConv":
        return [exact_convolution(node, sample.operands)]
    proto = ir.to_proto(node)
    if upcast:
        wide = [a.astype(np.float64) if a is not None and a.dtype == np.float32 else a for a in sample.operands]
        try:
            return [np.asarray(r) for r in evaluate_node(proto, OPSET, wide)]
        except AnyCANNError:
            pass
    return [np.asarray(r) for r in evaluate_node(proto, OPSET, list(sample.operands))]


def build_cases(operator: Operator, sample: Sample, target: Target, upcast: bool) -> list[Case]:
    """The sample row-major and, if it has 4-D operands, with those stored in NC1HWC0. The reference is computed once."""
    case = build_case(operator, sample, target, False, upcast)
    ranked = any(a is not None and a.ndim == 4 for a in sample.operands)
    return [case, build_case(operator, sample, target, True, upcast, case.wanted)] if ranked else [case]


def build_case(
    operator: Operator, sample: Sample, target: Target, blocked: bool, upcast: bool, wanted: list[np.ndarray] | None = None
) -> Case:
    """Lower a sample. Raises NotLowered if the operator has no kernel for it."""
    assert operator.lower is not None
    node = build_node(operator, sample)
    types = infer_types(operator, node, sample)
    layouts = {
        f"x{n}": NC1HWC0 for n, a in enumerate(sample.operands) if blocked and a is not None and a.ndim == 4 and n not in sample.constant
    }
    memory = {f"x{n}": store(a, layouts.get(f"x{n}", ND), target) for n, a in enumerate(sample.operands) if a is not None}
    inputs = tuple(None if a is None else Placeholder(a.shape, dtypes.of(a.dtype), f"x{n}") for n, a in enumerate(sample.operands))
    lowered = operator.lower(Lowering(node, inputs, types))
    tensors = [lowered] if isinstance(lowered, Tensor) else list(lowered)
    assert [(t.shape, t.dtype) for t in tensors] == [(t.shape, t.dtype) for t in types], f"lowered {tensors}, inferred {types}"
    out_layouts = [NC1HWC0 if blocked and t.rank == 4 else ND for t in tensors]
    outputs = [allocate(t, layout, target) for t, layout in zip(tensors, out_layouts, strict=True)]
    steps: list[Step] = []
    tensors = materialise(tensors, memory, layouts, target, steps)
    named = [Output(f"y{n}", t, layout) for n, (t, layout) in enumerate(zip(tensors, out_layouts, strict=True))]
    memory.update({o.name: array for o, array in zip(named, outputs, strict=True)})
    steps += [Step(k, arguments(k, tensors, memory)) for k in kernels(named, layouts, target)]
    wanted = reference(operator, node, sample, upcast, types) if wanted is None else wanted
    name = (
        f"{operator.op_type}({', '.join('-' if a is None else f'{a.dtype}{list(a.shape)}' for a in sample.operands)}) {sample.attributes}"
    )
    return Case(name + (" blocked" if blocked else ""), steps, outputs, out_layouts, types, wanted)


def kernels(outputs: Sequence[Output], layouts: dict[str, str], target: Target) -> list[Kernel]:
    """One kernel for all outputs if they fit one nest, else one each."""
    try:
        return [generate(outputs, layouts, target)]
    except CannotFuse:
        return [generate([output], layouts, target) for output in outputs]


def materialise(
    tensors: list[Tensor], memory: dict[str, np.ndarray], layouts: dict[str, str], target: Target, steps: list[Step]
) -> list[Tensor]:
    """Compute contractions the slow way into memory, routines by their kernel, and read them from there."""
    tensors = run_routines(tensors, memory, layouts, target, steps)
    for number, contraction in enumerate(contractions(tensors)):
        name = f"contraction{number}"
        memory[name] = allocate(contraction, ND, target)
        slow = naive(contraction)
        steps += [Step(k, arguments(k, [slow], memory)) for k in kernels([Output(name, slow)], layouts, target)]
        tensors = [replaced(t, contraction, Placeholder(contraction.shape, contraction.dtype, name)) for t in tensors]
    return tensors


def run_routines(
    tensors: list[Tensor], memory: dict[str, np.ndarray], layouts: dict[str, str], target: Target, steps: list[Step]
) -> list[Tensor]:
    """The results of a routine, all by one kernel, in memory; it reads its operands row-major, as the layout pass gives them."""
    routines = {f"routine{n}": c for n, c in enumerate(contractions(tensors)) if isinstance(c.operator, Routine)}
    if not routines:
        return tensors
    for name, contraction in routines.items():
        assert refuse(contraction, lambda _: False) is None
        memory[name] = allocate(contraction, ND, target)
        tensors = [replaced(t, contraction, Placeholder(contraction.shape, contraction.dtype, name)) for t in tensors]
    kernel = generate_routine({name: c.operator for name, c in routines.items()}, {}, target).kernel  # type: ignore[misc]
    flat = {
        operand.name: guarded(fetch(memory[operand.name], layouts.get(operand.name, ND), TensorType(operand.dtype, operand.shape)))
        for c in routines.values()
        for operand in c.operator.operands()  # type: ignore[attr-defined]
    }
    steps.append(Step(kernel, [flat[name] if name in flat else memory[name] for name in kernel.arguments]))
    return tensors


def replaced(tensor: Tensor, old: Tensor, new: Placeholder) -> Tensor:
    """`tensor` with reads of `old` turned into reads of `new`."""
    if tensor is old:
        return Compute(new.shape, new.dtype, *_copy(new))
    if not isinstance(tensor, Compute | Reduction):
        return tensor
    memo: dict[int, Expr] = {}

    def one(expr: Expr) -> Expr | None:
        if not isinstance(expr, Load):
            return None
        source = new if expr.tensor is old else replaced(expr.tensor, old, new)
        return None if source is expr.tensor else Load(source, tuple(rewrite(i, one, memo) for i in expr.indices))

    return replace(tensor, body=rewrite(tensor.body, one, memo))


def _copy(source: Placeholder) -> tuple[tuple[Expr, ...], Expr]:
    from anycann.te.tensor import axes_of

    axes = axes_of(source.shape)
    return axes, source[axes]


def arguments(kernel: Kernel, tensors: Sequence[Tensor], memory: dict[str, np.ndarray]) -> list[np.ndarray]:
    tables = {c.name: guarded(c.value) for t in tensors for c in constants_of(t)}
    return [memory[name] if name in memory else tables[name] for name in kernel.arguments]


def constants_of(tensor: Tensor) -> list[Constant]:
    """Compile-time tables below a tensor."""
    from anycann.te.traversal import walk

    if isinstance(tensor, Constant):
        return [tensor]
    if not isinstance(tensor, Compute | Reduction):
        return []
    return [c for e in walk(tensor.body) if isinstance(e, Load) for c in constants_of(e.tensor)]


# ---- memory
def guarded(array: np.ndarray) -> np.ndarray:
    """A copy with poison on either side."""
    nbytes = array.nbytes
    raw = np.full(nbytes + 2 * GUARD_BYTES + 64, POISON, np.uint8)
    start = -raw.ctypes.data % 64 + GUARD_BYTES
    view = raw[start : start + nbytes].view(array.dtype).reshape(array.shape) if nbytes else np.zeros(array.shape, array.dtype)
    view[...] = array
    return view


def store(array: np.ndarray, layout: str, target: Target) -> np.ndarray:
    """An operand as it lies in memory; padding lanes hold NaN, or bytes of poison where there is no NaN."""
    if layout == ND:
        return guarded(np.ascontiguousarray(array))
    shape = physical_shape(layout, array.shape, target.lanes)
    n, c = array.shape[:2]
    padded = np.empty((n, shape[1] * target.lanes, *array.shape[2:]), array.dtype)
    ctypes.memset(padded.ctypes.data, 0xFF, padded.nbytes)  # NaN in every float type
    padded[:, :c] = array
    split = padded.reshape(n, shape[1], target.lanes, *array.shape[2:])
    return guarded(np.ascontiguousarray(np.moveaxis(split, 2, -1)))


def fetch(memory: np.ndarray, layout: str, type_: TensorType) -> np.ndarray:
    """An output as a row-major array."""
    if layout == ND:
        return memory
    n, c = type_.shape[:2]
    return np.moveaxis(memory, -1, 2).reshape(n, -1, *type_.shape[2:])[:, :c]


def allocate(tensor: Tensor, layout: str, target: Target) -> np.ndarray:
    shape = physical_shape(layout, tensor.shape, target.lanes)
    array = guarded(np.empty(shape, tensor.dtype.numpy))
    ctypes.memset(array.ctypes.data, POISON, array.nbytes)
    return array


# ---- running
def run(cases: Sequence[Case], target: Target) -> list[str]:
    """Compile and run all cases; the sentences about those that are wrong."""
    texts = {step.kernel.symbol: step.kernel.ir for case in cases for step in case.steps}
    code = LoadedCode(compile_kernels(texts, target, workers=1), target)
    failures = []
    for case in cases:
        for step in case.steps:
            launch(code, step)
        failures += check(case)
    return failures


def convert_layout(array: np.ndarray, stored: str, wanted: str, target: Target) -> np.ndarray:
    """A copy from one storage to another, by a generated kernel; padding lanes of the source are NaN."""
    source = Placeholder(array.shape, dtypes.of(array.dtype), "x")
    copy = compute(array.shape, lambda *index: source[index])
    kernel = generate([Output("y", copy, wanted)], {"x": stored}, target)
    result = allocate(copy, wanted, target)
    code = LoadedCode(compile_kernels({kernel.symbol: kernel.ir}, target, workers=1), target)
    launch(code, Step(kernel, [store(array, stored, target), result]))
    assert untouched_around(result)
    return fetch(result, wanted, TensorType(source.dtype, array.shape))


def launch(code: LoadedCode, step: Step) -> None:
    """Run a kernel in two parts, as two threads would, each with its own scratch memory."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(code.address(step.kernel.symbol))
    pointers = (ctypes.c_void_p * len(step.arrays))(*[a.ctypes.data for a in step.arrays])
    scratch = np.full(step.kernel.scratch_bytes + 64, POISON, np.uint8)
    middle = step.kernel.tasks // 2
    for begin, end in ((0, middle), (middle, step.kernel.tasks)):
        if begin < end:
            function(ctypes.addressof(pointers), begin, end, scratch.ctypes.data + -scratch.ctypes.data % 64)


def check(case: Case) -> list[str]:
    """Compare every output with what is wanted, and look for writes beyond it."""
    failures = []
    for number, (memory, layout, type_, want) in enumerate(zip(case.outputs, case.layouts, case.types, case.wanted, strict=False)):
        got = fetch(memory, layout, type_)
        if got.shape != want.shape:
            failures.append(f"{case.name}: output {number} has the shape {got.shape}, wanted {want.shape}")
            continue
        problem = difference(got, want, type_.dtype)
        if problem:
            failures.append(f"{case.name}: output {number}: {problem}")
        if memory.size and not untouched_around(memory):
            failures.append(f"{case.name}: output {number}: bytes beside the output were written")
    return failures


def untouched_around(memory: np.ndarray) -> bool:
    around = (ctypes.c_uint8 * GUARD_BYTES).from_address(memory.ctypes.data - GUARD_BYTES)
    after = (ctypes.c_uint8 * GUARD_BYTES).from_address(memory.ctypes.data + memory.nbytes)
    return all(b == POISON for b in around) and all(b == POISON for b in after)


def difference(got: np.ndarray, want: np.ndarray, dtype: dtypes.DType) -> str:
    """What is wrong, in words; empty if nothing is."""
    if not got.size:
        return ""
    if not dtype.is_float:
        wrong = np.argwhere(got != want.astype(got.dtype))
        return (
            ""
            if not len(wrong)
            else f"{len(wrong)} of {got.size} differ, first at {wrong[0]}: {got[tuple(wrong[0])]} != {want[tuple(wrong[0])]}"
        )
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = b[np.isfinite(b)]
    scale = float(np.abs(finite).max()) if finite.size else 0.0
    limit = TOLERANCE[dtype.name] * np.maximum(np.abs(b), scale)
    with np.errstate(invalid="ignore"):
        good = (np.abs(a - b) <= limit) | (a == b) | (np.isnan(a) & np.isnan(b))
    wrong = np.argwhere(~good)
    return "" if not len(wrong) else f"{len(wrong)} of {got.size} differ, first at {wrong[0]}: {a[tuple(wrong[0])]} != {b[tuple(wrong[0])]}"
