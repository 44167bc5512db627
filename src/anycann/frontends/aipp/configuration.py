"""The AIPP configuration of atc (`--insert_op_conf`): text protobuf, one `aipp_op` block for each input."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from anycann.support.errors import UnsupportedError, UsageError
from anycann.support.records import dataclass

# format -> (bytes of a pixel as a fraction, channels the model sees)
BYTES_PER_PIXEL: dict[str, tuple[int, int]] = {"YUV420SP_U8": (3, 2), "XRGB8888_U8": (4, 1), "RGB888_U8": (3, 1), "YUV400_U8": (1, 1)}
FORMAT_NUMBERS = {"YUV420SP_U8": 1, "XRGB8888_U8": 2, "RGB888_U8": 3, "YUV400_U8": 4}
_MODES = ("undefined", "static", "dynamic")


@dataclass(frozen=True)
class Aipp:
    """One `aipp_op` block, by the names of the file. Sizes of 0 stand for the model's own."""

    aipp_mode: str = "undefined"
    input_format: str = ""
    related_input_rank: int = 0
    related_input_name: str = ""
    input_edge_idx: int = 0
    max_src_image_size: int = 0
    support_rotation: bool = False
    src_image_size_w: int = 0
    src_image_size_h: int = 0
    crop: bool = False
    load_start_pos_w: int = 0
    load_start_pos_h: int = 0
    crop_size_w: int = 0
    crop_size_h: int = 0
    resize: bool = False
    resize_input_w: int = 0
    resize_input_h: int = 0
    resize_output_w: int = 0
    resize_output_h: int = 0
    padding: bool = False
    left_padding_size: int = 0
    right_padding_size: int = 0
    top_padding_size: int = 0
    bottom_padding_size: int = 0
    padding_value: float = 0.0
    cpadding_value: float = 0.0
    rotation_angle: int = 0
    csc_switch: bool = False
    rbuv_swap_switch: bool = False
    ax_swap_switch: bool = False
    single_line_mode: bool = False
    matrix_r0c0: int = 298
    matrix_r0c1: int = 516
    matrix_r0c2: int = 0
    matrix_r1c0: int = 298
    matrix_r1c1: int = -100
    matrix_r1c2: int = -208
    matrix_r2c0: int = 298
    matrix_r2c1: int = 0
    matrix_r2c2: int = 409
    output_bias_0: int = 16
    output_bias_1: int = 128
    output_bias_2: int = 128
    input_bias_0: int = 16
    input_bias_1: int = 128
    input_bias_2: int = 128
    mean_chn_0: int = 0
    mean_chn_1: int = 0
    mean_chn_2: int = 0
    mean_chn_3: int = 0
    min_chn_0: float = 0.0
    min_chn_1: float = 0.0
    min_chn_2: float = 0.0
    min_chn_3: float = 0.0
    var_reci_chn_0: float = 1.0
    var_reci_chn_1: float = 1.0
    var_reci_chn_2: float = 1.0
    var_reci_chn_3: float = 1.0
    raw_rgbir_to_f16_n: int = 8

    @property
    def is_yuv(self) -> bool:
        return self.input_format == "YUV420SP_U8"

    def matrix(self) -> tuple[tuple[int, int, int], ...]:
        """The rows of the colour matrix."""
        return tuple(tuple(getattr(self, f"matrix_r{row}c{column}") for column in range(3)) for row in range(3))

    def triple(self, name: str, count: int = 3) -> tuple[float, ...]:
        """`name_0`, `name_1`, ..."""
        return tuple(getattr(self, f"{name}_{number}") for number in range(count))

    def source_bytes(self, batch: int, height: int, width: int) -> int:
        """Bytes of a batch of pictures in the source format."""
        numerator, denominator = BYTES_PER_PIXEL[self.input_format]
        return batch * height * width * numerator // denominator


# field -> (least, most)
_RANGES: dict[str, tuple[float, float]] = {
    "related_input_rank": (0, 1 << 31), "src_image_size_w": (0, 4096), "src_image_size_h": (0, 4096), "load_start_pos_w": (0, 4095),
    "load_start_pos_h": (0, 4095), "crop_size_w": (0, 4096), "crop_size_h": (0, 4096), "left_padding_size": (0, 32),
    "right_padding_size": (0, 32), "top_padding_size": (0, 32), "bottom_padding_size": (0, 32), "rotation_angle": (0, 3),
    **{f"matrix_r{row}c{column}": (-32768, 32767) for row in range(3) for column in range(3)},
    **{f"{name}_{number}": (0, 255) for name in ("output_bias", "input_bias") for number in range(3)},
    **{f"mean_chn_{number}": (0, 255) for number in range(4)},
    **{f"min_chn_{number}": (0, 255) for number in range(4)},
    **{f"var_reci_chn_{number}": (-65504, 65504) for number in range(4)},
}  # fmt: skip
# switches that Ascend reserves
_RESERVED = ("support_rotation", "resize", "single_line_mode")


def read_aipp(text: str, where: str) -> tuple[Aipp, ...]:
    """The blocks of a configuration. Raises UsageError, beginning with `where`, for a damaged one or a setting out of range."""
    message = _message_class()()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise UsageError(f"{where}: {error}; accepted: `aipp_op {{ aipp_mode: static ... }}` with the fields of AIPP") from error
    if not message.aipp_op:
        raise UsageError(f"{where} has no aipp_op block")
    blocks = tuple(_block(block, f"{where}: aipp_op {number}") for number, block in enumerate(message.aipp_op))
    ranks = [block.related_input_rank for block in blocks]
    if len(set(ranks)) != len(ranks):
        raise UsageError(f"{where}: two blocks are for input {next(rank for rank in ranks if ranks.count(rank) > 1)} (related_input_rank)")
    return blocks


def _block(message: Any, where: str) -> Aipp:
    given: dict[str, Any] = {field.name: value for field, value in message.ListFields()}
    for name in ("aipp_mode", "input_format"):
        if name in given:
            given[name] = message.DESCRIPTOR.fields_by_name[name].enum_type.values_by_number[given[name]].name
    rounded: dict[str, Any] = {name: round(value, 7) if isinstance(value, float) else value for name, value in given.items()}
    block = Aipp(**rounded)
    check_block(block, where)
    return block


def check_block(block: Aipp, where: str) -> None:
    """Raises UsageError, beginning with `where`, for settings that are missing or out of range."""
    if block.aipp_mode not in _MODES[1:]:
        raise UsageError(f"{where}: aipp_mode is missing; accepted: static, dynamic")
    if block.aipp_mode == "dynamic":
        if block.max_src_image_size <= 0:
            raise UsageError(
                f"{where}: max_src_image_size is {block.max_src_image_size}; a dynamic block needs the bytes of the largest picture"
            )
        return
    if block.input_format not in BYTES_PER_PIXEL:
        raise UsageError(f"{where}: input_format is {block.input_format or 'missing'}; accepted: {', '.join(BYTES_PER_PIXEL)}")
    for name, (least, most) in _RANGES.items():
        value = getattr(block, name)
        if not least <= value <= most:
            raise UsageError(f"{where}: {name} is {value}; accepted: {least} to {most}")
    for name in _RESERVED:
        if getattr(block, name):
            raise UnsupportedError(f"{where}: {name} is reserved by Ascend and does nothing; leave it out")
    odd = [name for name in ("src_image_size_w", "src_image_size_h", "load_start_pos_w", "load_start_pos_h") if getattr(block, name) % 2]
    if block.is_yuv and odd:
        raise UsageError(
            f"{where}: {odd[0]} is {getattr(block, odd[0])}; YUV420SP_U8 has one colour for two by two pixels: even numbers only"
        )


# ---- the schema of the file
@cache
def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="anycann_aipp.proto", package="anycann.aipp", syntax="proto2")
    _add_enum(file, "Mode", dict(zip(_MODES, range(len(_MODES)), strict=True)))
    _add_enum(file, "InputFormat", FORMAT_NUMBERS)
    block = file.message_type.add(name="AippOp")
    for number, field in enumerate(fields(Aipp), 1):
        _add_field(block, field.name, number, str(field.type))
    whole = file.message_type.add(name="Configuration")
    whole.field.add(name="aipp_op", number=1, label=3, type=11, type_name=".anycann.aipp.AippOp")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("anycann.aipp.Configuration"))


_ENUMS = {"aipp_mode": "Mode", "input_format": "InputFormat"}
_PROTO_TYPES = {"int": 3, "float": 2, "bool": 8, "str": 9}  # int64, float, bool, string


def _add_enum(file: Any, name: str, values: dict[str, int]) -> None:
    made = file.enum_type.add(name=name)
    for word, number in values.items():
        made.value.add(name=word, number=number)


def _add_field(block: Any, name: str, number: int, type_: str) -> None:
    if name in _ENUMS:
        block.field.add(name=name, number=number, label=1, type=14, type_name=f".anycann.aipp.{_ENUMS[name]}")
    else:
        block.field.add(name=name, number=number, label=1, type=_PROTO_TYPES[type_])
