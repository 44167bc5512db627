"""The compacted message: what protobuf reads from it is the model, but for big weights, which it says where to find."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_models import delimited, make_model
import pytest

from anycann.frontends.onnx.wire import BIG_BYTES, SELF, compact
from anycann.support.errors import ModelError


def model_with(*sizes: int) -> onnx.ModelProto:
    """A model with a weight of each size in bytes, as an initialiser, in a Constant, and in a branch."""
    weights = {f"w{size}": np.arange(size, dtype=np.uint8) for size in sizes}
    constants = [
        helper.make_node("Constant", [], [f"c{size}"], value=numpy_helper.from_array(array))
        for size, array in zip(sizes, weights.values(), strict=True)
    ]
    branch = helper.make_graph([helper.make_node("Identity", ["v"], ["z"])], "b", [], [helper.make_tensor_value_info("z", 2, None)])
    branch.initializer.extend(numpy_helper.from_array(np.arange(size, dtype=np.uint8), "v") for size in sizes[:1])
    nodes = [*constants, helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)]
    return make_model(nodes, {"x": np.array(True)}, ["y"], constants=weights)


def restored(content: bytes) -> onnx.ModelProto:
    """The model of `content`, compacted, with its weights put back from where it points."""
    model = onnx.ModelProto.FromString(compact(memoryview(content)))

    def restore(graph: onnx.GraphProto) -> None:
        tensors = list(graph.initializer)
        for node in graph.node:
            tensors += [attribute.t for attribute in node.attribute if attribute.HasField("t")]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    restore(attribute.g)
        for tensor in tensors:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if entries:
                assert entries["location"] == SELF
                begin, size = int(entries["offset"]), int(entries["length"])
                tensor.raw_data = content[begin : begin + size]
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")

    restore(model.graph)
    return model


@pytest.mark.parametrize("sizes", [(0, 1), (BIG_BYTES - 1, BIG_BYTES), (BIG_BYTES + 1, 300_000), (70_000, 5)])
def test_a_compacted_model_with_its_weights_put_back_is_the_model(sizes: tuple[int, ...]) -> None:
    model = model_with(*sizes)
    assert restored(model.SerializeToString()) == model


def test_a_compacted_model_is_small() -> None:
    assert len(compact(memoryview(model_with(1_000_000).SerializeToString()))) < 4000


def test_the_last_of_two_raw_datas_counts_as_in_protobuf() -> None:
    first, last = (onnx.TensorProto(raw_data=bytes([value]) * BIG_BYTES).SerializeToString() for value in (1, 2))
    tensor = onnx.TensorProto(name="w", data_type=2, dims=[BIG_BYTES]).SerializeToString() + first + last
    content = delimited(7, delimited(5, tensor))
    assert restored(content) == onnx.ModelProto.FromString(content)


@pytest.mark.parametrize("cut", [1, 2, 5, 50, 4000])
def test_a_message_that_ends_early_is_told_by_byte(cut: int) -> None:
    content = model_with(100_000).SerializeToString()
    with pytest.raises(ModelError, match=r"truncated.*byte"):
        compact(memoryview(content[:-cut]))
