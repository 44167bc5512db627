"""What torch's compiler asks of a device, answered for the npu."""

from __future__ import annotations

from typing import Any

import torch


def npu_interface(base: type) -> type:
    """A class of the kind `torch._dynamo.device_interface.DeviceInterface`, which is `base`."""
    npu = torch.npu

    class Worker:
        """The device of a process that compiles."""

        set_device = staticmethod(npu.set_device)
        current_device = staticmethod(npu.current_device)
        get_device_properties = staticmethod(npu.get_device_properties)

    def current_stream(device: Any = None) -> Any:
        return npu.current_stream(device)

    def exchange(device: int) -> int:
        """Make `device` the current one, unless it is negative; the one before."""
        before: int = npu.current_device()
        if device >= 0:
            npu.set_device(device)
        return before

    names: dict[str, Any] = {
        "Worker": Worker,
        "device": npu.device,
        "Event": npu.Event,
        "Stream": npu.Stream,
        "current_stream": staticmethod(current_stream),
        "get_raw_stream": staticmethod(lambda device: 0),
        "exchange_device": staticmethod(exchange),
        "maybe_exchange_device": staticmethod(exchange),
        "get_compute_capability": staticmethod(lambda device=None: 0),
        "is_bf16_supported": staticmethod(lambda including_emulation=False: True),
        "is_triton_capable": staticmethod(lambda device=None: False),
    }
    names |= {name: staticmethod(getattr(npu, name)) for name in
              ("current_device", "set_device", "device_count", "is_available", "set_stream", "stream", "synchronize",
               "get_device_properties", "memory_allocated")}  # fmt: skip
    return type("NpuInterface", (base,), names)
