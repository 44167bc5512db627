"""What programs do around tensors on the npu: export, share between processes, load in parallel, move modules, label with int32."""

from __future__ import annotations

import copy
import io
import os
from pathlib import Path
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
import torch_npu

ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path)}


def run(program: str, **environment: str) -> str:
    """What a new process prints."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=ENVIRONMENT | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_is_that_of_torch() -> None:
    assert torch_npu.__version__ == torch.__version__.split("+")[0]


@pytest.fixture
def paths(tmp_path: Path) -> str:
    """Where modules are found if AnyCANN is installed."""
    installed = tmp_path / "anycann-1.0.dist-info"
    installed.mkdir()
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    entry = pyproject.split('[project.entry-points."torch.backends"]\n')[1].split("\n")[0].replace('"', "")
    (installed / "entry_points.txt").write_text(f"[torch.backends]\n{entry}\n")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: anycann\nVersion: 1.0\n")
    return ":".join([str(tmp_path), *(path for path in sys.path if "shims" not in path)])


@pytest.mark.parametrize("module", ["operators.reference_page", "distributed"])
def test_a_module_of_the_plug_in_may_be_imported_before_torch(module: str, paths: str) -> None:
    program = f"import anycann.adapters.torch.{module}, torch; print(torch.ones(2, device='npu').device)"
    assert run(program, PYTHONPATH=paths).split() == ["npu:0"]


def test_torch_alone_has_the_npu_where_anycann_is_installed(paths: str) -> None:
    program = "import torch; print(torch.ones(2).npu().device); import torch_npu; print(torch_npu.npu is torch.npu)"
    assert run(program, PYTHONPATH=paths).split() == ["npu:0", "True"]
    alone = "import torch; print(hasattr(torch, 'npu'))"
    assert run(alone, PYTHONPATH=paths, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split() == ["False"]


def test_an_optimizer_made_before_the_move_trains_the_module() -> None:
    module = nn.Linear(3, 2)
    kept, optimizer = module.weight, torch.optim.SGD(module.parameters(), lr=0.1)
    module(torch.ones(1, 3)).sum().backward()
    module.to("npu")
    assert module.weight is kept
    assert kept.grad.is_npu
    before = kept.detach().clone()
    module(torch.ones(1, 3, device="npu")).sum().backward()
    optimizer.step()
    assert not torch.equal(kept, before)
    module.cpu()
    assert module.weight is kept
    assert kept.device.type == "cpu"
    assert module(torch.ones(1, 3)).shape == (1, 2)


def test_data_changes_the_device_of_a_parameter() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.data = parameter.data.npu(1)
    assert parameter.device == torch.device("npu:1")
    (parameter * 2).sum().backward()
    assert parameter.grad.tolist() == [2.0, 2.0]
    parameter.data = torch.zeros(3)
    assert parameter.tolist() == [0.0, 0.0, 0.0]


def test_a_lazy_module_is_sized_after_it_moved() -> None:
    lazy = nn.LazyLinear(3).npu()
    assert lazy(torch.ones(2, 5, device="npu")).shape == (2, 3)
    assert lazy.weight.is_npu


@pytest.mark.filterwarnings("ignore")
def test_scripts_and_traces_run_and_are_saved() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).npu().eval()
    x = torch.randn(3, 4).npu()
    expected = module(x)
    saved = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, x), saved)
    saved.seek(0)
    assert torch.equal(torch.jit.load(saved, map_location="npu:0")(x), expected)
    saved.seek(0)
    assert torch.equal(torch.jit.load(saved, map_location="cpu").npu()(x), expected)
    assert torch.equal(torch.jit.freeze(torch.jit.script(module))(x), expected)


@pytest.mark.filterwarnings("ignore")
def test_exported_programs_and_models_are_those_of_the_module() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).npu().eval()
    x = torch.randn(3, 4)
    exported = torch.export.export(module, (x.npu(),))
    assert torch.equal(exported.module()(x.npu()), module(x.npu()))
    model = io.BytesIO()
    torch.onnx.export(module, (x.npu(),), model, dynamo=False)
    session = onnxruntime.InferenceSession(model.getvalue(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), module(x.npu()).detach().cpu())


@pytest.mark.filterwarnings("ignore:PyTorch is not compiled with NCCL")
def test_data_parallel_adds_the_gradients_of_all_devices() -> None:
    here = nn.Linear(4, 3)
    there = copy.deepcopy(here).npu()
    x = torch.randn(5, 4)
    here(x).pow(2).sum().backward()
    output = nn.DataParallel(there, device_ids=[0, 1, 2])(x.npu())
    assert output.device == torch.device("npu:0")
    output.pow(2).sum().backward()
    torch.testing.assert_close(there.weight.grad.cpu(), here.weight.grad)


def test_threads_train_on_devices_of_their_own() -> None:
    seen: list[object] = []

    def train(index: int) -> None:
        torch.npu.set_device(index)
        module = nn.Linear(8, 8).npu()
        for _ in range(20):
            module(torch.randn(2, 8, device="npu")).sum().backward()
        seen.append((index, module.weight.grad.get_device()))

    threads = [threading.Thread(target=train, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [(index, index) for index in range(4)]
    assert torch.npu.current_device() == 0


def test_a_forked_child_runs_backward_after_its_parent_did() -> None:
    program = """
import os, torch, torch_npu
def train():
    x = torch.ones(2, device="npu", requires_grad=True)
    (x * x).sum().backward()
    return x.grad.tolist() == [2.0, 2.0]
train()
child = os.fork()
if not child:
    os._exit(0 if train() else 1)
print(os.waitpid(child, 0)[1])
"""
    assert run(program).strip() == "0"


def test_a_queue_shares_the_memory_of_npu_tensors() -> None:
    program = """
import torch, torch_npu, torch.multiprocessing as mp
def work(there, back):
    there.get().add_(5)
    back.put(None)
context = mp.get_context("fork")
there, back, shared = context.Queue(), context.Queue(), torch.ones(3, device="npu:1")
child = context.Process(target=work, args=(there, back))
child.start()
there.put(shared)
back.get()
child.join()
print(shared.tolist(), shared.device)
"""
    assert run(program).strip() == "[6.0, 6.0, 6.0] npu:1"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_pins_and_moves(workers: int) -> None:
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=workers, pin_memory=True)
    batches = []
    for (batch,) in loader:
        assert batch.is_pinned()
        batches.append(batch.to("npu", non_blocking=True))
    assert torch.cat(batches).tolist() == list(range(8))


def test_labels_may_be_int32() -> None:
    logits, labels = torch.randn(4, 5), torch.tensor([0, 1, 4, 2], dtype=torch.int32)
    x, y = logits.npu().requires_grad_(), logits.clone().requires_grad_()
    functional.cross_entropy(x, labels.npu(), label_smoothing=0.1).backward()
    functional.cross_entropy(y, labels.long(), label_smoothing=0.1).backward()
    torch.testing.assert_close(x.grad.cpu(), y.grad)
    images = torch.randn(2, 3, 4, 4, device="npu", requires_grad=True)
    functional.nll_loss(images, torch.zeros(2, 4, 4, dtype=torch.int32, device="npu")).backward()
    assert functional.one_hot(labels.npu(), 5).argmax(1).tolist() == labels.tolist()


def test_types_convert_by_their_old_names() -> None:
    x = torch.ones(2)
    assert x.type(torch.npu.HalfTensor).dtype == torch.float16
    assert x.npu().type("torch.FloatTensor").device.type == "cpu"
    assert x.npu().type(torch.int64).is_npu


def test_accelerator_functions_are_those_of_the_npu() -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("npu")
    with torch.accelerator.device_index(2):
        assert torch.npu.current_device() == 2
    assert torch.accelerator.memory_allocated() == torch.npu.memory_allocated()
    assert torch.get_device_module("npu") is torch.npu


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_a_default_type_of_the_npu_makes_tensors_there() -> None:
    torch.set_default_tensor_type(torch.npu.HalfTensor)
    try:
        assert torch.randn(2).device.type == "npu"
        assert torch.zeros(2).dtype == torch.float16
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(2).device.type == "cpu"
    assert torch.zeros(2).dtype == torch.float32


def test_a_step_is_profiled_by_scripts_of_the_model_zoo(tmp_path: Path) -> None:
    program = f"""
import torch, torch_npu
from torch_npu.utils.profiler import Profile
profile = Profile(start_step=2, save_path={str(tmp_path)!r}, profile_type="TORCH")
for step in range(5):
    profile.start()
    torch.ones(3, device="npu").exp()
    profile.end()
    print(step)
"""
    assert run(program).split() == ["0"]
    (trace,) = tmp_path.glob("torch_prof_*.json")
    assert "aten::exp" in trace.read_text()
    assert run(program.replace('"TORCH"', "None")).split() == list("01234")


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_script_of_a_program_that_chooses_the_older_executor_runs() -> None:
    @torch.jit.script
    def rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., 0], x[..., 1]
        return torch.stack([even * turn[0] - odd * turn[1], odd * turn[0] + even * turn[1]], -1)

    before = torch._C._jit_set_profiling_executor(False)
    x = torch.randn(3, 2, device="npu", requires_grad=True)
    for _ in range(3):
        rotated(x, torch.tensor([0.0, 1.0], device="npu")).sum().backward()
    assert before
    assert x.grad.tolist() == [[3.0, -3.0]] * 3
