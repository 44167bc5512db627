"""What AscendCL has and this does not: kernels of Ascend's own cores, searching feature vectors, operators in flight."""

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

# ---- feature vectors
_VECTORS = "searching feature vectors is not there"
_BARE = ("init_para", "feature_info", "repo_range", "query_table", "search_input", "search_result")
for _name in _BARE:
    refused(f"acl.fv.create_{_name}", ("...",), _VECTORS)
    refused(f"acl.fv.destroy_{_name}", (_name,), _VECTORS)
for _name in (
    "destory_init_para",
    "set_1n_top_num",
    "set_nm_top_num",
    "init",
    "release",
    "repo_add",
    "repo_del",
    "delete",
    "modify",
    "search",
):
    refused(f"acl.fv.{_name}", ("...",), _VECTORS)

# ---- operators in flight
refused(
    "acl.mdl.create_and_get_op_desc",
    ("device", "stream_id", "task_id", "length"),
    "operators in flight are not listed",
    failed=("", 0, 0, 0, 0),
)
