"""Products of matrices that are split over the ranks of a group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed import distributed_c10d

from anycann.adapters.torch.operators.precision import wide
from anycann.adapters.torch.operators.quantised_products import dequantised_weight, quant_matmul
from anycann.adapters.torch.operators.registry import bound, opaque, refuse, refuse_given, require, sizes

_NAME = "npu_mm_all_reduce_base"


def _shape(*given: Any, **options: Any) -> torch.Tensor:
    a = bound(_NAME, given, options)
    return a.x1.new_empty((*a.x1.shape[:-1], a.x2.shape[-1]), dtype=_dtype(a.x1, a.dequant_scale))


def _dtype(x1: torch.Tensor, dequant_scale: torch.Tensor | None) -> torch.dtype:
    if dequant_scale is None:
        return x1.dtype
    return torch.bfloat16 if dequant_scale.dtype == torch.bfloat16 else torch.float16


@opaque(
    "npu_mm_all_reduce_base(Tensor x1, Tensor x2, str hcom, *, str reduce_op='sum', Tensor? bias=None, Tensor? antiquant_scale=None, "
    "Tensor? antiquant_offset=None, Tensor? x3=None, Tensor? dequant_scale=None, Tensor? pertoken_scale=None, "
    "Tensor? comm_quant_scale_1=None, Tensor? comm_quant_scale_2=None, int antiquant_group_size=0, int comm_turn=0, "
    "int[]? group_sizes=None, int? y_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? dequant_scale_dtype=None, "
    "int? pertoken_scale_dtype=None, int comm_quant_mode=0, str? comm_mode=None) -> Tensor",
    shape=_shape,
    missing="float8 operands, quantised exchange (comm_quant_scale_1, comm_quant_scale_2)",
)
def mm_all_reduce(
    x1: torch.Tensor,
    x2: torch.Tensor,
    hcom: str,
    *,
    reduce_op: str = "sum",
    bias: torch.Tensor | None = None,
    antiquant_scale: torch.Tensor | None = None,
    antiquant_offset: torch.Tensor | None = None,
    x3: torch.Tensor | None = None,
    dequant_scale: torch.Tensor | None = None,
    pertoken_scale: torch.Tensor | None = None,
    comm_quant_scale_1: torch.Tensor | None = None,
    comm_quant_scale_2: torch.Tensor | None = None,
    antiquant_group_size: int = 0,
    comm_turn: int = 0,
    group_sizes: list[int] | None = None,
    y_dtype: int | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    dequant_scale_dtype: int | None = None,
    pertoken_scale_dtype: int | None = None,
    comm_quant_mode: int = 0,
    comm_mode: str | None = None,
) -> torch.Tensor:
    """The sum over the ranks of the group named `hcom` of x1 @ x2 + bias + x3; x2 may be integers with scales (antiquant_scale, by channel
    or by group of the depth), or both are int8 (dequant_scale, pertoken_scale)."""
    refuse_given(
        _NAME,
        "it is for float8 operands or for a quantised exchange",
        comm_quant_scale_1=comm_quant_scale_1,
        comm_quant_scale_2=comm_quant_scale_2,
        group_sizes=group_sizes,
        y_dtype=y_dtype,
        x1_dtype=x1_dtype,
        x2_dtype=x2_dtype,
        dequant_scale_dtype=dequant_scale_dtype,
        pertoken_scale_dtype=pertoken_scale_dtype,
        comm_mode=comm_mode,
    )
    for name, value, accepted in (("reduce_op", reduce_op, "sum"), ("comm_turn", comm_turn, 0), ("comm_quant_mode", comm_quant_mode, 0)):
        if value != accepted:
            refuse(_NAME, f"{name}={value!r}", f"{accepted!r} is documented")
    fits = x1.dim() in (2, 3) and x2.dim() == 2 and x1.shape[-1] == x2.shape[0]
    require(fits, _NAME, f"x1 and x2 of {sizes(x1, x2)}", "(m, k) or (b, m, k), and (k, n)")
    y = _product(x1, x2, bias, antiquant_scale, antiquant_offset, antiquant_group_size, dequant_scale, pertoken_scale)
    y = (y if x3 is None else y + wide(x3)).contiguous()
    group_backend(_NAME, hcom).allreduce([y]).wait()
    return y.to(_dtype(x1, dequant_scale))


def _product(
    x1: torch.Tensor,
    x2: torch.Tensor,
    bias: torch.Tensor | None,
    antiquant_scale: torch.Tensor | None,
    antiquant_offset: torch.Tensor | None,
    antiquant_group_size: int,
    dequant_scale: torch.Tensor | None,
    pertoken_scale: torch.Tensor | None,
) -> torch.Tensor:
    """This rank's part, in wide precision."""
    if dequant_scale is not None:
        y = quant_matmul(x1.flatten(0, -2), x2, dequant_scale, pertoken_scale=pertoken_scale, bias=bias, output_dtype=6)
        return y.reshape(*x1.shape[:-1], x2.shape[-1])
    require(x1.dtype.is_floating_point, _NAME, f"x1 of {x1.dtype} without dequant_scale", "floats, or int8 with dequant_scale")
    if antiquant_scale is None:
        require(x1.dtype == x2.dtype, _NAME, f"x1 of {x1.dtype} and x2 of {x2.dtype}", "one dtype, or antiquant_scale")
        y = wide(x1) @ wide(x2)
    else:
        y = x1.float() @ dequantised_weight(_NAME, x2, x1.shape[-1], antiquant_scale, antiquant_offset, antiquant_group_size)
    return y if bias is None else y + wide(bias)


_GATHER = "npu_all_gather_base_mm"
_SCATTER = "npu_mm_reduce_scatter_base"
_OPERANDS = "Tensor self, Tensor x2, str hcom, int world_size, *, "
_SCALES = "x1_scale and x2_scale (operands of int8), output_dtype"


def _local_product(operator: str, a: SimpleNamespace) -> torch.Tensor:
    """self @ x2 + bias of this rank in wide precision. `comm_mode` and `comm_turn` say how Ascend overlaps the exchange."""
    refuse_given(operator, "products of floats are computed", x1_scale=a.x1_scale, x2_scale=a.x2_scale, output_dtype=a.output_dtype)
    x1, x2 = a.self, a.x2
    fits = x1.dim() == x2.dim() == 2 and x1.shape[1] == x2.shape[0] and x1.dtype == x2.dtype and x1.is_floating_point()
    require(fits, operator, f"self and x2 of {sizes(x1, x2)}", "(m, k) and (k, n) of one dtype of floats")
    y = wide(x1) @ wide(x2)
    return y if a.bias is None else y + wide(a.bias)


def _gathered_shapes(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    a = bound(_GATHER, given, options)
    rows = a.self.shape[0] * a.world_size
    return a.self.new_empty(rows, a.x2.shape[1]), a.self.new_empty((rows, a.self.shape[1]) if a.gather_output else 0)


@opaque(
    f"{_GATHER}({_OPERANDS}Tensor? bias=None, Tensor? x1_scale=None, Tensor? x2_scale=None, int gather_index=0, bool gather_output=True, "
    "int comm_turn=0, ScalarType? output_dtype=None, str? comm_mode=None) -> (Tensor, Tensor)",
    shape=_gathered_shapes,
    missing=f"{_SCALES}, gather_index 1",
)
def all_gather_mm(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows of all ranks @ this rank's x2 + bias, those rows or nothing), of (m, k) on each rank."""
    a = bound(_GATHER, given, options)
    if a.gather_index != 0:
        refuse(_GATHER, f"gather_index={a.gather_index}", "0 (the left side is gathered) is what the interface takes")
    parts = [torch.empty_like(a.self, memory_format=torch.contiguous_format) for _ in range(a.world_size)]
    group_backend(_GATHER, a.hcom).allgather([parts], [a.self.contiguous()]).wait()
    a.self = torch.cat(parts)
    return _local_product(_GATHER, a).to(a.x2.dtype), a.self if a.gather_output else a.self.new_empty(0)


def _scattered_shape(*given: Any, **options: Any) -> torch.Tensor:
    a = bound(_SCATTER, given, options)
    return a.self.new_empty(a.self.shape[0] // a.world_size, a.x2.shape[1])


@opaque(
    f"{_SCATTER}({_OPERANDS}str reduce_op='sum', Tensor? bias=None, Tensor? x1_scale=None, Tensor? x2_scale=None, int comm_turn=0, "
    "ScalarType? output_dtype=None, str? comm_mode=None) -> Tensor",
    shape=_scattered_shape,
    missing=_SCALES,
)
def mm_reduce_scatter(*given: Any, **options: Any) -> torch.Tensor:
    """This rank's share of the rows of the sum over all ranks of self @ x2 + bias: (m / world_size, n) of (m, k) and (k, n)."""
    a = bound(_SCATTER, given, options)
    if a.reduce_op != "sum":
        refuse(_SCATTER, f"reduce_op={a.reduce_op!r}", "'sum' is documented")
    rows, rest = divmod(a.self.shape[0], a.world_size)
    require(rest == 0, _SCATTER, f"{a.self.shape[0]} rows on {a.world_size} ranks", "a multiple of world_size")
    y, backend = _local_product(_SCATTER, a).contiguous(), group_backend(_SCATTER, a.hcom)
    backend.allreduce([y]).wait()
    return y[rows * backend.rank() : rows * (backend.rank() + 1)].to(a.self.dtype)


def group_backend(operator: str, hcom: str) -> Any:
    """What serves the npu in the group whose `get_hccl_comm_name` is `hcom`."""
    npu, names = torch.device("npu"), []
    for group in list(distributed_c10d._world.pg_map):
        if npu in getattr(group, "_device_types", ()):
            backend = group._get_backend(npu)
            names.append(backend.get_hccl_comm_name(group.rank()))
            if names[-1] == hcom:
                return backend
    found = ", ".join(names) or "none; torch.distributed.init_process_group('hccl') makes the first"
    raise RuntimeError(f"{operator}: no group of this process is named {hcom!r}; there are: {found}")
