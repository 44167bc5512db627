from __future__ import annotations

import copy
from pathlib import Path
import subprocess
import sys

import pytest
import torch

from anycann.adapters.torch.graph.report import reports
from tests.torch_graph.networks import NETWORKS
from tests.torch_graph.test_inference import tensors

SHIMS = str(Path(__file__).parents[2] / "src" / "anycann" / "shims" / "python")


@pytest.fixture(autouse=True, scope="module")
def _device() -> None:
    if SHIMS not in sys.path:
        sys.path.insert(0, SHIMS)
    import torch_npu  # noqa: F401


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_on_the_npu_infers_and_trains_as_on_the_cpu(name: str) -> None:
    make, feed = NETWORKS[name]
    model, args = make(), feed()
    other = copy.deepcopy(model).npu()
    run, moved = torch.compile(other, backend="npu"), tuple(arg.npu() for arg in args)
    with torch.no_grad():
        got, wanted = tensors(run.eval()(*moved))[0], tensors(model.eval()(*args))[0]
    assert got.device == torch.device("npu", 0)
    torch.testing.assert_close(got.cpu(), wanted, rtol=1e-4, atol=1e-5)
    assert not reports()[-1].in_pytorch
    for network, inputs, step in ((model.train(), args, model), (other.train(), moved, run)):
        torch.manual_seed(4)
        torch.npu.manual_seed(4)
        tensors(step(*inputs))[0].square().sum().backward()
        assert network.training
    for one, wanted in zip(other.parameters(), model.parameters(), strict=True):
        if wanted.grad is not None:
            torch.testing.assert_close(one.grad.cpu(), wanted.grad, rtol=1e-3, atol=1e-4 * float(wanted.grad.abs().max() + 1))


def test_torch_npu_loads_neither_its_operators_nor_the_compiler_of_torch_which_knows_it() -> None:
    program = """
import sys, torch, torch_npu
torch_npu.utils, torch_npu.contrib  # named, and not loaded
assert not {"torch._dynamo", "anycann.adapters.torch.operators.all", "anycann.adapters.torch.graph.graph_program"} & set(sys.modules)
print(torch.compile(lambda x: x * 2 + 1, backend="npu")(torch.ones(2).npu()).cpu())
"""
    paths = f"{Path(__file__).parents[2] / 'src'}:{SHIMS}"
    result = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": paths, "PATH": ""}, capture_output=True, text=True)
    assert result.stdout == "tensor([3., 3.])\n", result.stderr


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # of Inductor's own modules
@pytest.mark.parametrize("options", [{}, {"mode": "reduce-overhead"}])
def test_compiling_without_naming_a_backend_goes_to_the_engine(options: dict[str, object]) -> None:
    layer = torch.nn.Linear(3, 5).npu()
    rows = torch.randn(4, 3)
    run = torch.compile(layer, **options)
    seen = len(reports())
    run(rows.npu()).sum().backward()
    assert {report.kind for report in reports()[seen:]} == {"forward", "backward"}
    torch.testing.assert_close(layer.weight.grad.cpu(), rows.sum(0).expand(5, 3))


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
def test_a_graph_that_only_makes_npu_tensors_goes_to_the_engine() -> None:
    made = torch.compile(lambda size: torch.ones(size, device="npu") * 2)(3)
    assert (made.device, made.tolist()) == (torch.device("npu", 0), [2.0, 2.0, 2.0])


def test_kernels_of_what_stays_eager_are_not_compiled() -> None:
    """Dynamo leaves a recurrent layer to eager mode, where its kernels' own frames are none of the program's."""
    metrics = torch._dynamo.utils
    layer = torch.nn.LSTM(4, 3, batch_first=True).npu()
    run = torch.compile(lambda x: layer(x * 2)[0].sum(), backend="npu")
    x = torch.randn(2, 5, 4)
    run(x.npu()).backward()
    files = [metric.co_filename or "" for metric in metrics.get_compilation_metrics()]
    assert [file for file in files if "adapters/torch/device" in file] == []
    torch.testing.assert_close(run(x.npu()).cpu(), layer.cpu()(x * 2)[0].sum())
