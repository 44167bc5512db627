"""Which rank this process is, and of how many: from torchrun's variables, Ascend's rank table, or RANK_ID and RANK_SIZE, in that order.

torchrun's come first because scripts for Ascend often export one RANK_ID and then start several processes with torchrun.
"""

from __future__ import annotations

from collections.abc import MutableMapping
import os

from anycann.collective.rank_table import RankTable, read_rank_table
from anycann.support import options
from anycann.support.errors import UsageError
from anycann.support.options import Option
from anycann.support.records import dataclass

DEFAULT_PORT = 29500


@dataclass(frozen=True)
class Placement:
    """This process among all. `device_id` is the npu it should use; `servers` has a server's name for each rank."""

    rank: int
    size: int
    device_id: int
    servers: tuple[str, ...]
    address: str = "127.0.0.1"
    port: int = DEFAULT_PORT

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The ranks on this server, this one included."""
        return tuple(rank for rank, server in enumerate(self.servers) if server == self.servers[self.rank])

    @property
    def local_rank(self) -> int:
        """The position of this rank on its server."""
        return self.neighbours.index(self.rank)

    @property
    def local_size(self) -> int:
        """How many ranks are on this server."""
        return len(self.neighbours)


def placement() -> Placement:
    """Where this process stands; rank 0 of 1 if no variable says anything. Raises UsageError for variables that contradict each other."""
    if options.RANK.is_set() or options.WORLD_SIZE.is_set():
        return _from_torchrun()
    if options.RANK_TABLE_FILE.is_set():
        return _from_table()
    return _from_ascend()


def fill_torch_variables(environment: MutableMapping[str, str] | None = None) -> None:
    """Give torch.distributed the variables it wants (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) where only Ascend's are set."""
    environment = os.environ if environment is None else environment
    if not any(given.is_set() for given in (options.RANK_TABLE_FILE, options.RANK_ID, options.RANK_SIZE, options.CM_WORKER_SIZE)):
        return
    here = placement()
    wanted = {"RANK": here.rank, "WORLD_SIZE": here.size, "MASTER_ADDR": here.address, "MASTER_PORT": here.port}
    for name, value in wanted.items():
        environment.setdefault(name, str(value))


def _from_torchrun() -> Placement:
    rank, size = _both(options.RANK, options.WORLD_SIZE)
    local_size = options.LOCAL_WORLD_SIZE.get() or size
    local_rank = options.LOCAL_RANK.get()
    servers = tuple(str(other // local_size) for other in range(size))
    return Placement(rank, size, rank % local_size if local_rank is None else local_rank, servers, *_chief("127.0.0.1"))


def _from_table() -> Placement:
    path = options.RANK_TABLE_FILE.get()
    assert path is not None
    table: RankTable = read_rank_table(path)
    name = options.RANK_ID.get()
    if name is None:
        raise UsageError(f"RANK_TABLE_FILE names {path}, but RANK_ID does not say which of its {table.size} ranks this process is")
    size = options.RANK_SIZE.get()
    if size is not None and size != table.size:
        raise UsageError(f"RANK_SIZE is {size}, the rank table {path} has {table.size} ranks")
    member = table.member(name)
    servers = tuple(each.server_id for each in table.members)
    return Placement(member.rank, table.size, member.device_id, servers, *_chief(table.chief_address))


def _from_ascend() -> Placement:
    text = options.RANK_ID.get() or "0"
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"RANK_ID is {text!r}; without a rank table a number from 0 was expected")
    rank = int(text)
    size = options.RANK_SIZE.get() or options.CM_WORKER_SIZE.get() or 1
    if rank >= size:
        raise UsageError(f"RANK_ID is {rank}, RANK_SIZE {size}; accepted: 0 to {size - 1}")
    device = options.DEVICE_ID.get()
    return Placement(rank, size, rank if device is None else device, ("localhost",) * size, *_chief("127.0.0.1"))


def _both(rank_option: Option[int], size_option: Option[int]) -> tuple[int, int]:
    rank, size = rank_option.get(), size_option.get()
    if rank is None or size is None:
        missing, given = (rank_option, size_option) if rank is None else (size_option, rank_option)
        raise UsageError(f"{given.name} is set, {missing.name} is not: both are needed")
    if rank >= size:
        raise UsageError(f"{rank_option.name} is {rank}, {size_option.name} {size}; accepted: 0 to {size - 1}")
    return rank, size


def _chief(default: str) -> tuple[str, int]:
    """Address and port where the ranks meet."""
    address = options.MASTER_ADDR.get() or options.CM_CHIEF_IP.get() or default
    return address, options.MASTER_PORT.get() or options.CM_CHIEF_PORT.get() or DEFAULT_PORT
