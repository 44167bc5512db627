"""`torch_npu.testing`: what tests written for torch_npu import, and how it compares."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys
import unittest

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch_npu = pytest.importorskip("torch_npu")
from torch_npu.testing.common_utils import (  # noqa: E402
    SupportedDevices,
    check_operators_in_prof,
    create_common_tensor,
    create_dtype_tensor,
)
from torch_npu.testing.decorator import Dtypes, instantiate_tests  # noqa: E402
from torch_npu.testing.testcase import TestCase  # noqa: E402

PROGRAM = """
import torch
import torch_npu
from torch_npu.testing.common_utils import SupportedDevices, create_common_tensor
from torch_npu.testing.decorator import Dtypes, instantiate_tests
from torch_npu.testing.testcase import TestCase, run_tests
import numpy as np

@instantiate_tests
class TestSquare(TestCase):
    @Dtypes(torch.float32, torch.float16)
    def test_square(self, device, dtype):
        x = torch.rand(3, 4, device=device).to(dtype)
        self.assertRtolEqual((x * x).cpu(), x.cpu() ** 2)

    def test_wrong(self):
        x, y = create_common_tensor([np.float32, -1, (5, 3)], 1, 2)
        self.assertRtolEqual(x, y.cpu() + 1)

    @SupportedDevices(["NoSuchChip"])
    def test_elsewhere(self):
        raise AssertionError

if __name__ == "__main__":
    run_tests()
"""


def test_a_program_of_tests_runs_and_says_what_fails(tmp_path: Path) -> None:
    path = tmp_path / "test_square.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "anycann.tools.cli", "run", str(path), "-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "test_square_float32" in done.stderr, done.stderr
    assert "test_square_float16" in done.stderr
    assert "FAILED (failures=1, skipped=1)" in done.stderr
    assert "result error: 15 of 15 differ" in done.stderr
    assert done.returncode == 1


class Case(TestCase):
    def runTest(self) -> None:
        """Nothing: the case is here for its assertions."""


Case.__test__ = False


@pytest.mark.parametrize(
    ("x", "y", "same"),
    [
        (torch.ones(4), torch.ones(4) + 5e-5, True),
        (torch.ones(4), torch.ones(4) + 5e-3, False),
        (torch.ones(4, dtype=torch.float16), torch.ones(4, dtype=torch.float16) * 1.001, True),
        (torch.ones(4), torch.ones(5), False),
        (torch.ones(4), torch.ones(4).double(), False),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), True),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]), False),
        (torch.tensor([float("inf"), 1.0]), torch.tensor([float("inf"), 1.0]), True),
        (np.array([True, False]), np.array([True, True]), False),
        ([torch.ones(2), torch.zeros(2)], [torch.ones(2), torch.zeros(2)], True),
        (torch.full((20000,), 1.0), torch.cat([torch.full((19999,), 1.0), torch.full((1,), 9.0)]), True),  # nearly all
        (torch.ones(3).bfloat16(), torch.ones(3).bfloat16() + 0.5, False),
    ],
)
def test_relative_tolerance(x: object, y: object, same: bool) -> None:
    if same:
        Case().assertRtolEqual(x, y)
    else:
        with pytest.raises(AssertionError):
            Case().assertRtolEqual(x, y)


@pytest.mark.parametrize(
    ("x", "y", "same"),
    [
        (1.0, 1.0 + 1e-6, True),
        (1, 2, False),
        (torch.ones(2, device="npu"), torch.ones(2), True),
        (torch.ones(2), torch.ones(2) + 1e-3, False),
        ({"a": torch.ones(2)}, {"a": torch.ones(2)}, True),
        ([1, torch.zeros(1)], [1, torch.ones(1)], False),
        ("text", "text", True),
        (torch.tensor([True]), torch.tensor([False]), False),
        (torch.tensor(3), 3, True),
        (float("nan"), float("nan"), True),
        (np.array([True, False]), np.array([1.0, 0.0], np.float16), True),
        (np.array([True, False]), np.array([1.0, 1.0], np.float16), False),
    ],
)
def test_equality_has_a_tolerance(x: object, y: object, same: bool) -> None:
    if same:
        Case().assertEqual(x, y)
    else:
        Case().assertNotEqual(x, y)
        with pytest.raises(AssertionError):
            Case().assertEqual(x, y)


def test_inputs_are_the_same_on_both_devices() -> None:
    for cpu, npu in (
        create_common_tensor([np.float16, -1, (2, 3)], -3, 3),
        create_common_tensor([np.float32, 2, (2, 3), "transposed"], -3, 3),
        create_dtype_tensor((4,), torch.int32, no_zero=True),
        create_dtype_tensor((4,), torch.bool),
    ):
        assert (cpu.device.type, npu.device.type) == ("cpu", "npu")
        assert torch.equal(cpu, npu.cpu())
        npu.zero_()
        assert cpu.any() or cpu.dtype == torch.bool  # they do not share memory


def test_a_profile_is_asked_for_operators() -> None:
    x = torch.ones(3, device="npu")
    with torch.autograd.profiler.profile() as prof:
        torch.add(x, x)
    assert check_operators_in_prof(["aten::add"], prof, ["aten::mul"])
    assert not check_operators_in_prof(["aten::mul"], prof)
    assert not check_operators_in_prof(["aten::add"], prof, unexpected_operators=["aten::add"])


def test_decorators_refuse_what_they_can_not_use() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.dtype"):
        Dtypes("float")
    with pytest.raises(RuntimeError, match="accepted"):
        Dtypes()

    class Tests(unittest.TestCase):
        @Dtypes(torch.float32)
        def test_it(self, kind: object) -> None:
            raise AssertionError

    with pytest.raises(RuntimeError, match="whose name has 'dtype'"):
        instantiate_tests(Tests)


def test_a_test_for_another_chip_is_skipped() -> None:
    with pytest.raises(unittest.SkipTest, match="NoSuchChip"):
        SupportedDevices(["NoSuchChip"])(lambda self: None)(None)
    assert SupportedDevices(["Ascend"])(lambda self: "ran")(None) == "ran"
