"""What programs of himpi have at hand: memory, pictures and streams as dicts."""

from __future__ import annotations

import ctypes
from types import ModuleType

import numpy as np
from numpy.typing import NDArray


def memory(mpi: ModuleType, content: NDArray[np.uint8] | bytes | int) -> tuple[int, int]:
    data = np.zeros(content, np.uint8) if isinstance(content, int) else np.frombuffer(content, np.uint8)
    ptr, ret = mpi.dvpp_malloc(0, data.nbytes)
    assert ret == 0
    ctypes.memmove(ptr, data.ctypes.data, data.nbytes)
    return ptr, data.nbytes


def picture(mpi: ModuleType, form: int, width: int, height: int, content: NDArray[np.uint8] | None = None) -> dict[str, int]:
    stride = width * (3 if form == 12 else 1)
    size = stride * height * (1 if form == 12 else 3) // (1 if form == 12 else 2)
    ptr, _ = memory(mpi, size if content is None else content)
    return {
        "picture_address": ptr, "picture_buffer_size": size, "picture_format": form, "picture_width": width, "picture_height": height,
        "picture_width_stride": stride, "picture_height_stride": height,
    }  # fmt: skip


def bytes_at(given: dict[str, int]) -> NDArray[np.uint8]:
    return np.frombuffer(ctypes.string_at(given["picture_address"], given["picture_buffer_size"]), np.uint8)


def gray_nv12(width: int, height: int) -> NDArray[np.uint8]:
    data = np.full(width * height * 3 // 2, 128, np.uint8)
    data[: width * height] = (np.arange(width * height) % 251).astype(np.uint8)
    return data


def done(mpi: ModuleType, task: tuple[int, int], channel: int = 0) -> int:
    assert task[1] == 0
    return int(mpi.vpc_get_process_result(channel, task[0], 5000))


def stream_of(ptr: int, length: int, end: int = 0) -> dict[str, int]:
    return {"addr": ptr, "len": length, "pts": 7, "private_data": 0, "end_of_frame": 1, "end_of_stream": end, "need_display": 1}


def output(mpi: ModuleType, size: int, form: int = 1) -> dict[str, int]:
    ptr, _ = memory(mpi, size)
    names = ("width", "height", "width_stride", "height_stride", "offset_top", "offset_bottom", "offset_left", "offset_right")
    return {**dict.fromkeys(names, 0), "vir_addr": ptr, "buffer_size": size, "pixel_format": form}
