"""Every way a model comes: paths, bytes, messages, external data, functions, old files, big files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
import onnx_ir as ir
from onnx_models import assert_close, make_model, run_on_host, varint
import pytest

from anycann.frontends.onnx.load import load_model
from anycann.frontends.onnx.wire import BIG_BYTES
from anycann.graph.sources import source_names
from anycann.support.errors import ModelError, UnsupportedError, UsageError

WEIGHT = np.random.default_rng(0).standard_normal((64, 40)).astype(np.float32)
FEEDS = {"x": np.ones((2, 64), np.float32)}


def linear_model(weight: np.ndarray = WEIGHT) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Relu", ["h"], ["y"])]
    return make_model(nodes, FEEDS, ["y"], constants={"w": weight})


def weights_of(model: ir.Model) -> dict[str, np.ndarray]:
    return {name: value.const_value.numpy() for name, value in model.graph.initializers.items()}


def test_path_bytes_message_and_graph_give_the_same_model(tmp_path: Path) -> None:
    proto = linear_model()
    onnx.save(proto, tmp_path / "m.onnx")
    sources = [tmp_path / "m.onnx", str(tmp_path / "m.onnx"), proto.SerializeToString(), proto, ir.from_proto(proto)]
    texts = {ir.to_proto(load_model(source)).graph.SerializeToString(deterministic=True) for source in sources}
    assert len(texts) == 1


def test_a_graph_that_is_given_is_not_changed() -> None:
    model = ir.from_proto(linear_model())
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    load_model(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_anything_else_is_refused_by_its_type() -> None:
    with pytest.raises(UsageError, match="got int"):
        load_model(3)  # type: ignore[arg-type]


def test_big_weights_of_a_file_are_views_of_its_bytes(tmp_path: Path) -> None:
    assert WEIGHT.nbytes > BIG_BYTES
    onnx.save(linear_model(), tmp_path / "m.onnx")
    array = weights_of(load_model(tmp_path / "m.onnx"))["w"]
    assert not array.flags.owndata
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, WEIGHT)


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "INT4", "UINT4", "INT2", "INT8", "INT64", "BOOL", "DOUBLE"])
@pytest.mark.parametrize("count", [7, 9001])
def test_weights_of_every_element_type_keep_their_values(dtype: str, count: int, tmp_path: Path) -> None:
    numpy_dtype = helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, dtype))
    values = (np.arange(count) % 2).astype(numpy_dtype)
    model = make_model([helper.make_node("Identity", ["w"], ["y"])], {}, ["y"], opset=25, constants={"w": values})
    onnx.save(model, tmp_path / "m.onnx")
    loaded = weights_of(load_model(tmp_path / "m.onnx"))["w"]
    assert loaded.dtype == numpy_dtype
    np.testing.assert_array_equal(loaded, values)


def test_a_file_of_more_than_two_gibibytes_is_mapped(tmp_path: Path) -> None:
    rows = (5 << 29) // 4096  # 2.5 GiB of float32 in rows of 1024, a hole in the file
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[rows, 1024])
    nodes = [helper.make_node("Gather", ["w", "x"], ["y"])]
    rest = make_model(nodes, {"x": np.array([0])}, ["y"])
    path = tmp_path / "big.onnx"
    nbytes = rows * 4096
    head = tensor.SerializeToString() + b"\x4a" + varint(nbytes)
    graph = rest.graph.SerializeToString()
    rest.ClearField("graph")
    header = rest.SerializeToString()
    size = len(head) + nbytes
    prefix = header + b"\x3a" + varint(len(graph) + 1 + len(varint(size)) + size) + graph + b"\x2a" + varint(size) + head
    with path.open("wb") as file:
        file.write(prefix)
        file.truncate(len(prefix) + nbytes)
        file.seek(len(prefix) + nbytes - 4)
        file.write(np.float32(7).tobytes())
    array = weights_of(load_model(path))["w"]
    assert array.shape == (rows, 1024)
    assert array[-1, -1] == 7
    assert array[1234, 5] == 0


def save_external(folder: Path, location: str = "w.bin") -> Path:
    onnx.save(linear_model(), folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    proto = onnx.load(folder / "m.onnx", load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


def test_external_data_is_found_beside_the_model(tmp_path: Path) -> None:
    np.testing.assert_array_equal(weights_of(load_model(save_external(tmp_path)))["w"], WEIGHT)


def test_external_data_may_lie_in_a_folder_below(tmp_path: Path) -> None:
    path = save_external(tmp_path, "below/w.bin")
    (tmp_path / "below").mkdir()
    (tmp_path / "w.bin").rename(tmp_path / "below" / "w.bin")
    np.testing.assert_array_equal(weights_of(load_model(path))["w"], WEIGHT)


def test_a_model_and_its_data_may_both_be_links_into_a_store(tmp_path: Path) -> None:
    store, shown = tmp_path / "store", tmp_path / "shown"
    store.mkdir()
    shown.mkdir()
    save_external(store)
    (shown / "model.onnx").symlink_to(store / "m.onnx")
    (shown / "w.bin").symlink_to(store / "w.bin")
    np.testing.assert_array_equal(weights_of(load_model(shown / "model.onnx"))["w"], WEIGHT)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "", "..\\w.bin", "w\0.bin"])
def test_external_data_outside_of_the_folder_is_refused(location: str, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = save_external(inner, location)
    (inner / "w.bin").rename(tmp_path / "w.bin")
    with pytest.raises(ModelError, match=r"external data|location"):
        load_model(path)


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = save_external(inner)
    (inner / "w.bin").rename(tmp_path / "secret.bin")
    (inner / "w.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ModelError, match="leads out"):
        load_model(path)


def test_missing_and_short_external_data_is_refused_by_name(tmp_path: Path) -> None:
    path = save_external(tmp_path)
    (tmp_path / "w.bin").write_bytes(b"short")
    with pytest.raises(ModelError, match="beyond the end"):
        load_model(path)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r"'w.bin' does not exist"):
        load_model(path)


def test_external_data_of_a_model_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="give a path"):
        load_model(save_external(tmp_path).read_bytes())


def test_initialisers_that_are_inputs_too_are_constants() -> None:
    model = linear_model()
    model.graph.input.append(helper.make_tensor_value_info("w", 1, WEIGHT.shape))
    model.ir_version = 3
    loaded = load_model(model)
    assert [value.name for value in loaded.graph.inputs] == ["x"]
    assert_close(run_on_host(loaded, FEEDS), [np.maximum(FEEDS["x"] @ WEIGHT, 0)], rtol=1e-4)


@pytest.mark.parametrize("ir_version", range(3, 14))
def test_every_ir_version_loads(ir_version: int) -> None:
    model = linear_model()
    model.ir_version = ir_version
    assert len(load_model(model).graph) == 2


@pytest.mark.parametrize(("ir_version", "error"), [(2, UnsupportedError), (14, UnsupportedError), (0, ModelError)])
def test_other_ir_versions_are_refused(ir_version: int, error: type[Exception]) -> None:
    model = linear_model()
    model.ir_version = ir_version
    with pytest.raises(error, match="3 to 13 are accepted"):
        load_model(model)


def with_function(function_opset: int) -> onnx.ModelProto:
    """`y = twice(twice(x))`, where twice uses an operator whose form changed at opset 13."""
    body = [
        helper.make_node("Add", ["a", "a"], ["s"], name="sum"),
        helper.make_node("Unsqueeze", ["s"], ["u"], axes=[0]) if function_opset < 13 else helper.make_node("Identity", ["s"], ["u"]),
        helper.make_node("Reshape", ["u", "shape"], ["b"], name="back"),
    ]
    body.insert(0, helper.make_node("Shape", ["a"], ["shape"]))
    twice = helper.make_function("own", "twice", ["a"], ["b"], body, [helper.make_opsetid("", function_opset)])
    calls = [
        helper.make_node("twice", ["x"], ["m"], domain="own", name="one"),
        helper.make_node("twice", ["m"], ["y"], domain="own", name="two"),
    ]
    model = make_model(calls, FEEDS, ["y"], opset=17)
    model.functions.append(twice)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


@pytest.mark.parametrize("function_opset", [11, 17, 20])
def test_functions_of_any_opset_are_inlined(function_opset: int) -> None:
    loaded = load_model(with_function(function_opset))
    assert not loaded.functions
    assert {node.domain for node in loaded.graph} == {""}
    assert_close(run_on_host(loaded, FEEDS), [4 * FEEDS["x"]])


def test_nodes_of_a_function_keep_the_name_of_the_call_as_their_source() -> None:
    loaded = load_model(with_function(17))
    assert {name.split("/")[0] for node in loaded.graph for name in source_names(node)} == {"one", "two"}


def test_functions_that_double_with_each_level_are_refused() -> None:
    model = make_model([helper.make_node("f0", ["x"], ["y"], domain="own")], FEEDS, ["y"])
    for level in range(40):
        callee = {"op_type": f"f{level + 1}", "domain": "own"} if level < 39 else {"op_type": "Relu", "domain": ""}
        nodes = [helper.make_node(inputs=["a"], outputs=["t"], **callee), helper.make_node(inputs=["t"], outputs=["b"], **callee)]
        imports = [helper.make_opsetid("", 26), helper.make_opsetid("own", 1)]
        model.functions.append(helper.make_function("own", f"f{level}", ["a"], ["b"], nodes, imports))
    model.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(ModelError, match="expand to"):
        load_model(model)


def test_sparse_initialisers_and_constants_become_dense() -> None:
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", onnx.TensorProto.FLOAT, [2], [5.0, 6.0]),
        helper.make_tensor("i", onnx.TensorProto.INT64, [2], [1, 5]),
        [2, 3],
    )
    nodes = [helper.make_node("Constant", [], ["c"], sparse_value=sparse), helper.make_node("Add", ["c", "s"], ["y"])]
    model = make_model(nodes, {}, ["y"])
    model.graph.sparse_initializer.append(sparse)
    assert_close(run_on_host(load_model(model), {}), [np.array([[0, 10, 0], [0, 0, 12]], np.float32)])


def test_unsorted_nodes_are_sorted() -> None:
    model = linear_model()
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert [node.op_type for node in load_model(model).graph] == ["MatMul", "Relu"]


def test_sizes_of_minus_one_are_open() -> None:
    model = linear_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert load_model(model).graph.inputs[0].shape[0] == ir.SymbolicDim(None)


def test_the_default_domain_has_two_spellings() -> None:
    model = linear_model()
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[0].domain = "ai.onnx"
    loaded = load_model(model)
    assert loaded.opset_imports[""] == 26
    assert {node.domain for node in loaded.graph} == {""}


def test_nodes_without_a_name_get_one_and_repeated_names_keep_their_source() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="same"),
        helper.make_node("Relu", ["a"], ["b"], name="same"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    graph = load_model(make_model(nodes, FEEDS, ["y"])).graph
    assert [node.name for node in graph] == ["same", "same_0", "Relu_0"]
    assert [source_names(node) for node in graph] == [("same",), ("same",), ("Relu_0",)]


def test_values_of_a_subgraph_that_shadow_outer_ones_are_renamed() -> None:
    branch = helper.make_graph([helper.make_node("Neg", ["x"], ["h"])], "b", [], [helper.make_tensor_value_info("h", 1, None)])
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["h", "z"], ["y"]),
    ]
    feeds = {**FEEDS, "c": np.array(True)}
    loaded = load_model(make_model(nodes, feeds, ["y"]))
    names = [value.name for node in loaded.graph.all_nodes() for value in node.outputs]
    assert len(set(names)) == len(names)
    assert_close(run_on_host(loaded, feeds), [np.zeros((2, 64), np.float32)])


def test_typed_data_loads_as_raw_data_does() -> None:
    tensor = helper.make_tensor("w", onnx.TensorProto.FLOAT16, [3], np.array([1.5, -2, 0.25], np.float16))
    tensor.ClearField("raw_data")
    tensor.int32_data[:] = np.array([1.5, -2, 0.25], np.float16).view(np.uint16).tolist()
    model = make_model([helper.make_node("Identity", ["w"], ["y"])], {}, ["y"])
    model.graph.initializer.append(tensor)
    np.testing.assert_array_equal(weights_of(load_model(model))["w"], np.array([1.5, -2, 0.25], np.float16))


def test_strings_load() -> None:
    words = np.array(["a", "日本"], object)
    model = make_model([helper.make_node("Identity", ["w"], ["y"])], {}, ["y"])
    model.graph.initializer.append(numpy_helper.from_array(words, "w"))
    assert [bytes(item).decode() if isinstance(item, bytes) else item for item in weights_of(load_model(model))["w"]] == ["a", "日本"]
