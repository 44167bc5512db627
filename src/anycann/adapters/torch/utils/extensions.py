"""`torch_npu.utils.cpp_extension`: C++ code of a program, which the compiler of the machine builds against torch.

It runs on npu tensors through torch's operators. Ascend's own headers (`acl/acl.h`, `torch_npu/csrc/...`) are not there: the compiler says
which of them is missing.
"""

from __future__ import annotations

from typing import Any


def NpuExtension(name: str, sources: list[str], *args: Any, **keywords: Any) -> Any:  # noqa: N802 - Ascend's name
    """A `setuptools.Extension` for `torch.utils.cpp_extension.BuildExtension`: torch's CppExtension without Ascend's libraries."""
    from torch.utils.cpp_extension import CppExtension

    libraries = [library for library in keywords.pop("libraries", []) if library not in ("torch_npu", "ascendcl")]
    return CppExtension(name, sources, *args, libraries=libraries, **keywords)
