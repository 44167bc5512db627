"""Small graphs made of the operators' samples, written as recipes: a line a node, that says which sample and what it is glued to.

    Softmax 3
    com.microsoft.Gelu 0 x0=0
    Add - x0=0 x1=1

is sample 3 of Softmax, then sample 0 of Gelu whose operand 0 is value 0 instead of the sample's own, then the sum of values 0 and 1 as they
are. A glued value is brought to the operand's shape (flattened, repeated, cut, reshaped) and range (clipped), so that any value fits any
operand of its element type. What a line with `-` may do stands in `FREE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
import math
import zlib

import numpy as np
import onnx
import onnx_ir as ir

from anycann.graph.evaluate import evaluate_node
from anycann.graph.registry import OPSET, Operator, Sample, library
from tests.ops.operator_runner import build_node

MOST_ELEMENTS = 6000
# Where a rounding error decides about the whole result, no tolerance helps; onnx.reference reads some poolings otherwise than specified.
DISCONTINUOUS = frozenset({
    "ArgMax", "ArgMin", "BitCast", "BitShift", "Cast", "CastLike", "Ceil", "CumSum", "Equal", "Floor", "Greater", "GreaterOrEqual",
    "Hardmax", "IsInf", "IsNaN", "Less", "LessOrEqual", "MeanVarianceNormalization", "Mod", "NonZero", "Not", "OneHot", "Round", "Shrink",
    "Sign", "Tan", "ThresholdedRelu", "TopK", "Unique", "DynamicQuantizeLinear", "QuantizeLinear", "QLinearConv", "QLinearMatMul",
    "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QGemm", "QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearGlobalAveragePool",
    "QLinearSigmoid", "QLinearLeakyRelu",
})  # fmt: skip
OTHERWISE_IN_THE_REFERENCE = frozenset(
    {"MaxPool", "AveragePool", "LpPool", "GlobalLpPool", "GlobalMaxPool", "Softsign", "Mean", "PRelu", "LogSoftmax"}
)
AS_THEY_ARE = -1  # in place of a sample's number: the operands are earlier values, unchanged


# operator -> how many operands, attributes, constant operands
FREE: dict[str, tuple[int, dict[str, int], tuple[list[int], ...]]] = {
    **{name: (2, {}, ()) for name in ("Add", "Sub", "Mul", "Max", "MatMul")},
    **{name: (1, {}, ()) for name in ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softmax", "Transpose", "Identity")},
    "ReduceMean": (1, {"keepdims": 1}, ([-1],)),
    "Concat": (2, {"axis": 0}, ()),
    "Split": (1, {"axis": 0, "num_outputs": 2}, ()),
    "Flatten": (1, {}, ()),
}


@dataclass(frozen=True)
class Line:
    """One node: an operator, the number of its sample, and the values that some operands are taken from."""

    operator: str
    sample: int
    glued: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        number = "-" if self.sample == AS_THEY_ARE else str(self.sample)
        return " ".join([self.operator, number, *(f"x{operand}={value}" for operand, value in self.glued)])


def parse_line(text: str) -> Line:
    name, sample, *glued = text.split()
    number = AS_THEY_ARE if sample == "-" else int(sample)
    return Line(name, number, tuple((int(part[1:].split("=")[0]), int(part.split("=")[1])) for part in glued))


def parse_recipe(text: str) -> list[Line]:
    return [parse_line(line) for line in text.splitlines() if line and not line.startswith("#")]


@cache
def usable() -> dict[str, tuple[Sample, ...]]:
    """Samples by operator, those of a bearable size and of plain element types."""
    found = {}
    for operator in library().all():
        if operator.samples is None or operator.domain == "anycann":
            continue
        if operator.op_type in OTHERWISE_IN_THE_REFERENCE or operator.op_type in DISCONTINUOUS:
            continue
        drawn = tuple(operator.samples(np.random.default_rng(zlib.crc32(operator.op_type.encode()))))
        fitting = tuple(sample for sample in drawn if _is_bearable(sample) and not _is_widened(operator, sample))
        if fitting:
            found[title(operator)] = fitting
    return dict(sorted(found.items()))


def _is_bearable(sample: Sample) -> bool:
    return all(a is None or a.size <= MOST_ELEMENTS for a in sample.operands)


def _is_widened(operator: Operator, sample: Sample) -> bool:
    """onnx.reference answers sums of small integers as int64."""
    first = sample.operands[0] if sample.operands else None
    return operator.op_type.startswith("Reduce") and first is not None and first.dtype.kind in "iu"


def title(operator: Operator) -> str:
    return f"{operator.domain}.{operator.op_type}" if operator.domain else operator.op_type


@dataclass
class Case:
    """A model, what it is fed, and every value that its nodes make, as the reference computes it."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    values: dict[str, np.ndarray]


@dataclass
class Builder:
    """Builds a case line by line; `values` are the results so far, in order."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    known: dict[str, np.ndarray] = field(default_factory=dict)
    values: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Append the nodes of a line. Raises an error of AnyCANN, and appends nothing of it, if the reference refuses it."""
        if line.sample == AS_THEY_ARE:
            self._add_free(line)
        else:
            self._add_sample(line)
        self.lines.append(line)

    def _add_free(self, line: Line) -> None:
        attributes, constants = FREE[line.operator][1:]
        operands = [self.values[value] for _, value in line.glued]
        self.values += self._node(line.operator.rpartition(".")[2], operands, *(np.array(c) for c in constants), **attributes)

    def _add_sample(self, line: Line) -> None:
        domain, _, op_type = line.operator.rpartition(".")
        operator = library().find(domain, op_type)
        assert operator is not None
        sample = usable()[line.operator][line.sample]
        node = ir.to_proto(build_node(operator, sample))
        assert isinstance(node, onnx.NodeProto)
        glued, prefix = dict(line.glued), f"line{len(self.lines)}"
        node.name = prefix
        for number, array in enumerate(sample.operands):
            if array is None:
                continue
            node.input[number] = f"{prefix}/x{number}"
            if number in glued:
                node.input[number] = self._fit(self.values[glued[number]], array)
            else:
                (self.constants if number in sample.constant else self.feeds)[node.input[number]] = array
                self.known[node.input[number]] = array
        node.output[:] = [f"{prefix}/y{n}" if name else "" for n, name in enumerate(node.output)]
        self.values += [name for name in self._append(node) if name]

    def fits(self, value: int, operand: np.ndarray) -> bool:
        """Whether a value can be glued to an operand."""
        array = self.known[self.values[value]]
        return array.dtype == operand.dtype and array.dtype.kind == "f" and array.size > 0 and math.ceil(operand.size / array.size) <= 64

    def fit_together(self, operator: str, values: Sequence[int]) -> bool:
        """Whether an operator of `FREE` takes these values as they are."""
        arrays = [self.known[self.values[value]] for value in values]
        if any(a.dtype != np.float32 or a.dtype != arrays[0].dtype for a in arrays) or sum(a.size for a in arrays) > MOST_ELEMENTS:
            return False
        shapes = [a.shape for a in arrays]
        if operator in ("Concat", "Split"):
            return bool(shapes[0]) and len({shape[1:] for shape in shapes}) == 1 and all(len(s) == len(shapes[0]) for s in shapes)
        if operator in ("MatMul", "Softmax", "ReduceMean", "Flatten"):
            return all(len(shape) >= 2 for shape in shapes) and (operator != "MatMul" or shapes[0][-1] == shapes[1][-2])
        try:
            return math.prod(np.broadcast_shapes(*shapes)) <= MOST_ELEMENTS
        except ValueError:
            return False

    def _fit(self, name: str, like: np.ndarray) -> str:
        size, same = self.known[name].size, self.known[name].shape == like.shape
        low, high = (float(like.min()), float(like.max())) if like.size else (-1.0, 1.0)
        bounds = np.array(low, like.dtype), np.array(high, like.dtype)
        if same:
            return self._node("Clip", [name], *bounds)[0]
        (flat,) = self._node("Reshape", [name], np.array([-1]))
        if size < like.size:
            (flat,) = self._node("Tile", [flat], np.array([-(-like.size // size)]))
        if self.known[flat].size != like.size:
            (flat,) = self._node("Slice", [flat], np.array([0]), np.array([like.size]))
        (clipped,) = self._node("Clip", [flat], *bounds)
        return self._node("Reshape", [clipped], np.array(like.shape, np.int64), allowzero=1)[0]

    def _node(self, op_type: str, operands: Sequence[str], *constants: np.ndarray, **attributes: int) -> list[str]:
        prefix = f"n{len(self.nodes)}"
        names = [f"{prefix}/c{number}" for number in range(len(constants))]
        for name, array in zip(names, constants, strict=True):
            self.constants[name] = self.known[name] = array
        outputs = [f"{prefix}/y{n}" for n in range(2 if op_type == "Split" else 1)]
        return self._append(onnx.helper.make_node(op_type, [*operands, *names], outputs, name=prefix, **attributes))

    def _append(self, node: onnx.NodeProto) -> list[str]:
        results = evaluate_node(node, OPSET, [self.known[name] if name else None for name in node.input])
        self.known.update({name: np.asarray(result) for name, result in zip(node.output, results, strict=True) if name})
        self.nodes.append(node)
        return list(node.output)

    def case(self) -> Case:
        """Outputs are the values that no node reads, and every third one."""
        read = {name for node in self.nodes for name in node.input}
        outputs = [name for number, name in enumerate(self.values) if name not in read or number % 3 == 2]
        infos = [_info(name, self.known[name]) for name in outputs]
        inputs = [_info(name, array) for name, array in self.feeds.items()]
        initializers = [onnx.numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = onnx.helper.make_graph(self.nodes, "recipe", inputs, infos, initializers)
        opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("com.microsoft", 1)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=13)
        return Case(model, self.feeds, {name: self.known[name] for name in outputs})


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def build(lines: Sequence[Line]) -> Case:
    """The case of a recipe."""
    builder = Builder()
    for line in lines:
        builder.add(line)
    return builder.case()
