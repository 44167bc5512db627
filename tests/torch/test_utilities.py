"""`torch_npu.utils`: tensors side by side, counted operations, processors of threads, saving in the background, reports, extensions."""

from __future__ import annotations

import os
from pathlib import Path
import threading

import pytest
import torch
import torch_npu
from torch_npu.utils import collect_env, cpp_extension

utils = torch_npu.utils


def test_combined_tensors_are_parts_of_one_and_keep_their_values() -> None:
    tensors = [torch.randn(shape, device="npu") for shape in ((2, 3), (0,), (5,), ())]
    values = [tensor.clone() for tensor in tensors]
    combined = utils.npu_combine_tensors(tensors)
    assert combined.shape == (12,)
    assert utils.is_combined_tensor_valid(combined, [tensors[0], *tensors[2:]])
    assert not utils.is_combined_tensor_valid(combined, values)
    assert not utils.is_combined_tensor_valid(combined, [None])
    combined.mul_(2)
    for tensor, value in zip(tensors, values, strict=True):
        assert torch.equal(tensor, 2 * value)
    assert torch.equal(utils.get_part_combined_tensor(combined, 6, 5), tensors[2])
    assert utils.npu_combine_tensors([]) is utils.npu_combine_tensors([torch.empty(0, device="npu")]) is None


def test_what_cannot_be_combined_says_why() -> None:
    one = torch.ones(2, 3, device="npu")
    for others, message in (([None], "None"), ([one.half()], "dtype"), ([one.cpu()], "on NPU, got cpu"), ([one.t()], "contiguous")):
        with pytest.raises(RuntimeError, match=message):
            utils.npu_combine_tensors([one, *others])
    with pytest.raises(RuntimeError, match=r"\(8\) > .* \(6\)"):
        utils.get_part_combined_tensor(utils.npu_combine_tensors([one]), 6, 2)


def test_operations_are_counted_but_not_recorded_in_a_pause() -> None:
    a, b = torch.ones(4, 8, device="npu"), torch.ones(8, 16, device="npu")
    counter = utils.FlopsCounter()
    counter.start()
    a @ b
    counter.pause()
    a @ b
    assert counter.get_flops() == [1024, 2048]
    counter.resume()
    a @ b
    assert counter.get_flops() == [2048, 3072]
    with pytest.raises(RuntimeError, match="stop"):
        counter.start()
    counter.stop()
    assert counter.get_flops() == [0, 0]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not let a program choose its processors")
def test_a_thread_is_bound_to_processors_and_set_free() -> None:
    first = min(os.sched_getaffinity(0))
    before, bound = os.sched_getaffinity(0), []

    def bind() -> None:
        utils.set_thread_affinity([first, first])
        bound.append(os.sched_getaffinity(0))
        utils.set_thread_affinity([[first, first]])
        utils.set_thread_affinity()
        bound.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=bind)
    thread.start()
    thread.join()
    assert bound == [{first}, before]
    for wrong in ([1, 2, 3], [], [-1, 5], [[0, 1], [2]]):
        with pytest.raises(ValueError, match="Invalid core range"):
            utils.set_thread_affinity(wrong)


def test_what_is_saved_in_the_background_are_the_values_of_the_call(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2).npu()
    weight = model.weight.detach().clone()
    utils.save_async(model.state_dict(), tmp_path / "state.pt", model=model)
    model.weight.data.zero_()
    for thread in threading.enumerate():
        if thread.name == "save_async":
            thread.join()
    loaded = torch.load(tmp_path / "state.pt")
    assert loaded["weight"].is_npu
    assert torch.equal(loaded["weight"], weight)
    with pytest.raises(RuntimeError, match="format of torch"):
        utils.save_async(weight, tmp_path / "old.pt", _use_new_zipfile_serialization=False)


def test_reports_and_extensions_know_which_software_there_is() -> None:
    assert collect_env.get_cann_version() == torch.npu.utils.get_cann_version()
    assert collect_env.get_torch_npu_version() == torch_npu.__version__
    with pytest.raises(AttributeError, match="there are: FlopsCounter"):
        utils.nothing_of_the_kind  # noqa: B018


@pytest.mark.filterwarnings("ignore")
def test_an_extension_is_built_against_torch_alone() -> None:
    extension = cpp_extension.NpuExtension("mine", ["mine.cpp"], libraries=["torch_npu", "m"])
    assert extension.language == "c++"
    assert "torch_npu" not in extension.libraries
    assert {"m", "torch", "c10"} <= set(extension.libraries)
