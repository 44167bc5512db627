"""Data dump: by the settings of acl.init and by calls, tensors and figures, filters, steps, overflow; and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
import struct
from types import ModuleType

import numpy as np
import pytest

from anycann.compiler import CompileOptions
from anycann.runtime.dump.files import real_names
from anycann.runtime.dump.records import DumpedTensor, Record, read_record, write_record
from anycann.runtime.dump.settings import parse_dump
from anycann.support.errors import ModelError, UsageError
from tests.acl.test_models import dataset, offline_model, put

CHAIN = """<ir_version: 10, opset_import: ["": 20]> g (float[2, 3] x, float[3, 4] w) => (float[2] z)
{ product = MatMul(x, w) root = Sqrt(product) z = ReduceSum<keepdims=0>(root, a) }"""
X, W = np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)


class Chain:
    """The loaded model CHAIN, each node a kernel of its own, and its datasets."""

    def __init__(self, acl: ModuleType, folder: Path):
        self.acl = acl
        self.path = offline_model(folder, CHAIN, CompileOptions(fuse=False))
        self.number, ret = acl.mdl.load_from_file(self.path)
        assert ret == 0
        self.inputs, addresses = dataset(acl, [X.nbytes, W.nbytes])
        self.outputs, _ = dataset(acl, [8])
        for address, array in zip(addresses, (X, W), strict=True):
            put(acl, address, array)
        self.addresses = addresses

    def run(self, stream: int = 0) -> None:
        if stream:
            assert self.acl.mdl.execute_async(self.number, self.inputs, self.outputs, stream) == 0
            assert self.acl.rt.synchronize_stream(stream) == 0
        else:
            assert self.acl.mdl.execute(self.number, self.inputs, self.outputs) == 0


def begin(acl: ModuleType, folder: Path, **section: object) -> int:
    """Dump into `folder` by calls."""
    path = folder / "dump.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(folder / "dump"), "dump_list": [{"model_name": "model"}], **section}}))
    assert acl.mdl.init_dump() == 0
    return int(acl.mdl.set_dump(str(path)))


def dumped(folder: Path) -> dict[str, Path]:
    """Files by the first two parts of their names."""
    return {".".join(path.name.split(".")[:2]): path for path in sorted((folder / "dump").rglob("*.*")) if path.is_file()}


def test_every_operator_has_a_file_with_what_it_took_and_gave(acl: ModuleType, tmp_path: Path) -> None:
    assert begin(acl, tmp_path, dump_mode="all") == 0
    chain = Chain(acl, tmp_path)
    chain.run()
    files = dumped(tmp_path)
    assert list(files) == ["MatMul.node0", "ReduceSum.node2", "Sqrt.node1"]
    stamp, device, model, number, run = files["Sqrt.node1"].parent.parts[-5:]
    assert (len(stamp), device, model, number, run) == (14, "0", "model", str(chain.number), "0")
    op_type, name, task, stream, time_us = files["Sqrt.node1"].name.split(".")
    assert (op_type, name, task, stream, len(time_us)) == ("Sqrt", "node1", "2", "0", 16)
    first, second = read_record(files["MatMul.node0"]), read_record(files["Sqrt.node1"])
    assert [tensor.value for tensor in first.inputs] == ["x", "w"]
    np.testing.assert_array_equal(first.inputs[0].array, X)
    np.testing.assert_allclose(first.outputs[0].array, X @ W)
    np.testing.assert_array_equal(second.inputs[0].array, first.outputs[0].array)
    np.testing.assert_allclose(second.outputs[0].array, np.sqrt(X @ W), rtol=1e-5)
    assert (second.operator, second.outputs[0].operator, second.outputs[0].index) == ("node1", "node1", 0)
    assert acl.mdl.finalize_dump() == 0
    chain.run()
    assert len(dumped(tmp_path)) == 3


def test_inputs_are_as_they_were_though_their_memory_is_used_again(acl: ModuleType, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[64] x) => (float[64] y)
    { a = Exp(x) b = Neg(a) c = Exp(b) d = Neg(c) y = Exp(d) }"""
    assert begin(acl, tmp_path, dump_mode="all") == 0
    number, _ = acl.mdl.load_from_file(offline_model(tmp_path, text, CompileOptions(fuse=False)))
    inputs, (address,) = dataset(acl, [256])
    outputs, _ = dataset(acl, [256])
    put(acl, address, np.linspace(-1, 1, 64, dtype=np.float32))
    assert acl.mdl.execute(number, inputs, outputs) == 0
    functions = {"Exp": np.exp, "Neg": np.negative}
    for name, path in dumped(tmp_path).items():
        record = read_record(path)
        np.testing.assert_allclose(record.outputs[0].array, functions[name.split(".")[0]](record.inputs[0].array), rtol=1e-5)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"layer": ["node1"]}, {"Sqrt.node1": 1}),
        ({"opname_range": [{"begin": "node1", "end": "node2"}]}, {"ReduceSum.node2": 1, "Sqrt.node1": 1}),
        ({"optype_blacklist": [{"name": "Sqrt", "pos": ["input0"]}]}, {"MatMul.node0": 2, "ReduceSum.node2": 1, "Sqrt.node1": 0}),
        ({"opname_blacklist": [{"name": "node0"}]}, {"ReduceSum.node2": 1, "Sqrt.node1": 1}),
    ],
)
def test_layers_ranges_and_filters_choose(acl: ModuleType, tmp_path: Path, entry: dict[str, object], expected: dict[str, int]) -> None:
    assert begin(acl, tmp_path, dump_mode="all", dump_list=[{"model_name": "model", **entry}]) == 0
    Chain(acl, tmp_path).run()
    assert {name: len(read_record(path).inputs) for name, path in dumped(tmp_path).items()} == expected


def test_steps_and_modes_choose(acl: ModuleType, tmp_path: Path) -> None:
    assert begin(acl, tmp_path, dump_mode="input", dump_step="0|2-3") == 0
    chain = Chain(acl, tmp_path)
    for _ in range(5):
        chain.run()
    assert sorted({path.parent.name for path in (tmp_path / "dump").rglob("Sqrt.*")}) == ["0", "2", "3"]
    assert all(not read_record(path).outputs for path in dumped(tmp_path).values())


def test_other_models_are_not_dumped(acl: ModuleType, tmp_path: Path) -> None:
    assert begin(acl, tmp_path, dump_list=[{"model_name": "another"}]) == 0
    Chain(acl, tmp_path).run()
    assert not dumped(tmp_path)


def test_figures_in_place_of_tensors(acl: ModuleType, tmp_path: Path) -> None:
    assert begin(acl, tmp_path, dump_data="stats", dump_stats=["Max", "Nan", "L2norm"]) == 0
    chain = Chain(acl, tmp_path)
    put(acl, chain.addresses[0], -X)
    chain.run()
    with dumped(tmp_path)["MatMul.node0"].open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert ",".join(row) == "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Count,Nan Count,l2norm"
    assert ",".join(row.values()).startswith("Output,0,32,DT_FLOAT,ND,2x4,")
    assert (row["Count"], row["Nan Count"]) == ("8", "0")
    assert float(row["Max Value"]) == (-X @ W).max()
    np.testing.assert_allclose(float(row["l2norm"]), np.linalg.norm(X @ W), rtol=1e-6)
    with dumped(tmp_path)["Sqrt.node1"].open(newline="") as file:
        assert next(csv.DictReader(file))["Nan Count"] == "8"


def test_a_function_gets_dumps_in_place_of_files(acl: ModuleType, tmp_path: Path) -> None:
    found: list[tuple[str, bytes]] = []

    def take(chunk: dict[str, int | str]) -> None:
        assert (chunk["is_last_chunk"], chunk["offset"], chunk["flag"]) == (1, 2**64 - 1, 0)
        found.append((Path(str(chunk["file_name"])).name, acl.util.ptr_to_bytes(chunk["data_buf"], chunk["buf_len"])))

    chain = Chain(acl, tmp_path)
    assert acl.mdl.dump_reg_callback(take, 1) == 500001
    assert acl.mdl.dump_reg_callback(take, 0) == 0
    chain.run()
    assert acl.mdl.init_dump() == 0
    assert not found
    chain.run()
    assert [name.split(".")[:2] for name, _ in found] == [["MatMul", "node0"], ["Sqrt", "node1"], ["ReduceSum", "node2"]]
    (tmp_path / "record").write_bytes(found[1][1])
    np.testing.assert_allclose(read_record(tmp_path / "record").outputs[0].array, np.sqrt(X @ W), rtol=1e-5)
    acl.mdl.dump_unreg_callback()
    chain.run()
    assert len(found) == 3
    assert acl.mdl.finalize_dump() == 0
    assert begin(acl, tmp_path) == 0
    assert acl.mdl.dump_reg_callback(take, 0) == 0
    chain.run()
    assert len(found) == 6
    assert not dumped(tmp_path)
    acl.mdl.dump_unreg_callback()
    chain.run()
    assert len(found) == 6
    assert len(dumped(tmp_path)) == 3


def test_bodies_of_loops_are_dumped_turn_by_turn(acl: ModuleType, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[4] x, int64 n) => (float[4] y) {
    go = Constant<value = bool {1}>()
    y = Loop (n, go, x) <body = b (int64 i, bool old, float[4] a) => (bool new, float[4] e) { new = Identity(old) e = Exp(a) }> }"""
    assert begin(acl, tmp_path, dump_mode="all") == 0
    number, _ = acl.mdl.load_from_file(offline_model(tmp_path, text))
    inputs, addresses = dataset(acl, [16, 8])
    put(acl, addresses[0], np.zeros(4, np.float32))
    put(acl, addresses[1], np.array(2, np.int64))
    assert acl.mdl.execute(number, inputs, dataset(acl, [16])[0]) == 0
    turns = sorted((read_record(path) for path in (tmp_path / "dump").rglob("Exp.*")), key=lambda record: record.time_us)
    assert [record.inputs[0].array[0] for record in turns] == [0, 1]
    np.testing.assert_allclose([record.outputs[0].array[0] for record in turns], [1, np.e], rtol=1e-6)


def test_a_whole_process_is_dumped_by_its_settings_and_so_are_single_operators(acl: ModuleType, tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text(
        json.dumps({"dump": {"dump_path": str(tmp_path / "dump"), "dump_list": [], "dump_op_switch": "on", "dump_mode": "all"}})
    )
    assert acl.finalize() == 0
    assert acl.init(str(config)) == 0
    assert acl.rt.set_device(0) == 0
    assert acl.mdl.init_dump() == 100044
    stream, _ = acl.rt.create_stream()
    desc, (address, _) = acl.create_tensor_desc(0, [4], 2), acl.rt.malloc(16, 0)
    put(acl, address, np.array([1, 2, 3, 4], np.float32))
    buffer = acl.create_data_buffer(address, 16)
    assert acl.op.execute("Neg", [desc], [buffer], [desc], [buffer], 0, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    (path,) = dumped(tmp_path).values()
    assert (path.parent.name, path.name.split(".")[0]) == ("0", "Neg")
    np.testing.assert_array_equal(read_record(path).outputs[0].array, [-1, -2, -3, -4])


def test_overflow_is_told_by_the_stream_and_dumped_alone(acl: ModuleType, tmp_path: Path) -> None:
    chain = Chain(acl, tmp_path)
    stream, _ = acl.rt.create_stream()
    status, _ = acl.rt.malloc(64, 0)

    def told() -> int:
        assert acl.rt.get_overflow_status(status, 64, stream) == 0
        assert acl.rt.synchronize_stream(stream) == 0
        return int(np.frombuffer(acl.util.ptr_to_bytes(status, 4), np.int32)[0])

    put(acl, chain.addresses[0], -X)
    chain.run(stream)
    assert told() == 0  # nobody asked
    assert acl.rt.set_stream_overflow_switch(stream, 1) == 0
    assert begin(acl, tmp_path, dump_debug="on") == 0
    chain.run(stream)
    assert told() == 1
    assert set(dumped(tmp_path)) == {"Sqrt.node1", "ReduceSum.node2"}
    assert len(read_record(dumped(tmp_path)["Sqrt.node1"]).inputs) == 1
    assert acl.rt.reset_overflow_status(stream) == 0
    put(acl, chain.addresses[0], X)
    chain.run(stream)
    assert told() == 0


def test_calls_in_the_wrong_order_and_wrong_settings_get_a_code(acl: ModuleType, tmp_path: Path) -> None:
    assert acl.mdl.finalize_dump() == 100045
    assert acl.mdl.set_dump("x") == 100045
    assert begin(acl, tmp_path, dump_mode="some") == 100009
    assert "dump_mode is 'some'; accepted: input, output, all" in acl.get_recent_err_msg()
    assert acl.mdl.init_dump() == 100044
    assert acl.mdl.set_dump(str(tmp_path / "none.json")) == 100003
    assert acl.mdl.finalize_dump() == 0


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ([], "accepted: a JSON object"),
        ({"dump_list": []}, "dump_path is None"),
        ({"dump_path": "x"}, "dump_list is None"),
        ({"dump_path": "x", "dump_list": [], "dump_step": "3-1"}, "dump_step is '3-1'"),
        ({"dump_path": "x", "dump_list": ["a"]}, "an entry of dump_list is 'a'"),
        ({"dump_path": "x", "dump_list": [{"opname_range": [{"begin": "a", "end": "b"}]}]}, "without model_name"),
        ({"dump_path": "x", "dump_list": [{"optype_blacklist": [{"name": "a", "pos": ["middle1"]}]}]}, "an entry of optype_blacklist"),
        ({"dump_path": "x", "dump_list": [], "dump_data": "stats", "dump_stats": ["Mode"]}, "dump_stats is \\['Mode'\\]"),
    ],
)
def test_a_wrong_section_is_told(section: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_dump(section)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64", "bool", "bfloat16"])
def test_what_is_written_is_read(tmp_path: Path, dtype: str) -> None:
    import ml_dtypes

    array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, dtype, dtype))
    write_record(
        tmp_path / "file", Record("op", 5, (DumpedTensor(array, "y", "node", 1),), (DumpedTensor(array[:0], "x"),), {"nodes": "a"})
    )
    record = read_record(tmp_path / "file")
    assert (record.operator, record.time_us, record.notes) == ("op", 5, {"nodes": "a"})
    assert record.outputs[0].array.dtype == array.dtype
    np.testing.assert_array_equal(record.outputs[0].array, array)
    assert record.inputs[0].array.shape == (0, 3)
    content = (tmp_path / "file").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert content[8 + length :] == array.tobytes()
    (tmp_path / "file").write_bytes(content[:-1])
    with pytest.raises(ModelError, match=r"bytes; .* expected"):
        read_record(tmp_path / "file")


def test_a_name_that_is_too_long_becomes_a_number(acl: ModuleType, tmp_path: Path) -> None:
    import onnx

    from anycann.compiler import compile_model
    from anycann.om.writer import write_offline_model

    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20]> g (float[4] x) => (float[4] y) { y = Exp(x) }')
    model.graph.node[0].name = "scope/" * 60
    write_offline_model(tmp_path / "model.om", compile_model(model))
    assert begin(acl, tmp_path) == 0
    number, _ = acl.mdl.load_from_file(str(tmp_path / "model.om"))
    inputs, (address,) = dataset(acl, [16])
    put(acl, address, np.zeros(4, np.float32))
    assert acl.mdl.execute(number, inputs, dataset(acl, [16])[0]) == 0
    (folder,) = (path.parent for path in (tmp_path / "dump").rglob("mapping.csv"))
    ((short, whole),) = real_names(folder).items()
    assert whole.startswith(f"Exp.{'scope_' * 60}.1.0.")
    assert read_record(folder / short).operator == "scope/" * 60
