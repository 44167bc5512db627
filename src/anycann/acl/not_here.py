"""What AscendCL has and this does not: kernels of Ascend's own cores, operators in flight."""

from __future__ import annotations

from anycann.acl.entries import refused

# ---- kernels of Ascend's own cores
_KERNELS = "kernels of the AI Core cannot run here"
for _name, _parameters, _failed in (
    ("binary_load_from_file", ("path", "options"), (0,)),
    ("binary_load_from_data", ("data", "length", "options"), (0,)),
    ("get_function_addr", ("function",), (0, 0)),
    ("get_function_name", ("function", "length"), ("",)),
    ("register_cpu_func", ("binary", "function", "kernel"), (0,)),
    ("create_binary", ("data", "length"), (0,)),
    ("destroy_binary", ("binary",), ()),
    ("binary_load", ("binary",), (0,)),
    ("binary_unload", ("binary",), ()),
    ("binary_get_function", ("binary", "name"), (0,)),
    ("launch_kernel", ("function", "blocks", "args", "size", "stream"), ()),
    ("launch_kernel_with_config", ("function", "blocks", "stream", "config", "args", "reserve"), ()),
    ("kernel_args_init", ("function",), (0,)),
    ("kernel_args_init_by_user_mem", ("function", "args", "memory", "size"), ()),
    ("kernel_args_get_mem_size", ("function", "size"), (0,)),
    ("kernel_args_get_handle_mem_size", ("function",), (0,)),
    ("kernel_args_append", ("args", "parameter", "size"), (0,)),
    ("kernel_args_append_place_holder", ("args",), (0,)),
    ("kernel_args_get_place_holder_buffer", ("args", "parameter", "size"), (0,)),
    ("kernel_args_para_update", ("args", "parameter", "value", "size"), ()),
    ("kernel_args_finalize", ("args",), ()),
):
    refused(f"acl.rt.{_name}", _parameters, _KERNELS, failed=_failed)
refused("acl.op.set_kernel_workspace_sizes", ("desc", "count", "sizes"), _KERNELS)

# ---- operators in flight
refused(
    "acl.mdl.create_and_get_op_desc",
    ("device", "stream_id", "task_id", "length"),
    "operators in flight are not listed",
    failed=("", 0, 0, 0, 0),
)
