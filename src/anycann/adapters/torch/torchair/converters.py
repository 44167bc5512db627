"""What programs tell TorchAir about operators and weights of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

Converter = TypeVar("Converter", bound=Callable[..., Any])
_converters: dict[Any, Callable[..., Any]] = {}


def register_fx_node_ge_converter(aten_op: Any) -> Callable[[Converter], Converter]:
    """Decorator: the converter of an operator to GE, which is kept. The operator's own PyTorch kernel computes it in the graph here."""

    def register(converter: Converter) -> Converter:
        _converters[aten_op] = converter
        return converter

    return register


def converters() -> dict[Any, Callable[..., Any]]:
    """The converters that were registered, by operator."""
    return dict(_converters)


def register_replacement(search_fn: Any, replace_fn: Any, example_inputs: Any, **options: Any) -> NoReturn:
    """Raises NotImplementedError: patterns of a program's own are not replaced; the engine fuses by its own rules."""
    raise NotImplementedError("torchair.register_replacement: patterns of a program are not replaced here; call the fused operator itself")


def use_internal_format_weight(model: Any) -> None:
    """Weights in the format of the kernels: compiled graphs pack those of inference by themselves, so that nothing is to be done."""


def npu_format_cast_via_cpu(self: Any, acl_format: int, customize_dtype: int | None = None, input_dtype: int | None = None) -> Any:
    """A tensor in an internal format; tensors of a program are in ND here, whatever the format they are said to have."""
    return self


def patch_for_hcom() -> None:
    """Collectives in graphs: torch traces them by itself since 2.3.1, as TorchAir says too."""
