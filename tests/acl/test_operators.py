"""acl.op and acl.blas: operators by name on data buffers, matched with models of atc --singleop or compiled when called."""

from __future__ import annotations

from collections.abc import Sequence
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from anycann.om.operator_spec import OperandSpec, OperatorSpec
from anycann.om.writer import write_offline_model
from anycann.single_operator import compile_operator

PAIRS = ("float16 float16", "float16 float32", "int8 int32", "int8 float32", "float32 float32")
DATA_TYPES = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "int64": 9, "bool": 12}


class Program:
    """What a program does around an operator: descriptions, memory, data buffers, a stream."""

    def __init__(self, acl: ModuleType):
        self.acl = acl
        self.stream, ret = acl.rt.create_stream()
        assert ret == 0

    def desc(self, array: np.ndarray, dims: Sequence[int] | None = None) -> int:
        return int(self.acl.create_tensor_desc(DATA_TYPES[array.dtype.name], list(array.shape if dims is None else dims), 2))

    def put(self, array: np.ndarray) -> int:
        """Device memory with the content of an array."""
        address, ret = self.acl.rt.malloc(max(array.nbytes, 1), 0)
        assert ret == 0
        contiguous = np.ascontiguousarray(array)
        assert self.acl.rt.memcpy(address, array.nbytes, contiguous.ctypes.data, array.nbytes, 1) == 0
        return int(address)

    def buffer(self, array: np.ndarray) -> int:
        return int(self.acl.create_data_buffer(self.put(array), array.nbytes))

    def attributes(self, **settings: Any) -> int:
        attr = self.acl.op.create_attr()
        for name, setting in settings.items():
            kind = {bool: "bool", int: "int", float: "float", str: "string", list: "list_int"}[type(setting)]
            assert getattr(self.acl.op, f"set_attr_{kind}")(attr, name, setting) == 0
        return int(attr)

    def get(self, buffer: int, like: np.ndarray) -> np.ndarray:
        assert self.acl.rt.synchronize_stream(self.stream) == 0, self.acl.get_recent_err_msg()
        data = self.acl.util.ptr_to_bytes(self.acl.get_data_buffer_addr(buffer), like.nbytes)
        return np.frombuffer(data, like.dtype).reshape(like.shape)

    def run(self, op: str, inputs: Sequence[np.ndarray], like: np.ndarray, attr: int = 0) -> np.ndarray:
        out = self.buffer(np.full(like.shape, 77, like.dtype))
        descs, buffers = [self.desc(each) for each in inputs], [self.buffer(each) for each in inputs]
        ret = self.acl.op.execute_v2(op, descs, buffers, [self.desc(like)], [out], attr, self.stream)
        assert ret == 0, self.acl.get_recent_err_msg()
        return self.get(out, like)


@pytest.fixture
def program(acl: ModuleType) -> Program:
    return Program(acl)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape, np.float32) - np.float32(0.5)


def test_an_operator_of_a_model_folder_runs(program: Program, tmp_path: Path) -> None:
    operand = OperandSpec("float32", (-1, 3))
    write_offline_model(str(tmp_path / "muls.om"), compile_operator(OperatorSpec("Muls", (operand,), (operand,), {"value": 0.1})))
    (tmp_path / "broken.om").write_text("no model")
    acl = program.acl
    assert acl.op.set_model_dir(str(tmp_path / "none")) == 100000
    assert acl.op.set_model_dir(str(tmp_path)) == 0
    assert acl.op.set_model_dir(str(tmp_path)) == 0
    for rows in (2, 5):
        x = floats(rows, 3)
        np.testing.assert_allclose(program.run("Muls", [x], x, program.attributes(value=0.1)), x * np.float32(0.1), rtol=1e-6)


def test_an_operator_without_a_model_is_compiled(program: Program) -> None:
    x, w = floats(4, 3), floats(5, 3)
    found = program.run("MatMulV2", [x, w], np.empty((4, 5), np.float32), program.attributes(transpose_x2=True))
    np.testing.assert_allclose(found, x @ w.T, rtol=1e-5)


def test_what_no_operator_does_gets_the_code_of_the_part(program: Program) -> None:
    acl, x = program.acl, floats(4, 3)
    desc, buffer = program.desc(x), program.buffer(x)

    def call(op: str, count: int, attr: int = 0, out: int = desc) -> int:
        return int(acl.op.execute(op, [desc] * count, [buffer] * count, [out], [buffer], attr, program.stream))

    assert call("Reluu", 1) == 100024
    assert "did you mean Relu?" in acl.get_recent_err_msg()
    assert call("Add", 1) == 100021
    assert call("Relu", 1, program.attributes(slope=1.0)) == 100023
    assert call("Relu", 1, out=program.desc(floats(3, 4))) == 100022
    assert call("Relu", 1, attr=desc) == 100000
    assert "accepted: an operator attribute list" in acl.get_recent_err_msg()
    assert acl.op.execute("Relu", [desc], [], [desc], [buffer], 0, program.stream) == 100000
    small = acl.create_data_buffer(program.put(x), 8)
    assert acl.op.execute("Relu", [desc], [small], [desc], [buffer], 0, program.stream) == 145000
    with pytest.raises(TypeError, match="args parse failed"):
        acl.op.execute("Relu", desc, [buffer], [desc], [buffer], 0, program.stream)


@pytest.mark.parametrize("handle", [False, True])
def test_an_operator_whose_result_is_decided_by_values_writes_into_the_buffer(program: Program, tmp_path: Path, handle: bool) -> None:
    acl, x, begin, size = program.acl, floats(4, 6), np.array([1, 2], np.int32), np.array([2, 3], np.int32)
    operands = [OperandSpec("float32", (4, 6), "ND"), OperandSpec("int32", (2,), "ND"), OperandSpec("int32", (2,), "ND")]
    spec = OperatorSpec("Slice", tuple(operands), (OperandSpec("float32", (2, 3), "ND"),), {})
    write_offline_model(str(tmp_path / "slice.om"), compile_operator(spec))
    assert acl.op.set_model_dir(str(tmp_path)) == 0
    if not handle:
        np.testing.assert_array_equal(program.run("Slice", [x, begin, size], x[1:3, 2:5].copy()), x[1:3, 2:5])
        return
    like = np.zeros((2, 3), np.float32)
    made, ret = acl.op.create_handle("Slice", [program.desc(each) for each in (x, begin, size)], [program.desc(like)], 0)
    assert ret == 0
    out = program.buffer(like)
    assert acl.op.execute_with_handle(made, [program.buffer(each) for each in (x, begin, size)], [out], program.stream) == 0
    np.testing.assert_array_equal(program.get(out, like), x[1:3, 2:5])


def test_a_truth_value_is_a_byte(program: Program) -> None:
    attr, set_one, set_list = program.attributes(), program.acl.op.set_attr_bool, program.acl.op.set_attr_list_bool
    assert [set_one(attr, "a", 0), set_one(attr, "b", 255), set_list(attr, "c", [4, 0, True])] == [0, 0, 0]
    assert [set_one(attr, "d", 256), set_list(attr, "e", [0, -1]), set_list(attr, "f", [0.5])] == [100000] * 3


def test_a_handle_runs_its_operator_again_and_again(program: Program) -> None:
    acl, x = program.acl, floats(2, 6)
    desc = program.desc(x)
    handle, ret = acl.op.create_handle("SoftmaxV2", [desc], [desc], program.attributes(axes=[0]))
    assert ret == 0
    for _ in range(2):
        out = program.buffer(np.zeros_like(x))
        assert acl.op.execute_with_handle(handle, [program.buffer(x)], [out], program.stream) == 0
        np.testing.assert_allclose(program.get(out, x), np.exp(x) / np.exp(x).sum(0), rtol=1e-5)
    assert acl.op.destroy_handle(handle) is None
    assert acl.op.execute_with_handle(handle, [program.buffer(x)], [program.buffer(x)], program.stream) == 100000
    assert "was destroyed" in acl.get_recent_err_msg()


def test_tensors_are_cast(program: Program) -> None:
    acl, x = program.acl, floats(3, 3) * 10
    half = np.empty((3, 3), np.float16)
    out = program.buffer(half)
    assert acl.op.cast(program.desc(x), program.buffer(x), program.desc(half), out, 0, program.stream) == 0
    np.testing.assert_array_equal(program.get(out, half), x.astype(np.float16))
    handle, ret = acl.op.create_handle_for_cast(program.desc(x), program.desc(x.astype(np.int32)), 0)
    assert ret == 0
    out = program.buffer(np.zeros((3, 3), np.int32))
    assert acl.op.execute_with_handle(handle, [program.buffer(x)], [out], program.stream) == 0
    np.testing.assert_array_equal(program.get(out, np.zeros((3, 3), np.int32)), np.trunc(x))


def test_shapes_are_inferred_also_from_values(program: Program) -> None:
    acl, x, sizes = program.acl, floats(2, 3), np.array([2, 3], np.int32)
    out = acl.create_tensor_desc(0, [-1, -1], 2)
    assert acl.op.infer_shape("Tile", [program.desc(x), program.desc(sizes)], [program.buffer(x), program.buffer(sizes)], 1, [out], 0) == 0
    assert [acl.get_tensor_desc_dim_v2(out, axis)[0] for axis in range(2)] == [4, 9]
    assert acl.op.infer_shape("Nothing", [], [], 0, [], 0) == 100024
    assert acl.op.update_params("Relu", [program.desc(x)], [program.desc(x)], 0) == 0
    unknown = acl.create_tensor_desc(0, [-1, 3], 2)
    assert acl.op.update_params("Relu", [unknown], [unknown], 0) == 100000
    assert "sizes that are known" in acl.get_recent_err_msg()
    handle, ret = acl.op.create_handle("Relu", [unknown], [unknown], 0)
    assert ret == 0
    assert acl.op.execute_with_handle(handle, [program.buffer(x)], [program.buffer(x)], program.stream) == 100000


def test_shapes_that_a_run_tells_go_to_the_descriptions(program: Program) -> None:
    acl, x = program.acl, np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    out, desc = program.buffer(np.zeros((6, 2), np.int64)), acl.create_tensor_desc(9, [-1, 2], 2)
    assert acl.op.execute_v2("Where", [program.desc(x)], [program.buffer(x)], [desc], [out], 0, program.stream) == 0
    found = program.get(out, np.zeros((3, 2), np.int64))
    np.testing.assert_array_equal(found, np.argwhere(x))
    assert acl.get_tensor_desc_dim_v2(desc, 0) == (3, 0)


def test_calls_are_written_as_lists_for_atc(program: Program, tmp_path: Path) -> None:
    acl, x = program.acl, floats(2, 3)
    assert acl.op.start_dump_args(1, str(tmp_path / "calls")) == 0
    program.run("Muls", [x], x, program.attributes(value=2.0))
    assert acl.op.stop_dump_args(1) == 0
    assert acl.op.stop_dump_args(1) == 100000
    (file,) = (tmp_path / "calls").iterdir()
    (entry,) = json.loads(file.read_text())
    tensor = {"format": "ND", "shape": [2, 3], "type": "float"}
    assert entry == {
        "op": "Muls",
        "input_desc": [tensor],
        "output_desc": [tensor],
        "attr": [{"name": "value", "type": "float", "value": 2.0}],
    }


def test_the_number_of_kept_operators_is_bounded(program: Program) -> None:
    assert program.acl.op.set_max_op_queue_num(0) == 148048
    assert program.acl.op.set_max_op_queue_num(1) == 0
    for rows in (1, 2, 1):
        x = floats(rows, 2)
        np.testing.assert_array_equal(program.run("Neg", [x], x), -x)


@pytest.mark.parametrize(
    ("a", "c"), [("float16", "float16"), ("float16", "float32"), ("int8", "int32"), ("int8", "float32"), ("float32", "float32")]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_matrices_are_multiplied(program: Program, a: str, c: str, transposed: bool) -> None:
    acl, random = program.acl, np.random.default_rng(7)
    m, n, k, gap = 5, 7, 3, 2
    left, right, start = (random.integers(-9, 9, shape) for shape in ((m, k), (k, n), (m, n)))
    stored = np.full((m, k + gap), 99, a)
    stored[:, :k] = left
    b = right.T if transposed else right
    sizes, result = (np.ascontiguousarray(b).astype(a), start.astype(c)), program.put(start.astype(c))
    alpha, beta = program.put(np.array(2, c)), program.put(np.array(3, c))
    ret = acl.blas.gemm_ex(
        0, int(transposed), 0, m, n, k, alpha, program.put(stored), k + gap, DATA_TYPES[a], program.put(sizes[0]), -1, DATA_TYPES[a],
        beta, result, n, DATA_TYPES[c], 0, program.stream,
    )  # fmt: skip
    assert ret == 0, acl.get_recent_err_msg()
    found = program.get(acl.create_data_buffer(result, sizes[1].nbytes), sizes[1])
    np.testing.assert_array_equal(found, (2 * left @ right + 3 * start).astype(c))


def test_a_matrix_is_multiplied_by_a_vector(program: Program) -> None:
    acl, a, x, y = program.acl, floats(4, 3), floats(4), floats(3)
    result, one, two = program.put(y), program.put(np.array(1, "f4")), program.put(np.array(2, "f4"))
    arguments = (1, 4, 3, one, program.put(a), 3, 0, program.put(x))
    assert acl.blas.gemv_ex(*arguments, 2, 0, two, result, 1, 0, 0, program.stream) == 100000
    assert "incx is 2; accepted: -1, 1" in acl.get_recent_err_msg()
    assert acl.blas.gemv_ex(*arguments, 1, 0, two, result, 1, 0, 0, program.stream) == 0
    np.testing.assert_allclose(program.get(acl.create_data_buffer(result, 12), y), a.T @ x + 2 * y, rtol=1e-5)


def test_products_have_handles(program: Program) -> None:
    acl = program.acl
    handle, ret = acl.blas.create_handle_for_hgemm(0, 0, 0, 2, 3, 4, 0)
    assert ret == 0
    a, b, c = (floats(*shape).astype(np.float16) for shape in ((2, 4), (4, 3), (2, 3)))
    one = np.ones(1, np.float16)
    out = program.buffer(c)
    assert acl.op.execute_with_handle(handle, [program.buffer(each) for each in (a, b, c, one, one)], [out], program.stream) == 0
    np.testing.assert_allclose(program.get(out, c), (a.astype("f4") @ b.astype("f4") + c), rtol=1e-2, atol=2e-3)
    assert acl.blas.create_handle_for_gemm_ex(0, 0, 2, 2, 3, 4, 1, 1, 1, 0) == (0, 100000)
    assert "transC is 2; accepted: 0 (not transposed)" in acl.get_recent_err_msg()
    assert acl.blas.create_handle_for_gemv_ex(0, 2, 3, 3, 3, 3, 0) == (0, 100000)


def nz(matrix: np.ndarray) -> np.ndarray:
    """[columns / n, rows / 16, 16, n], filled up with zeros."""
    wide = 32 if matrix.dtype == np.int8 else 16
    rows, columns = matrix.shape
    padded = np.pad(matrix, ((0, -rows % 16), (0, -columns % wide)))
    return np.ascontiguousarray(padded.reshape(padded.shape[0] // 16, 16, -1, wide).transpose(2, 0, 1, 3))


@pytest.mark.parametrize(("a", "c"), [("float16", "float32"), ("int8", "int32"), ("float32", "float32")])
@pytest.mark.parametrize("forms", [(2, 0), (1, 2), (2, 2)])
def test_matrices_may_lie_in_blocks_as_the_chip_has_them(program: Program, a: str, c: str, forms: tuple[int, int]) -> None:
    acl, random, (m, n, k) = program.acl, np.random.default_rng(7), (5, 37, 19)
    left, right, start = (random.integers(-9, 9, shape) for shape in ((m, k), (k, n), (m, n)))
    lying = [
        nz(x.astype(a)) if form == 2 else np.ascontiguousarray(x.T if form else x).astype(a)
        for x, form in zip((left, right), forms, strict=True)
    ]
    one, result = program.put(np.array(1, c)), program.put(start.astype(c))
    places = [program.put(each) for each in lying]
    arguments = (*forms, 0, m, n, k, one, places[0], -1, DATA_TYPES[a], places[1], -1, DATA_TYPES[a], one, result, -1, DATA_TYPES[c], 0)
    assert acl.blas.gemm_ex(*arguments, program.stream) == 0, acl.get_recent_err_msg()
    expected = (left @ right + start).astype(c)
    np.testing.assert_array_equal(program.get(acl.create_data_buffer(result, expected.nbytes), expected), expected)
    handle, ret = acl.blas.create_handle_for_gemm_ex(*forms, 0, m, n, k, DATA_TYPES[a], DATA_TYPES[a], DATA_TYPES[c], 0)
    assert ret == 0, acl.get_recent_err_msg()
    operands, out = (*lying, start.astype(c), np.ones(1, c), np.ones(1, c)), program.buffer(expected)
    assert acl.op.execute_with_handle(handle, [program.buffer(each) for each in operands], [out], program.stream) == 0
    np.testing.assert_array_equal(program.get(out, expected), expected)
    if forms[0] == 2:
        assert acl.blas.gemm_ex(*arguments[:8], k, *arguments[9:], program.stream) == 100000
        assert f"lda is {k}; accepted: -1" in acl.get_recent_err_msg()


@pytest.mark.parametrize(
    ("dims", "old", "new", "expected"),
    [
        ([2, 3, 4, 5], 0, 1, [2, 4, 5, 3]), ([2, 3, 4, 5], 16, 0, [5, 4, 2, 3]), ([2, 33, 4, 5], 0, 3, [2, 3, 4, 5, 16]),
        ([2, 4, 5, 3], 1, 3, [2, 1, 4, 5, 16]), ([20, 33, 4, 5], 0, 4, [60, 2, 16, 16]), ([7, 17, 33], 2, 29, [7, 3, 2, 16, 16]),
        ([1, 2], 2, 2, [1, 2]),
    ],
)  # fmt: skip
def test_a_description_in_another_format(program: Program, dims: list[int], old: int, new: int, expected: list[int]) -> None:
    acl = program.acl
    made, ret = acl.trans_tensor_desc_format(acl.create_tensor_desc(1, dims, old), new)
    assert ret == 0, acl.get_recent_err_msg()
    assert [acl.get_tensor_desc_dim_v2(made, n) for n in range(acl.get_tensor_desc_num_dims(made))] == [(d, 0) for d in expected]
    assert (acl.get_tensor_desc_format(made), acl.get_tensor_desc_type(made)) == (new, 1)
    assert acl.trans_tensor_desc_format(acl.create_tensor_desc(1, [3], 2), 3) == (0, 145020)


@pytest.mark.parametrize(("kind", "dtype"), [("hgem", "float16"), ("s8gem", "int8")])
def test_products_of_one_data_type_have_functions(program: Program, kind: str, dtype: str) -> None:
    acl, random, out = program.acl, np.random.default_rng(8), "int32" if dtype == "int8" else dtype
    a, b, start = (random.integers(-4, 4, shape) for shape in ((4, 3), (3, 5), (4, 5)))
    one, two, left, right = (program.put(x) for x in (np.ones(1, out), np.full(1, 2, out), a.astype(dtype), b.astype(dtype)))
    result = program.put(start.astype(out))
    ret = getattr(acl.blas, kind + "m")(0, 0, 0, 4, 5, 3, one, left, -1, right, -1, two, result, -1, 0, program.stream)
    assert ret == 0, acl.get_recent_err_msg()
    found = program.get(acl.create_data_buffer(result, start.astype(out).nbytes), start.astype(out))
    np.testing.assert_array_equal(found, a @ b + 2 * start)
    x, y = program.put(b[:, 0].astype(dtype)), program.put(start[:, 0].astype(out))
    assert getattr(acl.blas, kind + "v")(0, 4, 3, one, left, -1, x, 1, two, y, 1, 0, program.stream) == 0
    found = program.get(acl.create_data_buffer(y, start[:, 0].astype(out).nbytes), start[:, 0].astype(out))
    np.testing.assert_array_equal(found, a @ b[:, 0] + 2 * start[:, 0])
    assert getattr(acl.blas, f"create_handle_for_{kind}m")(0, 0, 0, 4, 5, 3, 0)[1] == 0
    assert getattr(acl.blas, f"create_handle_for_{kind}v")(0, 4, 3, 0)[1] == 0


def test_axes_and_sizes_are_read_from_the_data_buffers(program: Program) -> None:
    x = floats(2, 3, 4)
    for axis in (0, 2):
        found = program.run("ArgMaxV2", [x, np.array([axis], np.int32)], np.zeros(np.delete(x.shape, axis), np.int32))
        np.testing.assert_array_equal(found, x.argmax(axis))
    np.testing.assert_array_equal(program.run("Transpose", [x, np.array([2, 0, 1])], np.zeros((4, 2, 3), "f4")), x.transpose(2, 0, 1))
    found = program.run("Permute", [x], np.zeros((3, 2, 4), "f4"), program.attributes(order=[1, 0, 2]))
    np.testing.assert_array_equal(found, x.transpose(1, 0, 2))


def test_a_constant_is_copied_and_needs_no_data_buffer(program: Program, tmp_path: Path) -> None:
    operands = (OperandSpec("float16", (10,)), OperandSpec("int32", (1,), constant=(0,)))
    spec = OperatorSpec("ArgMaxV2", operands, (OperandSpec("int32", (1,)),))
    write_offline_model(str(tmp_path / "argmax.om"), compile_operator(spec))
    acl, x = program.acl, floats(10).astype(np.float16)
    assert acl.op.set_model_dir(str(tmp_path)) == 0
    place, axis = np.zeros(1, np.int32), acl.create_tensor_desc(3, [1], 2)
    memory = np.zeros(1, np.int32)
    assert acl.set_tensor_const(axis, memory.ctypes.data, 4) == 0
    memory[0] = 77  # the memory is the program's again
    assert acl.util.ptr_to_bytes(acl.get_tensor_desc_address(axis), 4) == bytes(4)
    out, inputs = program.buffer(place), [program.buffer(x), acl.create_data_buffer(0, 0)]
    ret = acl.op.execute_v2("ArgMaxV2", [program.desc(x), axis], inputs, [program.desc(place)], [out], acl.op.create_attr(), program.stream)
    assert ret == 0, acl.get_recent_err_msg()
    assert program.get(out, place) == x.argmax()
    assert acl.set_tensor_const(axis, 64, 4) == 100000
