"""acl.rt: devices and contexts. A thread works in one context at a time; set_device gives it the device's primary one."""

from __future__ import annotations

from anycann.acl.codes import Code
from anycann.acl.entries import status, value_and_status
from anycann.acl.errors import AclError
from anycann.acl.process import PROCESS, Context

HOST_MODE = 1  # ACL_HOST: the program runs beside the device, not on it
_SYSTEM_OPTIONS = {0: "determinism", 1: "looking for accesses outside of memory", 2: "consistency"}  # aclSysParamOpt
_saturation: dict[int, int] = {}
_system_options: dict[int, dict[int, int]] = {}


@value_and_status("acl.rt.get_run_mode", returns="(mode, ret)")
def get_run_mode() -> int:
    """1: the program runs on the host."""
    return HOST_MODE


@value_and_status("acl.rt.get_device_count", returns="(count, ret)")
def get_device_count() -> int:
    """How many virtual devices there are (ANYCANN_DEVICES)."""
    return len(PROCESS.devices)


@status("acl.rt.set_device")
def set_device(device: int) -> None:
    """Make the primary context of `device` this thread's, and create it if need be."""
    chosen = PROCESS.device(device)
    with PROCESS.lock:
        handle, count = PROCESS.primary.get(device, (0, 0))
        if not handle:
            handle = PROCESS.handles.add(Context(chosen, primary=True))
        PROCESS.primary[device] = (handle, count + 1)
    PROCESS.thread.context, PROCESS.thread.device = handle, device


@status("acl.rt.reset_device")
def reset_device(device: int) -> None:
    """Take one set_device back; with the last, the primary context goes with its default stream."""
    PROCESS.device(device)
    with PROCESS.lock:
        handle, count = PROCESS.primary.get(device, (0, 0))
        if not handle:
            return
        if count > 1:
            PROCESS.primary[device] = (handle, count - 1)
            return
        _release_primary(device)


@status("acl.rt.reset_device_force")
def reset_device_force(device: int) -> None:
    """The primary context goes, however often it was set."""
    PROCESS.device(device)
    with PROCESS.lock:
        if device in PROCESS.primary:
            _release_primary(device)


def _release_primary(device: int) -> None:
    handle, _ = PROCESS.primary.pop(device)
    _destroy(handle)
    if PROCESS.thread.device == device:
        PROCESS.thread.device = None


@value_and_status("acl.rt.get_device", returns="(device, ret)")
def get_device() -> int:
    """The device of this thread's context."""
    return PROCESS.context().device.number


@value_and_status("acl.rt.create_context", returns="(context, ret)")
def create_context(device: int) -> int:
    """A new context on `device`, which becomes this thread's."""
    handle = PROCESS.handles.add(Context(PROCESS.device(device)))
    PROCESS.thread.context, PROCESS.thread.device = handle, device
    return handle


@status("acl.rt.destroy_context")
def destroy_context(context: int) -> None:
    """End a context of create_context. Raises AclError for a device's primary context, which reset_device ends."""
    if PROCESS.handles.get(context, Context, Code.RT_CONTEXT_NULL if context else Code.INVALID_PARAM).primary:
        raise AclError(Code.RT_CONTEXT_NULL, f"{context:#x} is the primary context of its device; acl.rt.reset_device ends it")
    _destroy(context)


def _destroy(handle: int) -> None:
    context = PROCESS.handles.remove(handle, Context, Code.RT_CONTEXT_NULL)
    context.destroyed = True
    context.default_stream.close()
    if PROCESS.thread.context == handle:
        PROCESS.thread.context = 0


@status("acl.rt.set_context")
def set_context(context: int) -> None:
    """Make `context` this thread's."""
    if not context:
        raise AclError(Code.INVALID_PARAM, "the context is null")
    PROCESS.thread.device = PROCESS.context(context).device.number
    PROCESS.thread.context = context


@value_and_status("acl.rt.get_context", returns="(context, ret)")
def get_context() -> int:
    """This thread's context."""
    PROCESS.context()
    return PROCESS.thread.context


@value_and_status("acl.rt.get_primary_ctx_state", failed=(0, 0), returns="(active, flags, ret)")
def get_primary_ctx_state(device: int) -> tuple[int, int]:
    """Whether the primary context of `device` is there; flags are always 0."""
    PROCESS.device(device)
    return int(device in PROCESS.primary), 0


@status("acl.rt.set_ts_device", limits="there is one task scheduler; both values are accepted")
def set_ts_device(scheduler: int) -> None:
    """Choose a task scheduler: 0 AI Core, 1 vector core."""
    if scheduler not in (0, 1):
        raise AclError(Code.INVALID_PARAM, f"task scheduler is {scheduler}; accepted: 0, 1")


# ---- facts and settings of a device
@value_and_status("acl.rt.query_device_status", returns="(status, ret)")
def query_device_status(device: int) -> int:
    """0: the device is well."""
    PROCESS.device(device)
    return 0


@value_and_status("acl.rt.get_mem_info", failed=(0, 0), returns="(free, total, ret)")
def get_mem_info(attribute: int) -> tuple[int, int]:
    """Free and total bytes of the device of this thread's context. attribute: 0 to 11, which all mean the same memory here."""
    if not 0 <= attribute <= 11:
        raise AclError(Code.INVALID_PARAM, f"memory attribute is {attribute}; accepted: 0 (DDR) to 11 (HBM_P2P_HUGE1G)")
    device = PROCESS.context().device
    return device.free_bytes, device.memory_bytes


@status("acl.rt.set_device_sat_mode", limits="kept and told; kernels follow the precision mode of their model")
def set_device_sat_mode(mode: int) -> None:
    """0: saturation, 1: infinities and NaN."""
    if mode not in (0, 1):
        raise AclError(Code.INVALID_PARAM, f"saturation mode is {mode}; accepted: 0 (saturate), 1 (INF/NAN)")
    _saturation[PROCESS.context().device.number] = mode


@value_and_status("acl.rt.get_device_sat_mode", returns="(mode, ret)")
def get_device_sat_mode() -> int:
    """What set_device_sat_mode set, else 1."""
    return _saturation.get(PROCESS.context().device.number, 1)


@status("acl.rt.ctx_set_sys_param_opt")
def ctx_set_sys_param_opt(option: int, setting: int) -> None:
    """Options of a context, as acl.rt.set_sys_param_opt."""
    PROCESS.context()
    check_system_option(option, setting)
    _system_options.setdefault(PROCESS.thread.context, {})[option] = setting


@value_and_status("acl.rt.ctx_get_sys_param_opt", returns="(setting, ret)")
def ctx_get_sys_param_opt(option: int) -> int:
    """What ctx_set_sys_param_opt set. Raises AclError if it set nothing."""
    PROCESS.context()
    found = _system_options.get(PROCESS.thread.context, {}).get(option)
    if found is None:
        raise AclError(Code.RT_SYSPARAMOPT_NOT_SET, f"option {option} of this context was not set")
    return found


def check_system_option(option: int, setting: int) -> None:
    """Raises AclError for an option that is not there, and for a setting that is neither 0 nor 1."""
    if option not in _SYSTEM_OPTIONS or setting not in (0, 1):
        known = ", ".join(f"{number} ({what})" for number, what in _SYSTEM_OPTIONS.items())
        raise AclError(Code.INVALID_PARAM, f"option {option} with {setting}; accepted: {known}, with 0 or 1")


# ---- memory of other devices: all of it is the machine's, so every device reaches every other
@value_and_status("acl.rt.device_can_access_peer", returns="(can, ret)")
def device_can_access_peer(device: int, peer: int) -> int:
    """1 for two devices, 0 for a device and itself."""
    PROCESS.device(device)
    PROCESS.device(peer)
    return int(device != peer)


@status("acl.rt.device_enable_peer_access")
def device_enable_peer_access(peer: int, flags: int) -> None:
    """Nothing has to be done for it."""
    PROCESS.context()
    PROCESS.device(peer)
    if flags:
        raise AclError(Code.INVALID_PARAM, f"flags are {flags}; accepted: 0")


@status("acl.rt.device_disable_peer_access")
def device_disable_peer_access(peer: int) -> None:
    """Nothing has to be done for it."""
    PROCESS.context()
    PROCESS.device(peer)
