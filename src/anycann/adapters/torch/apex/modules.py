"""apex.optimizers, apex.parallel and apex.multi_tensor_apply: the optimizers of torch_npu, and modules that torch has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

# apex's name -> torch_npu's
_FUSED = {
    "NpuFusedAdam": "NpuFusedAdam",
    "NpuFusedAdamW": "NpuFusedAdamW",
    "NpuFusedSGD": "NpuFusedSGD",
    "NpuFusedLamb": "NpuFusedLamb",
    "NpuFusedAdadelta": "NpuFusedAdadelta",
    "NpuFusedRMSprop": "NpuFusedRMSprop",
    "NpuFusedRMSpropTF": "NpuFusedRMSpropTF",
    "NpuFusedAdamP": "NpuFusedAdamP",
    "NpuFusedBertAdam": "NpuFusedBertAdam",
    "FusedLAMB": "NpuFusedLamb",
}


_ONLY_APEX = ("bias_correction", "set_grad_none", "wd_after_momentum", "materialize_master_grads")


def _without_apex(options: dict[str, Any]) -> dict[str, Any]:
    """`options` without those that only apex has. Raises RuntimeError for one that would change the numbers."""
    if options.get("bias_correction") is False or options.get("wd_after_momentum"):
        raise RuntimeError("bias_correction=False and wd_after_momentum=True are not there: torch's optimizer stands in for apex's")
    return {name: value for name, value in options.items() if name not in _ONLY_APEX}


class FusedAdam(torch.optim.Adam):
    """Adam as apex fuses it: weight decay apart from the moments unless `adam_w_mode` is False."""

    def __init__(self, params: Any, *args: Any, adam_w_mode: bool = True, **options: Any) -> None:
        super().__init__(params, *args, decoupled_weight_decay=adam_w_mode, **_without_apex(options))


class FusedSGD(torch.optim.SGD):
    """SGD as apex fuses it."""

    def __init__(self, params: Any, *args: Any, **options: Any) -> None:
        super().__init__(params, *args, **_without_apex(options))


def optimizer(name: str) -> Any:
    """The class that `apex.optimizers.<name>` is. Raises AttributeError for a name that apex or torch_npu has not."""
    own = {"FusedAdam": FusedAdam, "FusedSGD": FusedSGD}
    if name in own:
        return own[name]
    import torch_npu

    found = getattr(getattr(torch_npu, "optim", ModuleType("optim")), _FUSED.get(name, ""), None)
    if found is None:
        raise AttributeError(f"module 'apex.optimizers' has no attribute {name!r}; it has {', '.join(sorted({*own, *_FUSED}))}")
    return found


class DistributedDataParallel(nn.parallel.DistributedDataParallel):
    """torch's data parallel module; apex's options about how gradients travel are taken, and mean nothing here."""

    def __init__(
        self,
        module: nn.Module,
        message_size: int = 10_000_000,
        delay_allreduce: bool = False,
        gradient_average: bool = True,
        **options: Any,
    ) -> None:
        if not gradient_average:
            raise ValueError("gradient_average=False: torch's DistributedDataParallel averages; register_comm_hook can sum")
        super().__init__(module)


def convert_syncbn_model(module: nn.Module, process_group: Any = None, channel_last: bool = False) -> nn.Module:
    """Every batch norm in `module` as one over all ranks."""
    return nn.SyncBatchNorm.convert_sync_batchnorm(module, process_group)


class Reducer:
    """Averages the parameters (or gradients) of a module, or a list of tensors, when `reduce()` is called."""

    def __init__(self, module_or_grads_list: Any):
        self.module = module_or_grads_list if isinstance(module_or_grads_list, nn.Module) else None
        self.gradients = [] if self.module is not None else list(module_or_grads_list)

    def reduce(self) -> None:
        """Average over all ranks, in place."""
        if self.module is not None:
            self.gradients = [parameter.grad for parameter in self.module.parameters() if parameter.grad is not None]
        for gradient in self.gradients:
            torch.distributed.all_reduce(gradient, op=torch.distributed.ReduceOp.AVG)


def flat_dist_call(tensors: Sequence[torch.Tensor], call: Callable[..., Any], extra_args: tuple[Any, ...] = ()) -> None:
    """One collective for all tensors of a dtype, side by side; all_reduce averages."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same = [tensor for tensor in tensors if tensor.dtype is dtype]
        flat = _flatten_dense_tensors(same)
        call(flat, *(extra_args or ()))
        if call is torch.distributed.all_reduce:
            flat /= torch.distributed.get_world_size()
        for tensor, part in zip(same, _unflatten_dense_tensors(flat, same), strict=True):
            tensor.copy_(part)


class MultiTensorApply:
    """Runs operators of apex's CUDA extension `amp_C` on lists of tensors; programs ask `available` first, as for Ascend's apex."""

    available = False

    def __init__(self, chunk_size: int):
        self.chunk_size = chunk_size

    def __call__(self, op: Any, noop_flag_buffer: Any, tensor_lists: Any, *args: Any) -> Any:
        """Raises RuntimeError: the extension is CUDA's."""
        raise RuntimeError("multi_tensor_applier needs apex's CUDA extension amp_C, which is not there; see torch._foreach_*")
