"""Return codes that only a chip, its driver or its operator library gives: AnyCANN has no use for them, people ask what they mean."""

from __future__ import annotations

from anycann.support.records import dataclass


@dataclass(frozen=True)
class FarCode:
    """Its name in Ascend's headers, and what it means."""

    name: str
    means: str


_RUNTIME = {
    107024: ("CAPTURE_DEPENDENCY", "A stream that is captured depends on one that is not."),
    107025: ("STREAM_UNJOINED", "A capture ended while a stream of it was not joined."),
    107026: ("MODEL_CAPTURED", "The model is being captured."),
    107027: ("STREAM_CAPTURED", "The stream is being captured."),
    107028: ("EVENT_CAPTURED", "The event is part of a capture."),
    107029: ("STREAM_NOT_CAPTURED", "The stream is not being captured."),
    107030: ("CAPTURE_MODE_NOT_SUPPORT", "The call is not possible in this mode of capturing."),
    107031: ("STREAM_CAPTURE_IMPLICIT", "The default stream cannot be captured."),
    207016: ("AIVEC_OVER_FLOW", "A number overflowed in the vector core."),
    207017: ("OVER_FLOW", "A number overflowed."),
    507019: ("AICPU_DATADUMP_RSP_ERR", "The AI CPU could not dump data."),
    507020: ("AICPU_MODEL_RSP_ERR", "The AI CPU could not run its part of a model."),
    507025: ("RINGBUFFER_NOT_INIT", "The buffer for reports is not initialised."),
    507026: ("RINGBUFFER_NO_DATA", "The buffer for reports is empty."),
    507027: ("KERNEL_LOOKUP", "The kernel is not registered."),
    507028: ("KERNEL_DUPLICATE", "The kernel is registered twice."),
    507029: ("DEBUG_REGISTER_FAIL", "Debugging could not be registered."),
    507030: ("DEBUG_UNREGISTER_FAIL", "Debugging could not be unregistered."),
    507031: ("LABEL_CONTEXT", "The label belongs to another context."),
    507032: ("PROGRAM_USE_OUT", "Too many programs are registered."),
    507033: ("DEV_SETUP_ERROR", "The device did not start: it is broken, in use, or its driver does not fit the toolkit."),
    507034: ("VECTOR_CORE_TIMEOUT", "The vector core took too long."),
    507036: ("VECTOR_CORE_TRAP_EXCEPTION", "The vector core hit a trap."),
    507037: ("CDQ_BATCH_ABNORMAL", "A batch of a queue of commands could not be taken."),
    507038: ("DIE_MODE_CHANGE_ERROR", "The mode of the dies cannot be changed."),
    507039: ("DIE_SET_ERROR", "No die can be chosen in the mode of a single one."),
    507040: ("INVALID_DIEID", "The die is not there."),
    507041: ("DIE_MODE_NOT_SET", "The mode of the dies is not set."),
    507042: ("AICORE_TRAP_READ_OVERFLOW", "The AI Core read outside of memory."),
    507043: ("AICORE_TRAP_WRITE_OVERFLOW", "The AI Core wrote outside of memory."),
    507044: ("VECTOR_CORE_TRAP_READ_OVERFLOW", "The vector core read outside of memory."),
    507045: ("VECTOR_CORE_TRAP_WRITE_OVERFLOW", "The vector core wrote outside of memory."),
    507046: ("STREAM_SYNC_TIMEOUT", "A stream was not done in time."),
    507047: ("EVENT_SYNC_TIMEOUT", "An event was not reached in time."),
    507048: ("FFTS_PLUS_TIMEOUT", "A fused task (FFTS+) took too long, often one that waits for another rank."),
    507049: ("FFTS_PLUS_EXCEPTION", "A fused task (FFTS+) failed: often an access outside of memory."),
    507050: ("FFTS_PLUS_TRAP_EXCEPTION", "A fused task (FFTS+) hit a trap."),
    507051: ("SEND_MSG", "A message to the device could not be sent."),
    507052: ("COPY_DATA", "Data could not be copied."),
    507053: ("DEVICE_MEM_ERROR", "The memory of the device is faulty."),
    507054: ("HBM_MULTI_BIT_ECC_ERROR", "The memory of the device has an error that cannot be corrected."),
    507055: ("SUSPECT_DEVICE_MEM_ERROR", "The memory of the device is probably faulty."),
    507056: ("LINK_ERROR", "A link between devices failed."),
    507057: ("SUSPECT_REMOTE_ERROR", "Another device probably failed."),
    507899: ("DRV_INTERNAL_ERROR", "The driver has an internal error."),
    507900: ("AICPU_INTERNAL_ERROR", "The AI CPU has an internal error."),
    507901: ("SOCKET_CLOSE", "The connection to the device is closed."),
    507902: ("AICPU_INFO_LOAD_RSP_ERR", "The AI CPU could not load what it was sent."),
    507903: ("STREAM_CAPTURE_INVALIDATED", "The capture of a stream has become invalid."),
    507904: ("COMM_OP_RETRY_FAIL", "A collective failed when it was tried again."),
}
_OPERATORS = {
    161001: ("PARAM_NULLPTR", "An operator (aclnn) was given a null tensor."),
    161002: ("PARAM_INVALID", "An operator (aclnn) does not take such a type, shape or format."),
    361001: ("RUNTIME_ERROR", "An operator (aclnn) was stopped by an error of the runtime."),
    561000: ("INNER", "An operator (aclnn) has an internal error."),
    561101: ("INNER_CREATE_EXECUTOR", "No executor could be made for an operator (aclnn)."),
    561103: ("INNER_NULLPTR", "A step inside an operator (aclnn) gave nothing: often a kernel that is not installed for this chip."),
}
FAR_CODES = {number: FarCode(f"ACL_ERROR_RT_{name}", means) for number, (name, means) in _RUNTIME.items()}
FAR_CODES |= {number: FarCode(f"ACLNN_ERR_{name}", means) for number, (name, means) in _OPERATORS.items()}
