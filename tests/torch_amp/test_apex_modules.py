"""What programs import of apex beside amp: optimizers that amp prepares, 16-bit networks by hand, LARC, norms, tensors in one piece."""

from __future__ import annotations

from collections.abc import Iterator
import copy
import importlib
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from anycann.adapters.torch.amp import autocast
from anycann.adapters.torch.apex import amp as state_holder


@pytest.fixture(autouse=True)
def _amp_ends_with_the_test() -> Iterator[None]:
    yield
    torch.set_autocast_enabled("npu", False)
    torch.set_autocast_cache_enabled(True)
    state_holder._state = state_holder._State()
    autocast.take_float32_losses(False)


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("name", ["NpuFusedSGD", "NpuFusedAdam"])
def test_fused_optimizers_of_ascend_train_with_amp(name: str, level: str) -> None:
    from apex import amp, optimizers

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    plain = copy.deepcopy(model)
    inputs, classes = torch.randn(12, 6), torch.arange(12).remainder(3)
    model, optimizer = amp.initialize(
        model.npu(),
        getattr(optimizers, name)(model.parameters(), lr=0.05),
        opt_level=level,
        loss_scale=128.0,
        combine_grad=True,
        verbosity=0,
    )
    stepper = getattr(torch.optim, name.removeprefix("NpuFused"))(plain.parameters(), lr=0.05)
    for _ in range(6):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs.npu()), classes.npu())
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        stepper.zero_grad()
        wanted = functional.cross_entropy(plain(inputs), classes)
        wanted.backward()
        stepper.step()
        assert abs(loss.item() - wanted.item()) < 0.02
    optimizer.zero_grad()
    assert all(p.grad is None or not p.grad.any() for p in amp.master_params(optimizer))
    with pytest.raises(ValueError, match="set_to_none"):
        optimizer.zero_grad(set_to_none=True)


def small_network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3)).npu()


def test_a_network_in_16_bits_keeps_its_normalisation() -> None:
    from apex.fp16_utils import BN_convert_float, convert_network, network_to_half, tofp16

    whole = network_to_half(small_network())
    assert isinstance(whole[0], tofp16)
    x = torch.randn(2, 2, 4, 4).npu()
    assert whole(x).dtype == torch.float16
    for converted in (convert_network(small_network(), torch.float16), BN_convert_float(small_network().half())):
        assert [converted[0].weight.dtype, converted[1].weight.dtype] == [torch.float16, torch.float32]


@pytest.mark.parametrize("flat", [False, True])
def test_masters_are_stepped_and_copied_back(flat: bool) -> None:
    from apex.fp16_utils import master_params_to_model_params, model_grads_to_master_grads, prep_param_lists, to_python_float

    model = nn.Linear(3, 2).npu().half()
    params, masters = prep_param_lists(model, flat_master=flat)
    before = [p.detach().clone() for p in params]
    assert all(master.dtype == torch.float32 for master in masters)
    optimizer = torch.optim.SGD(masters, lr=0.5)
    model(torch.ones(1, 3).npu().half()).sum().backward()
    model_grads_to_master_grads(params, masters, flat_master=flat)
    optimizer.step()
    master_params_to_model_params(params, masters, flat_master=flat)
    for old, new, p in zip(before, model.parameters(), params, strict=True):
        assert new is p
        torch.testing.assert_close(new.detach(), (old.float() - 0.5).half(), rtol=2e-3, atol=2e-3)
    assert to_python_float(torch.ones(1).npu()) == 1.0


def test_an_optimizer_of_16_bit_weights_steps_masters_and_leaves_overflows_out() -> None:
    from apex.fp16_utils import FP16_Optimizer

    model = nn.Linear(4, 2).npu().half()
    optimizer = FP16_Optimizer(torch.optim.SGD(model.parameters(), lr=0.1), dynamic_loss_scale=True, verbose=False)
    x = torch.ones(3, 4).npu().half()
    before = model.weight.detach().clone()
    scale = optimizer.loss_scale
    optimizer.zero_grad()
    optimizer.backward(model(x).float().sum() * float("inf"))
    optimizer.step()
    assert optimizer.overflow
    assert torch.equal(model.weight, before)
    assert optimizer.loss_scale == scale / 2
    while optimizer.overflow:
        optimizer.zero_grad()
        optimizer.backward(model(x).float().mean())
        norm = optimizer.clip_master_grads(100.0)
        optimizer.step()
    assert 0 < norm < 100
    assert not torch.equal(model.weight, before)
    kept = optimizer.state_dict()
    optimizer.load_state_dict(kept)
    assert optimizer.loss_scale == kept["loss_scale"]


@pytest.mark.parametrize("lr", [0.1, 0.0])
def test_larc_limits_the_rate_by_the_norms(lr: float) -> None:
    from apex.parallel.LARC import LARC

    weights = [nn.Parameter(torch.full((2,), value).npu()) for value in (1.0, 3.0)]
    optimizer = LARC(torch.optim.SGD(weights, lr=lr, weight_decay=0.5), trust_coefficient=0.02)
    want = []
    for p in weights:
        p.grad = torch.full((2,), 0.25).npu()
        rate = 0.02 * p.detach().norm() / (p.grad.norm() + p.detach().norm() * 0.5 + 1e-8)
        want.append(p.detach() - min(float(rate), lr) * (p.grad + 0.5 * p.detach()))
    optimizer.step()
    for p, expected in zip(weights, want, strict=True):
        torch.testing.assert_close(p.detach(), expected)
    assert optimizer.param_groups[0]["weight_decay"] == 0.5


def test_normalisation_has_its_names() -> None:
    from apex.normalization import FusedRMSNorm
    from apex.normalization.fused_layer_norm import FusedLayerNorm, fused_layer_norm_affine

    x = torch.randn(3, 8).npu()
    norm = FusedRMSNorm(8).npu()
    torch.testing.assert_close(norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())
    plain = FusedLayerNorm(8).npu()
    torch.testing.assert_close(fused_layer_norm_affine(x, plain.weight, plain.bias, (8,), 1e-5), plain(x))


def test_operators_on_many_tensors_say_that_apexs_extension_is_not_there() -> None:
    from apex.multi_tensor_apply import multi_tensor_applier

    assert multi_tensor_applier.available is False
    with pytest.raises(RuntimeError, match="amp_C"):
        multi_tensor_applier(None, torch.zeros(1), [[torch.ones(1)]])


def test_tensors_are_combined_by_apexs_name() -> None:
    combine = importlib.import_module("apex.contrib.combine_tensors").combine_npu
    parts = [torch.ones(2).npu(), torch.full((3,), 2.0).npu()]
    whole = combine(parts)
    assert whole.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
    whole.zero_()
    assert parts[1].tolist() == [0.0, 0.0, 0.0]


def test_level_o1_takes_cross_entropy_of_probabilities_in_float32_alone() -> None:
    from apex import amp

    model, probabilities, wanted = nn.Linear(3, 1).npu(), torch.full((2, 1), 0.25).npu(), torch.ones(2, 1).npu()
    with torch.autocast("npu"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        functional.binary_cross_entropy(probabilities, wanted)
    amp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), opt_level="O1", verbosity=0)
    loss = functional.binary_cross_entropy(model(torch.ones(2, 3).npu()).float().sigmoid(), wanted)
    loss.backward()
    assert model.weight.grad is not None
    torch.testing.assert_close(functional.binary_cross_entropy(probabilities, wanted).cpu(), torch.tensor(4.0).log())
    with pytest.raises(RuntimeError, match="unsafe to autocast"):
        functional.binary_cross_entropy(probabilities.half(), wanted)
