"""The backends of torch.compile, made known when torch loads its compiler, which takes seconds and is not forced here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
import sys
from types import ModuleType
from typing import Any

from anycann.adapters.torch.graph import inductor

REGISTRY, INTERFACES = "torch._dynamo.backends.registry", "torch._dynamo.device_interface"
TRACE_RULES = "torch._dynamo.trace_rules"
# Kernels in Python, which run where torch.compile left something to eager mode: its compiler would take their frames for the program's.
_KERNELS = (
    "accelerator_only", "aliasing", "attention", "bernoulli", "creation", "devices", "dispatch_table", "failures", "generators",
    "host_call", "integer_labels", "kernels", "layout", "machine_code", "native", "recurrent", "recurrent_code", "registration", "report",
    "rounding", "signature", "sparse", "virtual_devices",
)  # fmt: skip


def install(torch_npu: ModuleType) -> None:
    """Register the backend `npu` (and `anycann`), and the device npu with torch's compiler."""
    inductor.install(compile_for_npu)
    _when_loaded({REGISTRY: _register_backends, INTERFACES: _register_interface, TRACE_RULES: _leave_out_kernels})


def compile_for_npu(module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """`torch.compile(model, backend="npu")`."""
    from anycann.adapters.torch.graph.backend import anycann

    return anycann(module, example_inputs, **options)


def _register_backends(registry: ModuleType) -> None:
    registry.register_backend(compile_for_npu, name="npu")
    if "anycann" not in registry._BACKENDS:
        registry.register_backend(compile_for_npu, name="anycann")


def _register_interface(interfaces: ModuleType) -> None:
    import torch

    from anycann.adapters.torch.graph.interface import npu_interface

    interface = npu_interface(interfaces.DeviceInterface)
    for name in ("npu", *(f"npu:{number}" for number in range(torch.npu.device_count()))):
        interfaces.register_interface_for_device(name, interface)


def _leave_out_kernels(rules: ModuleType) -> None:
    for name in _KERNELS:
        rules.add(f"anycann.adapters.torch.device.{name}")


# ---- modules that are not loaded yet
def _when_loaded(actions: dict[str, Callable[[ModuleType], None]]) -> None:
    """Call each action with its module: now if it is there, else right after it is loaded."""
    waiting = {}
    for name, action in actions.items():
        if name in sys.modules:
            action(sys.modules[name])
        else:
            waiting[name] = action
    if waiting:
        sys.meta_path.insert(0, _Watch(waiting))


class _Watch(MetaPathFinder):
    """Finds the modules that somebody waits for as anybody would, and lets the waiting know when they are loaded."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]):
        self._waiting = waiting

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module's spec if it is waited for, else None."""
        action = self._waiting.pop(name, None)
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = None if action is None else PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None or action is None:
            return None
        load, call = spec.loader.exec_module, action

        def load_and_tell(module: ModuleType) -> None:
            load(module)
            call(module)

        spec.loader.exec_module = load_and_tell  # type: ignore[method-assign]
        return spec
