"""Operators that torch's dispatcher hands to generated code, with their arguments on its stack (`device/native_boxed_ir.py`)."""

from __future__ import annotations

from collections.abc import Callable
import gc
import platform
import threading
import weakref

import pytest
import torch

from anycann.adapters.torch.device import aliasing, registration
from anycann.adapters.torch.device.dispatch_table import Table
from anycann.adapters.torch.device.virtual_devices import KNOWN_VERSIONS

OPERATORS: dict[str, Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]] = {
    "aten::relu": torch.relu,
    "aten::add.Tensor": lambda x: x + x.roll(1),
    "aten::mul.Tensor": lambda x: x * 3,
    "aten::linear": lambda x: torch.nn.functional.linear(x, x[:2]),
    "aten::sum.dim_IntList": lambda x: x.sum((0, 1)),
    "aten::gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "aten::clamp": lambda x: x.clamp(-0.5, 0.25),
    "aten::geqrf": torch.geqrf,
    "aten::topk": lambda x: torch.topk(x, 2),
    "aten::native_layer_norm": lambda x: torch.native_layer_norm(x, (5,), None, None, 1e-5),
    "aten::add_.Tensor": lambda x: x.clone().add_(x, alpha=2),
    "aten::empty.memory_format": lambda x: torch.empty(3, 4, device=x.device).fill_(2.0),
    "aten::full": lambda x: torch.full((2, 3), 7.5, device=x.device),
    "aten::zeros_like": torch.zeros_like,
    "aten::copy_": lambda x: torch.empty_like(x).copy_(x.flip(0)),
    "aten::abs": torch.abs,
    "aten::mv": lambda x: torch.mv(x, x[0]),
    "aten::arange.start_step": lambda x: torch.arange(1, 9, 3, device=x.device),
    "aten::index.Tensor": lambda x: x[:, torch.tensor([4, 0], device=x.device)],
    "aten::masked_fill_.Scalar": lambda x: x.clone().masked_fill_(x > 0, 2.0),
}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 5)


def table() -> Table:
    """Torch's table of kernels, where this torch has it as it is known."""
    found, claim = registration._table, aliasing.claim()
    if not torch.__version__.startswith(KNOWN_VERSIONS) or platform.machine() != "x86_64":
        pytest.skip("kernels of this torch are called through Python")
    assert claim is not None
    assert claim.boxed_code
    assert found is not None
    return found


def calls_code(name: str) -> bool:
    """Whether the npu's kernel of an operator is called by generated code."""
    operator, _, overload = name.partition(".")
    kernel, claim = table().npu_kernel(operator, overload), aliasing.claim()
    assert kernel is not None
    assert claim is not None
    return kernel.call == claim.boxed_code


def references(tensor: torch.Tensor) -> tuple[int, int]:
    """How many refer to a tensor, and to its memory."""
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


@pytest.mark.parametrize("name", OPERATORS)
def test_results_are_those_of_the_cpu_and_the_npus(x: torch.Tensor, name: str) -> None:
    y, run = x.npu(), OPERATORS[name]
    results = [run(y) for _ in range(3)]
    assert calls_code(name)
    for result in results:
        for found, expected in zip(torch.utils._pytree.tree_leaves(result), torch.utils._pytree.tree_leaves(run(x)), strict=True):
            assert found.device == found.untyped_storage().device == y.device
            torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0)


def test_a_call_gives_back_every_reference_and_byte(x: torch.Tensor) -> None:
    y = x.npu()
    y + y
    before, bytes_before = references(y), torch.npu.memory_allocated()
    for _ in range(5):
        y + y
        y.mul_(1.0)
        torch.zeros_like(y)
        torch.topk(y, 2)
    assert references(y) == before
    assert torch.npu.memory_allocated() == bytes_before


def test_what_is_no_tensor_is_returned_as_it_is(x: torch.Tensor) -> None:
    y = x.npu()
    assert [torch.equal(y, other) for other in (y.clone(), y + 1, y.clone())] == [True, False, True]
    assert calls_code("aten::equal")


def test_tensors_go_to_the_npu_and_back(x: torch.Tensor) -> None:
    for _ in range(3):
        y = x.t().npu()
        back = (y * 2).cpu()
    assert calls_code("aten::copy_")
    assert torch.equal(back, x.t() * 2)
    assert y.device.type == "npu"
    assert back.untyped_storage().device == x.device
    before = x.clone()
    assert x.copy_(y.t().add(1)) is x
    assert torch.equal(x, before + 1)


def test_random_numbers_are_those_of_the_npus_generator() -> None:
    own, y = torch.Generator().manual_seed(3), torch.empty(7, device="npu")
    y.normal_()  # makes the npu's generator
    torch.npu.manual_seed(3)
    for draw in (torch.Tensor.normal_, torch.Tensor.uniform_, lambda x, **given: torch.bernoulli(x.fill_(0.5), **given)):
        found, expected = draw(y), draw(torch.empty(7), generator=own)
        assert torch.equal(found.cpu(), expected)
    assert calls_code("aten::normal_")
    given = torch.Generator("npu").manual_seed(3)
    assert torch.equal(y.normal_(generator=given).cpu(), torch.empty(7).normal_(generator=own.manual_seed(3)))


def test_an_operator_that_fails_in_the_middle_writes_once(x: torch.Tensor) -> None:
    indices, found = torch.tensor([1, 9]), []
    for target in (x.clone(), x.npu()):
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            target.index_add_(0, indices.to(target.device), torch.ones(2, 5, device=target.device))
        found.append(target.cpu())
    assert torch.equal(*found)


def test_a_failing_operator_is_named_each_time_and_gives_back_what_it_took(x: torch.Tensor) -> None:
    y, other = x.npu(), torch.ones(4, device="npu")
    y + y
    before = references(y), references(other), torch.npu.memory_allocated()
    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"must match the size(.|\n)*aten::add\(npu:0 float32\[3, 5\], npu:0 float32\[4\]\)"):
            y + other
        with pytest.raises(RuntimeError, match="aten::add_"):
            y.add_(other)
    assert (references(y), references(other), torch.npu.memory_allocated()) == before
    assert torch.equal(y.cpu(), x)


def test_16_bit_floats_are_rounded_once_where_torch_rounds_between(x: torch.Tensor) -> None:
    wide, narrow = x.npu(), x.bfloat16().npu()
    for _ in range(3):
        torch.native_layer_norm(wide, (5,), None, None, 1e-5)
        result, mean, _ = torch.native_layer_norm(narrow, (5,), None, None, 1e-5)
        assert (result.dtype, mean.dtype) == (torch.bfloat16, torch.float32)
        assert torch.equal(result.cpu(), torch.native_layer_norm(x.bfloat16().float(), (5,), None, None, 1e-5)[0].bfloat16())
    assert calls_code("aten::native_layer_norm")


def test_lists_of_tensors_are_computed_written_and_given_back(x: torch.Tensor) -> None:
    hosts = [x, x[:1] * 2, torch.zeros(0, 5)]
    given = [tensor.npu() for tensor in hosts]
    torch._foreach_add_(given, torch._foreach_mul(given, 0.0))
    before, bytes_before = [references(tensor) for tensor in given], torch.npu.memory_allocated()
    for _ in range(3):
        products = torch._foreach_mul(given, given)
        assert [tensor.device for tensor in products] == [given[0].device] * 3
        for found, expected in zip(products, torch._foreach_mul(hosts, hosts), strict=True):
            assert torch.equal(found.cpu(), expected)
        assert torch.equal(torch.cat(given).cpu(), torch.cat(hosts))
        torch._foreach_add_(given, 1.0)
        torch._foreach_add_(hosts, 1.0)
    with pytest.raises(RuntimeError, match="aten::cat"):
        torch.cat([given[0], torch.ones(2, 4, device="npu")])
    del products
    assert ([references(tensor) for tensor in given], torch.npu.memory_allocated()) == (before, bytes_before)
    for found, expected in zip(given, hosts, strict=True):
        assert torch.equal(found.cpu(), expected)
    for name in ("aten::_foreach_mul.List", "aten::_foreach_add_.Scalar", "aten::cat"):
        assert calls_code(name)


def test_lists_that_fail_in_the_middle_are_written_once_and_given_back() -> None:
    given = [torch.full((2,), 16.0, device="npu") for _ in range(2)]
    others = [torch.ones(2, device="npu"), torch.ones(3, device="npu")]
    torch._foreach_add_(given, given)
    before, bytes_before = [references(tensor) for tensor in (*given, *others)], torch.npu.memory_allocated()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="must match the size"):
            torch._foreach_add_(given, others)
    assert [tensor.tolist() for tensor in given] == [[35.0, 35.0], [32.0, 32.0]]
    assert ([references(tensor) for tensor in (*given, *others)], torch.npu.memory_allocated()) == (before, bytes_before)
    assert calls_code("aten::_foreach_add_.List")


def test_autograd_knows_that_tensors_of_a_list_were_written() -> None:
    for _ in range(3):
        results = [torch.ones(2, device="npu", requires_grad=True).exp() for _ in range(2)]
        torch._foreach_add_(results, 1.0)
        assert [tensor._version for tensor in results] == [1, 1]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            results[0].sum().backward()
    narrow = [torch.ones(2, device="npu", dtype=torch.bfloat16)]
    torch._foreach_addcmul_(narrow, narrow, narrow)
    assert narrow[0]._version == 1


def test_a_division_that_fails_in_the_middle_is_done_once() -> None:
    dividends, divisors = torch.tensor([800, 800]), torch.tensor([3, 0])
    for mode in ("floor", "trunc"):
        dividends.npu().div_(divisors.npu() + 1, rounding_mode=mode)
        written = dividends.npu()
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            written.div_(divisors.npu(), rounding_mode=mode)
        assert written.tolist() == [266, 800]


OPTIMIZERS = [(torch.optim.Adam, "foreach"), (torch.optim.Adam, "fused"), (torch.optim.SGD, "fused"), (torch.optim.RMSprop, "foreach")]


@pytest.mark.parametrize(("optimizer", "how"), OPTIMIZERS)
def test_optimizers_step_as_on_the_cpu(x: torch.Tensor, optimizer: type[torch.optim.Optimizer], how: str) -> None:
    results = []
    for device in ("cpu", "npu"):
        parameters = [torch.nn.Parameter(value.clone().to(device)) for value in (x, x[0])]
        made = optimizer(parameters, lr=0.1, **{how: True})  # type: ignore[call-arg]
        for _ in range(4):
            made.zero_grad()
            sum(parameter.square().sum() for parameter in parameters).backward()
            made.step()
        results.append([parameter.detach().cpu() for parameter in parameters])
    torch.testing.assert_close(results[1], results[0])


def test_int32_labels_take_the_other_way(x: torch.Tensor) -> None:
    labels = torch.tensor([0, 4, 2])
    for dtype in (torch.int64, torch.int32, torch.int64):
        y = x.npu().requires_grad_()
        loss = torch.nn.functional.cross_entropy(y, labels.npu().to(dtype))
        loss.backward()
        expected = torch.autograd.functional.jacobian(lambda x: torch.nn.functional.cross_entropy(x, labels), x)
        assert y.grad is not None
        torch.testing.assert_close(y.grad.cpu(), expected)
    assert calls_code("aten::nll_loss_forward")
    assert calls_code("aten::nll_loss_backward")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_a_tensor_that_only_the_stack_holds_lives_as_long_as_it_must(x: torch.Tensor) -> None:
    @torch.jit.script
    def chain(x: torch.Tensor) -> torch.Tensor:
        return (torch.relu(x + 1).mul_(2) - x).sum(dim=[1], keepdim=True) + torch.zeros([3, 1], device=x.device)

    for _ in range(3):
        torch.testing.assert_close(chain(x.npu()).cpu(), chain(x))


def test_an_operator_that_wrote_its_argument_returns_it(x: torch.Tensor) -> None:
    y = x.npu()
    version = y._version
    for _ in range(3):
        assert y.mul_(2) is y
    assert y._version == version + 3
    assert torch.equal(y.cpu(), x * 8)
    assert torch.ops.aten.mul_.Tensor(y, y) is y


def test_numbers_of_the_host_pass_and_other_tensors_of_it_are_refused(x: torch.Tensor) -> None:
    y, number = x.npu(), torch.tensor(2.0)
    for _ in range(3):
        assert torch.equal((y * number).cpu(), x * 2)
        assert torch.equal((number - y).cpu(), 2 - x)
        with pytest.raises(RuntimeError, match="same device"):
            y + x
        with pytest.raises(RuntimeError, match="same device"):
            number.add_(y[0, 0])
    assert number == 2


def test_tensors_of_two_npus_are_refused_and_each_keeps_its_results(x: torch.Tensor) -> None:
    y, z = x.to("npu:1"), x.to("npu:2")
    for _ in range(3):
        assert (y + y).device == y.device
        assert (z + z).device == z.device
        with pytest.raises(RuntimeError, match="npu:1 and npu:2"):
            y + z


def test_conjugates_negatives_and_subclasses_take_the_other_way() -> None:
    class Own(torch.Tensor):
        pass

    z = torch.randn(3, dtype=torch.complex64)
    y, own = z.npu(), torch.ones(2, device="npu").as_subclass(Own)
    for _ in range(3):
        assert torch.equal((y.conj() + y).cpu(), z.conj() + z)
        assert torch.equal((y.conj().imag + 1).cpu(), z.conj().imag + 1)
        assert type(own + 1) is Own
        assert (own + 1).is_npu


def test_factories_follow_the_current_device_of_their_thread() -> None:
    found = {}

    def make(index: int) -> None:
        torch.npu.set_device(index)
        found[index] = [torch.empty(2, device="npu").get_device() for _ in range(3)]

    torch.empty(2, device="npu")
    threads = [threading.Thread(target=make, args=(index,)) for index in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1: [1] * 3, 3: [3] * 3}
    assert torch.empty(2, device="npu:5").get_device() == 5
    assert torch.empty(2, device="npu").get_device() == torch.npu.current_device()
    with pytest.raises(RuntimeError):
        torch.empty(2, device="npu:99")


def test_a_full_npu_refuses_a_result(x: torch.Tensor) -> None:
    y = torch.ones(1 << 18, device="npu:6")
    y + y
    torch.npu.set_per_process_memory_fraction(torch.npu.memory_allocated(6) / torch.npu.get_device_properties(6).total_memory, 6)
    try:
        before = references(y)
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError):
                y + y
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(1 << 18, device="npu:6")
        assert references(y) == before
    finally:
        torch.npu.set_per_process_memory_fraction(1.0, 6)
    assert (y + y).sum().item() == 2 << 18


def test_threads_that_share_a_tensor_compute_at_once() -> None:
    y = torch.arange(64.0, device="npu")
    torch.relu(y)
    wrong = []

    def work() -> None:
        for _ in range(200):
            view = y[8:16]
            if view.device != y.device or (view * 2 + torch.relu(view)).sum().item() != 3 * sum(range(8, 16)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_python_objects_of_arguments_and_results_go_when_nobody_holds_them(x: torch.Tensor) -> None:
    y = x.npu()
    result = y + y
    gone = weakref.ref(y), weakref.ref(result)
    result.mark = "kept"  # type: ignore[attr-defined]
    again = torch.relu(result)
    assert result.mark == "kept"
    assert again.is_npu
    del y, result
    gc.collect()
    assert gone[0]() is None
    assert gone[1]() is None


def test_gradients_and_inference_mode(x: torch.Tensor) -> None:
    y, host = x.npu().requires_grad_(), x.clone().requires_grad_()
    for tensor in (y, host):
        (torch.relu(tensor * 2) @ tensor.T).sum().backward()
    assert y.grad is not None
    assert host.grad is not None
    torch.testing.assert_close(y.grad.cpu(), host.grad)
    with torch.inference_mode():
        z = torch.relu(x.npu()) + 1
        assert z.is_inference()
        assert torch.equal(z.cpu(), torch.relu(x) + 1)
