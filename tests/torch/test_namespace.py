"""`torch.npu`: devices, streams, events, random numbers, switches and the old names of types."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
import subprocess
import sys
import time

import pytest
import torch
import torch_npu

# The public names of torch_npu.npu, and those that programs use most beside them.
DOCUMENTED = (
    "is_initialized", "init", "set_dump", "synchronize", "device_count", "can_device_access_peer", "set_device", "current_device",
    "get_device_name", "get_device_properties", "get_device_capability", "mem_get_info", "is_available", "device", "device_of",
    "StreamContext", "stream", "set_stream", "current_stream", "default_stream", "set_sync_debug_mode", "get_sync_debug_mode",
    "init_dump", "utilization", "finalize_dump", "manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed",
    "caching_allocator_alloc", "caching_allocator_delete", "get_per_process_memory_fraction", "set_per_process_memory_fraction",
    "empty_cache", "empty_virt_addr_cache", "memory_stats", "memory_stats_as_nested_dict", "reset_accumulated_memory_stats",
    "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "memory_allocated", "max_memory_allocated",
    "memory_reserved", "max_memory_reserved", "memory_cached", "max_memory_cached", "memory_snapshot", "memory_summary", "MemPool",
    "use_mem_pool", "get_allocator_backend", "NPUPluggableAllocator", "change_current_allocator", "Stream", "Event", "set_option",
    "CubeMathType", "set_aoe", "set_compile_mode", "set_mm_bmm_format_nd", "get_mm_bmm_format_nd", "get_npu_overflow_flag",
    "clear_npu_overflow_flag", "stress_detect", "get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all",
    "is_jit_compile_false", "get_amp_supported_dtype", "is_autocast_enabled", "is_bf16_supported", "set_autocast_enabled",
    "get_autocast_dtype", "set_autocast_dtype", "BoolStorage", "ByteStorage", "ShortStorage", "LongStorage", "IntStorage",
    "HalfStorage", "CharStorage", "DoubleStorage", "FloatStorage", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor",
    "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor", "BFloat16Tensor", "BFloat16Storage", "current_blas_handle",
    "stop_device", "restart_device", "check_uce_in_memory", "config", "matmul", "conv", "enable_deterministic_with_backward",
    "disable_deterministic_with_backward", "mstx", "SyncLaunchStream", "NPUGraph", "graph", "graph_pool_handle",
    "is_current_stream_capturing", "make_graphed_callables", "ExternalEvent", "graph_task_group_begin", "graph_task_group_end",
    "graph_task_update_begin", "graph_task_update_end", "set_device_limit", "get_device_limit", "set_stream_limit",
    "reset_stream_limit", "get_stream_limit", "ipc_collect", "obfuscation_initialize", "obfuscation_finalize",
    "obfuscation_calculate", "set_op_timeout_ms", "host_empty_cache", "host_memory_stats", "host_memory_stats_as_nested_dict",
    "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats", "set_deterministic_level", "use_compatible_impl",
    "are_compatible_impl_enabled", "super_kernel_scope_begin", "super_kernel_scope_end", "npurt", "ExternalStream", "utils",
    "global_step_inc", "set_start_fuzz_compile_step", "enable_graph_mode", "launch_graph", "disable_graph_mode", "default_generators",
    "OutOfMemoryError",
)  # fmt: skip


def test_every_documented_name_is_there() -> None:
    assert [name for name in DOCUMENTED if not hasattr(torch.npu, name)] == []
    assert torch_npu.npu is torch.npu
    assert sys.modules["torch.npu"] is torch.npu


def test_the_current_device_is_that_of_the_thread() -> None:
    with torch.npu.device("npu:2"), torch.npu.device_of(torch.ones(1, device="npu:3")):
        assert torch.npu.current_device() == 3
        assert torch.accelerator.current_device_index() == 3
        with torch.npu.device_of(torch.ones(1)), torch.npu.device(None):
            assert torch.npu.current_device() == 3
    assert torch.npu.current_device() == 0


def test_the_chip_is_the_one_that_is_asked_for() -> None:
    assert torch.npu.get_device_name() == "Ascend910B1"
    assert torch.npu.get_device_name(3) == torch.npu.get_device_properties("npu:3").name
    assert torch.npu.get_device_properties().total_memory >= 1 << 30
    assert torch.npu.get_device_capability() is None
    assert torch.npu.is_bf16_supported()
    free, total = torch.npu.mem_get_info()
    assert 0 < free <= total


def test_work_goes_to_the_stream_that_is_current() -> None:
    assert torch.npu.current_stream() == torch.npu.default_stream()
    stream = torch.npu.Stream(device="npu:1")
    assert isinstance(stream, torch.Stream)
    assert stream != torch.npu.Stream(device="npu:1")
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        assert torch.npu.current_device() == 1
    assert torch.npu.current_stream(1) == torch.npu.default_stream(1)
    torch.npu.set_stream(stream)
    assert torch.npu.current_stream(1) is stream
    torch.npu.set_stream(torch.npu.default_stream(1))
    torch.npu.set_device(0)
    stream.wait_stream(torch.npu.current_stream())
    torch.ones(1, device="npu:1").record_stream(stream)
    assert stream.query()


def test_events_measure_the_time_between_them() -> None:
    begin, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    with pytest.raises(RuntimeError, match="recorded"):
        begin.elapsed_time(end)
    before = time.perf_counter()
    begin.record()
    time.sleep(0.02)
    torch.npu.current_stream().record_event(end)
    end.synchronize()
    assert 20 <= begin.elapsed_time(end) <= (time.perf_counter() - before) * 1e3
    with pytest.raises(RuntimeError, match="enable_timing"):
        torch.npu.Event().elapsed_time(end)


def test_each_npu_has_random_numbers_of_its_own() -> None:
    torch.npu.manual_seed_all(7)
    states = torch.npu.get_rng_state_all()
    first = [torch.rand(3, device=f"npu:{index}") for index in (0, 1)]
    assert torch.equal(first[0].cpu(), first[1].cpu())
    torch.npu.set_rng_state_all(states)
    assert torch.equal(torch.rand(3, device="npu:1"), first[1])
    with torch.npu.device(1):
        torch.npu.manual_seed(8)
        assert torch.npu.initial_seed() == 8
    assert torch.npu.initial_seed() == 7
    assert torch.npu.seed_all() == torch.npu.default_generators[3].initial_seed()


def test_forked_states_of_random_numbers_come_back() -> None:
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        torch.rand(5, device="npu")
    after = torch.rand(3, device="npu")
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3, device="npu"), after)


def test_options_are_checked_and_kept() -> None:
    torch.npu.set_option({"ACL_OP_DEBUG_LEVEL": 1, "MM_BMM_ND_ENABLE": "disable"})
    assert not torch.npu.get_mm_bmm_format_nd()
    torch.npu.set_mm_bmm_format_nd(True)
    with pytest.raises(ValueError, match="ACL_PRECISION_MODE should be in"):
        torch.npu.set_option({"ACL_PRECISION_MODE": "fast"})
    with pytest.raises(TypeError, match="dict"):
        torch.npu.set_option("ACL_OP_DEBUG_LEVEL")
    torch.npu.set_compile_mode(jit_compile=True)
    assert not torch.npu.is_jit_compile_false()
    torch.npu.set_compile_mode(jit_compile=False)
    assert torch.npu.is_jit_compile_false()


def test_switches_take_what_they_are_for() -> None:
    torch.npu.config.allow_internal_format = False
    assert torch.npu.config.allow_internal_format is False
    torch.npu.matmul.allow_hf32 = torch.npu.conv.allow_hf32 = True
    with pytest.raises(TypeError, match="allow_hf32"):
        torch.npu.matmul.allow_hf32 = "yes"
    with pytest.raises(AttributeError, match="allow_tf32"):
        torch.npu.conv.allow_tf32 = True


def test_functions_of_the_extension_are_there_by_their_private_names() -> None:
    extension = torch_npu._C
    before = extension._npu_getOption("ALLOW_INTERNAL_FORMAT")
    torch.npu.config.allow_internal_format = before != b"enable"
    assert extension._npu_getOption("ALLOW_INTERNAL_FORMAT") != before
    torch.npu.config.allow_internal_format = before
    assert extension._npu_getOption("ALLOW_INTERNAL_FORMAT") == before
    assert extension._npu_getOption("no such option") is None
    extension._npu_setOption({"ACL_OP_DEBUG_LEVEL": "2"})
    assert extension._npu_getOption("ACL_OP_DEBUG_LEVEL") == b"2"
    assert extension._npu_getDeviceCount() == torch.npu.device_count()
    assert extension._npu_hasPrimaryContext(0)
    with pytest.raises(RuntimeError, match="999"):
        extension._npu_hasPrimaryContext(999)
    assert extension._npu_getCurrentRawStream(0) == torch.npu.current_stream().npu_stream
    stream, before = torch.npu.Stream(), extension._npu_getCurrentStream(0)
    assert before == extension._npu_getDefaultStream(0)
    extension._npu_setStream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    assert torch.npu.current_stream() == stream
    extension._npu_setStream(*before)
    assert torch.npu.current_stream() == torch.npu.default_stream()
    made = extension._empty_strided_npu([2, 3], [1, 2], torch.float16)
    assert (made.device, made.dtype, made.stride()) == (torch.device("npu:0"), torch.float16, (1, 2))
    assert extension._weak_ref_tensor(made[1]).data_ptr() == made[1].data_ptr()
    assert torch_npu.hifloat8 == 290


def test_old_type_names_make_and_recognise_tensors() -> None:
    made = torch.npu.FloatTensor([1, 2])
    assert made.tolist() == [1.0, 2.0]
    assert made.is_npu
    assert torch.npu.HalfTensor(2, 3).shape == (2, 3)
    assert isinstance(made, torch.npu.FloatTensor)
    assert not isinstance(made.cpu(), torch.npu.FloatTensor)
    assert not isinstance(made, torch.npu.LongTensor)
    assert made.type() == "torch.npu.FloatTensor"


def test_overflow_is_seen_in_the_numbers() -> None:
    assert torch.npu.utils.npu_check_overflow(torch.tensor([1.0, float("inf")], device="npu"))
    assert not torch.npu.utils.npu_check_overflow(1.0)
    assert torch.npu.utils.is_support_inf_nan()
    with pytest.raises(RuntimeError, match="npu_check_overflow"):
        torch.npu.get_npu_overflow_flag()


def test_the_visible_devices_and_the_chip_come_from_the_environment(tmp_path: Path) -> None:
    program = "import torch, torch_npu; print(torch.npu.device_count(), torch.npu.get_device_name(), torch.npu.is_bf16_supported())"
    environment = {"ASCEND_RT_VISIBLE_DEVICES": "0,2,5", "ANYCANN_SOC": "Ascend910A", "PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3", "Ascend910A", "False"], done.stderr


def test_programs_can_ask_which_cann_this_stands_for() -> None:
    utilities = torch.npu.utils
    assert utilities.get_cann_version() == utilities.get_cann_version("HCCL") == "8.1.RC1"
    assert utilities.get_cann_version("DRIVER") == utilities.get_cann_version("CAN") == ""
    versions = ("7.0.0", "8.1.RC1", "8.1.RC1.alpha002", "8.1.0", "8.2.T3")
    assert [utilities._is_gte_cann_version(wanted) for wanted in versions] == [True, True, True, False, False]
    assert not utilities._is_gte_cann_version("7.0.0", "DRIVER")
    with pytest.raises(ValueError, match="'eight' is no version of CANN"):
        utilities._is_gte_cann_version("eight")


def test_utilities_know_devices_and_streams_as_the_npu_does() -> None:
    assert torch.npu.utils._get_device_index("npu:1") == 1
    assert torch.npu.utils.current_device() == torch.npu.current_device()
    assert torch.npu.utils.synchronize is torch.npu.synchronize


def test_libraries_find_torch_npu_among_the_installed_packages() -> None:
    assert metadata.version("torch_npu") == metadata.version("torch-npu") == torch_npu.__version__
    assert "torch_npu" in {distribution.name for distribution in metadata.distributions()}
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("torch_npu_of_nobody")
