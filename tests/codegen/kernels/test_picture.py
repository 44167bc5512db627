"""Dynamic AIPP: the kernel against the operator's meaning in numpy, alone and through a window, on each kind of processor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper
import pytest

from anycann.graph.registry import Sample, library
from anycann.picture_input import Aipp, picture_table
from anycann.target.target import Target, by_name, host
from anycann.te.picture_table import WORDS, Format, Word
from tests.passes.graphs import compile_graph, run, tasks

OPERATOR = library().find("anycann", "DynamicAipp")
TARGETS = [by_name("sse"), by_name("avx2"), host()]


def samples() -> list[Sample]:
    return list(OPERATOR.samples(np.random.default_rng()))  # type: ignore[misc]


def model(sample: Sample, *nodes: onnx.NodeProto, **weights: np.ndarray) -> onnx.ModelProto:
    """The operator, and what follows it from "p" to "y"."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(operand.dtype), operand.shape)
        for name, operand in feeds(sample).items()
    ]
    first = helper.make_node("DynamicAipp", ["x", "t", "s"], ["p" if nodes else "y"], domain="anycann", name="aipp", **sample.attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    size = sample.operands[2]
    assert size is not None
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in {"s": size, **weights}.items()]
    graph = helper.make_graph([first, *nodes], "g", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("anycann", 1)], ir_version=10)


def feeds(sample: Sample) -> dict[str, np.ndarray]:
    return {name: operand for name, operand in zip(("x", "t"), sample.operands, strict=False) if operand is not None}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_pictures_are_what_the_table_says(target: Target) -> None:
    for sample in samples():
        (made,) = run(model(sample), feeds(sample), target=target)
        np.testing.assert_array_equal(made, OPERATOR.reference(*sample.operands, **sample.attributes))  # type: ignore[misc]


def test_pictures_go_through_a_window_into_a_convolution() -> None:
    weights = np.random.default_rng(0).standard_normal((20, 3, 3, 3)).astype(np.float32)
    for sample in samples()[:3]:
        node = helper.make_node("Conv", ["p", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2], name="conv")
        made = model(sample, node, w=weights)
        assert tasks(compile_graph(made).program)[0].op_types == ("DynamicAipp", "Conv")
        apart = run(made, feeds(sample), switched_off=frozenset(["bands"]), num_threads=1)
        for target, threads in ((host(), 1), (replace(host(), l2_bytes=1 << 12), 3), (by_name("sse"), 2)):
            got = run(made, feeds(sample), target=target, num_threads=threads)
            np.testing.assert_allclose(got[0], apart[0], rtol=1e-5, atol=1e-2)
        rounded = run(made, feeds(sample), precision_mode="mixed_bfloat16")
        assert np.abs(rounded[0] - apart[0]).max() < 0.02 * np.abs(apart[0]).max()


def test_elementwise_nodes_join_the_kernel() -> None:
    sample = samples()[1]
    nodes = [helper.make_node("Relu", ["p"], ["r"], name="relu"), helper.make_node("QuantizeLinear", ["r", "scale"], ["y"], name="q")]
    made = model(sample, *nodes, scale=np.float32(2))
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    assert ["+".join(task.op_types) for task in tasks(compile_graph(made).program)] == ["DynamicAipp+Relu+QuantizeLinear"]
    wanted = OPERATOR.reference(*sample.operands, **sample.attributes)  # type: ignore[misc]
    np.testing.assert_array_equal(run(made, feeds(sample))[0], np.rint(np.maximum(wanted, 0) / 2).clip(0, 255))


def test_whatever_the_table_says_only_the_pictures_are_read() -> None:
    """Rows beyond the memory of the pictures are padding; so are all where the format is unknown."""
    sample = Sample((np.full(5 * 20 * 3, 9, np.uint8), np.zeros((1, WORDS), np.int32), np.array([6, 20])), {"channels": 3})
    table = sample.operands[1]
    assert table is not None
    table.view(np.float32)[0, Word.FACTORS : Word.PADDING + 1] = [1, 1, 1, 1, -1]
    made = model(sample)
    assert (run(made, feeds(sample))[0] == -1).all()
    table[0, : Word.ORDER] = [Format.RGB888_U8, 60, 0, 0, 0, 0, 0, 6, 20, 0, 0]
    table[0, Word.ORDER : Word.ORDER + 4] = [0, 1, 2, 3]
    assert [row.tolist() for row in np.unique(run(made, feeds(sample))[0], axis=3)[0, 0]] == [[9]] * 5 + [[-1]]
    greatest = 2**31 - 1
    for wrong in (
        [77, 60, 0, 0, 0, 0, 0, 6, 20, 0, 0],  # no format
        [Format.XRGB8888_U8, greatest, -1, greatest, 0, *[greatest] * 3, 20, 1 - greatest, 0],  # beyond 64 bits
    ):
        table[0, : Word.ORDER] = wrong
        assert (run(made, feeds(sample))[0] == -1).all()
    extremes = np.array([-(2**31), 2**31 - 1, -1, 0, 1, 2, 3, 4, 60, 300], np.int32)
    for _ in range(50):
        table[0, : Word.MATRIX] = np.random.default_rng().choice(extremes, Word.MATRIX)
        run(made, feeds(sample))


def test_pictures_may_lie_beyond_two_gigabytes() -> None:
    crop = {"crop": True, "load_start_pos_h": 4093, "load_start_pos_w": 4089, "crop_size_h": 3, "crop_size_w": 7}
    block = Aipp(aipp_mode="static", input_format="XRGB8888_U8", src_image_size_h=4096, src_image_size_w=4096, **crop)  # type: ignore[arg-type]
    table, nbytes = picture_table([block] * 33, (4, 3, 7))
    pictures = np.zeros(nbytes, np.uint8)  # pages that nobody writes take no memory
    pixels = np.random.default_rng().integers(0, 256, (3, 7, 4), np.uint8)
    pictures.reshape(33, 4096, 4096, 4)[-1, 4093:, 4089:] = pixels
    sample = Sample((pictures, table, np.array([3, 7])), {"channels": 4})
    (made,) = run(model(sample), feeds(sample))
    assert np.array_equal(made[-1], pixels.transpose(2, 0, 1))
    assert not made[:-1].any()
