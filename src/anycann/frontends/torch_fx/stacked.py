"""Products of stacked matrices, as they were before AOTAutograd flattened them.

view(addmm(b, view(x, [rows, K]), w), [*lead, N])                          before, for x [*lead, K]
Add(MatMul(x, w), b)                                                        after: elementwise work that follows joins its kernel

view(bmm(view(x, [stack, M, K]), view(y, [stack, K, N])), [*lead, M, N])   before, for x [*lead, M, K] and y [*lead, K, N]
MatMul(x, y)                                                                after: attention is seen as what it is
"""

from __future__ import annotations

from collections.abc import Container
import math
from typing import Any

import onnx_ir as ir
import torch

from anycann.frontends.torch_fx.builder import Builder, shape_of
from anycann.frontends.torch_fx.products import product

FLATTENING = frozenset({"aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"})
MATRICES = {"aten.addmm.default": 1, "aten.mm.default": 0}  # the position of the first matrix
STACKS = "aten.bmm.default"


def stacked_shape(node: torch.fx.Node, values: Container[torch.fx.Node]) -> tuple[int, ...] | None:
    """The shape in which a product is to be computed: that of the view which is made of it. None if it stays as it is.

    `values`: the nodes that are there, among them what was flattened if it is.
    """
    if node.kwargs or not _is_float(node):
        return None
    shape = _shape_of_stacks(node, values) if str(node.target) == STACKS else _shape_of_rows(node, values)
    viewed = shape is not None and any(str(user.target) in FLATTENING and shape_of(user) == shape for user in node.users)
    return shape if viewed else None


def stacked_product(b: Builder, node: torch.fx.Node) -> ir.Value:
    """The product in that shape."""
    b.begin(node.name)
    if str(node.target) == STACKS:
        first, second = (b.value(argument.args[0]) for argument in node.args)
        return b.op("MatMul", first, second)
    place = MATRICES[str(node.target)]
    rows: Any = node.args[place]
    found = product(b, b.value(rows.args[0]), node.args[place + 1])
    return b.op("Add", found, b.value(node.args[0])) if place else found


def _shape_of_rows(node: torch.fx.Node, values: Container[torch.fx.Node]) -> tuple[int, ...] | None:
    place = MATRICES.get(str(node.target))
    if place is None or not _is_flattened(node.args[place], values) or (place and len(shape_of(node.args[0])) != 1):
        return None
    flat: Any = node.args[place]
    whole = shape_of(flat.args[0])
    if len(whole) < 3 or whole[-1] != shape_of(flat)[-1] or math.prod(whole[:-1]) != shape_of(flat)[0]:
        return None
    return (*whole[:-1], shape_of(node)[-1])


def _shape_of_stacks(node: torch.fx.Node, values: Container[torch.fx.Node]) -> tuple[int, ...] | None:
    if not all(_is_flattened(argument, values) for argument in node.args):
        return None
    pair: Any = node.args
    first, second = (shape_of(argument.args[0]) for argument in pair)
    kept = all(whole[-2:] == shape_of(flat)[-2:] for whole, flat in zip((first, second), pair, strict=True))
    if len(first) < 4 or not kept or first[:-2] != second[:-2]:
        return None
    return (*first[:-1], second[-1])


def _is_flattened(argument: Any, values: Container[torch.fx.Node]) -> bool:
    return isinstance(argument, torch.fx.Node) and str(argument.target) in FLATTENING and argument.args[0] in values


def _is_float(node: torch.fx.Node) -> bool:
    fake = node.meta.get("val")
    return isinstance(fake, torch.Tensor) and fake.dtype.is_floating_point
