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
