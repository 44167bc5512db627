"""What an npu says of itself: the chip's name, its memory and cores."""

from __future__ import annotations

import os
from typing import Any

from anycann.adapters.torch.device import devices
from anycann.support.options import DEVICE_MEMORY, SOC
from anycann.support.records import dataclass
from anycann.target.soc import HOST, SocVersion, soc_version

USUAL_CHIP = "Ascend910B1"  # the chip that training scripts of today expect
CUBE_CORES, VECTOR_CORES = 24, 48  # of the 910B


def chip() -> SocVersion:
    """The chip that programs are told they run on: ANYCANN_SOC, else the 910B1."""
    named = soc_version(SOC.get() or USUAL_CHIP)
    return soc_version(USUAL_CHIP) if named is HOST else named


def total_memory() -> int:
    """Bytes of memory of each npu: ANYCANN_DEVICE_MEMORY, else the machine's."""
    limit = memory_limit()
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if limit is None else limit


def memory_limit() -> int | None:
    """Bytes that an npu may hold, None if only the machine bounds them."""
    configured = DEVICE_MEMORY.get() if DEVICE_MEMORY.is_set() else None
    return None if configured is None else configured << 20


@dataclass(frozen=True)
class DeviceProperties:
    """`torch.npu.get_device_properties`: memory in bytes, counts of cores."""

    name: str
    total_memory: int
    cube_core_num: int = CUBE_CORES
    vector_core_num: int = VECTOR_CORES
    L2_cache_size: int = 192 << 20
    uuid: str = ""

    @property
    def multi_processor_count(self) -> int:
        """The number of AI cores, by the name that programs for other accelerators use."""
        return self.cube_core_num

    def __repr__(self) -> str:
        return f"_NPUDeviceProperties(name='{self.name}', total_memory={self.total_memory >> 20}MB)"


def get_device_name(device: Any = None) -> str:
    """The chip's name, as `Ascend910B1`."""
    devices.index_of(device)
    return chip().name


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, memory and cores of an npu."""
    return DeviceProperties(get_device_name(device), total_memory(), uuid=f"anycann-npu-{devices.index_of(device)}")


def get_device_capability(device: Any = None) -> None:
    """Ascend has no compute capability: None."""
    devices.index_of(device)


def is_bf16_supported(including_emulation: bool = False) -> bool:
    """Whether the chip computes in bfloat16 (or this machine does it for it, with `including_emulation`)."""
    return chip().bfloat16 or including_emulation


def is_support_inf_nan() -> bool:
    """Whether overflow gives infinities, as it does on this machine, and on the 910B and later."""
    return True


def utilization(device: Any = None) -> int:
    """Percent of the time that the npu works: of the processors of this machine, by their load over the last minute."""
    devices.index_of(device)
    return min(100, round(100 * os.getloadavg()[0] / (os.cpu_count() or 1)))


def can_device_access_peer(device_id: int, peer_device_id: int) -> bool:
    """Whether an npu reads another's memory: every other one."""
    return devices.index_of(device_id) != devices.index_of(peer_device_id)


def get_soc_version() -> int:
    """The number that torch_npu gives the chip's series; Ascend910B1 is 220."""
    return _SERIES_NUMBERS.get(chip().series, 220)


# c10_npu::SocVersion of the first chip of a series
_SERIES_NUMBERS = {"910": 100, "310P": 200, "910B": 220, "310B": 240, "910_93": 250, "910_95": 260}
