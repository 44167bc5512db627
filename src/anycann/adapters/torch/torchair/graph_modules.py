"""`torchair._ge_concrete_graph` and, by its older name, `torchair.ge_concrete_graph`: where converters of programs import from.

Converters are kept and not called (`converters.py`), so that what they build of is refused when called and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
import sys
from types import ModuleType
from typing import Any, NoReturn

import torch

from anycann.adapters.torch.torchair import converters, ge, inference

_ROOTS = ("_ge_concrete_graph", "ge_concrete_graph")
_BUILDERS = (
    "get_default_ge_graph",
    "next_unique_name",
    "compat_as_bytes",
    "compat_as_bytes_list",
    "auto_convert_to_tensor",
    "get_invalid_desc",
)
_OTHER_NAMES = {"float32": "FLOAT", "float64": "DOUBLE", "bfloat16": "BF16"}


def torch_type_to_ge_type(dtype: torch.dtype) -> int:
    """Ascend's number of a dtype. Raises RuntimeError for one that it has none for."""
    name = str(dtype).removeprefix("torch.")
    number = getattr(ge.DataType, f"DT_{_OTHER_NAMES.get(name, name.upper())}", None)
    if number is None:
        raise RuntimeError(f"torchair: {dtype} has no number in Ascend's graph")
    return int(number)


def _refusing(name: str) -> Callable[..., NoReturn]:
    def build(*args: Any, **options: Any) -> NoReturn:
        ge.refuse(name)

    build.__name__ = build.__qualname__ = name
    return build


def _operator(name: str) -> Callable[..., NoReturn]:
    """Of ge_apis: each operator of Ascend's has a function there."""
    if not name[:1].isupper():
        raise AttributeError(f"module 'ge_apis' has no attribute {name!r}")
    return _refusing(name)


def _contents() -> dict[str, dict[str, Any]]:
    graph = {"Tensor": ge.Tensor, "TensorSpec": ge.TensorSpec, "DataType": ge.DataType, "Format": ge.Format}
    return {
        "": {},
        ".ge_apis": {"__getattr__": _operator},
        ".ge_graph": {**graph, **{name: _refusing(name) for name in _BUILDERS}, "torch_type_to_ge_type": torch_type_to_ge_type},
        ".fx2ge_converter": {
            "register_fx_node_ge_converter": converters.register_fx_node_ge_converter,
            "declare_supported": lambda supported_cases: lambda converter: converter,
        },
        ".utils": {"dtype_promote": _refusing("dtype_promote")},
        ".ge_converter": {},
        ".ge_converter.experimental": {},
        # imported for what importing does there: collectives are in graphs here without it
        ".ge_converter.experimental.patch_for_hcom_allreduce": {},
        ".ge_converter.experimental.hcom_allgather": {},
        ".ge_converter.experimental.hcom_allreduce": {"functional_collectives_context": nullcontext},
    }


def install(torchair: ModuleType) -> None:
    """Make the modules of both names, and `torchair.experimental.inference`, importable from `torchair`."""
    for root in _ROOTS:
        for path, content in _contents().items():
            _add(torchair, f"{root}{path}", content)
    _add(torchair, "experimental", {})
    _add(torchair, "experimental.inference", {**vars(inference), "use_internal_format_weight": converters.use_internal_format_weight})


def _add(torchair: ModuleType, path: str, content: dict[str, Any]) -> None:
    name = f"{torchair.__name__}.{path}"
    module = ModuleType(name)
    vars(module).update({each: value for each, value in content.items() if each == "__getattr__" or not each.startswith("__")}, __path__=[])
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, module)
