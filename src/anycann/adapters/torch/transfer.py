"""`from torch_npu.contrib import transfer_to_npu`: scripts written for CUDA run on the npu as they are.

Everything that takes a device takes "cuda" for "npu", `torch.cuda` has the functions of `torch.npu`, "nccl" is "hccl". What cannot be
changed from outside stays: a `torch.device("cuda")` of a script's own says "cuda", the tensors made with it say "npu".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
import functools
import sys
from types import FunctionType, ModuleType
from typing import Any
import warnings

import torch
from torch.utils import _device, _triton

from anycann.support import options

# what Ascend's list has (their documentation of automatic migration)
FACTORIES = """
    arange as_tensor bartlett_window blackman_window empty empty_like empty_permuted empty_quantized empty_strided eye frombuffer from_file
    full full_like hamming_window hann_window kaiser_window linspace load logspace normal ones ones_like rand rand_like randint randint_like
    randn randn_like randperm range scalar_tensor set_default_device set_default_tensor_type sparse_coo_tensor sparse_csr_tensor tensor
    sparse_compressed_tensor get_device_module tril_indices triu_indices zeros zeros_like
"""
TENSOR_METHODS = "new_empty new_empty_strided new_full new_ones new_tensor new_zeros pin_memory to type"
MODULE_METHODS = "to to_empty"
CUDA_MODULES = "amp amp.autocast_mode amp.common amp.grad_scaler memory random streams graphs"
_KEYWORDS = ("device", "device_type", "map_location", "device_id", "backend", "dtype", "device_ids", "output_device")
_INTEGERS_ARE_DEVICES = ("to", "to_empty")
_CAPABILITY = (8, 0)  # of the first GPUs with bfloat16; those from 9 on have 8-bit floating point, which torch asks by this number
_BANNER = (
    "transfer_to_npu: torch.cuda has the functions of torch.npu now; Tensor.cuda, Module.cuda and every parameter that names a device go "
    "to the npu; torch.cuda.DoubleTensor is torch.npu.FloatTensor; the backend nccl is hccl; torch.jit.script returns what it is given"
)


def install(torch_npu: ModuleType) -> None:
    """Transfer at once where the environment asks for it."""
    if options.TRANSFER_TO_NPU.get():
        transfer(torch_npu)


@functools.cache
def transfer(torch_npu: ModuleType) -> None:
    """Change torch so that scripts for CUDA run on the npu. Only once in a process; nothing can be taken back."""
    warnings.warn(_BANNER, ImportWarning, stacklevel=3)
    _device._device_constructors()  # torch remembers its factories by identity: before they are wrapped
    _transfer_cuda(torch_npu.npu)
    _wrap(torch, FACTORIES.split())
    _wrap(torch.Tensor, TENSOR_METHODS.split())
    _wrap(torch.nn.Module, MODULE_METHODS.split())
    _wrap(torch.fft, ["fftfreq", "rfftfreq"])
    for owner in (torch.amp.autocast, torch.amp.GradScaler, _device.DeviceContext, torch_npu.npu.device):
        _wrap(owner, ["__init__"])
    _wrap(torch.amp, ["custom_fwd", "custom_bwd"])
    _wrap(torch.UntypedStorage, ["__new__"])
    _wrap(torch.Generator, ["__new__"])
    torch.Tensor.cuda, torch.Tensor.is_cuda = torch.Tensor.npu, torch.Tensor.is_npu
    torch.nn.Module.cuda = torch.nn.Module.npu
    _transfer_distributed()
    _transfer_profiler(torch_npu)
    torch.jit.script, torch.jit.script_method = _same, _same
    vars(_triton)["has_triton"] = lambda: False
    for name in ("torch._utils", "torch.nn.parallel.data_parallel"):  # both would find CUDA there first
        vars(sys.modules[name])["_get_available_device_type"] = lambda: "npu"


def _transfer_cuda(npu: ModuleType) -> None:
    """`torch.cuda`, its submodules and its classes."""
    for name, value in vars(npu).items():
        if not name.startswith("__"):
            setattr(torch.cuda, name, transferred(value) if isinstance(value, FunctionType) else value)
    for name in CUDA_MODULES.split():
        sys.modules[f"torch.cuda.{name}"] = sys.modules[f"torch_npu.npu.{name}"]
    torch.cuda.DoubleTensor = npu.FloatTensor
    torch.cuda.CUDAGraph = npu.NPUGraph
    torch.cuda.get_arch_list = list
    torch.cuda.get_device_capability = lambda device=None: _CAPABILITY
    for name, replacement in {"range_push": _range_push, "range_pop": _range_pop, "mark": npu.mstx.mark}.items():
        setattr(torch.cuda.nvtx, name, replacement)
    npu.Stream.cuda_stream = property(lambda stream: stream.npu_stream)


def _transfer_distributed() -> None:
    if not torch.distributed.is_available():
        return
    _wrap(torch.distributed, ["init_process_group", "new_group", "init_device_mesh"])
    _wrap(torch.nn.parallel.DistributedDataParallel, ["__init__"])
    _wrap(torch.nn.DataParallel, ["__init__"])
    _wrap(sys.modules["torch.distributed.device_mesh"].DeviceMesh, ["__init__"])
    torch.distributed.is_nccl_available = torch.distributed.is_hccl_available
    for module in (torch.distributed, torch.distributed.distributed_c10d):
        module.ProcessGroupNCCL = torch.distributed.ProcessGroupHCCL


def _transfer_profiler(torch_npu: ModuleType) -> None:
    for name in ("profile", "schedule", "tensorboard_trace_handler", "ProfilerAction"):
        setattr(torch.profiler, name, getattr(torch_npu.profiler, name))


def _wrap(owner: Any, names: Iterable[str]) -> None:
    """Let the functions `names` of a module or class take CUDA's devices. What this torch has not is passed over."""
    for name in names:
        function = getattr(owner, name, None)
        if function is not None:
            wrapped = transferred(function)
            setattr(owner, name, staticmethod(wrapped) if name == "__new__" else wrapped)


def transferred(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, given the npu wherever it is told of CUDA."""
    move = _moved_or_counted if getattr(function, "__name__", "") in _INTEGERS_ARE_DEVICES else moved

    @functools.wraps(function, assigned=("__name__", "__qualname__", "__doc__", "__module__"), updated=())
    def call(*args: Any, **keywords: Any) -> Any:
        if keywords:
            for name in _KEYWORDS:
                if name in keywords:
                    keywords[name] = _BY_KEYWORD.get(name, moved)(keywords[name])
        return function(*[move(value) for value in args], **keywords)

    return call


def moved(value: Any) -> Any:
    """`value` with the npu in the place of CUDA: names, devices, and both in dictionaries (`map_location`)."""
    if isinstance(value, str):
        return value.replace("cuda", "npu").replace("nccl", "hccl") if "cuda" in value or "nccl" in value else value
    if isinstance(value, torch.device):
        return torch.device(str(value).replace("cuda", "npu")) if value.type == "cuda" else value
    if type(value) is dict:
        return {moved(key): moved(item) for key, item in value.items()}
    return value


def _moved_or_counted(value: Any) -> Any:
    """A whole number is the number of a device here."""
    if isinstance(value, int) and not isinstance(value, bool):
        return torch.device("npu", value)
    return moved(value)


def _all_moved(values: Any) -> Any:
    return type(values)(moved(value) for value in values) if isinstance(values, (list, tuple)) else values


_BY_KEYWORD: dict[str, Callable[[Any], Any]] = {"device": _moved_or_counted, "device_ids": _all_moved}


def _same(function: Any, *args: Any, **keywords: Any) -> Any:
    """What torch.jit.script is: on Ascend scripts are not compiled when they are migrated."""
    return function


_ranges: list[Any] = []


def _range_push(message: str) -> int:
    begun = torch.profiler.record_function(message)
    begun.__enter__()
    _ranges.append(begun)
    return len(_ranges) - 1


def _range_pop() -> int:
    if _ranges:
        _ranges.pop().__exit__(None, None, None)
    return len(_ranges) - 1
