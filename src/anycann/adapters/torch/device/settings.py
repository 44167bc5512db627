"""Switches of torch_npu. What they choose on Ascend (how an operator is compiled, which format it computes in) is chosen by the compiler
here, so they are checked and kept, programs can ask for them, and results do not change."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
import os
from pathlib import Path
from typing import Any
import warnings

import torch


class CubeMathType(IntEnum):
    """How products of float32 may be computed."""

    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3
    USE_FP32_ADD = 4


def _aicore_number(text: str) -> bool:
    return text.isdigit() and 1 <= int(text) <= 32


_ACCEPTED: dict[str, tuple[str, ...] | Callable[[str], bool]] = {
    "ACL_PRECISION_MODE": ("allow_fp32_to_fp16", "must_keep_origin_dtype"),
    "ACL_OP_SELECT_IMPL_MODE": ("high_performance", "high_precision"),
    "ACL_AICORE_NUM": _aicore_number,
    "ACL_OP_DEBUG_LEVEL": ("0", "1", "2", "3", "4"),
    "ACL_OP_COMPILER_CACHE_MODE": ("disable", "enable", "force"),
}
_DEPRECATED = ("ACL_OP_SELECT_IMPL_MODE", "ACL_OPTYPELIST_FOR_IMPLMODE")
options: dict[str, str] = {"jitCompile": "disable"}


def set_option(option: dict[str, Any]) -> None:
    """Keep options of the operator compiler. Raises TypeError if `option` is no dict, ValueError for a value an option does not accept."""
    if not isinstance(option, dict):
        raise TypeError("npu option must be a dict.")
    for name, value in option.items():
        accepted = _ACCEPTED.get(name)
        if accepted is not None and not (accepted(str(value)) if callable(accepted) else str(value) in accepted):
            described = "a number from 1 to 32" if callable(accepted) else f"in {list(accepted)}"
            raise ValueError(f"value of {name} should be {described} but got {value}")
        if name in _DEPRECATED:
            warnings.warn(f"{name} will be deprecated in a future version", stacklevel=2)
    if option.get("MM_BMM_ND_ENABLE") in ("enable", "disable"):
        set_mm_bmm_format_nd(option["MM_BMM_ND_ENABLE"] == "enable")
    options.update({name: str(value) for name, value in option.items()})


def set_compile_mode(jit_compile: bool = False) -> None:
    """Whether operators are compiled for the shapes they meet, or come from the library of compiled ones."""
    options["jitCompile"] = "enable" if jit_compile else "disable"


def is_jit_compile_false() -> bool:
    """Whether `set_compile_mode(jit_compile=False)` holds, as at the start."""
    return options["jitCompile"] == "disable"


def set_mm_bmm_format_nd(is_nd: bool = True) -> None:
    """Whether products take row-major operands."""
    options["MM_BMM_ND_ENABLE"] = "enable" if is_nd else "disable"


def get_mm_bmm_format_nd() -> bool:
    """What `set_mm_bmm_format_nd` said, True at the start."""
    return options.get("MM_BMM_ND_ENABLE", "enable") == "enable"


def set_aoe(dump_path: str) -> None:
    """Keep the folder, made if it is not there, where graphs for AOE would be written: eager operators have no graph, so it stays empty."""
    Path(dump_path).mkdir(parents=True, exist_ok=True)
    options.update({"autotune": "enable", "autotunegraphdumppath": str(dump_path)})


def init_dump() -> None:
    """Begin dumping."""
    options["mdldumpswitch"] = "enable"


def set_dump(cfg_file: str) -> None:
    """Keep the configuration of the dump. Raises AssertionError if the file is not there."""
    if not os.path.exists(cfg_file):
        raise AssertionError(f"cfg_file {cfg_file} path does not exists.")
    options["mdldumpconfigpath"] = os.path.realpath(cfg_file)


def finalize_dump() -> None:
    """End dumping."""
    options["mdldumpswitch"] = "disable"


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Say what happens where a program waits for the device: 0 or "default", 1 or "warn", 2 or "error". Nothing waits here."""
    modes = {"default": 0, "warn": 1, "error": 2}
    mode = modes.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if mode not in modes.values():
        raise RuntimeError(f"invalid value of debug_mode {debug_mode!r}, expected one of `default`, `warn`, `error`, 0, 1, 2")
    options["sync_debug_mode"] = str(mode)


def get_sync_debug_mode() -> int:
    """What `set_sync_debug_mode` said."""
    return int(options.get("sync_debug_mode", "0"))


def set_deterministic_level(level: int) -> None:
    """0: any order of additions; 1 and 2: results are the same each time. They are always, here. Raises ValueError for another level."""
    if level not in (0, 1, 2):
        raise ValueError(f"deterministic level {level!r}; accepted: 0, 1, 2")
    options["deterministic_level"] = str(level)
    torch.use_deterministic_algorithms(level > 0)


def enable_deterministic_with_backward(tensor: Any) -> Any:
    """Operators are deterministic from here on, and in the backward to here."""
    torch.use_deterministic_algorithms(True)
    return tensor


def disable_deterministic_with_backward(tensor: Any) -> Any:
    """The end of what `enable_deterministic_with_backward` began."""
    torch.use_deterministic_algorithms(False)
    return tensor


def set_op_timeout_ms(timeout: int) -> None:
    """Keep the time an operator may take: no operator is ended for it."""
    options["op_timeout_ms"] = str(int(timeout))


def use_compatible_impl(is_compatible: bool = True) -> None:
    """Whether operators keep the results of earlier versions."""
    options["compatible_impl"] = str(bool(is_compatible))


def are_compatible_impl_enabled() -> bool:
    """What `use_compatible_impl` said."""
    return options.get("compatible_impl") == "True"


class _Switches:
    """An object with the given attributes and no others; `accepted` holds the values of each."""

    def __init__(self, name: str, values: dict[str, Any], accepted: dict[str, Any]):
        self.__dict__.update(_name=name, _accepted=accepted, **values)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._accepted:
            raise AttributeError(f"torch.npu.{self._name} has no switch {name!r}; there are: {', '.join(self._accepted)}")
        kind = self._accepted[name]
        if isinstance(value, bytes) and kind is bool:
            value = value == b"enable"  # as `torch_npu._C._npu_getOption` gives it
        if not isinstance(value, kind):
            raise TypeError(f"torch.npu.{self._name}.{name} = {value!r}; accepted: {kind.__name__}")
        self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"torch.npu.{self._name} has no switch {name!r}; there are: {', '.join(self._accepted)}")


config = _Switches("config", {"allow_internal_format": True}, {"allow_internal_format": bool})
matmul = _Switches(
    "matmul",
    {"allow_hf32": False, "cube_math_type": CubeMathType.KEEP_DTYPE},
    {"allow_hf32": bool, "cube_math_type": int},
)
conv = _Switches("conv", {"allow_hf32": True}, {"allow_hf32": bool})
