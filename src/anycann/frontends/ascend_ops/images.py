"""Pooling and resizing of images."""

from __future__ import annotations

from typing import Any

from anycann.frontends.ascend_ops.builder import Builder
from anycann.frontends.ascend_ops.definition import Build, Required, operator
from anycann.frontends.ascend_ops.products import spatial
from anycann.frontends.ascend_ops.reductions import as_list


def _pool(op_type: str) -> Build:
    """MaxPool and AvgPool: `padding` is SAME or VALID; those with V2 and V3: `padding_mode` may be CALCULATED, with `pads`."""

    def build(b: Builder) -> str:
        format_ = b.image_format("x")
        image = b.nchw(b.input("x"), format_)
        if b.attributes.get("global_pooling"):
            return b.back(b.node(f"Global{'Max' if op_type == 'MaxPool' else 'Average'}Pool", image), format_)
        attributes: dict[str, Any] = {"kernel_shape": spatial(b, "ksize", format_), "strides": spatial(b, "strides", format_)}
        attributes |= _padding(b)
        if b.attributes.get("ceil_mode"):
            attributes["ceil_mode"] = 1
        if op_type == "AveragePool" and not b.attributes.get("exclusive", True):
            attributes["count_include_pad"] = 1
        return b.back(b.node(op_type, image, **attributes), format_)

    return build


def _padding(b: Builder) -> dict[str, Any]:
    mode = str(b.attributes.get("padding_mode", b.attributes.get("padding")))
    if mode == "SAME":
        return {"auto_pad": "SAME_UPPER"}
    if mode == "VALID":
        return {"auto_pad": "VALID"}
    if mode != "CALCULATED" or "pads" not in b.attributes:
        b.fail("attribute", f"padding is {mode}; accepted: SAME, VALID" + (", CALCULATED" if "pads" in b.attributes else ""))
    top, bottom, left, right = as_list(b["pads"])
    return {"pads": [top, left, bottom, right]}


_TWO: dict[str, Any] = {"ksize": Required("ints"), "strides": Required("ints")}
_THREE: dict[str, Any] = {
    **_TWO,
    "padding_mode": "CALCULATED",
    "pads": (0, 0, 0, 0),
    "data_format": "NCHW",
    "global_pooling": False,
    "ceil_mode": False,
}
operator("MaxPool", "x:number", _pool("MaxPool"), padding=Required("string"), data_format="NHWC", **_TWO)
operator("AvgPool", "x:float", _pool("AveragePool"), padding=Required("string"), data_format="NHWC", **_TWO)
operator("MaxPoolV3", "x:number", _pool("MaxPool"), **_THREE)
operator("AvgPoolV2", "x:float", _pool("AveragePool"), exclusive=True, **_THREE)
operator("GlobalAveragePool", "x:float", lambda b: b.node("GlobalAveragePool", b.input("x")))


def _resize(mode: str) -> Build:
    def build(b: Builder) -> str:
        format_ = b.image_format("x")
        size = b.integers("size") if b.has("size") else b.constant(as_list(b["size"]))
        places = "align_corners" if b["align_corners"] else "half_pixel" if b["half_pixel_centers"] else "asymmetric"
        nearest: dict[str, Any] = {"nearest_mode": "round_prefer_ceil" if b["align_corners"] else "floor"} if mode == "nearest" else {}
        image = b.nchw(b.input("x"), format_)
        resized = b.node("Resize", image, "", "", size, mode=mode, coordinate_transformation_mode=places, axes=[2, 3], **nearest)
        return b.back(resized, format_)

    return build


for _name, _mode in (("ResizeBilinearV2", "linear"), ("ResizeNearestNeighborV2", "nearest")):
    operator(_name, "x:number size:index", _resize(_mode), casts=True, align_corners=False, half_pixel_centers=False, data_format="NHWC")
    operator(f"{_name}D", "x:number", _resize(_mode), casts=True, size=Required("ints"), align_corners=False, half_pixel_centers=False,
             data_format="NHWC")  # fmt: skip
