"""Recurrent layers and cells on the npu: the cpu's operator as a whole, and torch's composition where somebody looks at the steps."""

from __future__ import annotations

import gc
from typing import Any
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (behind the check for torch)
from torch.autograd import forward_ad  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402
from torch.profiler import profile  # noqa: E402

LAYERS: dict[str, Any] = {
    **{f"{kind.__name__} of whole vectors": lambda kind=kind, **options: kind(6, 53, **options) for kind in (nn.LSTM, nn.GRU, nn.RNN)},
    "LSTM": lambda **options: nn.LSTM(6, 5, 2, bidirectional=True, **options),
    "LSTM, narrowed": lambda **options: nn.LSTM(6, 5, proj_size=3, **options),
    "GRU": lambda **options: nn.GRU(6, 5, 2, bias=False, **options),
    "RNN": lambda **options: nn.RNN(6, 5, bidirectional=True, **options),
    "RNN of relu": lambda **options: nn.RNN(6, 5, nonlinearity="relu", batch_first=True, **options),
}
CELLS = {"LSTMCell": nn.LSTMCell, "GRUCell": nn.GRUCell, "RNNCell": nn.RNNCell}


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch says so on the cpu
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("packed", [False, True], ids=["rows", "packed"])
def test_layers_agree_with_float64(name: str, packed: bool) -> None:
    layer, x = LAYERS[name](), torch.randn(7, 3, 6)
    _agree(lambda module, given: _run_layer(module, given, packed), layer, x)


@pytest.mark.parametrize("name", CELLS)
def test_cells_agree_with_float64(name: str) -> None:
    _agree(lambda module, given: _flat(module(given)), CELLS[name](6, 5), torch.randn(3, 6))


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_layers_agree_without_gradients(name: str) -> None:
    layer, x = LAYERS[name](), torch.randn(7, 3, 6)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            expected, found = _flat(layer.double()(x.double())), _flat(layer.float().npu()(x.npu()))
        assert all(tensor.is_npu for tensor in found)
        _close(found, expected)
        layer.cpu()


def test_a_layer_is_one_operator() -> None:
    layer, x = nn.LSTM(6, 5).npu(), torch.randn(7, 3, 6, device="npu")
    with profile() as seen:
        layer(x)[0].sum().backward()
    assert not any("fused_lstm_cell" in event.key for event in seen.key_averages())


def test_a_weight_that_was_written_before_backward_is_found_out() -> None:
    layer, x = nn.GRU(6, 5).npu(), torch.randn(7, 3, 6, device="npu")
    loss = layer(x)[0].sum()
    with torch.no_grad():
        layer.weight_hh_l0.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_result_that_was_written_before_backward_is_found_out() -> None:
    layer, x = nn.RNN(6, 5).npu(), torch.randn(7, 3, 6, device="npu")
    first = layer(x)[0].relu_().sum()
    again = nn.RNN(6, 5)
    host = again(x.cpu())[0].relu_().sum()
    assert _raises(first) == _raises(host)  # torch says for which of its operators that matters


def test_backward_twice() -> None:
    layer, x = nn.LSTM(6, 5).npu(), torch.randn(7, 3, 6, device="npu", requires_grad=True)
    loss = layer(x)[0].square().sum()
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, x)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_gradients_of_gradients(kind: Any) -> None:
    layer, x = kind(3, 2).double().npu(), torch.randn(3, 1, 3, dtype=torch.float64, device="npu", requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_gradients_of_gradients_where_an_argument_is_made_of_another(kind: Any) -> None:
    layer, values, found = kind(3, 3).double(), torch.randn(4, 2, 3, dtype=torch.float64), []
    for device in ("cpu", "npu"):
        layer, x = layer.to(device), values.to(device).requires_grad_()
        state = x[:1] * 2
        loss = layer(x, (state, state) if kind is nn.LSTM else state)[0].square().sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        found.append([first.detach(), second])
    _close(found[1], found[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's rules for derivatives forward, of themselves
@pytest.mark.parametrize("with_gradients", [False, True])
def test_derivatives_forward_are_not_lost(with_gradients: bool) -> None:
    layer, tensors = nn.RNN(3, 4).requires_grad_(with_gradients).npu(), torch.randn(2, 5, 2, 3, device="npu")
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward AD"):  # as of any linear layer on the npu
        layer(forward_ad.make_dual(*tensors))


def test_dropout_between_layers_is_drawn_by_the_npu() -> None:
    layer, x = nn.LSTM(6, 5, 2, dropout=0.5).npu(), torch.randn(7, 3, 6, device="npu")
    found = []
    for seed in (1, 1, 2):
        torch.npu.manual_seed(seed)
        found.append(layer(x)[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_autocast_and_compilers_see_the_steps() -> None:
    layer, x = nn.LSTM(6, 5).npu(), torch.randn(7, 3, 6, device="npu")
    with torch.autocast("npu", dtype=torch.bfloat16):
        found = layer(x)[0]
    torch.testing.assert_close(found.float(), layer(x)[0], rtol=0.05, atol=0.05)
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x: layer(x)[0])(x)
    torch.testing.assert_close(traced(x), layer(x)[0])


@pytest.mark.filterwarnings("ignore")  # torch's exporter, of itself
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_exported_programs_compute_the_same(kind: Any) -> None:
    layer, x = kind(6, 5).npu(), torch.randn(7, 3, 6, device="npu")
    exported = torch.export.export(layer, (x,))
    torch.testing.assert_close(exported.module()(x)[0], layer(x)[0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_run_a_layer_again(reentrant: bool) -> None:
    layer, x = nn.GRU(6, 5).npu(), torch.randn(7, 3, 6, device="npu", requires_grad=True)
    (expected,) = torch.autograd.grad(layer(x)[0].square().sum(), x)
    torch.utils.checkpoint.checkpoint(lambda x: layer(x)[0], x, use_reentrant=reentrant).square().sum().backward()
    torch.testing.assert_close(x.grad, expected)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_hooks_may_lay_saved_tensors_out_anew(kind: Any) -> None:
    layer, x = kind(6, 5, batch_first=True).npu(), torch.randn(3, 7, 6, device="npu", requires_grad=True)
    expected = torch.autograd.grad(layer(x)[0].square().sum(), [x, *layer.parameters()])
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.cpu().contiguous(), lambda kept: kept.npu()):
        loss = layer(x)[0].square().sum()
    _close(list(torch.autograd.grad(loss, [x, *layer.parameters()])), [gradient.cpu() for gradient in expected])


def test_what_hooks_give_back_in_another_size_is_refused() -> None:
    layer, x = nn.GRU(6, 5).npu(), torch.randn(7, 3, 6, device="npu")
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, lambda kept: kept[..., :1]):
        result, _ = layer(x)
    with pytest.raises(RuntimeError, match="hooks of saved tensors"):
        result.backward(torch.ones_like(result))


def test_arguments_go_with_the_saved_tensors() -> None:
    layer, x = nn.GRU(6, 5).npu(), torch.randn(7, 3, 6, device="npu").requires_grad_() * 1
    kept, (result, _) = weakref.ref(x), layer(x)
    del x
    assert kept() is not None
    result.backward(torch.ones_like(result))
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_autocast_of_the_cpu_is_not_for_the_npu(kind: Any) -> None:
    layer, x = kind(6, 5, 2).npu(), torch.randn(7, 3, 6, device="npu", requires_grad=True)
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y, _ = layer(x)
            with torch.no_grad():
                assert torch.equal(layer(x)[0], y)
            results.append([y, *torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y))])
    assert all(one.dtype == torch.float32 and torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_tensors_of_two_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="device"):
        nn.LSTM(6, 5).npu()(torch.randn(7, 3, 6))


def _run_layer(module: Any, x: Any, packed: bool) -> list[Any]:
    if not packed:
        return _flat(module(x))
    result, state = module(pack_padded_sequence(x, [3, 3, 2, 1, 1, 1, 1] if module.batch_first else [7, 4, 2], module.batch_first))
    return [result.data, *_flat(state)]


def _flat(results: Any) -> list[Any]:
    return [results] if isinstance(results, torch.Tensor) else [tensor for item in results for tensor in _flat(item)]


def _agree(run: Any, module: Any, x: Any) -> None:
    """Results and gradients on the npu beside those of float64 on the host."""
    factors: list[Any] = []
    found = []
    for kind, device in ((torch.float64, "cpu"), (torch.float32, "npu")):
        module, given = module.to(device, kind), x.to(device, kind).requires_grad_()
        module.zero_grad()
        results = run(module, given)
        assert all(result.device.type == device for result in results)
        factors = factors or [torch.randn_like(result) for result in results]
        sum((result * factor.to(device, kind)).sum() for result, factor in zip(results, factors, strict=True)).backward()
        tensors = [*results, given.grad, *(weight.grad for weight in module.parameters())]
        found.append([tensor.detach().cpu().double() for tensor in tensors])
    _close(found[1], found[0])


def _close(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, check_dtype=False, rtol=1e-4, atol=1e-5)


def _raises(loss: Any) -> bool:
    try:
        loss.backward()
    except RuntimeError:
        return True
    return False
