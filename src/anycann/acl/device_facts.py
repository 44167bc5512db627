"""acl and acl.rt: what can be asked of a device and of this CANN."""

from __future__ import annotations

import os
import platform
import time
import uuid

import numpy as np

from anycann.acl.codes import Code
from anycann.acl.contexts import check_system_option
from anycann.acl.entries import status, value, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS
from anycann.support.processors import available_processors

INF_NAN, BF16, JIT_COMPILE = 1, 2, 3  # aclCannAttr
_ATTRIBUTES = (INF_NAN, BF16, JIT_COMPILE)  # infinities and bfloat16 are computed with, and shapes are compiled when they are met
THROUGH_THE_MACHINE = 0x10  # of get_devices_topo: ACL_RT_DEVS_TOPOLOGY_SYS
_CORES = {1: "AI CPUs", 101: "AI Cores", 102: "Cube Cores", 201: "Vector Cores"}  # aclrtDevAttr
_ALL_MEMORY = 301
_last_use = [time.monotonic(), time.process_time()]
_options: dict[int, int] = {}
PROCESS.ending.append(_options.clear)


@value_and_status("acl.get_cann_attribute_list", failed=(None, 0), returns="(list, count, ret)")
def get_cann_attribute_list() -> tuple[list[int], int]:
    """What can be asked for with get_cann_attribute: 1 infinities and NaN, 2 bfloat16, 3 compiling when shapes are met."""
    return list(_ATTRIBUTES), len(_ATTRIBUTES)


@value_and_status("acl.get_cann_attribute", returns="(value, ret)")
def get_cann_attribute(attribute: int) -> int:
    """1 for what is there."""
    if attribute not in _ATTRIBUTES:
        raise AclError(Code.INVALID_PARAM, f"attribute {attribute}; accepted: 1 (INF_NAN), 2 (BF16), 3 (JIT_COMPILE)")
    return 1


@value_and_status("acl.get_device_capability", returns="(value, ret)")
def get_device_capability(device: int, information: int) -> int:
    """0: a virtual device has none of a chip's features."""
    PROCESS.device(device)
    return 0


@value_and_status("acl.rt.get_device_capability", returns="(value, ret)")
def get_rt_device_capability(device: int, feature: int) -> int:
    """0: a virtual device has none of a chip's features."""
    PROCESS.device(device)
    return 0


@value_and_status(
    "acl.rt.get_device_info", returns="(value, ret)", limits="cores are the processors; figures of a chip's insides are not there"
)
def get_device_info(device: int, attribute: int) -> int:
    """attribute: 1, 101, 102, 201 how many AI CPUs, AI Cores, Cube and Vector Cores there are, 301 bytes of memory."""
    found = PROCESS.device(device)
    if attribute not in _CORES and attribute != _ALL_MEMORY:
        known = ", ".join(f"{number} ({what})" for number, what in _CORES.items())
        raise AclError(Code.INVALID_PARAM, f"attribute {attribute}; accepted: {known}, {_ALL_MEMORY} (memory)")
    return found.memory_bytes if attribute == _ALL_MEMORY else available_processors()


@value_and_status("acl.rt.get_device_utilization_rate", failed=(None,), returns="(dict, ret)", limits="all cores are the processor")
def get_device_utilization_rate(device: int) -> dict[str, int]:
    """Percent of the processors that this process used since it was asked last, and of the device's memory that is taken."""
    found = PROCESS.device(device)
    now, used = time.monotonic(), time.process_time()
    wall, work = max(now - _last_use[0], 1e-3), used - _last_use[1]
    _last_use[:] = now, used
    busy = min(round(100 * work / (wall * available_processors())), 100)
    memory = round(100 * found.taken_bytes / found.memory_bytes)
    return {
        "cube_utilization": busy,
        "vector_utilization": busy,
        "aicpu_utilization": busy,
        "memory_utilization": memory,
        "utilization_extend": 0,
    }


@value_and_status("acl.rt.device_get_uuid", failed=(None,), returns="(dict, ret)")
def device_get_uuid(device: int) -> dict[str, list[int]]:
    """16 bytes that no other device of this machine, nor of one with another name, has."""
    PROCESS.device(device)
    return {"bytes": list(uuid.uuid5(uuid.NAMESPACE_DNS, f"{platform.node()}/{device}").bytes)}


@value_and_status("acl.rt.device_get_bare_tgid", returns="(pid, ret)")
def device_get_bare_tgid() -> int:
    """The number of this process."""
    return os.getpid()


@value_and_status("acl.rt.get_devices_topo", returns="(topology, ret)")
def get_devices_topo(device: int, other: int) -> int:
    """How two devices reach each other: 0x10, through the machine."""
    PROCESS.device(device)
    PROCESS.device(other)
    return THROUGH_THE_MACHINE


@value_and_status("acl.rt.device_peer_access_status", returns="(status, ret)")
def device_peer_access_status(device: int, peer: int) -> int:
    """1: a device reaches the memory of another, as all of it is the machine's."""
    PROCESS.device(device)
    PROCESS.device(peer)
    return int(device != peer)


def _same(device: int) -> int:
    return PROCESS.device(device).number


@value_and_status("acl.rt.get_logic_dev_id_by_user_dev_id", returns="(device, ret)")
def get_logic_dev_id_by_user_dev_id(device: int) -> int:
    """The same number: devices have one."""
    return _same(device)


@value_and_status("acl.rt.get_user_dev_id_by_logic_dev_id", returns="(device, ret)")
def get_user_dev_id_by_logic_dev_id(device: int) -> int:
    """The same number: devices have one."""
    return _same(device)


@value_and_status("acl.rt.get_logic_dev_id_by_phy_dev_id", returns="(device, ret)")
def get_logic_dev_id_by_phy_dev_id(device: int) -> int:
    """The same number: devices have one."""
    return _same(device)


@value_and_status("acl.rt.get_phy_dev_id_by_logic_dev_id", returns="(device, ret)")
def get_phy_dev_id_by_logic_dev_id(device: int) -> int:
    """The same number: devices have one."""
    return _same(device)


@status("acl.rt.set_sys_param_opt")
def set_sys_param_opt(option: int, setting: int) -> None:
    """Options of the process, 0 or 1 each: 0 determinism, which there always is; 1 looking for operators' accesses outside of memory,
    which AI Core kernels of others make; 2 is reserved."""
    check_system_option(option, setting)
    _options[option] = setting


@value_and_status("acl.rt.get_sys_param_opt", returns="(setting, ret)")
def get_sys_param_opt(option: int) -> int:
    """What set_sys_param_opt set. Raises AclError if it set nothing."""
    if option not in _options:
        raise AclError(Code.RT_SYSPARAMOPT_NOT_SET, f"option {option} of this process was not set")
    return _options[option]


# ---- half precision
@value("acl.float16_to_float", failed=0.0, returns="float")
def float16_to_float(bits: int) -> float:
    """The number that 16 bits stand for."""
    if not 0 <= bits < 1 << 16:
        raise AclError(Code.INVALID_PARAM, f"{bits} is no pattern of 16 bits; accepted: 0 to 65535")
    return float(np.array(bits, np.uint16).view(np.float16))


@value("acl.float_to_float16", returns="bits")
def float_to_float16(number: float) -> int:
    """The 16 bits of the nearest half-precision number; infinity beyond 65504."""
    with np.errstate(over="ignore"):
        return int(np.array(number, np.float64).astype(np.float32).astype(np.float16).view(np.uint16))
