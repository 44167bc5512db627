"""What torch calls when it is imported where AnyCANN is installed (entry point `torch.backends`): `import torch` alone gives the npu."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
import sys

import anycann


def load() -> None:
    """Import `torch_npu`: that of Ascend if it is installed, else AnyCANN's, whose folder becomes the last of `sys.path`."""
    shims = str(Path(anycann.__file__).parent / "shims" / "python")
    if find_spec("torch_npu") is None:
        sys.path.append(shims)
    import_module("torch_npu")
