"""Names of `torch.npu` from its first versions (PyTorch 1.5 and 1.8), which old training scripts still call."""

from __future__ import annotations

from typing import Any
import warnings


def enable_graph_mode(verbose: bool = False) -> None:
    """Collect operators into a graph until `launch_graph`: they run at once here, with the same results."""


def disable_graph_mode() -> None:
    """The end of `enable_graph_mode`."""


def launch_graph() -> None:
    """Run the operators that were collected: they ran already."""


def global_step_inc() -> None:
    """Count a training step, for operators compiled for changing shapes: all are here."""


def set_start_fuzz_compile_step(step: int) -> None:
    """The step from which operators are compiled for changing shapes: all are, from the first on."""


def current_blas_handle() -> None:
    """There is no BLAS handle on npus: None, with a warning, as on Ascend."""
    warnings.warn("NPU does not use blas handle.", stacklevel=2)


def _refused(name: str, reason: str) -> Any:
    def refuse(*args: Any, **keywords: Any) -> Any:
        raise RuntimeError(f"torch.npu.{name}: {reason}")

    refuse.__name__ = name
    refuse.__doc__ = f"Refused: {reason}."
    return refuse


_NO_ENCLAVE = "models are obfuscated by a trusted application of the device, and there is none"
obfuscation_initialize = _refused("obfuscation_initialize", _NO_ENCLAVE)
obfuscation_finalize = _refused("obfuscation_finalize", _NO_ENCLAVE)
obfuscation_calculate = _refused("obfuscation_calculate", _NO_ENCLAVE)
npurt = _refused("npurt", "there is no runtime library of Ascend in this process; AscendCL for Python is `import acl`")
