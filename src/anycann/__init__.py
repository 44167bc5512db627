"""AnyCANN: the Ascend software stack for machines without an Ascend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anycann.support import sources as sources  # notes when this process began
from anycann.support.deferred import defer

if TYPE_CHECKING:
    from anycann.session import InferenceSession, NodeArg, SessionOptions

defer("onnx_ir", "sympy", "onnx_ir._symbolic_shapes")

__version__ = "0.1.0"
__all__ = ["InferenceSession", "NodeArg", "SessionOptions", "__version__"]


def __getattr__(name: str) -> object:
    """Import the engine when it is first used, so that `import anycann` stays fast."""
    if name in ("InferenceSession", "NodeArg", "SessionOptions"):
        from anycann import session

        return getattr(session, name)
    raise AttributeError(f"module 'anycann' has no attribute {name!r}")
