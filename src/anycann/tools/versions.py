"""Versions of the packages AnyCANN stands on."""

from __future__ import annotations

from importlib import metadata

REQUIRED = ("numpy", "onnx", "onnx_ir", "llvmlite", "ml_dtypes", "click", "rich")
OPTIONAL = {
    "pillow": "images as inputs of infer",
    "onnxruntime": "bench --vs onnxruntime",
    "torch": "exporting models of PyTorch",
    "onnxscript": "exporting models of PyTorch",
}


def installed_version(package: str) -> str | None:
    """The version of an installed distribution; None if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
