"""acl.himpi: pictures cut, scaled, pasted, converted and framed by channels with numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import itertools
import threading
import time
from typing import Any, TypeAlias

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.himpi_system import Channels, Dict, code_of, dict_in, errors_of, number_in, picture_of
from anycann.acl.media_configs import BORDER_TYPES
from anycann.acl.process import PROCESS
from anycann.media.convert import Matrix
from anycann.media.filters import Border, add_border
from anycann.media.picture import Picture, Region
from anycann.media.resize import Interpolation
from anycann.media.scale import check_inside, transfer
from anycann.runtime.stream import Stream

_INTERPOLATIONS = {0: Interpolation.BILINEAR, 1: Interpolation.BILINEAR, 2: Interpolation.NEAREST}
FOREVER = -1
_VPC_MODULE = 7
Transfer: TypeAlias = tuple[Dict, Dict, Region | None, Region | None, Interpolation]  # input, output, crop, paste


class VpcChannel:
    """Does its tasks in order on a thread of its own, and keeps how each went until it is asked."""

    def __init__(self) -> None:
        self.matrix = Matrix.BT601_WIDE
        self._stream = Stream("VPC channel")
        self._numbers = itertools.count(1)
        self._results: dict[int, BaseException | None] = {}
        self._waiting: set[int] = set()
        self._changed = threading.Condition()

    def submit(self, task: Callable[[], None]) -> int:
        """Do `task` later; its number."""
        number = next(self._numbers)
        with self._changed:
            self._waiting.add(number)
        self._stream.submit(lambda: self._run(number, task))
        return number

    def result(self, number: int, timeout_ms: int) -> None:
        """Wait for a task. Raises what it raised, and AclError for a task that is not there or takes longer."""
        deadline = time.monotonic() + timeout_ms / 1000
        with self._changed:
            while number in self._waiting:
                if not self._changed.wait(None if timeout_ms == FOREVER else max(0.0, deadline - time.monotonic())):
                    raise AclError(code_of("VPC", "TIMEOUT"), f"task {number} was not done after {timeout_ms} ms")
            if number not in self._results:
                raise AclError(Code.INVALID_PARAM, f"task {number} is not there: never given, or its result was fetched before")
            error = self._results.pop(number)
        if error is not None:
            raise error

    def close(self) -> None:
        """Do what waits and end."""
        self._stream.synchronize()
        self._stream.close()

    def _run(self, number: int, task: Callable[[], None]) -> None:
        error: BaseException | None = None
        try:
            task()
        except Exception as raised:
            error = raised
        with self._changed:
            self._results[number] = error
            self._waiting.discard(number)
            self._changed.notify_all()


CHANNELS: Channels[VpcChannel] = Channels("VPC")


@status("acl.himpi.vpc_create_chn")
def vpc_create_chn(channel: int, attributes: dict[str, Any]) -> None:
    """A channel with a number of the program's."""
    with errors_of("VPC"):
        PROCESS.context()
        CHANNELS.check_free(channel)
        CHANNELS.add(channel, VpcChannel())


@value_and_status("acl.himpi.vpc_sys_create_chn", failed=(-1,), returns="(channel, ret)")
def vpc_sys_create_chn(attributes: dict[str, Any]) -> int:
    """A channel with a number that is free."""
    with errors_of("VPC"):
        number = CHANNELS.free_number()
        CHANNELS.check_free(number)
        CHANNELS.add(number, VpcChannel())
        return number


@status("acl.himpi.sys_set_chn_csc_matrix", limits="coefficients of one's own are not used")
def sys_set_chn_csc_matrix(module: int, channel: int, matrix: int, coefficients: dict[str, Any]) -> None:
    """Which RGB the YUV of a VPC channel (module 7) is: 0 BT.601 wide, 1 narrow, 2 and 3 BT.709, 4 and 5 BT.2020."""
    with errors_of("VPC"):
        found = _with_matrix(module, channel)
        if matrix not in tuple(Matrix):
            raise AclError(Code.INVALID_PARAM, f"colour matrix {matrix}; accepted: {', '.join(f'{m.value} ({m.name})' for m in Matrix)}")
        found.matrix = Matrix(matrix)


@value_and_status("acl.himpi.sys_get_chn_csc_matrix", failed=(0, {}), returns="(matrix, dict, ret)", limits="the dict is empty")
def sys_get_chn_csc_matrix(module: int, channel: int) -> tuple[int, dict[str, object]]:
    """What was set."""
    with errors_of("VPC"):
        return int(_with_matrix(module, channel).matrix), {}


def _with_matrix(module: int, channel: int) -> VpcChannel:
    if module != _VPC_MODULE:
        raise AclError(Code.INVALID_PARAM, f"module {module} has no colour matrix; accepted: {_VPC_MODULE} (VPC)")
    return CHANNELS.get(channel)


@status("acl.himpi.vpc_destroy_chn")
def vpc_destroy_chn(channel: int) -> None:
    """End a channel after its tasks."""
    with errors_of("VPC"):
        CHANNELS.remove(channel).close()


@status("acl.himpi.vpc_get_process_result")
def vpc_get_process_result(channel: int, task: int, timeout_ms: int) -> None:
    """Wait for a task for at most `timeout_ms` (-1: for ever); its code."""
    with errors_of("VPC"):
        CHANNELS.get(channel).result(task, timeout_ms)


def _submit(channel: int, pairs: Sequence[Transfer]) -> int:
    found = CHANNELS.get(channel)
    for source, target, crop, paste, _ in pairs:
        one, other = picture_of(source, "input"), picture_of(target, "output")
        check_inside(crop or one.whole, one, "crop")
        check_inside(paste or other.whole, other, "paste")
    given = [(dict(source), dict(target), crop, paste, chosen) for source, target, crop, paste, chosen in pairs]

    def task() -> None:
        for source, target, crop, paste, chosen in given:
            transfer(picture_of(source, "input"), picture_of(target, "output"), crop, paste, chosen, found.matrix)

    return found.submit(task)


def _interpolation(number: int) -> Interpolation:
    if number not in _INTERPOLATIONS:
        raise AclError(Code.INVALID_PARAM, f"resize interpolation {number} is not supported; accepted: 0 and 1 (bilinear), 2 (nearest)")
    return _INTERPOLATIONS[number]


def _crop(info: Dict) -> Region:
    region = dict_in(info, "crop_region", "the crop")
    left, top, width, height = (number_in(region, key, "crop_region") for key in ("left_offset", "top_offset", "crop_width", "crop_height"))
    return Region(left, left + width - 1, top, top + height - 1)


def _paste(info: Dict) -> Region:
    """Where the scaled region goes: resize_info's size, from the offsets on (0 where there are none)."""
    size = dict_in(info, "resize_info", "the crop")
    width, height = (number_in(size, key, "resize_info") for key in ("resize_width", "resize_height"))
    left, top = info.get("dest_left_offset", 0), info.get("dest_top_offset", 0)
    return Region(left, left + width - 1, top, top + height - 1)


def _regions(channel: int, source: Dict, infos: list[Dict], count: int, scaled: bool) -> int:
    if len(infos) != count:
        raise AclError(Code.INVALID_PARAM, f"{len(infos)} regions, and the count says {count}; accepted: the same")
    pairs = []
    for info in infos:
        how = (
            _interpolation(number_in(dict_in(info, "resize_info", "the crop"), "interpolation", "resize_info"))
            if scaled
            else _INTERPOLATIONS[0]
        )
        pairs.append((source, dict_in(info, "dest_pic_info", "the crop"), _crop(info), _paste(info) if scaled else None, how))
    return _submit(channel, pairs)


@value_and_status("acl.himpi.vpc_resize", returns="(task, ret)")
def vpc_resize(
    channel: int, source: dict[str, Any], target: dict[str, Any], fx: float, fy: float, interpolation: int, timeout_ms: int
) -> int:
    """Scale a picture to the size of another; fx and fy are 0 or say the same. interpolation: 0 and 1 bilinear, 2 nearest."""
    with errors_of("VPC"):
        return _submit(channel, [(source, target, None, None, _interpolation(interpolation))])


@value_and_status("acl.himpi.vpc_crop", returns="(task, ret)")
def vpc_crop(channel: int, source: dict[str, Any], regions: list[Any], count: int, timeout_ms: int) -> int:
    """Cut regions: {dest_pic_info, crop_region} each, scaled to the picture they go to."""
    with errors_of("VPC"):
        return _regions(channel, source, regions, count, scaled=False)


@value_and_status("acl.himpi.vpc_crop_resize", returns="(task, ret)")
def vpc_crop_resize(channel: int, source: dict[str, Any], regions: list[Any], count: int, timeout_ms: int) -> int:
    """Cut and scale regions: {dest_pic_info, crop_region, resize_info} each."""
    with errors_of("VPC"):
        return _regions(channel, source, regions, count, scaled=True)


@value_and_status("acl.himpi.vpc_crop_resize_paste", returns="(task, ret)")
def vpc_crop_resize_paste(channel: int, source: dict[str, Any], regions: list[Any], count: int, timeout_ms: int) -> int:
    """Cut, scale and paste regions: as vpc_crop_resize, with dest_top_offset and dest_left_offset."""
    with errors_of("VPC"):
        return _regions(channel, source, regions, count, scaled=True)


@value_and_status("acl.himpi.vpc_convert_color", returns="(task, ret)")
def vpc_convert_color(channel: int, source: dict[str, Any], target: dict[str, Any], timeout_ms: int) -> int:
    """Convert a picture to the format of another of the same size."""
    with errors_of("VPC"):
        return _convert(channel, source, target)


@value_and_status("acl.himpi.vpc_convert_color_v2", returns="(task, ret)", limits="alpha is 255")
def vpc_convert_color_v2(
    channel: int, source: dict[str, Any], target: dict[str, Any], configuration: dict[str, Any], timeout_ms: int
) -> int:
    """As vpc_convert_color."""
    with errors_of("VPC"):
        return _convert(channel, source, target)


@value_and_status("acl.himpi.vpc_convert_color_to_yuv420", returns="(task, ret)")
def vpc_convert_color_to_yuv420(channel: int, source: dict[str, Any], target: dict[str, Any], timeout_ms: int) -> int:
    """As vpc_convert_color, to YUV420SP."""
    with errors_of("VPC"):
        if picture_of(target, "output").format.number not in (1, 2):
            raise AclError(Code.INVALID_PARAM, f"the output has format {target['picture_format']}; accepted: 1, 2 (YUV420SP)")
        return _convert(channel, source, target)


def _convert(channel: int, source: Dict, target: Dict) -> int:
    one, other = picture_of(source, "input"), picture_of(target, "output")
    if (one.width, one.height) != (other.width, other.height):
        raise AclError(
            Code.INVALID_PARAM,
            f"the input has {one.width} x {one.height} pixels, the output {other.width} x {other.height}; accepted: the same",
        )
    return _submit(channel, [(source, target, None, None, _INTERPOLATIONS[0])])


@value_and_status("acl.himpi.vpc_copy_make_border", returns="(task, ret)")
def vpc_copy_make_border(channel: int, source: dict[str, Any], target: dict[str, Any], border: dict[str, Any], timeout_ms: int) -> int:
    """Copy a picture and put a border around it: {top, bottom, left, right, border_type, scalar_value: {val: [...]}}."""
    with errors_of("VPC"):
        found, wanted = CHANNELS.get(channel), _border(border)
        pictures: tuple[Picture, Picture] = picture_of(source, "input"), picture_of(target, "output")
        return found.submit(lambda: add_border(pictures[0].view(), pictures[1].view(), wanted))


def _border(given: Dict) -> Border:
    top, bottom, left, right, kind = (number_in(given, key, "the border") for key in ("top", "bottom", "left", "right", "border_type"))
    if kind not in BORDER_TYPES:
        raise AclError(
            Code.INVALID_PARAM, f"border type {kind}; accepted: {', '.join(f'{key} ({name})' for key, name in BORDER_TYPES.items())}"
        )
    values = [int(min(max(number, 0), 255)) for number in dict_in(given, "scalar_value", "the border").get("val", ())]
    return Border(BORDER_TYPES[kind], top, bottom, left, right, tuple((values + [0] * 4)[:4]))
