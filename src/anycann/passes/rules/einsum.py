"""An Einsum whose labels stand in another order than a matrix product has them becomes one between transposes, which views may hide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from anycann.graph.registry import static_type
from anycann.passes.rules.rule import Rule, typed_node


@dataclass(frozen=True)
class _Product:
    """Labels of the operands and the result, and which of them are batch, rows, columns and sums."""

    a: str
    b: str
    result: str
    batch: str
    rows: str
    columns: str
    depth: str

    @property
    def is_plain(self) -> bool:
        """True if MatMul's transposed forms are all it takes."""
        outer = self.a[:-2] == self.b[:-2] == self.result[:-2] == self.batch
        return outer and {self.result[-2:]} <= {self.rows + self.columns, self.columns + self.rows}


class ProductOfEinsum(Rule):
    """Einsum<"bqhd,bkhd->bhqk">(a, b) -> MatMul(Transpose(a), Transpose(b)), transposed if the result has another order."""

    anchors = frozenset({("", "Einsum")})

    def check(self, node: ir.Node) -> str | None:
        product = _product(node)
        if product is None:
            return "it is no matrix product with one axis of rows, one of columns and one of sums"
        types = [static_type(value) for value in (*node.inputs, node.outputs[0])]
        if any(type_ is None or not type_.dtype.is_float for type_ in types):
            return "its shapes are only known when it runs, or its elements are no floats"
        return "its operands are read as they are" if product.is_plain else None

    def rewrite(self, graph: ir.Graph, node: ir.Node) -> Sequence[ir.Node]:
        product, name, like = _product(node), node.name or "Einsum", node.outputs[0]
        assert product is not None
        type_, made = static_type(like), list[ir.Node]()
        assert type_ is not None
        operands: list[ir.Value] = []
        wanted = (product.batch + product.rows + product.depth, product.batch + product.depth + product.columns)
        for value, own, order in zip(node.inputs, (product.a, product.b), wanted, strict=True):
            assert value is not None
            made += _transposed(value, own, order, f"{name}/operand{len(operands)}")
            operands.append(value if own == order else made[-1].outputs[0])
        extents = dict(zip(product.result, type_.shape, strict=True))
        order = product.batch + product.rows + product.columns
        made.append(typed_node("MatMul", operands, name, like, [extents[label] for label in order]))
        return [*made, *_transposed(made[-1].outputs[0], order, product.result, f"{name}/result")]


def _product(node: ir.Node) -> _Product | None:
    text = node.attributes.get_string("equation", "").replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    if len(terms) != 2 or not arrow or any(len(set(term)) != len(term) or not term.isalpha() for term in (*terms, result)):
        return None
    a, b = terms
    batch = "".join(label for label in result if label in a and label in b)
    rows = "".join(label for label in result if label in a and label not in b)
    columns = "".join(label for label in result if label in b and label not in a)
    depth = "".join(label for label in a if label in b and label not in result)
    whole = len(batch) + 2 == len(a) == len(b) == len(result)
    return _Product(a, b, result, batch, rows, columns, depth) if whole and len(rows) == len(columns) == len(depth) == 1 else None


def _transposed(value: ir.Value, own: str, order: str, name: str) -> list[ir.Node]:
    """A Transpose from one order of labels to another, if they differ."""
    if own == order:
        return []
    type_ = static_type(value)
    assert type_ is not None
    shape = dict(zip(own, type_.shape, strict=True))
    return [typed_node("Transpose", [value], name, value, [shape[label] for label in order], perm=[own.index(label) for label in order])]
