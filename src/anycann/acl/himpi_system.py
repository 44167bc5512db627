"""acl.himpi: the second media interface: its memory, its channels by number, its codes; and what both have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError, as_acl_error
from anycann.acl.media_pictures import PicDesc, stride_alignment
from anycann.acl.memory import give_back, take_device_memory
from anycann.acl.process import PROCESS
from anycann.media.formats import pixel_format
from anycann.media.picture import Picture
from anycann.support.errors import UnsupportedError

Module = Literal["VPC", "VDEC", "VENC"]
Dict = Mapping[str, Any]
T = TypeVar("T")
_MOST_CHANNELS = 256
_VERSION = (1, 0, 0)
_ROWS = 2  # what the height of a YUV picture is aligned to


class System:
    """Whether sys_init was called."""

    def __init__(self) -> None:
        self.ready = False


SYSTEM = System()


def code_of(module: Module, name: str) -> Code:
    """HI_ERR_{module}_{name}."""
    return Code[f"HI_{module}_{name}"]


@contextmanager
def errors_of(module: Module) -> Iterator[None]:
    """Inside, errors become those that himpi documents for the module."""
    try:
        yield
    except Exception as error:
        problem = as_acl_error(error)
        if problem.code.name.startswith("HI_"):
            raise problem from error
        kind = "NOT_SUPPORT" if isinstance(error, UnsupportedError) else _KINDS.get(problem.code, "SYS_ERROR")
        raise AclError(code_of(module, kind), str(problem)) from error


_KINDS = {
    Code.INVALID_PARAM: "ILLEGAL_PARAM",
    Code.RT_PARAM_INVALID: "BAD_ADDR",
    Code.RT_MEMORY_ALLOCATION: "NO_MEM",
    Code.UNSUPPORTED_JPEG: "NOT_SUPPORT",
    Code.RT_CONTEXT_NULL: "SYS_NOT_READY",
}


class Channels(Generic[T]):
    """The channels of a module, by the numbers that programs give them."""

    def __init__(self, module: Module):
        self.module = module
        self._open: dict[int, T] = {}

    def check_free(self, number: int) -> None:
        """Raises AclError for a number that is taken or out of range, and before sys_init."""
        if not SYSTEM.ready:
            raise AclError(code_of(self.module, "SYS_NOT_READY"), "the media system is not ready; call acl.himpi.sys_init first")
        if not 0 <= number < _MOST_CHANNELS:
            raise AclError(code_of(self.module, "INVALID_CHN_ID"), f"channel {number}; accepted: 0 to {_MOST_CHANNELS - 1}")
        if number in self._open:
            raise AclError(code_of(self.module, "EXIST"), f"channel {number} is there already; destroy it first")

    def add(self, number: int, channel: T) -> None:
        """Open a channel under a free number."""
        self._open[number] = channel

    def free_number(self) -> int:
        """The first number that no channel has."""
        return next(number for number in range(_MOST_CHANNELS + 1) if number not in self._open)

    def get(self, number: int) -> T:
        """An open channel. Raises AclError if there is none."""
        if number not in self._open:
            raise AclError(code_of(self.module, "UNEXIST"), f"channel {number} is not there: never created, or destroyed before")
        return self._open[number]

    def remove(self, number: int) -> T:
        """Close a channel. Raises AclError if there is none."""
        channel = self.get(number)
        del self._open[number]
        return channel


def number_in(given: Dict, key: str, where: str) -> int:
    """An int of a dict. Raises AclError where it is missing or something else."""
    found = given.get(key)
    if not isinstance(found, int):
        raise AclError(Code.INVALID_PARAM, f"{where}[{key!r}] is {found!r:.60}; accepted: an int")
    return found


def dict_in(given: Dict, key: str, where: str) -> Dict:
    """A dict of a dict. Raises AclError where it is missing or something else."""
    found = given.get(key)
    if not isinstance(found, dict):
        raise AclError(Code.INVALID_PARAM, f"{where}[{key!r}] is {found!r:.60}; accepted: a dict")
    return found


def picture_of(given: Dict, role: str) -> Picture:
    """The picture that a hi_vpc_pic_info or hi_pic_info speaks of. Raises AclError for one that is not there or too small."""
    names = ("address", "buffer_size", "format", "width", "height", "width_stride", "height_stride")
    return PicDesc(*(number_in(given, f"picture_{name}", f"the {role} picture") for name in names)).picture(role)


@status("acl.himpi.sys_init")
def sys_init() -> None:
    """Make the media system ready."""
    PROCESS.context()
    SYSTEM.ready = True


@status("acl.himpi.sys_exit")
def sys_exit() -> None:
    """End the media system; channels are destroyed by their own functions."""
    SYSTEM.ready = False


@value_and_status("acl.himpi.dvpp_malloc", returns="(ptr, ret)")
def dvpp_malloc(device: int, size: int) -> int:
    """Memory of a device for pictures and streams."""
    with errors_of("VPC"):
        return take_device_memory(size, 0, "dvpp", PROCESS.device(device))


@status("acl.himpi.dvpp_free")
def dvpp_free(ptr: int) -> None:
    """Give memory of dvpp_malloc back."""
    with errors_of("VPC"):
        give_back(ptr, ("dvpp",), "acl.himpi.dvpp_malloc")


@value_and_status("acl.himpi.dvpp_get_version", failed=(0, 0, 0), returns="(major, minor, patch, ret)")
def dvpp_get_version() -> tuple[int, int, int]:
    """Version of the interface."""
    return _VERSION


@value_and_status("acl.himpi.sys_get_image_align_info", failed=(None,), returns="(dict, ret)")
def sys_get_image_align_info(modules: list[int], count: int, base: dict[str, Any]) -> dict[str, object]:
    """Strides and bytes that suit a picture of {width, height, pixel_format} on this chip."""
    with errors_of("VPC"):
        form = pixel_format(number_in(base, "pixel_format", "hi_img_base_info"))
        width, height = (number_in(base, key, "hi_img_base_info") for key in ("width", "height"))
        alignment = stride_alignment(form)
        stride = form.row_bytes(-(-width // alignment) * alignment)
        rows = -(-height // _ROWS) * _ROWS if form.down > 1 else height
        return {"width_stride": stride, "height_stride": rows, "img_buf_size": form.nbytes(stride, rows), "reserved": [0, 0]}
