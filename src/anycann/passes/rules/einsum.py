"""An Einsum that is a matrix product becomes one, between transposes where its labels stand in another order; rules and views hide them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from anycann.graph.ops.matmul import parse_einsum
from anycann.graph.registry import NotLowered, static_type
from anycann.passes.rules.rule import Rule, constant_of, new_constant, typed_node
from anycann.support.records import dataclass


@dataclass(frozen=True)
class _Product:
    """Labels of the operands and the result, and which of them are batch, rows, columns and sums; the extent of each.

    swapped: `a` is the second operand of the node. The last label of the result is one of columns.
    """

    a: str
    b: str
    result: str
    batch: str
    rows: str
    columns: str
    depth: str
    extents: Mapping[str, int]
    swapped: bool

    def order(self, *groups: str, own: str) -> str:
        """The labels of an operand of labels `own` as the product reads them."""
        return "".join(label for label in self.batch if label in own) + "".join(groups)

    def shape(self, *groups: str, own: str) -> list[int]:
        """An axis for each label of the batch from the first that is in `own` on (1 for one that is not), then one for each group."""
        batch = self.batch.lstrip("".join(set(self.batch) - set(own)))
        outer = [self.extents[label] if label in own else 1 for label in batch]
        return [*outer, *(prod(self.extents[label] for label in group) for group in groups)]


class ProductOfEinsum(Rule):
    """Einsum<"bqhd,bkhd->bhqk">(a, b) -> MatMul(Transpose(a), Transpose(b)), transposed if the result has another order.

    Several labels of rows, columns or sums, as in "ibh,hnd->ibnd", are one axis of the product; a batch may be of one operand alone.
    What is summed over in one operand alone is summed up first.
    """

    anchors = frozenset({("", "Einsum")})

    def check(self, node: ir.Node) -> str | None:
        types = [static_type(value) for value in (*node.inputs, node.outputs[0])]
        if any(type_ is None or not type_.dtype.is_float for type_ in types):
            return "its shapes are only known when it runs, or its elements are no floats"
        return "it is no matrix product of two operands with rows, columns and sums" if _product(node) is None else None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        product, name, like = _product(node), node.name or "Einsum", node.outputs[0]
        assert product is not None
        writer, operands = _Writer(graph), list[ir.Value]()
        sides = ((product.a, product.rows, product.depth), (product.b, product.depth, product.columns))
        values = reversed(node.inputs) if product.swapped else node.inputs
        for number, (value, (own, *groups)) in enumerate(zip(values, sides, strict=True)):
            assert value is not None
            order = product.order(*groups, own=own)
            value, own = writer.summed(value, own, order, f"{name}/operand{number}/sum")
            turned = writer.transposed(value, own, order, f"{name}/operand{number}")
            operands.append(writer.shaped(turned, product.shape(*groups, own=own), f"{name}/operand{number}/joined"))
        order = product.batch + product.rows + product.columns
        made = typed_node("MatMul", operands, name, like, product.shape(product.rows, product.columns, own=product.batch))
        writer.nodes.append(made)
        apart = writer.shaped(made.outputs[0], [product.extents[label] for label in order], f"{name}/result/apart")
        writer.transposed(apart, order, product.result, f"{name}/result")
        return writer.nodes


def _product(node: ir.Node) -> _Product | None:
    """What a node computes: labels in the order of the result, sums in that of an operand that is not known while compiling."""
    shapes = [type_.shape for value in (*node.inputs, node.outputs[0]) if (type_ := static_type(value)) is not None]
    try:
        terms, result = parse_einsum(node.attributes.get_string("equation", ""), [len(shape) for shape in shapes[:-1]])
    except NotLowered:
        return None
    if len(terms) != 2 or any(len(set(term)) != len(term) for term in (*terms, result)):
        return None
    extents: dict[str, int] = {}
    for term, shape in zip((*terms, result), shapes, strict=True):
        if any(extents.setdefault(label, extent) != extent for label, extent in zip(term, shape, strict=True)):
            return None  # an axis of 1 is repeated
    swapped = result[-1:] in set(terms[0]) - set(terms[1])
    a, b = reversed(terms) if swapped else terms
    rows, columns = _labels(result, set(a) - set(b)), _labels(result, set(b) - set(a))
    first = constant_of(node.inputs[1 if swapped else 0]) is None
    depth = _labels(a if first else b, set(a) & set(b) - set(result))
    if not rows or not columns or not depth:
        return None
    before = result[: result.index(rows[0])]  # what is of columns there would have to change places with the rows
    batch, columns = _labels(result, set(a) & set(b) | set(before)), _labels(columns, set(columns) - set(before))
    return _Product(a, b, result, batch, rows, columns, depth, extents, swapped)


def _labels(order: str, wanted: Collection[str]) -> str:
    return "".join(label for label in order if label in wanted)


class _Writer:
    """Appends what changes the order of axes and joins or parts them, where there is something to do."""

    def __init__(self, graph: ir.Graph):
        self._graph, self.nodes = graph, list[ir.Node]()

    def summed(self, value: ir.Value, own: str, labels: str, name: str) -> tuple[ir.Value, str]:
        """(the value summed over its labels that are none of `labels`, the labels that it has then)."""
        axes, known, type_ = [axis for axis, label in enumerate(own) if label not in labels], constant_of(value), static_type(value)
        if not axes:
            return value, own
        assert type_ is not None
        if known is not None:
            return new_constant(self._graph, name, known.sum(axis=tuple(axes))), _labels(own, labels)
        shape = [extent for axis, extent in enumerate(type_.shape) if axis not in axes]
        listed = new_constant(self._graph, f"{name}/axes", np.array(axes))
        self.nodes.append(typed_node("ReduceSum", [value, listed], name, value, shape, keepdims=0))
        return self.nodes[-1].outputs[0], _labels(own, labels)

    def transposed(self, value: ir.Value, own: str, order: str, name: str) -> ir.Value:
        """The value with its labels in another order; a known one is put in order here."""
        if own == order:
            return value
        permutation, known, type_ = [own.index(label) for label in order], constant_of(value), static_type(value)
        assert type_ is not None
        if known is not None:
            return new_constant(self._graph, name, known.transpose(permutation))
        shape = [type_.shape[axis] for axis in permutation]
        self.nodes.append(typed_node("Transpose", [value], name, value, shape, perm=permutation))
        return self.nodes[-1].outputs[0]

    def shaped(self, value: ir.Value, shape: Sequence[int], name: str) -> ir.Value:
        """The value's elements in another shape."""
        type_, known = static_type(value), constant_of(value)
        assert type_ is not None
        if list(type_.shape) == list(shape):
            return value
        if known is not None:
            return new_constant(self._graph, name, known.reshape(shape))
        target = new_constant(self._graph, f"{name}/shape", np.array(shape, np.int64))
        self.nodes.append(typed_node("Reshape", [value, target], name, value, shape))
        return self.nodes[-1].outputs[0]
