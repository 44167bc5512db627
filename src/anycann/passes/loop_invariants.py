"""What every turn of a Loop or Scan would compute again from the same values is computed once, before it.

Loop(n, c, x) of a body that has Tanh(MatMul(f, w) + x), f from outside  ->  p = MatMul(f, w), Loop(n, c, x) with Tanh(p + x)

Attention over features that a decoder reads in each step is such a product. Runs behind `loop_values.py`, which lets the body use what
every turn hands on as it is from outside.
"""

from __future__ import annotations

import onnx_ir as ir

# Operators that what their operands hold may make impossible: a body that never runs may hold such a node.
_MAY_FAIL = frozenset(
    {"Reshape", "Expand", "Tile", "Slice", "Split", "Squeeze", "Unsqueeze", "Pad", "Resize", "Range", "ConstantOfShape", "OneHot", "TopK"}
    | {"Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND", "TensorScatter", "MaxUnpool", "Div", "Mod"}
    | {"Upsample", "CenterCropPad", "Col2Im", "AffineGrid", "RoiAlign", "Compress", "ReverseSequence", "CumSum", "CumProd", "DFT", "STFT"}
    | {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"}
    | {"ReduceSumSquare", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "NonMaxSuppression", "MelWeightMatrix"}
    | {"SequenceAt", "SequenceErase", "SequenceInsert", "SplitToSequence", "ConcatFromSequence", "OptionalGetElement", "ImageDecoder"}
)
_BY_ANY_OPERAND = frozenset(
    {"Range", "ConstantOfShape", "MelWeightMatrix", "SequenceAt", "ConcatFromSequence", "OptionalGetElement", "ImageDecoder"}
)
_RANDOM = frozenset({"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})


def move_invariants(graph: ir.Graph) -> list[str]:
    """Move nodes of the bodies of `graph`'s Loops and Scans before them, in place. Says how many."""
    lines = []
    for node in list(graph):
        if node.domain == "" and node.op_type in ("Loop", "Scan"):
            moved = _move(node, node.attributes["body"].as_graph(), graph)
            if moved:
                lines.append(f"{moved} nodes of {node.op_type} {node.name} are computed once")
    return lines


def _move(loop: ir.Node, body: ir.Graph, graph: ir.Graph) -> int:
    inside = {value for node in body for value in node.outputs} | set(body.inputs) | set(body.initializers.values())
    count, surely = 0, _surely_turns(loop)
    for node in list(body):
        if not _is_invariant(node, inside) or (not surely and _may_fail(node)):
            continue
        body.remove(node)
        graph.insert_before(loop, node)
        inside.difference_update(node.outputs)
        for value in node.outputs:
            value.name = f"{loop.name}/{value.name}"
        count += 1
    return count


def _surely_turns(loop: ir.Node) -> bool:
    """Whether the body runs at least once, as far as the graph says."""
    if loop.op_type == "Scan":
        count = loop.attributes.get_int("num_scan_inputs", 1)
        axes = loop.attributes.get_ints("scan_input_axes", [0] * count)
        shape, axis = (None if loop.inputs[-1] is None else loop.inputs[-1].shape), axes[-1]
        if shape is None or not -len(shape) <= axis < len(shape):
            return False
        length = shape[axis]
        return isinstance(length, int) and length > 0
    turns, condition = loop.inputs[:2]
    return all(value is None or (_is_known(value) and _first_number(value) > 0) for value in (turns, condition))


def _first_number(value: ir.Value) -> float:
    """The one number of a known value; 0 if it has none."""
    constant = ir.convenience.get_const_tensor(value)
    return 0 if constant is None or constant.size != 1 else float(constant.numpy().reshape(-1)[0])


def _may_fail(node: ir.Node) -> bool:
    """Whether what its operands hold, not only how large they are, decides if the node can be computed."""
    first = node.inputs[0]
    if node.op_type == "Cast":
        return first is None or first.dtype in (None, ir.DataType.STRING)  # numbers of text
    if node.op_type not in _MAY_FAIL:
        return False
    if node.op_type in ("Div", "Mod") and first is not None and first.dtype is not None and first.dtype.is_floating_point():
        return False
    deciding = node.inputs if node.op_type in _BY_ANY_OPERAND else node.inputs[1:]
    return any(value is not None and not _is_known(value) for value in deciding)


def _is_invariant(node: ir.Node, inside: set[ir.Value]) -> bool:
    """True for a node that reads computed values, none of which is the body's, and gives the same for them each time."""
    if node.domain != "" or node.op_type in _RANDOM or any(value.is_graph_output() for value in node.outputs):
        return False
    if any(attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()):
        return False
    read = [value for value in node.inputs if value is not None]
    return not any(value in inside for value in read) and any(not _is_known(value) for value in read)


def _is_known(value: ir.Value) -> bool:
    """Known values are folded where they are read."""
    producer = value.producer()
    return value.const_value is not None or (producer is not None and producer.op_type == "Constant")
