"""`torch_npu.utils.collect_env`: versions of this machine's software, for reports."""

from __future__ import annotations

from importlib.metadata import version

from anycann.adapters.torch.device.versions import get_cann_version

__all__ = ["get_cann_version", "get_pretty_env_info", "get_torch_npu_version", "main"]


def get_torch_npu_version() -> str:
    """The version of torch that torch_npu is for."""
    return version("torch_npu")


def get_pretty_env_info() -> str:
    """What torch's own report says, and the versions of torch_npu and of CANN."""
    from torch.utils import collect_env

    return f"{collect_env.get_pretty_env_info()}\nTorch-npu version: {get_torch_npu_version()}\nCANN: {get_cann_version()} (AnyCANN)"


def main() -> None:
    """Print the report."""
    print(get_pretty_env_info())
