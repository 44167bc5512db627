from __future__ import annotations

from pathlib import Path
import platform
from types import ModuleType

import numpy as np
import onnx
import pytest

from anycann.compiler import CompileOptions, compile_model
from anycann.om.writer import write_offline_model
from anycann.session import InferenceSession
from anycann.support.errors import UsageError

FIXED = """<ir_version: 10, opset_import: ["": 20]> g (float[2, 3] x, float[3] w) => (float[2, 3] y, float[2] z)
{ y = Mul(x, w) z = ReduceSum<keepdims=0>(x, a) }"""
OPEN = '<ir_version: 10, opset_import: ["": 20]> g (float[n, 3] x) => (float[n, 3] y) { y = Add(x, x) }'


def offline_model(folder: Path, text: str, options: CompileOptions | None = None) -> str:
    model = onnx.parser.parse_model(text)
    if "ReduceSum" in text:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "a"))
    for number, node in enumerate(model.graph.node):
        node.name = f"node{number}"
    path = str(folder / "model.om")
    write_offline_model(path, compile_model(model, options))
    return path


def dataset(acl: ModuleType, sizes: list[int]) -> tuple[int, list[int]]:
    """A dataset with device memory of these sizes, and its addresses."""
    made, addresses = acl.mdl.create_dataset(), []
    for size in sizes:
        address, ret = acl.rt.malloc(size, 0)
        assert ret == 0
        assert acl.mdl.add_dataset_buffer(made, acl.create_data_buffer(address, size)) == (made, 0)
        addresses.append(address)
    return made, addresses


def put(acl: ModuleType, address: int, array: np.ndarray) -> None:
    assert acl.rt.memcpy(address, array.nbytes, acl.util.numpy_to_ptr(array), array.nbytes, 1) == 0


@pytest.fixture
def fixed(acl: ModuleType, tmp_path: Path) -> tuple[int, int]:
    model, ret = acl.mdl.load_from_file(offline_model(tmp_path, FIXED))
    desc = acl.mdl.create_desc()
    assert (ret, acl.mdl.get_desc(desc, model)) == (0, 0)
    return model, desc


def test_a_description_tells_inputs_and_outputs(acl: ModuleType, fixed: tuple[int, int]) -> None:
    _, desc = fixed
    assert (acl.mdl.get_num_inputs(desc), acl.mdl.get_num_outputs(desc)) == (2, 2)
    assert acl.mdl.get_input_dims(desc, 0) == ({"name": "x", "dimCount": 2, "dims": [2, 3]}, 0)
    assert acl.mdl.get_cur_output_dims(desc, 1) == ({"name": "z", "dimCount": 1, "dims": [2]}, 0)
    assert (acl.mdl.get_input_size_by_index(desc, 0), acl.mdl.get_output_size_by_index(desc, 1)) == (24, 8)
    assert acl.mdl.get_input_index_by_name(desc, "w") == (1, 0)
    assert acl.mdl.get_input_index_by_name(desc, "q")[1] == 100000
    assert (acl.mdl.get_input_data_type(desc, 0), acl.mdl.get_input_format(desc, 0)) == (0, 2)
    assert acl.mdl.get_input_dims(desc, 2) == (None, 100000)
    assert "input 2 is not there; accepted: 0 to 1" in acl.get_recent_err_msg()
    assert acl.mdl.get_dynamic_batch(desc) == ({"batchCount": 0, "batch": []}, 0)


VALUES = """<ir_version: 10, opset_import: ["": 20]> g (float[6, 3] x, int32[2] first, int32[2] end) => (float[SHAPE] y)
{ y = Slice(x, first, end) }"""


@pytest.mark.parametrize(("declared", "dims", "size"), [("rows, columns", [-1, -1], 0), ("2, 2", [2, 2], 16)])
def test_an_output_whose_shape_is_decided_by_values_has_a_type_and_is_written(
    acl: ModuleType, tmp_path: Path, declared: str, dims: list[int], size: int
) -> None:
    model, ret = acl.mdl.load_from_file(offline_model(tmp_path, VALUES.replace("SHAPE", declared)))
    desc = acl.mdl.create_desc()
    assert (ret, acl.mdl.get_desc(desc, model)) == (0, 0)
    assert acl.mdl.get_output_data_type(desc, 0) == 0
    assert acl.mdl.get_output_dims(desc, 0)[0]["dims"] == dims
    assert acl.mdl.get_output_size_by_index(desc, 0) == size
    x, first, end = np.random.default_rng(3).random((6, 3), np.float32), np.array([2, 1], np.int32), np.array([4, 3], np.int32)
    inputs, places = dataset(acl, [72, 8, 8])
    for place, array in zip(places, (x, first, end), strict=True):
        put(acl, place, array)
    outputs, (at_y,) = dataset(acl, [16])
    assert acl.mdl.execute(model, inputs, outputs) == 0, acl.get_recent_err_msg()
    y = np.frombuffer(acl.util.ptr_to_bytes(at_y, 16), np.float32).reshape(2, 2)
    np.testing.assert_array_equal(y, x[2:4, 1:3])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_model_runs_on_datasets(acl: ModuleType, fixed: tuple[int, int], asynchronous: bool) -> None:
    model, _ = fixed
    x, w = np.random.default_rng(1).random((2, 3), np.float32), np.array([1, 10, 100], np.float32)
    inputs, (at_x, at_w) = dataset(acl, [24, 12])
    outputs, (at_y, at_z) = dataset(acl, [24, 8])
    put(acl, at_x, x)
    put(acl, at_w, w)
    acl.rt.memset(at_y, 24, 0xFF, 24)
    if asynchronous:
        stream, _ = acl.rt.create_stream()
        assert acl.mdl.execute_async(model, inputs, outputs, stream) == 0
        assert acl.rt.synchronize_stream(stream) == 0
    else:
        assert acl.mdl.execute(model, inputs, outputs) == 0
    assert np.allclose(acl.util.ptr_to_numpy(at_y, (2, 3), 11), x * w)
    assert np.allclose(acl.util.ptr_to_numpy(at_z, (2,), 11), x.sum(1))


def fetched(acl: ModuleType, address: int, *shape: int) -> np.ndarray:
    result = np.empty(shape, np.float32)
    assert acl.rt.memcpy(acl.util.numpy_to_ptr(result), result.nbytes, address, result.nbytes, 2) == 0
    return result


@pytest.mark.parametrize("shift", [None, 0, 12, 2])
def test_a_loop_reads_new_data_and_outputs_may_lie_on_the_input_or_anywhere(acl: ModuleType, tmp_path: Path, shift: int | None) -> None:
    """`shift`: bytes from the input to the output, which are apart if it is None."""
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20]> g (float[4, 3] x) => (float[4, 3] y) { y = CumSum(x, a) }')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "a"))
    model.graph.node[0].name = "sums"
    path = str(tmp_path / "model.om")
    write_offline_model(path, compile_model(model))
    loaded, ret = acl.mdl.load_from_file(path)
    assert ret == 0
    inputs, (x,) = dataset(acl, [128])
    outputs, (y,) = dataset(acl, [48])
    if shift is not None:
        y = x + shift
        outputs = acl.mdl.create_dataset()
        acl.mdl.add_dataset_buffer(outputs, acl.create_data_buffer(y, 48))
    for seed in range(4):
        values = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
        put(acl, x, values)
        assert acl.mdl.execute(loaded, inputs, outputs) == 0, acl.get_recent_err_msg()
        np.testing.assert_allclose(fetched(acl, y, 4, 3), np.cumsum(values, 0), rtol=1e-5, atol=1e-6)


def test_a_model_loads_from_memory(acl: ModuleType, tmp_path: Path) -> None:
    data = Path(offline_model(tmp_path, FIXED)).read_bytes()
    model, ret = acl.mdl.load_from_mem(acl.util.bytes_to_ptr(data), len(data))
    assert ret == 0
    work, weights, ret = acl.mdl.query_size_from_mem(acl.util.bytes_to_ptr(data), len(data))
    assert (weights >= 0, work >= 0, ret) == (True, True, 0)
    assert acl.mdl.unload(model) == 0
    assert acl.mdl.unload(model) == 145003
    assert "was unloaded" in acl.get_recent_err_msg()


def test_what_does_not_fit_a_model_is_refused(acl: ModuleType, fixed: tuple[int, int]) -> None:
    model, _ = fixed
    inputs, addresses = dataset(acl, [24, 12])
    outputs, _ = dataset(acl, [24, 8])
    few, _ = dataset(acl, [24])
    small, _ = dataset(acl, [24, 4])
    assert acl.mdl.execute(model, few, outputs) == 145000
    assert "the input dataset has 1 data buffers; " in acl.get_recent_err_msg()
    assert acl.mdl.execute(model, inputs, small) == 145000
    assert "has 4 bytes; float32[2] needs 8" in acl.get_recent_err_msg()
    assert acl.mdl.execute(99, inputs, outputs) == 145003
    assert acl.mdl.execute(model, outputs, 12345) == 100000
    acl.rt.free(addresses[0])
    assert acl.mdl.execute(model, inputs, outputs) in (0, 100000)  # the address may belong to somebody else by now, but nothing crashes


def test_a_file_that_is_no_model_gets_a_code(acl: ModuleType, tmp_path: Path) -> None:
    assert acl.mdl.load_from_file(str(tmp_path / "none.om")) == (0, 145002)
    (tmp_path / "text.om").write_text("no model")
    assert acl.mdl.load_from_file(str(tmp_path / "text.om")) == (0, 100013)
    assert acl.mdl.load_from_mem(0, 10) == (0, 100000)


def test_batches_are_chosen_by_the_extra_input(acl: ModuleType, tmp_path: Path) -> None:
    options = CompileOptions(
        gears=({"x": (1, 3)}, {"x": (4, 3)}), arguments={"dynamic_batch_size": "1,4", "input_shape": "x:-1,3"}, input_shapes={"x": (-1, 3)}
    )
    model, _ = acl.mdl.load_from_file(offline_model(tmp_path, OPEN, options))
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model)
    assert acl.mdl.get_num_inputs(desc) == 2
    assert acl.mdl.get_dynamic_batch(desc) == ({"batchCount": 2, "batch": [1, 4]}, 0)
    index, ret = acl.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")
    assert (index, ret) == (1, 0)
    assert acl.mdl.get_input_dims(desc, 0)[0]["dims"] == [-1, 3]
    assert acl.mdl.get_input_size_by_index(desc, 0) == 48
    assert acl.mdl.get_output_dims(desc, 0)[0]["dims"] == acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [4, 3]  # of the largest
    inputs, (at_x, _) = dataset(acl, [48, acl.mdl.get_input_size_by_index(desc, 1)])
    outputs, (at_y,) = dataset(acl, [48])
    assert acl.mdl.execute(model, inputs, outputs) == 145013
    assert "set_dynamic_batch_size accepts 1, 4" in acl.get_recent_err_msg()
    assert acl.mdl.set_dynamic_batch_size(model, inputs, index, 3) == 145013
    for batch in (4, 1):
        x = np.random.default_rng(batch).random((batch, 3), np.float32)
        put(acl, at_x, x)
        assert acl.mdl.set_dynamic_batch_size(model, inputs, index, batch) == 0
        assert acl.mdl.execute(model, inputs, outputs) == 0
        assert np.array_equal(acl.util.ptr_to_numpy(at_y, (batch, 3), 11), x * 2)
        assert acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [batch, 3]


def test_an_input_with_a_range_tells_its_bounds_and_its_largest_size(acl: ModuleType, tmp_path: Path) -> None:
    for sizes, ranges, most in (((range(2, 11), 3), [[2, 10], [3, 3]], 120), ((-1, 3), [[1, -1], [3, 3]], 0)):
        path = offline_model(tmp_path, OPEN, CompileOptions(input_shapes={"x": sizes}))
        desc = acl.mdl.create_desc()
        assert acl.mdl.get_desc(desc, acl.mdl.load_from_file(path)[0]) == 0
        assert acl.mdl.get_input_dims(desc, 0)[0]["dims"] == [-1, 3]
        assert acl.mdl.get_input_dims_range(desc, 0) == ({"rangeCount": 2, "range": ranges}, 0)
        assert acl.mdl.get_input_size_by_index(desc, 0) == most


def test_asking_for_the_input_of_gears_is_no_warning(acl: ModuleType, fixed: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    _, desc = fixed
    assert acl.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")[1] == 100000
    assert not caplog.records
    assert acl.mdl.get_input_index_by_name(desc, "q")[1] == 100000
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_shape_outside_its_range_is_refused(acl: ModuleType, tmp_path: Path) -> None:
    path = offline_model(tmp_path, OPEN, CompileOptions(input_shapes={"x": (range(2, 6), 3)}))
    model, _ = acl.mdl.load_from_file(path)
    inputs, _ = dataset(acl, [72])
    outputs, _ = dataset(acl, [72])
    for rows, code in ((1, 145021), (2, 0), (5, 0), (6, 145021)):
        assert acl.mdl.set_dataset_tensor_desc(inputs, acl.create_tensor_desc(0, [rows, 3], 2), 0) == (inputs, 0)
        assert acl.mdl.execute(model, inputs, outputs) == code
    assert "input 'x' has shape [6, 3]; model.om was converted for [2~5, 3]" in acl.get_recent_err_msg()
    session = InferenceSession(path)
    assert session.run(None, {"x": np.ones((4, 3), np.float32)})[0].shape == (4, 3)
    with pytest.raises(UsageError, match=r"has shape \[7, 3\]; model.om was converted for \[2~5, 3\]"):
        session.run(None, {"x": np.ones((7, 3), np.float32)})


def test_open_shapes_come_with_tensor_descriptions(acl: ModuleType, tmp_path: Path) -> None:
    model, _ = acl.mdl.load_from_file(offline_model(tmp_path, OPEN))
    inputs, (at_x,) = dataset(acl, [60])
    outputs = acl.mdl.create_dataset()
    acl.mdl.add_dataset_buffer(outputs, acl.create_data_buffer(0, 0))
    assert acl.mdl.execute(model, inputs, outputs) == 145000
    assert "set_dataset_tensor_desc" in acl.get_recent_err_msg()
    x = np.random.default_rng(2).random((5, 3), np.float32)
    put(acl, at_x, x)
    assert acl.mdl.set_dataset_tensor_desc(inputs, acl.create_tensor_desc(0, [5, 3], 2), 0) == (inputs, 0)
    assert acl.mdl.execute(model, inputs, outputs) == 0
    buffer = acl.mdl.get_dataset_buffer(outputs, 0)
    address, size = acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size_v2(buffer)
    assert size == 60
    assert np.array_equal(acl.util.ptr_to_numpy(address, (5, 3), 11), x * 2)
    desc = acl.mdl.get_dataset_tensor_desc(outputs, 0)
    assert [acl.get_tensor_desc_dim_v2(desc, n) for n in range(2)] == [(5, 0), (3, 0)]
    assert acl.rt.free(address) == 0


def test_the_description_of_a_result_belongs_to_its_dataset(acl: ModuleType, tmp_path: Path) -> None:
    model, _ = acl.mdl.load_from_file(offline_model(tmp_path, OPEN))
    inputs, _ = dataset(acl, [72])
    outputs, _ = dataset(acl, [72])
    given = acl.create_tensor_desc(0, [5, 3], 2)
    assert acl.mdl.set_dataset_tensor_desc(inputs, given, 0) == (inputs, 0)
    acl.destroy_tensor_desc(given)  # it was copied
    assert acl.mdl.execute(model, inputs, outputs) == 0
    desc = acl.mdl.get_dataset_tensor_desc(outputs, 0)
    assert acl.mdl.get_dataset_tensor_desc(outputs, 0) == desc != given
    assert acl.mdl.set_dataset_tensor_desc(inputs, acl.create_tensor_desc(0, [2, 3], 2), 0) == (inputs, 0)
    assert acl.mdl.execute(model, inputs, outputs) == 0
    assert acl.get_tensor_desc_dim_v2(desc, 0) == (2, 0)
    assert acl.mdl.destroy_dataset(outputs) == 0
    assert acl.get_tensor_desc_num_dims(desc) == 0
    assert "was destroyed" in acl.get_recent_err_msg()
    shown = acl.mdl.get_dataset_tensor_desc(inputs, 0)
    acl.destroy_tensor_desc(shown)  # some programs do
    assert acl.mdl.destroy_dataset(inputs) == 0


def test_a_name_without_the_suffix_of_open_shapes_is_told(acl: ModuleType, tmp_path: Path) -> None:
    Path(offline_model(tmp_path, OPEN)).rename(tmp_path / f"m_linux_{platform.machine()}.om")
    assert acl.mdl.load_from_file(str(tmp_path / "m.om"))[1] == 145002
    assert f"m_linux_{platform.machine()}.om' is there" in acl.get_recent_err_msg()


def test_a_model_is_a_bundle_of_one(acl: ModuleType, tmp_path: Path) -> None:
    path = offline_model(tmp_path, FIXED)
    content = Path(path).read_bytes()
    bundles = [acl.mdl.bundle_load_from_file(path), acl.mdl.bundle_load_from_mem(acl.util.bytes_to_ptr(content), len(content))]
    assert [ret for _, ret in bundles] == [0, 0]
    for bundle, _ in bundles:
        assert acl.mdl.bundle_get_model_num(bundle) == (1, 0)
        model, ret = acl.mdl.bundle_get_model_id(bundle, 0)
        assert (ret, acl.mdl.get_desc(acl.mdl.create_desc(), model)) == (0, 0)
        assert acl.mdl.bundle_get_model_id(bundle, 1)[1] == 100000
        assert acl.mdl.bundle_unload(bundle) == 0
        assert acl.mdl.get_desc(acl.mdl.create_desc(), model) != 0
        assert acl.mdl.bundle_get_model_num(bundle)[1] == acl.mdl.bundle_unload(bundle) == 148053
    assert acl.mdl.bundle_load_from_file(str(tmp_path / "none.om"))[1] != 0


def test_pictures_of_tensorflow_have_their_channels_last(acl: ModuleType, tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[1, 4, 5, 3] x) => (float[1, 4, 5, 3] y) { y = Add(x, x) }'
    desc = acl.mdl.create_desc()
    for arguments, number in (({"framework": "3"}, 1), ({"framework": "5"}, 0), ({"framework": "3", "input_format": "NCHW"}, 0)):
        model, _ = acl.mdl.load_from_file(offline_model(tmp_path, text, CompileOptions(arguments=arguments)))
        assert acl.mdl.get_desc(desc, model) == 0
        assert acl.mdl.get_input_format(desc, 0) == number
    model, _ = acl.mdl.load_from_file(offline_model(tmp_path, text, CompileOptions(notes={"hw_layout": ["x"]})))
    assert acl.mdl.get_desc(desc, model) == 0
    assert (acl.mdl.get_input_format(desc, 0), acl.mdl.get_output_format(desc, 0)) == (3, 0)


def test_fused_operators_say_what_they_are_made_of(acl: ModuleType, tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> g (float[64] x) => (float[64] y) { a = Exp(x) b = Neg(a) y = Exp(b) }"""
    number, ret = acl.mdl.load_from_file(offline_model(tmp_path, text))
    desc = acl.mdl.create_desc()
    assert (ret, acl.mdl.get_desc(desc, number)) == (0, 0)
    assert acl.mdl.get_op_attr(desc, "node0node1node2", "_datadump_original_op_names") == "[5]node0[5]node1[5]node2"
    assert acl.mdl.get_op_attr(desc, "node0", "_datadump_original_op_names") == ""
    assert acl.mdl.get_op_attr(desc, "node0", "other") is None
    assert "accepted: _datadump_original_op_names" in acl.get_recent_err_msg()
