"""`scaled_dot_product_attention` on the npu: the fused cpu kernel where it applies, elsewhere products and softmax.

torch has a pointer to what chooses for each kind of device (`ATen/native/DispatchStub.h`); that of PrivateUse1, the last, is null. It gets
the function that chooses for the cpu, which looks at nothing but sizes, strides, dtypes and what the program allows. It raises where the
fused kernel does not apply and products are forbidden (`sdpa_kernel`), which Ascend's adapter takes no notice of. So while products are
forbidden, and where this torch does not show both, Python chooses in the same way, at some 20 us a call, and multiplies instead.
"""

from __future__ import annotations

import ctypes
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from anycann.adapters.torch.device.machine_code import address_of
from anycann.adapters.torch.device.virtual_devices import KNOWN_VERSIONS

_products = torch.ops.aten._scaled_dot_product_attention_math.default
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_enabled = torch._C._get_flash_sdp_enabled
_STUB = "_ZN2at6native22_fused_sdp_choice_stubE"
_CHOICE = "_ZN2at6native21_fused_sdp_choice_cppERKNS_6TensorES3_S3_RKSt8optionalIS1_EdbS4_IdEb"
_WITH_SYMBOL = 1  # RTLD_DL_SYMENT of dladdr1
_kept: list[Any] = []


class _Symbol(ctypes.Structure):
    """Elf64_Sym."""

    _fields_ = (
        ("name", ctypes.c_uint32), ("info", ctypes.c_uint8), ("other", ctypes.c_uint8), ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64), ("size", ctypes.c_uint64),
    )  # fmt: skip


def install() -> None:
    """Let torch choose, or choose above autograd, so that the fused kernel has its own backward."""
    if not torch_chooses():
        _choose_by_python()
        return
    allow = torch._C._set_sdp_use_math

    @wraps(allow)
    def set_sdp_use_math(enabled: bool) -> None:
        allow(enabled)
        _leave_to_torch() if enabled else _choose_by_python()

    torch._C._set_sdp_use_math = set_sdp_use_math
    set_sdp_use_math(torch._C._get_math_sdp_enabled())


def _choose_by_python() -> None:
    for key in ("AutogradPrivateUse1", "PrivateUse1") if not _kept else ():
        library = torch.library.Library("aten", "IMPL", key)
        library.impl("scaled_dot_product_attention", attention)
        _kept.append(library)


def _leave_to_torch() -> None:
    while _kept:
        _kept.pop()._destroy()


def torch_chooses() -> bool:
    """Give torch the cpu's choice for npus; whether this torch has both, and the place for it is where it is expected."""
    if not torch.__version__.startswith(KNOWN_VERSIONS):
        return False
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        stub, choice = (address_of(getattr(library, name)) for name in (_STUB, _CHOICE))
    except (OSError, AttributeError):  # another system's library, or one that keeps these to itself
        return False
    size_bytes = _size_of(library, stub)
    if size_bytes < 16:
        return False
    last = ctypes.c_uint64.from_address(stub + size_bytes - 8)
    if last.value:
        return False
    last.value = choice
    return True


def _size_of(library: ctypes.CDLL, address: int) -> int:
    """Bytes of the variable at `address`; 0 if the system does not say."""
    if not hasattr(library, "dladdr1"):
        return 0
    where, symbol = (ctypes.c_void_p * 4)(), ctypes.POINTER(_Symbol)()
    found = library.dladdr1(ctypes.c_void_p(address), where, ctypes.byref(symbol), _WITH_SYMBOL)
    return int(symbol.contents.size) if found and symbol and where[3] == address else 0


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """aten::scaled_dot_product_attention: (..., L, E), (..., S, E), (..., S, V) to (..., L, V)."""
    if _fused_applies(query, key, value, attn_mask, dropout_p, enable_gqa):
        mask = _as_addend(attn_mask, query)
        return torch._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal, attn_mask=mask, scale=scale)[0]
    return _products(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]


def _fused_applies(query: Any, key: Any, value: Any, mask: Any, dropout_p: float, enable_gqa: bool) -> bool:
    """At every call of attention, so it takes care not to take long."""
    dtype, of_keys = query.dtype, key.shape
    if dropout_p or enable_gqa or dtype not in _FLOATS or key.dtype != dtype or value.dtype != dtype or not _enabled():
        return False
    if len(of_keys) != 4 or query.dim() != 4 or value.shape != of_keys or 0 in of_keys:
        return False
    if query.stride(-1) != 1 or key.stride(-1) != 1 or value.stride(-1) != 1:
        return False
    batch, heads, rows, width = query.shape
    same = rows and (batch, heads, width) == (of_keys[0], of_keys[1], of_keys[3])
    return bool(same) and (mask is None or _mask_fits(mask, query, key))


def _mask_fits(mask: Any, query: Any, key: Any) -> bool:
    """Two axes, or four, that broadcast to (batch, heads, L, S); no gradient goes to the mask."""
    if mask.requires_grad or mask.dtype not in (torch.bool, query.dtype) or mask.dim() not in (2, 4):
        return False
    whole = (*query.shape[:2], query.shape[2], key.shape[2])
    return all(size in (1, full) for size, full in zip(mask.shape, whole[-mask.dim() :], strict=True))


def _as_addend(mask: Any, query: Any) -> Any:
    """A mask of booleans (True: attended) as what is added to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
