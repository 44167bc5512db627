"""Resizing pictures, and boxes on them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from anycann.frontends.tensorflow.definition import Call, Result, operator
from anycann.frontends.tensorflow.layout import Tensor, channels_first


@operator("ResizeBilinear ResizeNearestNeighbor ResizeBicubic")
def _resize(call: Call) -> Result:
    """Results are float32 but for the nearest neighbour's."""
    call.rank(0)
    picture = channels_first(call.builder, call.tensor(0))
    mode = {"ResizeBilinear": "linear", "ResizeNearestNeighbor": "nearest", "ResizeBicubic": "cubic"}[call.node.op]
    centres, corners = bool(call.attribute("half_pixel_centers", False)), bool(call.attribute("align_corners", False))
    attributes: dict[str, object] = {"mode": mode, "axes": [2, 3]}
    attributes["coordinate_transformation_mode"] = "align_corners" if corners else "half_pixel" if centres else "asymmetric"
    if mode == "nearest":
        attributes["nearest_mode"] = "round_prefer_ceil" if corners or centres else "floor"
    else:
        picture = call.cast(picture, np.float32)
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": -0.5, "exclude_outside": 1} if centres else {"cubic_coeff_a": -0.75}
    return Tensor(first=call.op("Resize", picture, None, None, call.integers(1), **attributes))


@operator("NonMaxSuppression NonMaxSuppressionV2 NonMaxSuppressionV3")
def _suppress(call: Call) -> Result:
    """Boxes [n, 4] and scores [n] -> the numbers of those that are kept."""
    boxes, scores = call.op("Unsqueeze", call.value(0), _axes(call, 0)), call.op("Unsqueeze", call.value(1), _axes(call, 0, 1))
    most = call.reshaped(call.integers(2), [1])
    if call.node.op == "NonMaxSuppression":
        overlap = call.constant([float(call.attribute("iou_threshold", 0.5))], np.float32)
    else:
        overlap = call.reshaped(call.value(3), [1])
    least = call.reshaped(call.value(4), [1]) if call.node.op.endswith("V3") else None
    kept = call.op("NonMaxSuppression", boxes, scores, most, overlap, least)
    return call.cast(call.op("Gather", kept, call.constant(2, np.int64), axis=1), np.int32)


def _axes(call: Call, *axes: int) -> ir.Value:
    return call.constant(list(axes), np.int64)


@operator("CropAndResize")
def _crop_and_resize(call: Call) -> Result:
    """Boxes (y1, x1, y2, x2) from 0 to 1, each of picture `box_ind`, brought to one size; what lies outside is `extrapolation_value`."""
    if call.text("method", "bilinear") != "bilinear":
        raise call.fail("method nearest is not there yet; bilinear is")
    call.rank(0)
    height, width = (int(size) for size in call.known(3, "crop_size"))
    pictures = call.op("Gather", channels_first(call.builder, call.tensor(0)), call.integers(2), axis=0)
    top, left, bottom, right = call.ops("Split", call.value(1), outputs=4, axis=1, num_outputs=4)
    rows = call.op("Unsqueeze", _places(call, top, bottom, height), _axes(call, 2))
    columns = call.op("Unsqueeze", _places(call, left, right, width), _axes(call, 1))
    sizes = call.op("Concat", call.op("Shape", rows, end=2), call.constant([width], np.int64), axis=0)
    pair = [call.op("Unsqueeze", call.op("Expand", value, sizes), _axes(call, 3)) for value in (columns, rows)]
    places = call.op("Concat", *pair, axis=3)  # from -1 to 1, as ONNX counts them
    crops = call.op("GridSample", call.cast(pictures, np.float32), places, mode="linear", align_corners=1, padding_mode="border")
    inside = call.op("LessOrEqual", call.op("ReduceMax", call.op("Abs", places), _axes(call, 3), keepdims=0), call.like(1, places))
    outside = call.constant(float(call.attribute("extrapolation_value", 0.0)), np.float32)
    return Tensor(first=call.op("Where", call.op("Unsqueeze", inside, _axes(call, 1)), crops, outside))


def _places(call: Call, first: ir.Value, last: ir.Value, count: int) -> ir.Value:
    """[boxes, count]: places from `first` to `last` (from 0 to 1) with the same distance; the middle if there is one only."""
    share = np.linspace(0, 1, count, dtype=np.float32) if count > 1 else np.array([0.5], np.float32)
    place = call.op("Add", first, call.op("Mul", call.op("Sub", last, first), call.constant(share[None])))
    return call.op("Sub", call.op("Mul", place, call.like(2, place)), call.like(1, place))
