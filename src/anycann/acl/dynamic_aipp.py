"""acl.mdl: settings of a dynamic AIPP, one set for a picture of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
import struct
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.data_buffers import check_index
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.support.errors import UsageError, describe
from anycann.support.records import dataclass

if TYPE_CHECKING:
    from anycann.picture_input import Aipp

HEAD_BYTES, PICTURE_BYTES = 64, 96  # of the settings as they lie in the input's memory
_COEFFICIENT, _BYTE, _SIZE, _HALF = (-32768, 32767), (0, 255), (1, 4096), (-65504, 65504)  # least and greatest
_FORMATS = {1: "YUV420SP_U8", 2: "XRGB8888_U8", 3: "RGB888_U8", 4: "YUV400_U8"}


@dataclass
class DynamicAipp:
    """What acl.mdl.set_aipp_* collect: settings for all pictures, and for each of them, by the names of the configuration file."""

    acl_word: ClassVar[str] = "dynamic AIPP"
    batch: int
    common: dict[str, object] = field(default_factory=dict)
    pictures: list[dict[str, object]] = field(default_factory=list)
    scaling: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)  # picture -> width and height before and after

    def copy(self) -> DynamicAipp:
        """The same, which later calls do not change."""
        return replace(self, common=dict(self.common), pictures=[dict(picture) for picture in self.pictures], scaling=dict(self.scaling))

    def table(self, sizes: tuple[int, int, int]) -> tuple[np.ndarray, int]:
        """What the operator reads of the settings, and the bytes of all pictures. Raises AclError where they do not make `sizes`."""
        from anycann.picture_input import picture_table

        try:
            return picture_table([self.block(number) for number in range(self.batch)], sizes)
        except UsageError as error:
            raise AclError(Code.INVALID_PARAM, describe(error)) from error

    def picture_bytes(self) -> int:
        """Of each picture."""
        block = self.block(0)
        return block.source_bytes(1, block.src_image_size_h, block.src_image_size_w)

    def made_size(self) -> tuple[int, int]:
        """Height and width of what is made of each picture. Raises AclError for a crop beyond it."""
        from anycann.picture_input import made_size

        block = self.block(0)
        try:
            return made_size(block, block.src_image_size_h, block.src_image_size_w)
        except UsageError as error:
            raise AclError(Code.INVALID_PARAM, describe(error)) from error

    def block(self, number: int) -> Aipp:
        """The settings of one picture as a block of a configuration file."""
        from anycann.picture_input import Aipp

        if "input_format" not in self.common:
            raise AclError(Code.INVALID_PARAM, "the dynamic AIPP has no input format; acl.mdl.set_aipp_input_format sets it")
        if "src_image_size_w" not in self.common:
            raise AclError(Code.INVALID_PARAM, "the dynamic AIPP has no source size; acl.mdl.set_aipp_src_image_size sets it")
        return Aipp(aipp_mode="static", **{**self.common, **self.pictures[number]})  # type: ignore[arg-type]

    def packed(self) -> bytes:
        """The settings as the chip's input holds them: 64 bytes, and 96 for each picture."""
        common = {name: int(setting) for name, setting in self.common.items() if not isinstance(setting, str)}  # type: ignore[call-overload]
        number = next((n for n, name in _FORMATS.items() if name == self.common.get("input_format")), 0)
        switches = [common.get(name, 0) for name in ("csc_switch", "rbuv_swap_switch", "ax_swap_switch")]
        matrix = [common.get(f"matrix_r{row}c{column}", 0) for row in range(3) for column in range(3)]
        biases = [common.get(f"{name}_{number}", 0) for name in ("output_bias", "input_bias") for number in range(3)]
        sizes = (common.get("src_image_size_w", 0), common.get("src_image_size_h", 0))
        head = struct.pack("<B3bB3x2i9h6x6B2x16x", number, *switches, self.batch % 256, *sizes, *matrix, *biases)
        return head.ljust(HEAD_BYTES, b"\0") + b"".join(
            _packed_picture(picture, self.scaling.get(number)) for number, picture in enumerate(self.pictures)
        )


def _packed_picture(picture: dict[str, object], scaling: tuple[int, int, int, int] | None) -> bytes:
    def number(name: str) -> int:
        return int(picture.get(name, 0))  # type: ignore[call-overload, no-any-return]

    sizes = [number(name) for name in ("load_start_pos_w", "load_start_pos_h", "crop_size_w", "crop_size_h")]
    pads = [number(f"{side}_padding_size") for side in ("top", "bottom", "left", "right")]
    means = [number(f"mean_chn_{channel}") for channel in range(4)]
    least = [float(picture.get(f"min_chn_{channel}", 0.0)) for channel in range(4)]  # type: ignore[arg-type]
    factors = [float(picture.get(f"var_reci_chn_{channel}", 1.0)) for channel in range(4)]  # type: ignore[arg-type]
    switches = (number("crop"), int(scaling is not None), number("padding"), 0)
    text = struct.pack("<4b4x4i4i4i4h4e4e16x", *switches, *sizes, *(scaling or (0, 0, 0, 0)), *pads, *means, *least, *factors)
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
    if _is_on(switch):
        _check(_COEFFICIENT, **matrix)
        _check(_BYTE, **biases)
        _set(aipp, **matrix, **biases)
    _set(aipp, csc_switch=bool(switch))


@status("acl.mdl.set_aipp_rbuv_swap_switch")
def set_aipp_rbuv_swap_switch(aipp: int, switch: int) -> None:
    """Red for blue, U for V."""
    _set(aipp, rbuv_swap_switch=_is_on(switch))


@status("acl.mdl.set_aipp_ax_swap_switch")
def set_aipp_ax_swap_switch(aipp: int, switch: int) -> None:
    """The first of four bytes of a pixel goes behind the others."""
    _set(aipp, ax_swap_switch=_is_on(switch))


@status("acl.mdl.set_aipp_src_image_size")
def set_aipp_src_image_size(aipp: int, width: int, height: int) -> None:
    """Size of the source pictures in pixels."""
    _check((2, 4096), width=width)
    _check(_SIZE, height=height)
    _set(aipp, src_image_size_w=width, src_image_size_h=height)


@status("acl.mdl.set_aipp_scf_params")
def set_aipp_scf_params(aipp: int, switch: int, in_w: int, in_h: int, out_w: int, out_h: int, picture: int) -> None:
    """Scaling of one picture, which Ascend reserves: set_input_aipp takes no settings with it (100000), here as on a chip."""
    found = _picture(aipp, picture)
    if not _is_on(switch):
        found.scaling.pop(picture, None)
        return
    _check((16, 4096), in_w=in_w, in_h=in_h, out_h=out_h)
    _check((16, 1920), out_w=out_w)
    found.scaling[picture] = (in_w, in_h, out_w, out_h)


@status("acl.mdl.set_aipp_crop_params")
def set_aipp_crop_params(aipp: int, switch: int, start_w: int, start_h: int, size_w: int, size_h: int, picture: int) -> None:
    """Crop of one picture."""
    found = _picture(aipp, picture)
    if _is_on(switch):
        _check((0, 4095), start_w=start_w, start_h=start_h)
        _check(_SIZE, size_w=size_w, size_h=size_h)
        places = {"load_start_pos_w": start_w, "load_start_pos_h": start_h, "crop_size_w": size_w, "crop_size_h": size_h}
        found.pictures[picture].update(places)
    found.pictures[picture]["crop"] = bool(switch)


@status("acl.mdl.set_aipp_padding_params")
def set_aipp_padding_params(aipp: int, switch: int, top: int, bottom: int, left: int, right: int, picture: int) -> None:
    """Padding of one picture with zeros, at most 32 on each side."""
    found, sizes = _picture(aipp, picture), {"top": top, "bottom": bottom, "left": left, "right": right}
    if _is_on(switch):
        _check((0, 32), **sizes)
        found.pictures[picture].update({f"{side}_padding_size": size for side, size in sizes.items()})
    found.pictures[picture]["padding"] = bool(switch)


@status("acl.mdl.set_aipp_dtc_pixel_mean")
def set_aipp_dtc_pixel_mean(aipp: int, c0: int, c1: int, c2: int, c3: int, picture: int) -> None:
    """What is subtracted from each channel of one picture."""
    _set_channels(aipp, picture, "mean_chn", (c0, c1, c2, c3), _BYTE)


@status("acl.mdl.set_aipp_dtc_pixel_min")
def set_aipp_dtc_pixel_min(aipp: int, c0: float, c1: float, c2: float, c3: float, picture: int) -> None:
    """What is subtracted from each channel of one picture, too."""
    _set_channels(aipp, picture, "min_chn", (c0, c1, c2, c3), _BYTE)


@status("acl.mdl.set_aipp_pixel_var_reci")
def set_aipp_pixel_var_reci(aipp: int, c0: float, c1: float, c2: float, c3: float, picture: int) -> None:
    """What each channel of one picture is multiplied by."""
    _set_channels(aipp, picture, "var_reci_chn", (c0, c1, c2, c3), _HALF)


@value_and_status("acl.mdl.get_aipp_data_size", returns="(bytes, ret)")
def get_aipp_data_size(batch: int) -> int:
    """Bytes of the input that takes the settings of a batch."""
    if batch < 1:
        raise AclError(Code.INVALID_PARAM, f"the batch is {batch}; accepted: at least 1")
    return HEAD_BYTES + PICTURE_BYTES * batch


def _set(aipp: int, **settings: object) -> None:
    PROCESS.handles.get(aipp, DynamicAipp).common.update(settings)


def _picture(aipp: int, number: int) -> DynamicAipp:
    """The settings, which have a picture of that number."""
    found = PROCESS.handles.get(aipp, DynamicAipp)
    check_index(number, found.batch, "picture")
    return found


def _set_channels(aipp: int, picture: int, name: str, numbers: Sequence[float], bounds: tuple[int, int]) -> None:
    found, settings = _picture(aipp, picture), {f"{name}_{channel}": number for channel, number in enumerate(numbers)}
    _check(bounds, **settings)
    found.pictures[picture].update(settings)


def _is_on(switch: int) -> bool:
    _check((0, 1), switch=switch)
    return bool(switch)


def _check(bounds: tuple[int, int], **numbers: float) -> None:
    """Raises AclError for a number that is not between the bounds."""
    least, most = bounds
    for name, number in numbers.items():
        if not least <= number <= most:
            raise AclError(Code.INVALID_PARAM, f"{name} is {number}; accepted: {least} to {most}")
