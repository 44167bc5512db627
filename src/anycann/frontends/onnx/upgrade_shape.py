"""Upgrade rules of operators that move elements: where they are, not what they are. Each docstring is `before -> after`."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.frontends.onnx.edit import Edit
from anycann.graph.sources import describe
from anycann.support.errors import UnsupportedError


def axes_to_input(edit: Edit) -> None:
    """Squeeze(x) axes=[0] -> Squeeze(x, [0]); so for Unsqueeze and the reductions. No axes stays no axes."""
    axes = edit.take_ints("axes")
    if axes is not None:
        edit.set_inputs(edit.input(0), edit.constant(axes))


def slice_to_inputs(edit: Edit) -> None:
    """Slice(x) starts=s ends=e axes=a -> Slice(x, s, e, a)."""
    starts, ends, axes = (edit.take_ints(name) for name in ("starts", "ends", "axes"))
    bounds = [edit.constant(starts or []), edit.constant(ends or [])]
    edit.set_inputs(edit.input(0), *bounds, None if axes is None else edit.constant(axes))


def pad_to_inputs(edit: Edit) -> None:
    """Pad(x) pads=p value=v -> Pad(x, p, v)."""
    pads, value = edit.take_ints("pads"), edit.take("value", 0.0)
    fill = edit.scalar_like(float(value), 0) if value else None  # type: ignore[arg-type]
    edit.set_inputs(edit.input(0), edit.constant(pads or []), fill)


def split_to_input(edit: Edit) -> None:
    """Split(x) split=s -> Split(x, s)."""
    sizes = edit.take_ints("split")
    if sizes is not None:
        edit.set_inputs(edit.input(0), edit.constant(sizes))


def split_num_outputs(edit: Edit) -> None:
    """Split(x) with n outputs and no sizes -> Split(x) num_outputs=n."""
    if edit.input(1) is None:
        edit.set("num_outputs", len(edit.node.outputs))


def topk_to_input(edit: Edit) -> None:
    """TopK(x) k=3 -> TopK(x, [3])."""
    edit.set_inputs(edit.input(0), edit.constant([edit.take("k", 0)]))


def scatter_to_elements(edit: Edit) -> None:
    """Scatter(...) -> ScatterElements(...)."""
    edit.node.op_type = "ScatterElements"


def upsample_to_input(edit: Edit) -> None:
    """Upsample(x) scales=s -> Upsample(x, s)."""
    edit.set_inputs(edit.input(0), edit.constant(edit.take("scales", []), "float32"))


def upsample_to_resize(edit: Edit) -> None:
    """Upsample(x, s) -> Resize(x, s), which means the same at opset 10."""
    edit.node.op_type = "Resize"


def resize_to_coordinates(edit: Edit) -> None:
    """Resize(x, s) -> Resize(x, , s) coordinate_transformation_mode=asymmetric, nearest_mode=floor.

    Opset 10 leaves open which neighbour is the nearest when a size shrinks; ONNX Runtime takes the next one (ceil), and models were
    made with it. A resize that enlarges some axes and shrinks others is done in two steps.
    """
    edit.set("coordinate_transformation_mode", "asymmetric")
    scales = edit.required(1)
    if edit.get("mode", "nearest") in ("nearest", b"nearest"):
        known = constant_of(scales)
        grows, shrinks = (
            (known is not None and bool(np.any(test)) for test in (known > 1, known < 1)) if known is not None else (False, False)
        )
        if known is not None and grows and shrinks:
            attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            grown = edit.before("Resize", [edit.input(0), None, edit.constant(np.maximum(known, 1), "float32")], dict(attributes))
            edit.node.replace_input_with(0, grown)
            scales = edit.constant(np.minimum(known, 1), "float32")
        edit.set("nearest_mode", "ceil" if shrinks else "floor")
    edit.set_inputs(edit.input(0), None, scales)


def resize_half_pixel_for_nn(edit: Edit) -> None:
    """Resize tf_half_pixel_for_nn, nearest_mode=floor -> half_pixel, nearest_mode=round_prefer_ceil: floor(x) = round(x - 1/2), half up."""
    if edit.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        if edit.get("nearest_mode", "round_prefer_floor") != "floor" or edit.get("mode", "nearest") != "nearest":
            raise UnsupportedError(f"{describe(edit.node)}: tf_half_pixel_for_nn is accepted with mode nearest and nearest_mode floor only")
        edit.set("coordinate_transformation_mode", "half_pixel")
        edit.set("nearest_mode", "round_prefer_ceil")
    for index in (1, 2):  # an input of no elements was the way to leave it out
        value = edit.input(index)
        known = None if value is None else constant_of(value)
        if known is not None and known.size == 0 and len(edit.node.inputs) > index:
            edit.node.replace_input_with(index, None)


def constant_of(value: ir.Value) -> np.ndarray | None:
    """The elements of an initialiser or of a Constant node's output, or None."""
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()
