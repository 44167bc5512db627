"""Which operators are taken apart: not those that have a translation, nor those that PyTorch computes better whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

from anycann.frontends.torch_fx.table import translations

KEPT_WHOLE = frozenset(
    [
        "native_batch_norm_backward",
        "native_layer_norm",
        "native_layer_norm_backward",
        "native_group_norm",
        "native_group_norm_backward",
        "gelu",
        "gelu_backward",
        "_softmax",
        "_log_softmax",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
        "nll_loss_forward",
        "nll_loss_backward",
        "nll_loss2d_forward",
        "nll_loss2d_backward",
        "native_dropout",
        "native_dropout_backward",
        "threshold_backward",
        "addmm",
        "baddbmm",
        "embedding_dense_backward",
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
        "bernoulli",
        "_native_batch_norm_legit_functional",
        "upsample_bilinear2d",
        "upsample_bilinear2d_backward",
        "upsample_nearest2d",
        "upsample_nearest2d_backward",
        "_upsample_nearest_exact2d",
        "_upsample_nearest_exact2d_backward",
        "upsample_bicubic2d",
        "grid_sampler_2d",
        "grid_sampler_2d_backward",
        "max_pool2d_with_indices_backward",
        "avg_pool2d_backward",
        "_adaptive_avg_pool2d_backward",
        "index_put",
        "_unsafe_index_put",
        "im2col",
        "col2im",
        "rrelu_with_noise",
        "multi_head_attention_forward",
        "unfold_backward",
        "index_add",
        "index_copy",
        "std",
        "var_mean",
        "std_mean",
        "logsumexp",
        "norm",
        "linalg_vector_norm",
        "masked_scatter",
        "_cdist_forward",
        "cumsum",
        "cumprod",
        "mish_backward",
        "softplus_backward",
        "silu_backward",
        "elu_backward",
        "hardswish_backward",
        "hardsigmoid_backward",
        "leaky_relu_backward",
        "log_sigmoid_forward",
        "log_sigmoid_backward",
        "hardtanh_backward",
        "sigmoid_backward",
        "tanh_backward",
    ]
)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions into core operators, for the operators that are neither known here nor better left whole."""
    known = translations()
    return {
        overload: function
        for overload, function in core_aten_decompositions().items()
        if not (isinstance(overload, torch._ops.OpOverload) and (str(overload) in known or _name(overload) in KEPT_WHOLE))
    }


def decomposed(program: Any) -> Any:
    """An exported program in operators that have translations, as far as they can be taken apart."""
    return program.run_decompositions(decompositions())


def _name(overload: Any) -> str:
    return str(overload).split(".")[1]
