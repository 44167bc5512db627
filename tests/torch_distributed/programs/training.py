"""Models that train on several ranks compute what one rank computes with the batches of all. Runs on two ranks or more."""

from __future__ import annotations

from collections.abc import Callable
import tempfile
from typing import Any

import torch
from torch import nn
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
import torch_npu  # noqa: F401

STEPS, ROWS = 4, 4


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def device() -> torch.device:
    return torch.device("npu", rank())


def network(norm: type[nn.Module] | None = None) -> nn.Sequential:
    torch.manual_seed(1)
    middle = [norm(6)] if norm is not None else []
    return nn.Sequential(nn.Conv2d(3, 6, 3), *middle, nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 5)).to(device())


def batch(step: int) -> tuple[Any, Any]:
    """Inputs and classes of all ranks: rows of a rank are together."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(ROWS * size(), 3, 8, 8, generator=generator)
    return inputs.to(device()), torch.randint(5, (ROWS * size(),), generator=generator).to(device())


def losses(model: Any, optimizer: Any, whole: bool) -> list[float]:
    """Mean loss over all rows at each step, on all rows here or on each rank its own."""
    said = []
    for step in range(STEPS):
        inputs, classes = batch(step)
        rows = slice(None) if whole else slice(rank() * ROWS, (rank() + 1) * ROWS)
        loss = nn.functional.cross_entropy(model(inputs[rows]), classes[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if not whole:
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        said.append(mean.item())
    return said


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def alone(make: Callable[[], nn.Module] = network, optimizer: Callable[[Any], Any] = sgd) -> list[float]:
    model = make()
    return losses(model, optimizer(model.parameters()), whole=True)


def agree(got: list[float], want: list[float], tolerance: float = 2e-5) -> None:
    assert max(abs(one - other) for one, other in zip(got, want, strict=True)) < tolerance, (got, want)
    assert want[-1] != want[0]


def wrapped(model: nn.Module, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(model, device_ids=[rank()], output_device=rank(), **options)


def check_data_parallel_losses_equal_those_of_one_process_with_all_rows() -> None:
    want = alone()
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"find_unused_parameters": True}, {"bucket_cap_mb": 1}):
        model = wrapped(network(), **options)
        agree(losses(model, sgd(model.parameters()), whole=False), want)
        assert all(parameter.grad.device == device() for parameter in model.parameters())


def check_batch_norm_over_all_ranks() -> None:
    want = alone(lambda: network(nn.BatchNorm2d))
    model = wrapped(nn.SyncBatchNorm.convert_sync_batchnorm(network(nn.BatchNorm2d)))
    agree(losses(model, sgd(model.parameters()), whole=False), want, 1e-4)


def check_gradients_gather_over_several_backward_passes() -> None:
    model, plain = wrapped(nn.Linear(4, 4).to(device())), nn.Linear(4, 4).to(device())
    plain.load_state_dict(model.module.state_dict())
    inputs = torch.full((1, 4), float(rank()), device=device())
    with model.no_sync():
        model(inputs).sum().backward()
    model(inputs).sum().backward()
    mean = (size() - 1) / 2
    assert torch.allclose(model.module.weight.grad, torch.full((4, 4), 2 * mean, device=device()))


def check_gradients_travel_in_sixteen_bits_or_low_rank() -> None:
    want = alone()
    model = wrapped(network())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    agree(losses(model, sgd(model.parameters()), whole=False), want, 1e-2)
    model = wrapped(network())
    model.register_comm_hook(
        powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook
    )
    assert losses(model, sgd(model.parameters()), whole=False)[-1] < want[0] * 2


def check_sharded_optimizer_state() -> None:
    def adam(parameters: Any) -> Any:
        return torch.optim.Adam(parameters, lr=0.01)

    want = alone(optimizer=adam)
    model = wrapped(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    agree(losses(model, optimizer, whole=False), want)
    optimizer.consolidate_state_dict(0)
    assert rank() or len(optimizer.state_dict()["state"]) == 4


def check_fully_sharded_parameters() -> None:
    want = alone()
    for options in ({}, {"reshard_after_forward": False}):
        model = network()
        for layer in (model[0], model[3]):
            fully_shard(layer, **options)
        fully_shard(model, **options)
        agree(losses(model, sgd(model.parameters()), whole=False), want)
        shares = [parameter.to_local().numel() / parameter.numel() for parameter in model.parameters()]
        assert max(shares) < 1
    model = fully_shard(
        network(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    )
    agree(losses(model, sgd(model.parameters()), whole=False), want, 0.1)


def check_fully_sharded_data_parallel_of_the_first_kind() -> None:
    want = alone()
    model = FullyShardedDataParallel(network(), device_id=device(), use_orig_params=True)
    agree(losses(model, sgd(model.parameters()), whole=False), want)


def check_apex_averages_gradients_without_wrapping() -> None:
    from apex import amp

    model = nn.Linear(2, 1, bias=False).to(device())
    model, optimizer = amp.initialize(model, sgd(model.parameters()), opt_level="O2", loss_scale=64, combine_ddp=True, verbosity=0)
    with amp.scale_loss(model(torch.full((1, 2), float(rank()), device=device())).sum(), optimizer) as scaled:
        scaled.backward()
    (master,) = amp.master_params(optimizer)
    assert master.grad.tolist() == [[(size() - 1) / 2] * 2]


def check_tensor_parallel_layers() -> None:
    mesh = init_device_mesh("npu", (size(),))
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).to(device())
    inputs = torch.randn(3, 8, generator=torch.Generator().manual_seed(3)).to(device())
    want = model(inputs)
    want.square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    got = model(inputs)
    got.square().sum().backward()
    assert torch.allclose(got, want, atol=1e-5)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad.full_tensor(), gradient, atol=1e-4)


def check_distributed_tensors_change_placement() -> None:
    mesh = init_device_mesh("npu", (size(),))
    whole = torch.arange(8.0 * size(), device=device()).view(4 * size(), 2)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert sharded.to_local().shape == (4, 2)
    assert torch.equal(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)] if size() == 2 else [Replicate()]).full_tensor(), whole)
    assert torch.equal((sharded @ sharded.t()).full_tensor(), whole @ whole.t())


def check_random_distributed_tensors() -> None:
    import torch.distributed.tensor as tensors

    mesh = init_device_mesh("npu", (size(),))
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        whole = tensors.randn(4 * size(), 3, device_mesh=mesh, placements=[Shard(0)])
        same = tensors.randn(6, device_mesh=mesh, placements=[Replicate()])
        again = tensors.randn(4 * size(), 3, device_mesh=mesh, placements=[Shard(0)])
        drawn.append((whole.full_tensor(), same.to_local(), again.full_tensor()))
    for one, other in zip(*drawn, strict=True):
        assert torch.equal(one, other)
    parts = drawn[0][0].chunk(size())
    assert not torch.equal(parts[0], parts[1])
    assert not torch.equal(drawn[0][0], drawn[0][2])
    others = [torch.empty_like(drawn[0][1]) for _ in range(size())]
    dist.all_gather(others, drawn[0][1])
    assert all(torch.equal(other, others[0]) for other in others)


def check_sharded_parameters_begin_without_memory() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    fully_shard(model)
    model.to_empty(device=device())
    for layer in (model[0], model[2]):
        layer.reset_parameters()
    weight = model[0].weight.full_tensor()
    assert weight.abs().max() < 1
    assert len(weight.unique()) > 0.9 * weight.numel()
    assert torch.isfinite(model(torch.ones(2, 8, device=device()))).all()


def check_distributed_checkpoints() -> None:
    import torch.distributed.checkpoint as checkpoint

    folder: list[Any] = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(folder, 0)
    checkpoint.save({"weight": torch.full((4,), 3.0, device=device())}, checkpoint_id=folder[0])
    loaded = {"weight": torch.zeros(4, device=device())}
    checkpoint.load(loaded, checkpoint_id=folder[0])
    assert loaded["weight"].tolist() == [3.0] * 4
