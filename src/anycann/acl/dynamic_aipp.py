"""acl.mdl: settings of a dynamic AIPP, one set for a picture of the batch, and the input of a model that takes them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import struct
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.data_buffers import DataBuffer, Dataset, check_index
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.model_loading import MODELS
from anycann.acl.models import AIPP_INPUT, Model
from anycann.acl.process import PROCESS

if TYPE_CHECKING:
    from anycann.picture_input import Aipp

HEAD_BYTES, PICTURE_BYTES = 64, 96  # of the settings as they lie in the input's memory
_FORMATS = {1: "YUV420SP_U8", 2: "XRGB8888_U8", 3: "RGB888_U8", 4: "YUV400_U8"}


@dataclass
class DynamicAipp:
    """What acl.mdl.set_aipp_* collect: settings for all pictures, and for each of them, by the names of the configuration file."""

    acl_word: ClassVar[str] = "dynamic AIPP"
    batch: int
    common: dict[str, object] = field(default_factory=dict)
    pictures: list[dict[str, object]] = field(default_factory=list)

    def block(self, number: int) -> Aipp:
        """The settings of one picture as a block of a configuration file. Raises AclError where the format or size is missing."""
        from anycann.picture_input import Aipp, check_block

        if "input_format" not in self.common:
            raise AclError(Code.GE_AIPP_MODE_INVALID, "the dynamic AIPP has no input format; acl.mdl.set_aipp_input_format sets it")
        if "src_image_size_w" not in self.common:
            raise AclError(Code.GE_AIPP_MODE_INVALID, "the dynamic AIPP has no source size; acl.mdl.set_aipp_src_image_size sets it")
        made = replace(Aipp(aipp_mode="static"), **{**self.common, **self.pictures[number]})  # type: ignore[arg-type]
        check_block(made, f"picture {number} of the dynamic AIPP")
        return made

    def packed(self) -> bytes:
        """The settings as the chip's input holds them: 64 bytes, and 96 for each picture."""
        common = {name: int(setting) for name, setting in self.common.items() if not isinstance(setting, str)}  # type: ignore[call-overload]
        number = next((n for n, name in _FORMATS.items() if name == self.common.get("input_format")), 0)
        switches = [common.get(name, 0) for name in ("csc_switch", "rbuv_swap_switch", "ax_swap_switch")]
        matrix = [common.get(f"matrix_r{row}c{column}", 0) for row in range(3) for column in range(3)]
        biases = [common.get(f"{name}_{number}", 0) for name in ("output_bias", "input_bias") for number in range(3)]
        sizes = (common.get("src_image_size_w", 0), common.get("src_image_size_h", 0))
        head = struct.pack("<B3bb3x2i9h6x6B2x16x", number, *switches, self.batch, *sizes, *matrix, *biases)
        return head.ljust(HEAD_BYTES, b"\0") + b"".join(_packed_picture(picture) for picture in self.pictures)


def _packed_picture(picture: dict[str, object]) -> bytes:
    def number(name: str) -> int:
        return int(picture.get(name, 0))  # type: ignore[call-overload, no-any-return]

    sizes = [number(name) for name in ("load_start_pos_w", "load_start_pos_h", "crop_size_w", "crop_size_h")]
    pads = [number(f"{side}_padding_size") for side in ("top", "bottom", "left", "right")]
    means = [number(f"mean_chn_{channel}") for channel in range(4)]
    least = [float(picture.get(f"min_chn_{channel}", 0.0)) for channel in range(4)]  # type: ignore[arg-type]
    factors = [float(picture.get(f"var_reci_chn_{channel}", 1.0)) for channel in range(4)]  # type: ignore[arg-type]
    text = struct.pack("<4b4x4i4i4i4h4e4e16x", number("crop"), 0, number("padding"), 0, *sizes, 0, 0, 0, 0, *pads, *means, *least, *factors)
    return text.ljust(PICTURE_BYTES, b"\0")


# ---- settings
@value("acl.mdl.create_aipp", returns="aipp")
def create_aipp(batch: int) -> int:
    """Settings for a batch of pictures, all of them at their defaults."""
    if batch < 1:
        raise AclError(Code.GE_AIPP_BATCH_EMPTY, f"the batch is {batch}; accepted: at least 1")
    return PROCESS.handles.add(DynamicAipp(batch, pictures=[{} for _ in range(batch)]))


@status("acl.mdl.destroy_aipp")
def destroy_aipp(aipp: int) -> None:
    """Forget the settings."""
    PROCESS.handles.remove(aipp, DynamicAipp)


@status("acl.mdl.set_aipp_input_format")
def set_aipp_input_format(aipp: int, number: int) -> None:
    """1: YUV420SP_U8, 2: XRGB8888_U8, 3: RGB888_U8, 4: YUV400_U8."""
    if number not in _FORMATS:
        raise AclError(
            Code.INVALID_PARAM, f"input format is {number}; accepted: {', '.join(f'{n} ({name})' for n, name in _FORMATS.items())}"
        )
    _set(aipp, input_format=_FORMATS[number])


@status("acl.mdl.set_aipp_csc_params")
def set_aipp_csc_params(
    aipp: int, switch: int, r0c0: int, r0c1: int, r0c2: int, r1c0: int, r1c1: int, r1c2: int, r2c0: int, r2c1: int, r2c2: int,
    output0: int, output1: int, output2: int, input0: int, input1: int, input2: int,
) -> None:  # fmt: skip
    """Colour conversion: whether, the matrix by rows, the biases of output and input."""
    matrix = {f"matrix_r{n // 3}c{n % 3}": factor for n, factor in enumerate((r0c0, r0c1, r0c2, r1c0, r1c1, r1c2, r2c0, r2c1, r2c2))}
    biases = {f"output_bias_{n}": bias for n, bias in enumerate((output0, output1, output2))}
    biases |= {f"input_bias_{n}": bias for n, bias in enumerate((input0, input1, input2))}
    _set(aipp, csc_switch=bool(switch), **matrix, **biases)


@status("acl.mdl.set_aipp_rbuv_swap_switch")
def set_aipp_rbuv_swap_switch(aipp: int, switch: int) -> None:
    """Red for blue, U for V."""
    _set(aipp, rbuv_swap_switch=bool(switch))


@status("acl.mdl.set_aipp_ax_swap_switch")
def set_aipp_ax_swap_switch(aipp: int, switch: int) -> None:
    """The first of four bytes of a pixel goes behind the others."""
    _set(aipp, ax_swap_switch=bool(switch))


@status("acl.mdl.set_aipp_src_image_size")
def set_aipp_src_image_size(aipp: int, width: int, height: int) -> None:
    """Size of the source pictures in pixels."""
    if not (2 <= width <= 4096 and 1 <= height <= 4096):
        raise AclError(Code.INVALID_PARAM, f"source size is {width} x {height}; accepted: 2 to 4096 x 1 to 4096")
    _set(aipp, src_image_size_w=width, src_image_size_h=height)


@status("acl.mdl.set_aipp_scf_params", limits="scaling is refused unless it changes nothing")
def set_aipp_scf_params(aipp: int, switch: int, in_w: int, in_h: int, out_w: int, out_h: int, picture: int) -> None:
    """Scaling of one picture."""
    if switch and (in_w, in_h) != (out_w, out_h):
        raise AclError(
            Code.FEATURE_UNSUPPORTED, f"scaling {in_w} x {in_h} to {out_w} x {out_h} is not there; scale before, or leave the switch 0"
        )
    _set_picture(aipp, picture)


@status("acl.mdl.set_aipp_crop_params")
def set_aipp_crop_params(aipp: int, switch: int, start_w: int, start_h: int, size_w: int, size_h: int, picture: int) -> None:
    """Crop of one picture."""
    _set_picture(
        aipp, picture, crop=bool(switch), load_start_pos_w=start_w, load_start_pos_h=start_h, crop_size_w=size_w, crop_size_h=size_h
    )


@status("acl.mdl.set_aipp_padding_params")
def set_aipp_padding_params(aipp: int, switch: int, top: int, bottom: int, left: int, right: int, picture: int) -> None:
    """Padding of one picture with zeros."""
    _set_picture(
        aipp,
        picture,
        padding=bool(switch),
        top_padding_size=top,
        bottom_padding_size=bottom,
        left_padding_size=left,
        right_padding_size=right,
    )


@status("acl.mdl.set_aipp_dtc_pixel_mean")
def set_aipp_dtc_pixel_mean(aipp: int, c0: int, c1: int, c2: int, c3: int, picture: int) -> None:
    """What is subtracted from each channel of one picture."""
    _set_picture(aipp, picture, **{f"mean_chn_{channel}": mean for channel, mean in enumerate((c0, c1, c2, c3))})


@status("acl.mdl.set_aipp_dtc_pixel_min")
def set_aipp_dtc_pixel_min(aipp: int, c0: float, c1: float, c2: float, c3: float, picture: int) -> None:
    """What is subtracted from each channel of one picture, too."""
    _set_picture(aipp, picture, **{f"min_chn_{channel}": least for channel, least in enumerate((c0, c1, c2, c3))})


@status("acl.mdl.set_aipp_pixel_var_reci")
def set_aipp_pixel_var_reci(aipp: int, c0: float, c1: float, c2: float, c3: float, picture: int) -> None:
    """What each channel of one picture is multiplied by."""
    _set_picture(aipp, picture, **{f"var_reci_chn_{channel}": factor for channel, factor in enumerate((c0, c1, c2, c3))})


@value_and_status("acl.mdl.get_aipp_data_size", returns="(bytes, ret)")
def get_aipp_data_size(batch: int) -> int:
    """Bytes of the input that takes the settings of a batch."""
    if batch < 1:
        raise AclError(Code.GE_AIPP_BATCH_EMPTY, f"the batch is {batch}; accepted: at least 1")
    return HEAD_BYTES + PICTURE_BYTES * batch


def _set(aipp: int, **settings: object) -> None:
    PROCESS.handles.get(aipp, DynamicAipp).common.update(settings)
    PROCESS.handles.changed()


def _set_picture(aipp: int, number: int, **settings: object) -> None:
    found = PROCESS.handles.get(aipp, DynamicAipp)
    check_index(number, found.batch, "picture")
    found.pictures[number].update(settings)
    PROCESS.handles.changed()


# ---- a run with them
@status("acl.mdl.set_input_aipp")
def set_input_aipp(model_id: int, dataset: int, index: int, aipp: int) -> None:
    """The next runs of this dataset take these settings. `index` is that of the input called ascend_dynamic_aipp_data."""
    model = MODELS.get(model_id)
    check_index(index, len(model.inputs), "input")
    if model.inputs[index].name != AIPP_INPUT or len(model.dynamic_aipp) != 1:
        raise AclError(
            Code.GE_AIPP_NOT_EXIST, f"input {index} of {model.where} takes no AIPP settings; get_input_index_by_name finds {AIPP_INPUT}"
        )
    _attach(model, dataset, next(iter(model.dynamic_aipp)), index, aipp)


@status("acl.mdl.set_aipp_by_input_index")
def set_aipp_by_input_index(model_id: int, dataset: int, index: int, aipp: int) -> None:
    """The next runs of this dataset take these settings for the pictures of input `index`."""
    model = MODELS.get(model_id)
    check_index(index, len(model.inputs), "input")
    if index not in model.dynamic_aipp:
        raise AclError(Code.GE_AIPP_NOT_EXIST, f"input {index} ({model.inputs[index].name!r}) of {model.where} has no dynamic AIPP")
    _attach(model, dataset, index, model.aipp_index(index), aipp)


def _attach(model: Model, dataset: int, index: int, settings_index: int, aipp: int) -> None:
    found, settings = PROCESS.handles.get(dataset, Dataset), PROCESS.handles.get(aipp, DynamicAipp)
    check_index(settings_index, len(found.buffers), "input")
    try:
        packed = settings.packed()
    except (struct.error, OverflowError) as error:
        raise AclError(Code.INVALID_PARAM, f"settings of the dynamic AIPP are out of range: {error}") from error
    PROCESS.handles.get(found.buffers[settings_index], DataBuffer).array(np.dtype(np.uint8), (len(packed),))[:] = np.frombuffer(
        packed, np.uint8
    )
    found.settings[index] = replace(settings, common=dict(settings.common), pictures=[dict(picture) for picture in settings.pictures])
    PROCESS.handles.changed()


def convert_pictures(model: Model, index: int, settings: object, buffer: DataBuffer, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The pictures in `buffer` as input `index` takes them. Raises AclError where settings are missing or do not fit."""
    from anycann.picture_input import AXES, picture_input

    input_format = str(model.dynamic_aipp[index]["input_format"])
    batch, *sizes = (shape[axis] for axis in AXES[input_format])
    if not isinstance(settings, DynamicAipp):
        raise AclError(Code.GE_AIPP_MODE_INVALID, f"input {model.inputs[index].name!r} has dynamic AIPP and no settings; {_HOW}")
    if settings.batch != batch:
        raise AclError(Code.GE_AIPP_BATCH_EMPTY, f"the dynamic AIPP is for {settings.batch} pictures; the model takes {batch}")
    made = np.empty(shape, np.dtype(dtype))
    start = 0
    for number in range(batch):
        way = picture_input(settings.block(number), tuple(sizes), input_format, dtype)
        source = buffer.array(np.dtype(np.uint8), (start + way.nbytes,))
        way.convert(source[start:], made[number : number + 1])
        start += way.nbytes
    return made


_HOW = "acl.mdl.set_input_aipp gives them"
