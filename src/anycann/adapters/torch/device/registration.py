"""Every operator of torch that the npu computes, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from anycann.adapters.torch.device import (
    accelerator_only,
    aliasing,
    attention,
    creation,
    dispatch_table,
    nested,
    quantised,
    recurrent,
    report,
    sparse,
    virtual_devices,
)
from anycann.adapters.torch.device.failures import explained
from anycann.adapters.torch.device.host_call import did_nothing, host_call
from anycann.adapters.torch.device.integer_labels import takes_wide_labels, widened
from anycann.adapters.torch.device.kernels import Kernel, kernel_for
from anycann.adapters.torch.device.native import Fast
from anycann.adapters.torch.device.native_words import BFLOAT16, HALF, INT32, MOST_ARGUMENTS, Kind
from anycann.adapters.torch.device.rounding import name_of, rounds_between
from anycann.adapters.torch.device.signature import Signature, signature_of
from anycann.adapters.torch.device.virtual_devices import KNOWN_VERSIONS

# Nothing of these but sizes and strides changes: torch's own code for the cpu does it to npu tensors as they are.
_METADATA = (
    "as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "is_set_to", "set_.source_Tensor",
    "set_.source_Storage", "set_.source_Storage_storage_offset", "set_.source_Tensor_storage_offset", *nested.MAKERS,
)  # fmt: skip
# Composites that run as one call here: torch would split them into several, each of which is a call.
_WHOLE = frozenset((
    "convolution", "convolution_backward", "clone", "zeros_like", "ones_like", "full_like", "embedding", "embedding_dense_backward",
    "nll_loss_forward", "nll_loss_backward", "full", "zeros", "ones", "scalar_tensor", "native_layer_norm", "native_layer_norm_backward",
    "_softmax", "_log_softmax", "bernoulli.p", "new_zeros", "new_ones", "new_empty", "mul.Scalar", "mul_.Scalar", "add.Scalar",
    "add_.Scalar", "div.Scalar", "div_.Scalar", "sub.Scalar", "masked_fill.Scalar", "masked_fill.Tensor", "stack",
    "native_dropout_backward", "repeat", "select_backward", "slice_backward", "index.Tensor", "index_put", "index_put_", "sum", "mean",
    "linear", "mv", "one_hot", "logsumexp", "logcumsumexp", "cummax", "cummin", "kthvalue", "median.dim", "nanmedian.dim",
    "soft_margin_loss", "soft_margin_loss_backward", "smooth_l1_loss_backward", "_trilinear", "binary_cross_entropy_with_logits",
))  # fmt: skip
_DRAWN = frozenset(("bernoulli", "normal", "randperm"))  # composites that draw, from the generator that they find
# Kernels of ours that do what the cpu's does, where all is on one npu.
_COMPILED_TOO = frozenset(("empty.memory_format", "empty_strided", "copy_"))
# They look at all their arguments before they write, as pointwise operators do and those that draw random numbers.
_CHECKED_FIRST = frozenset(("copy_", "zero_", "fill_", "masked_fill_", "addmm_", "addmv_", "baddbmm_", "addbmm_"))
# Called through torch's functions for Python, which read arguments in half the time that the operators' objects take. Not all can be: the
# functions of losses, for one, take another default for `reduction` than their schemas say.
_CALLED_AS_FUNCTIONS = frozenset((
    "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "add_.Tensor", "sub_.Tensor", "mul_.Tensor", "div_.Tensor", "mm", "bmm",
    "addmm", "linear", "convolution", "native_batch_norm", "native_layer_norm", "_softmax", "_log_softmax", "embedding", "relu", "relu_",
    "gelu", "silu", "sigmoid", "tanh", "exp", "neg", "sqrt", "rsqrt", "max_pool2d_with_indices",
))  # fmt: skip
_BY_CODE_FOR_PYTHON = (Kind.TENSOR, Kind.IN_PLACE, Kind.TUPLE)
_HOST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

_table: dispatch_table.Table | None = None
_kept: list[Any] = []  # a torch.library.Library takes its kernels along when it goes


def install() -> None:
    """Register a kernel for every operator that has a cpu kernel, and a fallback for those of other libraries."""
    global _table
    table = dispatch_table.find() if torch.__version__.startswith(KNOWN_VERSIONS) else None  # sees a table without a fallback
    fallback = torch.library.Library("_", "IMPL", "PrivateUse1")
    fallback.fallback(_fall_back)
    aten = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name, kernel, runner in _aten_kernels():
        aten.impl(name, report.recorded(f"aten::{name}", kernel, runner) if report.wanted() else kernel)
    autocast = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    autocast.fallback(torch.library.fallthrough_kernel)
    _kept.extend((fallback, aten, autocast))
    if report.wanted():
        report.install()
    elif table is not None:  # what runs compiled is not seen
        _run_compiled(table)
        _table = table
    accelerator_only.install()
    attention.install()
    recurrent.install()
    sparse.install(aten_operator)
    nested.install(aten_operator)
    quantised.install(aten_operator)


def _run_compiled(table: dispatch_table.Table) -> None:
    """Take Python out of the way of operators that only change sizes and strides."""
    for name in (*_METADATA, "_local_scalar_dense"):
        operator, _, overload = name.partition(".")
        table.run_compiled(f"aten::{operator}", overload)


def _aten_kernels() -> Iterator[tuple[str, Kernel, str]]:
    """Name, kernel, and who runs it."""
    own = {name: _made_when_called(name, kernel) if name in _COMPILED_TOO else kernel for name, kernel in creation.KERNELS.items()}
    own |= {name: _on_npu_tensor(aten_operator(name)) for name in _METADATA} | accelerator_only.KERNELS
    yield from ((name, kernel, report.HOST_KERNEL if name in _METADATA else report.OWN_KERNEL) for name, kernel in own.items())
    for name in _with_host_kernel():
        if name not in own:
            yield name, _made_when_called(name), report.HOST_KERNEL


def _with_host_kernel() -> Iterator[str]:
    """The operators of aten whose npu kernel is made of torch's cpu kernel.

    Composites that make a tensor and let `out=` fill it are run whole, for the npu's `out=` computes it elsewhere and copies it.
    """
    with_kernel = torch._C._dispatch_get_registrations_for_dispatch_key
    composite, host = frozenset(with_kernel("CompositeImplicitAutograd")), frozenset(with_kernel("CPU"))
    explicit = frozenset(with_kernel("CompositeExplicitAutograd"))
    filling = {name.partition(".")[0] for name in host if name.endswith("out")}
    for qualified in torch._C._dispatch_get_all_op_names():
        library, _, name = qualified.partition("::")
        split = qualified in composite or not (qualified in host or name.startswith("_foreach"))
        fills = qualified in explicit and qualified.partition(".")[0].rstrip("_") in filling and not name.endswith("out")
        if library == "aten" and (name in _WHOLE or not split or (fills and name.partition(".")[0] not in _DRAWN)):
            yield name


def aten_operator(name: str) -> Any:
    """The overload `name` ("add.Tensor", "relu") of aten. Raises AttributeError if Python cannot see it."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _on_npu_tensor(op: Any) -> Kernel:
    redispatch = op.redispatch

    def kernel(*args: Any, **keywords: Any) -> Any:
        return redispatch(_HOST_KEYS, *args, **keywords)

    return kernel


def _made_when_called(name: str, own: Kernel | None = None) -> Kernel:
    """The kernel of aten's `name`, `own` or made at the first call (most are never called), then generated code where that can do it."""
    made: Callable[..., Any] | None = None

    def kernel(*args: Any, **keywords: Any) -> Any:
        nonlocal made
        if made is None:
            op = aten_operator(name)
            made = own or widened(name, kernel_for(op))
            if fast is not None:
                _enable(fast, op, _callable(name, op))
        return made(*args, **keywords)

    claim = aliasing.claim()
    fast = Fast(claim, kernel) if claim is not None and not report.wanted() else None
    return kernel if fast is None else fast.kernel


def _callable(name: str, op: Any) -> Callable[..., Any]:
    """What calls `op` with the least work."""
    packet = name.partition(".")[0]
    places = (torch._C._VariableFunctions, torch._C._nn, torch._C.TensorBase) if name in _CALLED_AS_FUNCTIONS else ()
    return next((getattr(place, packet) for place in places if hasattr(place, packet)), op._op)


def _enable(fast: Fast, op: Any, call: Callable[..., Any]) -> None:
    """Let generated code run `op`, if its arguments are tensors and numbers and it returns new tensors or one that it wrote."""
    signature = signature_of(op)
    kind, place = _kind(op, signature)
    if kind == Kind.SLOW:
        return

    def explain(error: Exception, *args: Any) -> Exception | None:
        return None if isinstance(error, TypeError) or did_nothing(op, error) else explained(error, op, args, {})

    rounds = rounds_between(op) is not None
    if rounds:
        call = host_call(op, signature.tensors, call)
    wide_labels = takes_wide_labels(op)
    seeded = "generator" in signature.names
    if kind in _BY_CODE_FOR_PYTHON and signature.tensors_by_position and not signature.lists and not wide_labels and not seeded:
        fast.enable(kind, call, explain, signature.tensors, place)
    current = virtual_devices.current_device()
    # What fails without Python is tried again by it, which says where it failed. Others may have written some elements before.
    if _table is None or current is None or (kind == Kind.IN_PLACE and not _looks_first(op)):
        return
    by_python = frozenset(({HALF, BFLOAT16} if rounds else set()) | ({INT32} if wide_labels else set()))
    fast.enable_boxed(_table, op, kind, place, current, by_python, hosts=op._schema.name == "aten::copy_")


def _looks_first(op: Any) -> bool:
    """Whether an operator that fails has not written yet; divisions that round find integers that are zero as they go."""
    draws, pointwise = torch.Tag.nondeterministic_seeded in op.tags, torch.Tag.pointwise in op.tags
    return draws or name_of(op) in _CHECKED_FIRST or (pointwise and "rounding_mode" not in signature_of(op).names)


def _kind(op: Any, signature: Signature) -> tuple[Kind, int]:
    """How generated code can run `op`, and the place that `Word.PLACE` says."""
    if signature.outs or len(signature.names) >= MOST_ARGUMENTS:
        return Kind.SLOW, 0
    if op._schema.name.startswith(("aten::_foreach_", "aten::_fused_")):
        return _kind_of_lists(signature), signature.versioned_list
    if "device" in signature.names:
        made = signature.new_results_only and signature.one_tensor and torch.Tag.nondeterministic_seeded not in op.tags
        return (Kind.FACTORY, signature.names.index("pin_memory")) if made and "pin_memory" in signature.names else (Kind.SLOW, 0)
    if signature.in_place is not None:
        return Kind.IN_PLACE, signature.in_place.position
    if signature.new_results_only and signature.only_tensors:
        return Kind.TENSOR if signature.one_tensor else Kind.TUPLE, 0
    return (Kind.VALUE if signature.new_results_only and signature.only_values else Kind.SLOW), 0


def _kind_of_lists(signature: Signature) -> Kind:
    """Of operators that compute with lists of tensors, by their names: what they return."""
    if not signature.returned:
        return Kind.NOTHING
    return Kind.LIST if signature.new_results_only and signature.one_list else Kind.SLOW


_fallback_kernel = cache(kernel_for)


def _fall_back(op: Any, *args: Any, **keywords: Any) -> Any:
    return _fallback_kernel(op)(*args, **keywords)
