"""Models in memory that a program brings or whose allocator it is, bundles of several, runs that may take only so long."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from anycann.compiler import compile_model
from anycann.om.bundle import read_bundle, write_bundle
from anycann.om.writer import write_offline_model
from anycann.support.errors import ModelError, UsageError
from tests.acl.test_models import FIXED, OPEN, dataset, fetched, offline_model, put

PRODUCTS = """<ir_version: 10, opset_import: ["": 20]> g (float[64, 64] x) => (float[64, 64] y)
{ a = MatMul(x, w)  b = Softmax(a)  c = MatMul(b, w)  y = Softmax(c) }"""
INVALID, RT_INVALID, GE_INVALID = 100000, 107000, 145000


def matrices(folder: Path, seed: int = 1) -> tuple[str, np.ndarray]:
    """A model that needs work memory and has weights, and its weights."""
    weights = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32) / 8
    model = onnx.parser.parse_model(PRODUCTS)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    folder.mkdir(exist_ok=True)
    path = str(folder / "model.om")
    write_offline_model(path, compile_model(model))
    return path, weights


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    def softmax(a: np.ndarray) -> np.ndarray:
        e = np.exp(a - a.max(-1, keepdims=True))
        found: np.ndarray = e / e.sum(-1, keepdims=True)
        return found

    return softmax(softmax(x.astype(np.float64) @ w) @ w)


def sets(acl: ModuleType, x: np.ndarray) -> tuple[int, int, int]:
    """Input and output datasets, and where the output lies."""
    inputs, (place,) = dataset(acl, [x.nbytes])
    put(acl, place, x)
    outputs, (result,) = dataset(acl, [x.nbytes])
    return inputs, outputs, result


def check(acl: ModuleType, model: int, weights: np.ndarray, stream: int | None = None) -> None:
    x = np.random.default_rng().standard_normal((64, 64)).astype(np.float32)
    inputs, outputs, result = sets(acl, x)
    if stream is None:
        assert acl.mdl.execute(model, inputs, outputs) == 0
    else:
        assert acl.mdl.execute_async(model, inputs, outputs, stream) == 0
        assert acl.rt.synchronize_stream_with_timeout(stream, 60000) == 0  # its own thread does the work
    np.testing.assert_allclose(fetched(acl, result, 64, 64), expected(x, weights), rtol=1e-4, atol=1e-6)


def device(acl: ModuleType, nbytes: int) -> int:
    ptr, ret = acl.rt.malloc(nbytes, 0)
    assert ret == 0
    acl.util.ptr_to_numpy(ptr, (nbytes,), 2)[:] = 0xA5
    return int(ptr)


def is_touched(acl: ModuleType, ptr: int, nbytes: int) -> bool:
    return bool((acl.util.ptr_to_numpy(ptr, (nbytes,), 2) != 0xA5).any())


@pytest.mark.parametrize("way", ["file", "memory", "settings"])
def test_a_model_works_in_the_memory_of_its_caller(acl: ModuleType, tmp_path: Path, way: str) -> None:
    path, weights = matrices(tmp_path)
    work_size, weight_size, ret = acl.mdl.query_size(path)
    assert (ret, work_size > 0, weight_size >= weights.nbytes) == (0, True, True)
    work, own = device(acl, work_size), device(acl, weight_size)
    free = acl.rt.get_mem_info(1)[0]
    if way == "file":
        model, ret = acl.mdl.load_from_file_with_mem(path, work, work_size, own, weight_size)
    elif way == "memory":
        content = Path(path).read_bytes()
        model, ret = acl.mdl.load_from_mem_with_mem(acl.util.bytes_to_ptr(content), len(content), work, work_size, own, weight_size)
    else:
        handle = acl.mdl.create_config_handle()
        for attribute, setting in ((1, 2), (2, path), (5, own), (6, weight_size), (7, work), (8, work_size)):
            assert acl.mdl.set_config_opt(handle, attribute, setting) == 0
        model, ret = acl.mdl.load_with_config(handle)
    assert ret == 0
    assert acl.rt.get_mem_info(1)[0] == free  # it takes none of its own
    assert is_touched(acl, own, weight_size)
    assert not is_touched(acl, work, work_size)
    for _ in range(3):
        check(acl, model, weights)
    assert is_touched(acl, work, work_size)
    acl.util.ptr_to_numpy(own, (weight_size,), 2)[:] = 0
    x = np.ones((64, 64), np.float32)
    inputs, outputs, result = sets(acl, x)
    assert acl.mdl.execute(model, inputs, outputs) == 0
    np.testing.assert_allclose(fetched(acl, result, 64, 64), 1 / 64, rtol=1e-5)  # its weights are those there
    assert acl.mdl.unload(model) == 0


def test_two_models_take_turns_in_one_memory(acl: ModuleType, tmp_path: Path) -> None:
    made = [matrices(tmp_path / str(seed), seed) for seed in (1, 2)]
    size = max(acl.mdl.query_size(path)[0] for path, _ in made)
    work = device(acl, size)
    models = [acl.mdl.load_from_file_with_mem(path, work, size, 0, 0) for path, _ in made]
    assert [ret for _, ret in models] == [0, 0]
    for _ in range(2):
        for (model, _), (_, weights) in zip(models, made, strict=True):
            check(acl, model, weights)


def test_a_run_in_memory_that_is_gone_fails(acl: ModuleType, tmp_path: Path) -> None:
    path, weights = matrices(tmp_path)
    work_size, weight_size, _ = acl.mdl.query_size(path)
    x = np.ones((64, 64), np.float32)
    inputs, outputs, _ = sets(acl, x)
    for freed in (0, 1):
        own = [device(acl, work_size), device(acl, weight_size)]
        model, _ = acl.mdl.load_from_file_with_mem(path, own[0], work_size, own[1], weight_size)
        check(acl, model, weights)
        assert acl.rt.free(own[freed]) == 0
        assert acl.mdl.execute(model, inputs, outputs) == INVALID
        assert ("work", "weight")[freed] in acl.get_recent_err_msg()
    virt, _ = acl.rt.reserve_mem_address(2 << 20, 0, 0, 1)
    physical, _ = acl.rt.malloc_physical(2 << 20, {"location": {"id": 0, "type": 1}}, 0)
    assert acl.rt.map_mem(virt, 2 << 20, 0, physical, 0) == 0
    model, ret = acl.mdl.load_from_file_with_mem(path, virt, work_size, 0, 0)
    assert ret == 0
    check(acl, model, weights)
    assert acl.rt.unmap_mem(virt) == 0
    assert acl.mdl.execute(model, inputs, outputs) == INVALID
    assert acl.mdl.unload(model) == 0
    assert [acl.rt.free_physical(physical), acl.rt.release_mem_address(virt)] == [0, 0]


def test_memory_that_does_not_do_is_refused(acl: ModuleType, tmp_path: Path) -> None:
    path, _ = matrices(tmp_path)
    work_size, weight_size, _ = acl.mdl.query_size(path)
    work, own, host = device(acl, work_size + 64), device(acl, weight_size), acl.rt.malloc_host(work_size)[0]
    for arguments, code, words in (
        ((work, work_size - 1, 0, 0), GE_INVALID, "work memory has"), ((0, 0, own, weight_size - 1), GE_INVALID, "weight memory has"),
        ((work + 4, work_size, 0, 0), 200003, "multiples of 64"), ((host, work_size, 0, 0), INVALID, "memory of the host"),
        ((work, work_size + 4096, 0, 0), INVALID, "behind the allocation"), ((0x12340, work_size, 0, 0), INVALID, "no live memory"),
    ):  # fmt: skip
        assert acl.mdl.load_from_file_with_mem(path, *arguments) == (0, code)
        assert words in acl.get_recent_err_msg()
    assert acl.mdl.load_from_file_with_mem(str(tmp_path / "no.om"), work, work_size, 0, 0)[1] == 145002
    handle = acl.mdl.create_config_handle()
    for kind, code in ((5, 145008), (6, 145008), (7, INVALID), (0, INVALID)):
        assert acl.mdl.set_config_opt(handle, 1, kind) == 0
        assert acl.mdl.load_with_config(handle) == (0, code)
    assert acl.mdl.set_config_opt(handle, 2, 5) == INVALID
    assert acl.mdl.destroy_config_handle(handle) == 0
    assert acl.mdl.load_with_config(handle)[1] == INVALID


# ---- bundles
def test_a_bundle_has_several_models(acl: ModuleType, tmp_path: Path) -> None:
    made = [matrices(tmp_path / str(seed), seed) for seed in (1, 2)]
    path = tmp_path / "both.om"
    write_bundle(path, [made[0][0], Path(made[1][0]).read_bytes()])
    content = path.read_bytes()
    assert read_bundle(content, "it") == [Path(each).read_bytes() for each, _ in made]
    for bundle, ret in (
        acl.mdl.bundle_load_from_file(str(path)),
        acl.mdl.bundle_load_from_mem(acl.util.bytes_to_ptr(content), len(content)),
    ):
        assert (ret, acl.mdl.bundle_get_model_num(bundle)) == (0, (2, 0))
        for number, (_, weights) in enumerate(made):
            model, ret = acl.mdl.bundle_get_model_id(bundle, number)
            assert ret == 0
            check(acl, model, weights)
        assert acl.mdl.bundle_get_model_id(bundle, 2)[1] == INVALID
        assert acl.mdl.bundle_unload(bundle) == 0
        assert acl.mdl.unload(model) != 0


def test_a_damaged_bundle_is_refused_and_leaves_nothing(acl: ModuleType, tmp_path: Path) -> None:
    path, _ = matrices(tmp_path)
    write_bundle(tmp_path / "b.om", [path, path])
    content = (tmp_path / "b.om").read_bytes()
    broken = bytearray(content)
    broken[-5000:] = bytes(5000)
    before = acl.rt.get_mem_info(1)[0]
    for data in (content[:100], content[:-8192], content[:8] + b"\2" + content[9:], content[:12] + bytes(4) + content[16:], bytes(broken)):
        (tmp_path / "c.om").write_bytes(data)
        assert acl.mdl.bundle_load_from_file(str(tmp_path / "c.om"))[1] == 100013
        if data != bytes(broken):  # there it is a model that is damaged
            with pytest.raises(ModelError, match=r"it is a bundle|model 1 of it"):
                read_bundle(data, "it")
    assert acl.rt.get_mem_info(1)[0] == before
    assert acl.mdl.bundle_load_from_file(str(tmp_path))[1] == 145002
    for models in ([], [path] * 65):
        with pytest.raises(UsageError, match="1 to 64"):
            write_bundle(tmp_path / "d.om", models)


# ---- allocators
class Blocks:
    """An allocator as a program writes it."""

    def __init__(self, acl: ModuleType):
        self.acl, self.live, self.calls = acl, dict[int, int](), list[tuple[Any, ...]]()
        self.desc = acl.rt.allocator_create_desc()
        assert acl.rt.allocator_set_obj_to_desc(self.desc, 77) == 0
        for name, function in (
            ("alloc", self.alloc), ("free", self.free), ("alloc_advise", self.advise), ("get_addr_from_block", self.live.__getitem__),
        ):  # fmt: skip
            assert getattr(acl.rt, f"allocator_set_{name}_func_to_desc")(self.desc, function) == 0

    def alloc(self, given: int, nbytes: int) -> int:
        block = 1000 + len(self.calls)
        self.live[block] = device(self.acl, nbytes)
        self.calls.append(("alloc", given))
        return block

    def advise(self, given: int, nbytes: int, address: int) -> int:
        return self.alloc(given, nbytes)

    def free(self, given: int, block: int) -> None:
        self.calls.append(("free", given))
        assert self.acl.rt.free(self.live.pop(block)) == 0


def test_runs_in_a_stream_take_their_memory_from_its_allocator(acl: ModuleType, tmp_path: Path) -> None:
    path, weights = matrices(tmp_path)
    (model, _), blocks, (stream, _) = acl.mdl.load_from_file(path), Blocks(acl), acl.rt.create_stream()
    assert acl.rt.allocator_register(stream, blocks.desc) == 0
    assert acl.rt.allocator_destroy_desc(blocks.desc) == 0  # what is registered stays
    for _ in range(2):
        check(acl, model, weights, stream)
    assert blocks.calls == [("alloc", 77), ("free", 77)] * 2
    check(acl, model, weights, 0)  # another stream
    check(acl, model, weights)
    assert len(blocks.calls) == 4
    assert acl.rt.allocator_unregister(stream) == 0
    check(acl, model, weights, stream)
    assert len(blocks.calls) == 4
    assert acl.rt.allocator_unregister(stream) == INVALID


def test_a_wrong_allocator_fails_the_run(acl: ModuleType, tmp_path: Path) -> None:
    path, weights = matrices(tmp_path)
    (model, _), (stream, _) = acl.mdl.load_from_file(path), acl.rt.create_stream()
    x = np.zeros((64, 64), np.float32)
    inputs, outputs, _ = sets(acl, x)
    for functions, code in (
        ((lambda *_: 0, lambda *_: None, lambda block: block), 207001), ((lambda *_: 5, lambda *_: None, lambda block: 0x1234), INVALID),
        ((lambda *_: 1 / 0, lambda *_: None, lambda block: block), 500000),
    ):  # fmt: skip
        desc = acl.rt.allocator_create_desc()
        names = ("alloc", "free", "get_addr_from_block")
        assert [getattr(acl.rt, f"allocator_set_{n}_func_to_desc")(desc, f) for n, f in zip(names, functions, strict=True)] == [0] * 3
        assert acl.rt.allocator_register(stream, desc) == 0
        assert acl.mdl.execute_async(model, inputs, outputs, stream) == 0
        assert acl.rt.synchronize_stream(stream) == code
    assert acl.rt.allocator_unregister(stream) == 0
    check(acl, model, weights, stream)
    assert acl.rt.allocator_register(stream, 0) == INVALID
    assert acl.rt.allocator_register(123, desc) == RT_INVALID
    assert acl.rt.allocator_set_obj_to_desc(stream, 1) == INVALID


# ---- times
def test_a_run_waits_for_its_stream_as_long_as_it_was_told(acl: ModuleType, tmp_path: Path) -> None:
    path, weights = matrices(tmp_path)
    (model, _), (stream, _), (other, _) = acl.mdl.load_from_file(path), acl.rt.create_stream(), acl.rt.create_stream()
    x = np.random.default_rng().standard_normal((64, 64)).astype(np.float32)
    inputs, outputs, result = sets(acl, x)
    handle, (notify, _) = acl.mdl.create_exec_config_handle(), acl.rt.create_notify(0)
    assert acl.mdl.execute_v2(model, inputs, outputs, stream, 0) == 0
    assert acl.mdl.set_exec_config_opt(handle, 0, 30) == 0
    assert acl.rt.wait_and_reset_notify(notify, stream, 0) == 0
    assert acl.mdl.execute_v2(model, inputs, outputs, stream, handle) == 107019
    assert "30 ms" in acl.get_recent_err_msg()
    assert [acl.rt.record_notify(notify, other), acl.rt.synchronize_stream(stream)] == [0, 0]
    np.testing.assert_allclose(fetched(acl, result, 64, 64), expected(x, weights), rtol=1e-4, atol=1e-6)  # it went on
    assert [acl.mdl.set_exec_config_opt(handle, 0, 600_000), acl.mdl.set_exec_config_opt(handle, 1, -1)] == [0, 0]
    assert acl.mdl.execute_v2(model, inputs, outputs, stream, handle) == 0
    wrong = ((0, 0), (1, -2), (8, 1), (-1, 1))
    assert [acl.mdl.set_exec_config_opt(handle, *setting) for setting in wrong] == [INVALID] * 4
    assert [acl.mdl.set_exec_config_opt(handle, attribute, 5) for attribute in (2, 3, 4, 7)] == [200006, 200006, 0, 0]
    assert acl.mdl.execute_v2(model, inputs, outputs, stream, notify) == INVALID
    assert acl.mdl.execute_v2(model, inputs, outputs, notify, handle) == RT_INVALID
    assert acl.mdl.destroy_exec_config_handle(handle) == 0


def test_an_operator_that_takes_too_long_fails_its_run(acl: ModuleType, tmp_path: Path) -> None:
    path, weights = matrices(tmp_path)
    (model, _), (stream, _) = acl.mdl.load_from_file(path), acl.rt.create_stream()
    inputs, outputs, _ = sets(acl, np.zeros((64, 64), np.float32))
    assert acl.mdl.execute(model, inputs, outputs) == 0
    assert acl.rt.set_op_execute_timeout_v2(1) == (1, 0)
    slow = [acl.mdl.execute(model, inputs, outputs) for _ in range(3)]
    assert set(slow) == {507014}  # no product of 64 x 64 is done within a microsecond
    assert "may take 1 (acl.rt.set_op_execute_time_out)" in acl.get_recent_err_msg()
    assert acl.mdl.execute_async(model, inputs, outputs, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 507014
    assert acl.rt.set_op_execute_time_out(3600) == 0
    assert acl.rt.get_op_execute_timeout() == (3_600_000, 0)
    check(acl, model, weights)
    assert acl.rt.set_op_execute_time_out(0) == 0
    assert [acl.rt.set_op_execute_time_out(-1), acl.rt.set_op_execute_timeout_v2(-1)[1]] == [INVALID, INVALID]
    check(acl, model, weights)


def test_models_of_open_shapes_work_in_the_memory_of_their_caller_too(acl: ModuleType, tmp_path: Path) -> None:
    for text in (OPEN, FIXED):
        path = offline_model(tmp_path, text)
        work_size, weight_size, _ = acl.mdl.query_size(path)
        work = device(acl, max(work_size, 64))
        model, ret = acl.mdl.load_from_file_with_mem(
            path, work, max(work_size, 64), device(acl, max(weight_size, 64)), max(weight_size, 64)
        )
        assert (ret, acl.mdl.unload(model)) == (0, 0)
