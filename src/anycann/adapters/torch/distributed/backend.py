"""Registers "hccl" with torch.distributed, and gives a program for Ascend its ranks from Ascend's variables."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from datetime import timedelta
import functools
from pathlib import Path
import sys
from types import ModuleType
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.distributed import kernels, uneven
from anycann.adapters.torch.distributed.process_group import ProcessGroupHCCL
from anycann.collective.ranks import fill_torch_variables
from anycann.collective.timeouts import connect_timeout
from anycann.support import options

NAME = "hccl"


# Python's half of a backend lives as long as somebody in Python holds it; torch holds the C++ half. By name of the group.
_alive: dict[str, ProcessGroupHCCL] = {}
atexit.register(_alive.clear)  # gloo's threads still finish works in Python, which they could not once the interpreter ends


def install(torch_npu: ModuleType) -> None:
    """Register the backend and the kernels, and the names that programs import."""
    kernels.install()
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["npu"])
    _use_ascends_variables_at_rendezvous()
    _prepare_when_a_mesh_is_made()
    distributed_c10d.ProcessGroupGloo._Options.__deepcopy__ = _same_options
    for module in (dist, distributed_c10d):
        module.is_hccl_available = is_hccl_available
        module.ProcessGroupHCCL = ProcessGroupHCCL
    _name_modules(torch_npu)


def _name_modules(torch_npu: ModuleType) -> None:
    """`torch_npu.distributed` and `torch_npu._C._distributed_c10d`."""
    names: dict[str, Any] = {"is_hccl_available": is_hccl_available, "ProcessGroupHCCL": ProcessGroupHCCL}
    for path in ("distributed", "_C", "_C._distributed_c10d"):
        module = sys.modules.setdefault(f"torch_npu.{path}", ModuleType(f"torch_npu.{path}"))
        parent, _, name = f"torch_npu.{path}".rpartition(".")
        setattr(sys.modules.get(parent, torch_npu), name, module)
        if path != "_C":
            vars(module).update(names)
    vars(sys.modules["torch_npu.distributed"]).update(
        all_gather_into_tensor_uneven=uneven.all_gather_into_tensor_uneven,
        reduce_scatter_tensor_uneven=uneven.reduce_scatter_tensor_uneven,
        reinit_process_group=uneven.reinit_process_group,
        __path__=[str(Path(torch_npu.__path__[0]) / "distributed")],  # files of the shims lie below it
    )


def _same_options(options: Any, memo: Any) -> Any:
    """For `dist.split_group`, which copies the options of the group it splits; gloo's hold its network devices and change no more."""
    return options


def is_hccl_available() -> bool:
    """True: it is gloo here."""
    return True


def _create(wanted: Any, backend_options: Any) -> ProcessGroupHCCL:
    """The backend of one new group; called by all its ranks."""
    _forget_destroyed_groups()
    backend = ProcessGroupHCCL(wanted, backend_options)
    _alive[wanted.group_id] = backend
    return backend


def _forget_destroyed_groups() -> None:
    there = set(distributed_c10d._world.pg_names.values())
    for name in set(_alive) - there:
        del _alive[name]


def _use_ascends_variables_at_rendezvous() -> None:
    """torch reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT when ranks meet; where only Ascend's variables are set, they say it.

    HCCL_CONNECT_TIMEOUT, if it is set, is how long the others are waited for.
    """
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers  # the package has a function of this name
    meet = handlers["env"]

    @functools.wraps(meet)
    def handler(url: str, timeout: timedelta = distributed_c10d.default_pg_timeout, **keywords: Any) -> Any:
        fill_torch_variables()
        if options.HCCL_CONNECT_TIMEOUT.is_set():
            timeout = connect_timeout()
        return meet(url, timeout=timeout, **keywords)

    handlers["env"] = handler


def _prepare_when_a_mesh_is_made() -> None:
    """Choose the npu, if the program did not, and teach DTensor.

    Only then: torch.distributed.tensor takes most of a second to import, and its tensors need a mesh. torch would choose the npu itself
    if it could see that nobody has used one yet.
    """
    said: set[int] = set()
    devices.listeners.append(said.add)

    def prepare() -> None:
        from anycann.adapters.torch.distributed import distributed_tensors

        distributed_tensors.install()
        rank = options.LOCAL_RANK.get()
        if not said and rank is not None and rank < devices.count():
            devices.make_current(rank)

    mesh_class = sys.modules["torch.distributed.device_mesh"].DeviceMesh
    mesh_class.__init__ = _after(functools.cache(prepare), mesh_class.__init__)


def _after(first: Callable[[], None], then: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(then)
    def call(*args: Any, **keywords: Any) -> Any:
        first()
        return then(*args, **keywords)

    return call
