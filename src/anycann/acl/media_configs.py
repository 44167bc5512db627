"""acl.media: channels, and how pictures are to be cut, scaled, framed and encoded."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.media_fields import Field, declare_fields, declare_life, one_of
from anycann.acl.media_pictures import series
from anycann.acl.process import PROCESS
from anycann.media.convert import Matrix
from anycann.media.filters import BorderKind
from anycann.media.picture import Region
from anycann.media.resize import Interpolation
from anycann.media.scratch import Scratch
from anycann.support.records import dataclass

MODES = {1: "VPC", 2: "JPEGD", 4: "JPEGE", 8: "PNGD"}
_EVERY_MODE = sum(MODES)
PARAMETER_BYTES = 4
_MATRIX = 0  # the only parameter of a channel: which RGB a YUV is


# ---- channels
@dataclass
class DvppChannel:
    """A channel for pictures. `modes`: what it is for, added up; open between create and destroy."""

    acl_word: ClassVar[str] = "DVPP channel description"
    modes: int = _EVERY_MODE
    matrix: int = int(Matrix.BT601_WIDE)
    number: int = -1
    scratch: Scratch = field(default_factory=Scratch, repr=False)

    def check_open_for(self, mode: int) -> None:
        """Raises AclError unless the channel was created, and for this mode."""
        if self.number < 0:
            raise AclError(Code.INVALID_PARAM, "the channel is not there; call acl.media.dvpp_create_channel first")
        if not self.modes & mode:
            names = ", ".join(name for bit, name in MODES.items() if self.modes & bit)
            raise AclError(Code.INVALID_PARAM, f"the channel was created for {names}; this needs one for {MODES[mode]}")


declare_life(DvppChannel, "dvpp_create_channel_desc", "dvpp_destroy_channel_desc")


@status("acl.media.dvpp_set_channel_desc_mode")
def dvpp_set_channel_desc_mode(desc: int, mode: int) -> None:
    """What the channel is for: 1 VPC, 2 JPEGD, 4 JPEGE, 8 PNGD, added up. Without it: everything."""
    channel = PROCESS.handles.get(desc, DvppChannel)
    if not 0 < mode <= _EVERY_MODE:
        raise AclError(Code.INVALID_PARAM, f"channel mode is {mode}; accepted: sums of 1 (VPC), 2 (JPEGD), 4 (JPEGE), 8 (PNGD)")
    channel.modes = mode


@value_and_status("acl.media.dvpp_set_channel_desc_param", returns="(desc, ret)")
def dvpp_set_channel_desc_param(desc: int, kind: int, number: int) -> int:
    """kind 0: which RGB a YUV is: 0 BT.601 wide, 1 narrow, 2 BT.709 wide, 3 narrow, 4 BT.2020 wide, 5 narrow."""
    channel = PROCESS.handles.get(desc, DvppChannel)
    check_matrix(kind, number)
    channel.matrix = number
    return desc


@value_and_status("acl.media.dvpp_get_channel_desc_param", failed=(0, 0), returns="(bytes, value, ret)")
def dvpp_get_channel_desc_param(desc: int, kind: int) -> tuple[int, int]:
    """How many bytes the parameter has, and what dvpp_set_channel_desc_param set."""
    channel = PROCESS.handles.get(desc, DvppChannel)
    check_matrix(kind, channel.matrix)
    return PARAMETER_BYTES, channel.matrix


def check_matrix(kind: int, number: int) -> None:
    """Raises AclError for a parameter that is not there."""
    if kind != _MATRIX:
        raise AclError(Code.INVALID_PARAM, f"parameter {kind} of a channel is not there; accepted: 0 (colour matrix)")
    if number not in {int(matrix) for matrix in Matrix}:
        raise AclError(Code.INVALID_PARAM, f"colour matrix is {number}; accepted: 0 (BT.601 wide) to 5 (BT.2020 narrow)")


@value("acl.media.dvpp_get_channel_desc_channel_id", failed=-1, returns="id")
def dvpp_get_channel_desc_channel_id(desc: int) -> int:
    """The number of a created channel."""
    return PROCESS.handles.get(desc, DvppChannel).number


@status("acl.media.dvpp_create_channel")
def dvpp_create_channel(desc: int) -> None:
    """Make the channel of a description ready."""
    PROCESS.context()
    channel = PROCESS.handles.get(desc, DvppChannel)
    if channel.number >= 0:
        raise AclError(Code.INVALID_PARAM, f"channel {channel.number} was created before; destroy it first")
    taken = {other.number for other in PROCESS.handles.live(DvppChannel).values()}
    channel.number = next(number for number in range(len(taken) + 1) if number not in taken)


@status("acl.media.dvpp_destroy_channel")
def dvpp_destroy_channel(desc: int) -> None:
    """End the channel; its description stays. What streams still have to do is done."""
    channel = PROCESS.handles.get(desc, DvppChannel)
    if channel.number < 0:
        raise AclError(Code.INVALID_PARAM, "the channel is not there: it was never created, or destroyed before")
    channel.number = -1


# ---- regions
@dataclass
class RoiConfig:
    """A rectangle of pixels; right and bottom belong to it."""

    acl_word: ClassVar[str] = "region"
    left: int
    right: int
    top: int
    bottom: int

    def region(self) -> Region:
        """Its numbers as they are now."""
        return Region(self.left, self.right, self.top, self.bottom)


@value("acl.media.dvpp_create_roi_config", returns="roi")
def dvpp_create_roi_config(left: int, right: int, top: int, bottom: int) -> int:
    """A region of a picture."""
    _check_region(left, right, top, bottom)
    return PROCESS.handles.add(RoiConfig(left, right, top, bottom))


@status("acl.media.dvpp_set_roi_config")
def dvpp_set_roi_config(roi: int, left: int, right: int, top: int, bottom: int) -> None:
    """Another region."""
    found = PROCESS.handles.get(roi, RoiConfig)
    _check_region(left, right, top, bottom)
    found.left, found.right, found.top, found.bottom = left, right, top, bottom


@status("acl.media.dvpp_destroy_roi_config")
def dvpp_destroy_roi_config(roi: int) -> None:
    """Forget a region."""
    PROCESS.handles.remove(roi, RoiConfig)


def _check_region(left: int, right: int, top: int, bottom: int) -> None:
    if not (0 <= left <= right and 0 <= top <= bottom):
        raise AclError(
            Code.INVALID_PARAM,
            f"the region is left {left}, right {right}, top {top}, bottom {bottom}; accepted: 0 <= left <= right, 0 <= top <= bottom",
        )


declare_fields(RoiConfig, "dvpp_{}_roi_config", {name: Field(name) for name in ("left", "right", "top", "bottom")}, gets=False)


# ---- scaling
_INTERPOLATIONS = {0: Interpolation.BILINEAR, 1: Interpolation.BILINEAR, 2: Interpolation.NEAREST, 5: Interpolation.BILINEAR}
_CORNERS = _INTERPOLATIONS | {3: Interpolation.BILINEAR_CORNERS, 4: Interpolation.NEAREST}
_ALIKE = _INTERPOLATIONS | {3: Interpolation.BILINEAR, 4: Interpolation.NEAREST}


@dataclass
class ResizeConfig:
    """How pixels between pixels are made."""

    acl_word: ClassVar[str] = "resize configuration"
    interpolation: int = 0

    def chosen(self) -> Interpolation:
        """What the number means on this chip."""
        return _accepted()[self.interpolation]


def _accepted() -> dict[int, Interpolation]:
    """310 and 910 scale from corners with 3 and 4, as TensorFlow does; 310P does not know them; newer chips take them for 1 and 2."""
    chip = series()
    if chip in ("310", "910"):
        return {number: chosen for number, chosen in _CORNERS.items() if number != 5}
    return {number: _INTERPOLATIONS[number] for number in (0, 1, 2)} if chip == "310P" else _ALIKE


declare_life(ResizeConfig, "dvpp_create_resize_config", "dvpp_destroy_resize_config")


@status("acl.media.dvpp_set_resize_config_interpolation", limits="the chip's own filter (0 on 310 and 910, 5 on newer ones) is bilinear")
def dvpp_set_resize_config_interpolation(config: int, interpolation: int) -> None:
    """0 the chip's default, 1 bilinear and 2 nearest as in OpenCV, 3 bilinear and 4 nearest as in TensorFlow."""
    found = PROCESS.handles.get(config, ResizeConfig)
    if interpolation not in _accepted():
        raise AclError(
            Code.INVALID_PARAM, f"interpolation is {interpolation}; {PROCESS.soc_name} accepts {', '.join(map(str, sorted(_accepted())))}"
        )
    found.interpolation = interpolation


@value("acl.media.dvpp_get_resize_config_interpolation")
def dvpp_get_resize_config_interpolation(config: int) -> int:
    """What was set."""
    return PROCESS.handles.get(config, ResizeConfig).interpolation


# ---- encoding and borders
@dataclass
class JpegeConfig:
    """How well pictures are encoded: 1 to 100, and 0 for 100."""

    acl_word: ClassVar[str] = "JPEG configuration"
    level: int = 100

    @property
    def quality(self) -> int:
        return self.level or 100


declare_life(JpegeConfig, "dvpp_create_jpege_config", "dvpp_destroy_jpege_config")
_LEVEL = Field("level", lambda number: 0 <= number <= 100, "1 (worst) to 100 (best), and 0 for 100")
declare_fields(JpegeConfig, "dvpp_{}_jpege_config", {"level": _LEVEL})


@dataclass
class BorderConfig:
    """Rows and columns around a picture, and what they hold."""

    acl_word: ClassVar[str] = "border configuration"
    border_type: int = 0
    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0
    values: list[float] = field(default_factory=lambda: [0.0] * 4)


BORDER_TYPES: dict[int, BorderKind] = {0: "constant", 1: "replicate", 2: "reflect", 3: "reflect 101"}
declare_life(BorderConfig, "dvpp_create_border_config", "dvpp_destroy_border_config")
declare_fields(
    BorderConfig,
    "dvpp_{}_border_config",
    {name: Field(name) for name in ("top", "bottom", "left", "right")} | {"border_type": Field("border_type", *one_of(BORDER_TYPES))},
)


@status("acl.media.dvpp_set_border_config_value")
def dvpp_set_border_config_value(config: int, index: int, number: float) -> None:
    """The sample of channel `index` in a constant border."""
    found = PROCESS.handles.get(config, BorderConfig)
    if not 0 <= index < len(found.values):
        raise AclError(Code.INVALID_PARAM, f"channel {index}; accepted: 0 to {len(found.values) - 1}")
    found.values[index] = number


@value("acl.media.dvpp_get_border_config_value", failed=0.0)
def dvpp_get_border_config_value(config: int, index: int) -> float:
    """What was set."""
    found = PROCESS.handles.get(config, BorderConfig)
    if not 0 <= index < len(found.values):
        raise AclError(Code.INVALID_PARAM, f"channel {index}; accepted: 0 to {len(found.values) - 1}")
    return found.values[index]
