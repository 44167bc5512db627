"""ProcessGroupHCCL: what serves an npu in a process group, and the options that programs give it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
import zlib

from torch.distributed import distributed_c10d

from anycann.collective.ledger import Ledger
from anycann.collective.timeouts import connect_timeout, execute_timeout

# entries of hccl_config -> their type
_CONFIG: dict[str, type] = {
    "hccl_buffer_size": int,
    "group_name": str,
    "qos_traffic_class": int,
    "qos_service_level": int,
    "hccl_sdma_qos": int,
    "hccl_op_expansion_mode": int,
    "hccl_world_rank_id": int,
    "hccl_job_id": int,
    "hccl_exec_timeout": int,
    "hccl_algo": str,
    "hccl_retry_enable": str,
    "hccl_retry_params": str,
    "hccl_buffer_name": str,
}


class Options(distributed_c10d.ProcessGroupGloo._Options):
    """Of a group: `op_timeout`, and `hccl_config` with group_name and hccl_exec_timeout (seconds); other entries are kept as they are."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        super().__init__()
        self.is_high_priority_stream = is_high_priority_stream
        self.hccl_config: dict[str, Any] = {}
        self.global_ranks_in_group: list[int] = []
        self.group_id = ""
        self.op_timeout = execute_timeout()

    def timeout(self, asked: timedelta) -> timedelta:
        """How long a collective may take, for a group that is made with the timeout `asked`."""
        seconds = self.hccl_config.get("hccl_exec_timeout")
        if seconds is not None:
            return timedelta(seconds=seconds)
        return self.op_timeout if self.op_timeout != execute_timeout() else execute_timeout(asked)


class ProcessGroupHCCL(distributed_c10d.ProcessGroupGloo):
    """Gloo, with the names that programs ask of HCCL. Raises RuntimeError for entries of `hccl_config` of another type."""

    Options = Options

    def __init__(self, wanted: Any, options: Any):
        super().__init__(wanted.store, wanted.group_rank, wanted.group_size, timeout=connect_timeout())
        self._given = Options()  # of this group alone: one object may be given for several, and groups that split hand theirs on
        if isinstance(options, Options):
            self._given.__dict__.update(options.__dict__)
        _check(self._given.hccl_config)
        self._given.global_ranks_in_group = list(wanted.global_ranks_in_group or range(wanted.group_size))
        self._given._devices, self._given._threads = super().options._devices, super().options._threads  # those who split the group want
        self._given._timeout = self._given.timeout(wanted.timeout)
        self._set_default_timeout(self._given._timeout)
        number = zlib.crc32(str(wanted.group_id).encode())
        self.ledger = _ledger(wanted)
        self._hccl_name = self._given.hccl_config.get("group_name") or f"group_name_{number}"

    @property
    def options(self) -> Any:
        """The options of the group."""
        return self._given

    def get_hccl_comm_name(self, rank: int, init_comm: bool = True) -> str:
        """The communicator's name, the same on all its ranks."""
        return str(self._hccl_name)

    def perform_nocolor_split(self, device: Any) -> None:
        """torch tells ranks that are not in a new group: gloo wants nothing of them."""


def _ledger(wanted: Any) -> Ledger | None:
    """What the ranks of a group see of each other; None where torch itself compares all their collectives."""
    if distributed_c10d.get_debug_level() == distributed_c10d.DebugLevel.DETAIL:
        return None

    def exchange(words: str) -> list[str]:
        keys = [f"anycann_ledger/{rank}" for rank in range(wanted.group_size)]
        wanted.store.set(keys[wanted.group_rank], words)
        return [wanted.store.get(key).decode() for key in keys]

    return Ledger(wanted.group_rank, exchange)


def _check(config: dict[str, Any]) -> None:
    for name, kind in _CONFIG.items():
        value = config.get(name)
        if value is not None and type(value) is not kind:
            told = "int" if kind is int else "string"
            raise RuntimeError(f"Value type of {name} should be {told}. Got {value!r} ({type(value).__name__})")
