"""TORCH_NPU_REPORT=1 prints what ran on the npu, and what Ascend would not run."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import torch, torch_npu
x = torch.ones(3, 3, device="npu")
for _ in range(5):
    x = x.view(9).view(3, 3).add_(1)
torch.special.bessel_j0(x)
torch.linalg.svd(x)
torch.nn.functional.gelu(x)
"""


def report(**environment: str) -> str:
    surroundings = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path)} | environment
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=surroundings, capture_output=True, text=True, check=True)
    return done.stderr


def test_the_report_counts_every_operator_and_names_what_ascend_lacks() -> None:
    lines = report(TORCH_NPU_REPORT="1").splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.startswith("aten::")}
    assert rows["aten::add_.Tensor"][1] == "5"
    assert rows["aten::view"][1] == "10"
    assert lines[0].split() == ["operator", "count", "ms", "run", "by"]
    assert " ".join(rows["aten::gelu"][3:]) == "torch's cpu kernel"
    missing = next(line for line in lines if "has no kernel for" in line)
    assert missing.startswith("Ascend910B1 has no kernel for aten::special_bessel_j0:")


def test_what_ascend_lacks_depends_on_the_chip() -> None:
    missing = report(TORCH_NPU_REPORT="1", ANYCANN_SOC="Ascend910A")
    assert "Ascend910A has no kernel for " in missing


def test_nothing_is_printed_unless_asked_for() -> None:
    assert "operator" not in report()
