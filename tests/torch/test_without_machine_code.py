"""Where torch is laid out in a way that nobody knows, or generated code cannot run, Python code does the same, with less beside."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHANGES = {
    "no generated code": "from anycann.adapters.torch.device import aliasing; aliasing.make_claim = lambda layout, adopt: None",
    "unknown tensors": "from anycann.adapters.torch.device import aliasing; aliasing.discover = lambda move: None",
    "unknown kernels": "from anycann.adapters.torch.device import dispatch_table; dispatch_table.find = lambda: None",
    "unknown devices": "from anycann.adapters.torch.device import virtual_devices; virtual_devices._replace_tables = lambda: False",
}
PROGRAM = """
import torch
{change}
import torch_npu
torch.manual_seed(0)
here = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2))
there = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2))
there.load_state_dict(here.state_dict())
there = there.to("npu:0")
x = torch.randn(2, 3, 8, 8)
for module, value in ((here, x), (there, x.npu())):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        module(value).pow(2).sum().backward()
        optimizer.step()
torch.testing.assert_close(there[4].weight.cpu(), here[4].weight)
y = x.npu()
y[0].add_(1)
assert torch.equal(y.view(-1)[:3].cpu(), x.view(-1)[:3] + 1)
values, places = y.flatten().topk(2)
assert values.is_npu and torch.equal(y.flatten()[places], values)
out = torch.empty(0, device="npu")
torch.mul(y, 2, out=out)
assert out.shape == y.shape and out.sum().item() == (y * 2).sum().item()
print(torch.npu.device_count())
"""


@pytest.mark.parametrize("change", CHANGES)
def test_training_and_views_agree_with_the_cpu_all_the_same(change: str) -> None:
    # the device comes after the change, not with torch
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    program = PROGRAM.format(change=CHANGES[change])
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ("1" if change == "unknown devices" else "8")
