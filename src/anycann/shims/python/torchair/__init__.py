"""`import torchair`: graph mode by torch.compile, by AnyCANN."""

import sys

from anycann.adapters.torch.torchair.backend import get_compiler, get_npu_backend
from anycann.adapters.torch.torchair.compiler_config import CompilerConfig
from anycann.adapters.torch.torchair.converters import (
    npu_format_cast_via_cpu,
    patch_for_hcom,
    register_fx_node_ge_converter,
    register_replacement,
    use_internal_format_weight,
)
from anycann.adapters.torch.torchair.exporting import dynamo_export
from anycann.adapters.torch.torchair.graph_modules import install
from anycann.support.logging import get_logger
from torchair import configs, core, ge, inference, ops, scope

logger = get_logger("torchair")
install(sys.modules[__name__])

__all__ = [
    "CompilerConfig",
    "configs",
    "core",
    "dynamo_export",
    "ge",
    "get_compiler",
    "get_npu_backend",
    "inference",
    "logger",
    "npu_format_cast_via_cpu",
    "ops",
    "patch_for_hcom",
    "register_fx_node_ge_converter",
    "register_replacement",
    "scope",
    "use_internal_format_weight",
]
