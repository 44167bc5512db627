"""Operators that public programs name and that are not computed, with the reason."""

from __future__ import annotations

from typing import Any, NoReturn

from anycann.adapters.torch.operators.registry import composed


def refused(schema: str, reason: str) -> None:
    """Registers an operator that says when it is called why it is not computed."""
    name = schema[: schema.index("(")]

    def body(*given: Any, **options: Any) -> NoReturn:
        """Nothing."""
        raise NotImplementedError(f"{name} is not supported: {reason}")

    composed(schema, f"everything: {reason}")(body)


refused(
    'npu_dynamic_mx_quant(Tensor input, *, int axis=-1, str round_mode="rint", int dst_type=296, int block_size=32, int? scale_alg=0, '
    "float dst_type_max=0.0, float max_low_bound=0.0) -> (Tensor, Tensor)",
    "its results are of float4 and float8 types that the processor has no arithmetic for, and their layout is not documented",
)
refused(
    "npu_mm_all_reduce_base(Tensor x1, Tensor x2, str hcom, *, str reduce_op='sum', Tensor? bias=None, Tensor? antiquant_scale=None, "
    "Tensor? antiquant_offset=None, Tensor? x3=None, Tensor? dequant_scale=None, Tensor? pertoken_scale=None, "
    "Tensor? comm_quant_scale_1=None, Tensor? comm_quant_scale_2=None, int antiquant_group_size=0, int comm_turn=0, "
    "int[]? group_sizes=None, int? y_dtype=None, int? x1_dtype=None, int? x2_dtype=None, int? dequant_scale_dtype=None, "
    "int? pertoken_scale_dtype=None, int comm_quant_mode=0, str? comm_mode=None) -> Tensor",
    "groups are not found by the names of HCCL yet; multiply, then call torch.distributed.all_reduce",
)
