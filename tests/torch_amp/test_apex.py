"""apex.amp by levels, on the npu."""

from __future__ import annotations

from collections.abc import Iterator
import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from anycann.adapters.torch.apex import amp as state_holder


@pytest.fixture(autouse=True)
def _amp_ends_with_the_test() -> Iterator[None]:
    yield
    torch.set_autocast_enabled("npu", False)
    torch.set_autocast_cache_enabled(True)
    state_holder._state = state_holder._State()


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).npu()


def batch() -> tuple[Any, Any]:
    torch.manual_seed(1)
    return torch.randn(8, 3, 8, 8).npu(), torch.arange(8).remainder(5).npu()


def train(level: str, steps: int = 6, **options: Any) -> tuple[list[float], Any, Any]:
    from apex import amp

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    model, optimizer = amp.initialize(model, optimizer, opt_level=level, verbosity=0, **options)
    inputs, classes = batch()
    losses = []
    for _ in range(steps):
        loss = functional.cross_entropy(model(inputs), classes)
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model, optimizer


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_a_network_trains_at_every_level_as_in_float32(level: str) -> None:
    want, _, _ = train("O0")
    losses, _, _ = train(level, loss_scale=128.0, combine_grad=True)
    assert losses[-1] < 0.7 * losses[0]
    assert max(abs(one - other) for one, other in zip(losses, want, strict=True)) < 0.08


def test_level_o1_keeps_the_model_and_casts_products() -> None:
    _, model, _ = train("O1", steps=1)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    outputs = model(batch()[0])
    assert outputs.dtype is torch.float16
    assert functional.cross_entropy(outputs, batch()[1]).dtype is torch.float32


def test_level_o2_keeps_batch_norm_and_steps_masters() -> None:
    from apex import amp

    _, model, optimizer = train("O2", steps=2)
    assert [parameter.dtype for parameter in model.parameters()] == [torch.float16] * 2 + [torch.float32] * 2 + [torch.float16] * 2
    masters = list(amp.master_params(optimizer))
    assert {master.dtype for master in masters} == {torch.float32}
    assert torch.equal(masters[0].half(), model[0].weight)
    assert model(batch()[0]).dtype is torch.float32


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_a_model_is_saved_whole_and_copied(level: str) -> None:
    model = torch.nn.Linear(4, 2).npu()
    from apex import amp

    amp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), opt_level=level, verbosity=0)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded, copied = torch.load(file, weights_only=False), copy.deepcopy(model)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    x = torch.ones(1, 4, device="npu")
    assert not model(x).any()
    assert copied(x).dtype is (torch.float16 if level == "O1" else torch.float32)
    assert torch.allclose(copied(x).float(), loaded(x.to(loaded.weight.dtype)).float(), atol=1e-2)
    assert loaded(x.to(loaded.weight.dtype)).any()


def test_a_step_that_overflows_is_left_out_and_the_scale_halved(capsys: pytest.CaptureFixture[str]) -> None:
    from apex import amp

    model = nn.Linear(2, 1).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", dynamic_init_scale=64.0)
    before = model.weight.detach().clone()
    with amp.scale_loss(model(torch.full((1, 2), float("inf")).npu()).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert torch.equal(model.weight, before)
    assert amp.state_dict() == {"loss_scaler0": {"loss_scale": 32.0, "unskipped": 0}}
    assert "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale from 64.0 to 32.0" in capsys.readouterr().out
    optimizer.zero_grad()
    with amp.scale_loss(model(torch.ones(1, 2).npu()).sum(), optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    assert not torch.equal(model.weight, before)


def test_gradients_of_several_backward_passes_add_up() -> None:
    from apex import amp

    for options in ({"delay_unscale": True}, {}):
        model = nn.Linear(2, 1, bias=False).npu()
        model, optimizer = amp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), opt_level="O2", loss_scale=64, verbosity=0)
        for number in (1.0, 2.0):
            with amp.scale_loss(model(torch.full((1, 2), number).npu()).sum(), optimizer, **(options if number == 1.0 else {})) as scaled:
                scaled.backward()
        (master,) = amp.master_params(optimizer)
        assert master.grad.tolist() == [[3.0, 3.0]]


def test_the_scale_grows_and_is_kept_in_checkpoints() -> None:
    from apex import amp

    train("O1", steps=4, dynamic_init_scale=16.0, scale_window=2)
    assert amp.state_dict() == {"loss_scaler0": {"loss_scale": 64.0, "unskipped": 0}}
    amp.load_state_dict({"loss_scaler0": {"loss_scale": 8.0, "unskipped": 1}})
    assert amp.state_dict()["loss_scaler0"] == {"loss_scale": 8.0, "unskipped": 1}
    with pytest.raises(RuntimeError, match="the checkpoint has 2 loss scalers"):
        amp.load_state_dict({"a": {}, "b": {}})


def test_what_is_switched_off_or_wrong_says_so() -> None:
    from apex import amp

    model = nn.Linear(2, 1).npu()
    assert amp.initialize(model, enabled=False) is model
    with amp.scale_loss(torch.ones(1), None) as same:
        assert same.item() == 1
    with pytest.raises(RuntimeError, match="Unexpected optimization level 'O4'"):
        amp.initialize(model, opt_level="O4")
    with pytest.raises(RuntimeError, match="opt_level O1 leaves the model in float32"):
        amp.initialize(model, opt_level="O1", master_weights=True)


def test_functions_of_ones_own_get_the_precision_they_are_registered_for() -> None:
    from apex import amp

    half, single = amp.half_function(lambda x: x.dtype), amp.float_function(lambda x: x.dtype)
    widest = amp.promote_function(lambda x, y: (x.dtype, y.dtype))
    values = torch.ones(2).npu()
    assert half(values) is torch.float32
    amp.initialize(nn.Linear(1, 1).npu(), opt_level="O1", verbosity=0)
    assert (half(values), single(values.half())) == (torch.float16, torch.float32)
    assert widest(values, values.half()) == (torch.float32, torch.float32)


def test_apex_has_its_optimizers_and_modules() -> None:
    from apex.normalization import FusedLayerNorm
    from apex.optimizers import FusedAdam, FusedSGD
    from apex.parallel import convert_syncbn_model

    parameter = nn.Parameter(torch.ones(2).npu())
    for optimizer in (FusedAdam([parameter], lr=0.1), FusedAdam([parameter], lr=0.1, adam_w_mode=False), FusedSGD([parameter], lr=0.1)):
        before = parameter.detach().clone()
        parameter.grad = torch.ones(2).npu()
        optimizer.step()
        assert (parameter < before).all()
    with pytest.raises(RuntimeError, match="bias_correction"):
        FusedAdam([parameter], bias_correction=False)
    assert FusedLayerNorm(4).npu()(torch.randn(2, 4).npu()).device.type == "npu"
    assert isinstance(convert_syncbn_model(nn.Sequential(nn.BatchNorm2d(3)))[0], nn.SyncBatchNorm)
    with pytest.raises(ImportError, match="cannot import name 'NoSuchOptimizer'"):
        from apex.optimizers import NoSuchOptimizer  # noqa: F401


@pytest.mark.filterwarnings("ignore:Seems like `optimizer.step")  # torch sees that amp came after the schedule
@pytest.mark.parametrize("before", [True, False])
def test_a_schedule_of_the_learning_rate_steps_what_amp_prepared(before: bool) -> None:
    from apex import amp

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    if before:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O2", loss_scale="dynamic", verbosity=0)
    if not before:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    first = model[0].weight.clone()
    loss = functional.cross_entropy(model(batch()[0]), batch()[1])
    with amp.scale_loss(loss, optimizer) as scaled:
        scaled.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    assert not torch.equal(first, model[0].weight)
    assert model[0].weight.grad is None
    assert schedule.get_last_lr() == [0.01]
