"""Operators are registered when the first of them is asked for, whichever family is imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.torch_distributed.worlds import environment

CODE = """
import sys
import torch, torch_npu
from importlib import import_module
import_module("anycann.adapters.torch.operators." + sys.argv[1])
assert "anycann.adapters.torch.operators.all" not in sys.modules
print(torch_npu.npu_swiglu(torch.ones(2, 4)).shape, torch.ops.npu.npu_grouped_matmul)
"""


@pytest.mark.parametrize("family", ["activations", "attention.training"])
def test_a_family_may_be_imported_before_the_others(family: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", CODE, family]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "torch.Size([2, 2]) npu.npu_grouped_matmul\n"), done.stderr
