"""acl.mdl: what a model says of the AIPP in front of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from anycann.acl import types
from anycann.acl.codes import Code
from anycann.acl.data_buffers import check_index
from anycann.acl.entries import value_and_status
from anycann.acl.errors import AclError
from anycann.acl.model_loading import MODELS
from anycann.acl.model_tensors import bytes_of
from anycann.acl.models import AIPP_CHANNELS, AIPP_INPUT
from anycann.acl.process import PROCESS
from anycann.om.plan import TensorSpec
from anycann.runtime.memory import numpy_dtype

NO_AIPP, STATIC_AIPP, DYNAMIC_AIPP, AIPP_SETTINGS = 0, 1, 2, 3
NO_INDEX = 0xFFFFFFFF  # there is no input with the settings of a dynamic AIPP
_OF_THE_MODEL = ("batch", "rows", "columns", "channels", "axes", "dtype")  # what atc adds to the block of a configuration
_INPUT_FORMATS = {"YUV420SP_U8": 1, "XRGB8888_U8": 2, "RGB888_U8": 3, "YUV400_U8": 4}


@value_and_status("acl.mdl.get_aipp_type", failed=(0, 0), returns="(type, dynamic_index, ret)")
def get_aipp_type(model_id: int, index: int) -> tuple[int, int]:
    """0: no AIPP in front of that input, 1: a static one, 2: a dynamic one, whose settings take input `dynamic_index`; 3: that input."""
    model = MODELS.get(model_id)
    if index in model.dynamic_aipp:
        return DYNAMIC_AIPP, model.aipp_index(index)
    if 0 <= index < len(model.inputs) and model.inputs[index].name == AIPP_INPUT:
        return AIPP_SETTINGS, NO_INDEX
    return (STATIC_AIPP if _block(model_id, index) else NO_AIPP), NO_INDEX


@value_and_status("acl.mdl.get_first_aipp_info", failed=(None,), returns="(dict, ret)")
def get_first_aipp_info(model_id: int, index: int) -> dict[str, object]:
    """The settings of a static AIPP under Ascend's names: inputFormat, srcImageSizeW, cropSwitch, matrixR0C0, meanChn0, ..."""
    block = _block(model_id, index)
    if block is None:
        raise AclError(Code.NOT_STATIC_AIPP, f"input {index} has no static AIPP")
    model = MODELS.get(model_id)
    told = {name: setting for name, setting in block.items() if name not in _OF_THE_MODEL}
    shown = {_camel(name): int(setting) if isinstance(setting, bool) else setting for name, setting in told.items()}
    tensor = model.inputs[index]
    return {
        **shown,
        "inputFormat": _INPUT_FORMATS[block["input_format"]],
        "cropSwitch": int(block["crop"]),
        "cropStartPosW": block["load_start_pos_w"],
        "cropStartPosH": block["load_start_pos_h"],
        "resizeSwitch": int(block["resize"]),
        "paddingSwitch": int(block["padding"]),
        "srcFormat": types.NHWC,
        "srcDatatype": tensor.data_type,
        "srcDimNum": len(tensor.dims),
        "shapeCount": max(len(model.gears), 1),
        "outDims": [_out_dims(block, spec) for spec in model.shapes_of(index)],
    }


def _out_dims(block: Mapping[str, Any], spec: TensorSpec) -> dict[str, object]:
    """What goes into AIPP in one gear, pixels of bytes, and what comes out of it, as the model takes it."""
    batch, high, wide = (int(size or 0) for size in spec.shape[:3])
    high = high * 2 // 3 if block["input_format"] == "YUV420SP_U8" else high
    rows = block["crop_size_h"] or high - block["load_start_pos_h"] if block["crop"] else high
    columns = block["crop_size_w"] or wide - block["load_start_pos_w"] if block["crop"] else wide
    if block["padding"]:
        rows += block["top_padding_size"] + block["bottom_padding_size"]
        columns += block["left_padding_size"] + block["right_padding_size"]
    channels = AIPP_CHANNELS[block["input_format"]]
    sizes = {"N": batch, "C": block.get("channels", channels), "H": rows, "W": columns}
    made = [sizes[axis] for axis in block.get("axes", "NCHW")]
    return {
        "srcDims": _io_dims(spec.name, [batch, high, wide, channels]),
        "srcSize": bytes_of(spec),
        "aippOutdims": _io_dims(spec.name, made),
        "aippOutSize": math.prod(made) * numpy_dtype(block.get("dtype", "float32")).itemsize,
    }


def _io_dims(name: str, dims: list[int]) -> dict[str, object]:
    return {"name": name, "dimCount": len(dims), "dims": dims}


def _block(model_id: int, index: int) -> Mapping[str, Any] | None:
    PROCESS.check_initialised()
    model = MODELS.get(model_id)
    check_index(index, len(model.inputs), "input")
    return model.aipp.get(model.inputs[index].name)


def _camel(name: str) -> str:
    """`mean_chn_0` -> `meanChn0`."""
    first, *others = name.replace("matrix_r", "matrix_R").replace("c0", "C0").replace("c1", "C1").replace("c2", "C2").split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)
