"""Scripts for CUDA run on the npu: each in a process of its own, for nothing that transfer_to_npu does can be taken back."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys

from tests.torch_distributed.worlds import ROOT, environment

SCRIPT = Path(__file__).parent / "programs" / "cuda_training.py"
FIRST = "import warnings; warnings.simplefilter('ignore'); import torch, torch_npu"


def python(code: str, *arguments: str, **variables: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment(**variables), capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_trained(output: str) -> None:
    """The script's last line: the loss halved at least, nine of ten are right, and the weights are on the npu."""
    words = output.splitlines()[-1].split()
    assert words[0] == "LOSS"
    assert float(words[2]) < 0.5 * float(words[1])
    assert float(words[4]) > 0.9
    assert words[-1] == "npu:0"


def test_a_training_script_for_cuda_runs_as_it_is() -> None:
    code = f"{FIRST}; from torch_npu.contrib import transfer_to_npu; import sys, runpy; sys.argv = ['script'];"
    assert_trained(python(f"{code} runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"))


def test_the_variable_transfers_without_a_line_of_code() -> None:
    code = f"{FIRST}; import sys, runpy; sys.argv = ['script', '--gpu', '0'];"
    assert_trained(python(f"{code} runpy.run_path({str(SCRIPT)!r}, run_name='__main__')", TORCH_TRANSFER_TO_NPU=1))


def test_importing_it_warns_once_and_says_what_changed() -> None:
    code = (
        "import warnings, torch, torch_npu\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    import torch_npu.contrib.transfer_to_npu\n"
        "print([(type(w.message).__name__) for w in said], 'hccl' in str(said[0].message))\n"
    )
    assert python(code).strip() == "['ImportWarning'] True"


def test_what_is_not_cuda_stays() -> None:
    code = f"""{FIRST}
from torch_npu.contrib import transfer_to_npu
assert torch.zeros(2, device='cpu').device.type == 'cpu'
assert torch.zeros(2, device='meta').device.type == 'meta'
assert torch.zeros(2).to('cpu', torch.float16).dtype is torch.float16
assert torch.full((2,), 3).tolist() == [3, 3]
assert torch.randint(0, 5, (3,)).max() < 5
assert torch.ones(2).to(1).device == torch.device('npu:1')
assert torch.ones(2, device=2).device == torch.device('npu:2')
assert torch.tensor(['cuda' == 'cuda']).item() is True
model = torch.nn.Linear(2, 2).cuda(1)
assert next(model.parameters()).device == torch.device('npu:1')
assert isinstance(torch.Generator(), torch.Generator)
assert isinstance(torch.autocast('cuda'), torch.autocast)
from torch.cuda.amp import autocast, custom_fwd
import torch.cuda.amp.grad_scaler
with torch.cuda.device(1):
    assert torch.cuda.current_device() == 1
print('fine')
"""
    assert python(code).strip() == "fine"


def test_what_takes_a_device_by_other_ways_is_transferred_too() -> None:
    code = f"""{FIRST}
from torch_npu.contrib import transfer_to_npu
assert torch.fft.fftfreq(4, device='cuda').device == torch.device('npu:0')
assert torch.fft.rfftfreq(4, device=torch.device('cuda:1')).device == torch.device('npu:1')
assert torch.get_device_module('cuda:0') is torch.npu
from torch.distributed import ProcessGroupNCCL
options = ProcessGroupNCCL.Options(is_high_priority_stream=True)
assert options.is_high_priority_stream
run = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda(), device_ids=['cuda:0', 'cuda:1'])
assert run.device_ids == [0, 1]
assert run(torch.ones(4, 2).cuda()).device == torch.device('npu:0')
assert torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())(torch.ones(16, 2).cuda()).shape == (16, 2)
print('fine')
"""
    assert python(code).strip() == "fine"
