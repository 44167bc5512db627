"""Weights that wait in the third-level cache for the next run of a network: those of a small one."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
import pytest

from anycann.assembly.kernels import Planned
from anycann.compiler import CompileOptions, compile_model


@pytest.mark.parametrize(("rows", "held"), [(8, True), (1200, False)])
def test_generators_are_told(rows: int, held: bool) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Flatten", ["c"], ["f"])]
    nodes.append(helper.make_node("MatMul", ["f", "v"], ["y"]))
    constants = {"w": np.zeros((16, 16, 3, 3), np.float32), "v": np.zeros((16 * 64, rows), np.float32)}
    known = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    x, y = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 8, 8)), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "two", [x], [y], known), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    seen = list[Planned]()
    compile_model(model, CompileOptions(watch=seen.append))
    assert {planned.choices.held for planned in seen} == {held}
