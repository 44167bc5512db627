"""Products of stacked matrices, as they were before AOTAutograd flattened them.

view(addmm(b, view(x, [rows, K]), w), [*lead, N])  before, for x [*lead, K]
Add(MatMul(x, w), b)                                after: what follows is elementwise in the same shape, and joins the product's kernel
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


def stacked_shape(node: torch.fx.Node, values: Container[torch.fx.Node]) -> tuple[int, ...] | None:
    """The shape in which a product is to be computed: that of the view which is made of it. None if it stays a matrix.

    `values`: the nodes that are there, among them what was flattened if it is.
    """
    place = MATRICES.get(str(node.target))
    if place is None or node.kwargs or not node.meta["val"].dtype.is_floating_point:
        return None
    first = node.args[place]
    if not isinstance(first, torch.fx.Node) or str(first.target) not in FLATTENING or first.args[0] not in values:
        return None
    lead = shape_of(first.args[0])[:-1]
    columns = shape_of(node)[-1]
    if shape_of(first.args[0])[-1:] != shape_of(first)[-1:] or math.prod(lead) != shape_of(first)[0] or len(lead) < 2:
        return None
    if place and len(shape_of(node.args[0])) != 1:
        return None
    views = [user for user in node.users if str(user.target) in FLATTENING and shape_of(user) == (*lead, columns)]
    return (*lead, columns) if views else None


def stacked_product(b: Builder, node: torch.fx.Node) -> ir.Value:
    """The product in that shape."""
    place = MATRICES[str(node.target)]
    rows: Any = node.args[place]
    b.begin(node.name)
    found = product(b, b.value(rows.args[0]), node.args[place + 1])
    return b.op("Add", found, b.value(node.args[0])) if place else found
