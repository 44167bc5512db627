"""`atc --insert_op_conf` against AIPP's formulas in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
import onnx_ir as ir
import pytest

from anycann.frontends.aipp.configuration import read_aipp
from anycann.frontends.aipp.graph import insert_aipp
from anycann.model_programs import ModelPrograms, SessionOptions
from anycann.om.plan import TensorSpec
from anycann.session import InferenceSession
from tests.tools.conftest import Invoke

ROWS = ((298, 0, 409), (298, -100, -208), (298, 516, 0))
RGB_OF_YUV = " ".join(f"matrix_r{r}c{c}: {factor}" for r, row in enumerate(ROWS) for c, factor in enumerate(row))


def model_file(folder: Path, shape: list[int | str], dtype: int = TensorProto.FLOAT) -> Path:
    """y = x, as a model of its own."""
    value = [helper.make_tensor_value_info(name, dtype, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"], name="same")], "g", value[:1], value[1:])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def convert(invoke: Invoke, folder: Path, model: Path, block: str, *words: str) -> tuple[int, str]:
    (folder / "aipp.cfg").write_text(f"aipp_op {{ {block} }}")
    result = invoke(
        "atc", f"--model={model}", "--framework=5", f"--output={folder / 'm'}", f"--insert_op_conf={folder / 'aipp.cfg'}", *words
    )
    return result.exit_code, result.output


def run(folder: Path, picture: np.ndarray) -> np.ndarray:
    session = InferenceSession(folder / "m.om")
    assert [(arg.type, list(arg.shape)) for arg in session.get_inputs()] == [("tensor(uint8)", list(picture.shape))]
    (result,) = session.run(None, {"x": picture})
    return np.asarray(result)


def random_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, shape, np.uint8)


def yuv_to_rgb(picture: np.ndarray, rows: int, swap: bool = False) -> np.ndarray:
    """The formula of the documentation, pixel by pixel: (M * (in - bias)) >> 8."""
    matrix = np.array(ROWS)
    result = np.zeros((picture.shape[0], 3, rows, picture.shape[2]), np.float32)
    for n, h, w in np.ndindex(picture.shape[0], rows, picture.shape[2]):
        pair = picture[n, rows + h // 2, w // 2 * 2 : w // 2 * 2 + 2].astype(int)
        colour = np.array([int(picture[n, h, w]), *(pair[::-1] if swap else pair)]) - [16, 128, 128]
        result[n, :, h, w] = np.clip((matrix @ colour) >> 8, 0, 255)
    return result


@pytest.mark.parametrize("swap", [False, True])
def test_nv12_becomes_normalised_rgb(invoke: Invoke, tmp_path: Path, swap: bool) -> None:
    block = f"aipp_mode: static input_format: YUV420SP_U8 csc_switch: true rbuv_swap_switch: {str(swap).lower()} {RGB_OF_YUV}"
    block += " mean_chn_0: 104 mean_chn_1: 117 mean_chn_2: 123 var_reci_chn_0: 0.5 var_reci_chn_2: 0.0078125"
    code, output = convert(invoke, tmp_path, model_file(tmp_path, [2, 3, 8, 10]), block)
    assert code == 0, output
    picture = random_bytes(2, 12, 10)
    wanted = (yuv_to_rgb(picture, 8, swap) - np.array([104, 117, 123]).reshape(3, 1, 1)) * np.array([0.5, 1, 0.0078125]).reshape(3, 1, 1)
    np.testing.assert_allclose(run(tmp_path, picture), wanted, rtol=1e-6)


def test_crop_swap_and_padding_of_rgb(invoke: Invoke, tmp_path: Path) -> None:
    block = """aipp_mode: static input_format: RGB888_U8 src_image_size_h: 9 src_image_size_w: 11 rbuv_swap_switch: true
        crop: true load_start_pos_h: 1 load_start_pos_w: 3 crop_size_h: 5 crop_size_w: 6 min_chn_1: 2.5
        padding: true left_padding_size: 1 bottom_padding_size: 2 padding_value: 7"""
    code, output = convert(invoke, tmp_path, model_file(tmp_path, [1, 3, 7, 7]), block)
    assert code == 0, output
    picture = random_bytes(1, 9, 11, 3)
    cut = picture[:, 1:6, 3:9, ::-1].transpose(0, 3, 1, 2).astype(np.float32) - np.array([0, 2.5, 0]).reshape(3, 1, 1)
    wanted = np.pad(cut, ((0, 0), (0, 0), (0, 2), (1, 0)), constant_values=7)
    np.testing.assert_array_equal(run(tmp_path, picture), wanted)


def test_xrgb_to_nhwc_fp16_and_rgb_to_grey(invoke: Invoke, tmp_path: Path) -> None:
    block = "aipp_mode: static input_format: XRGB8888_U8 ax_swap_switch: true"
    code, output = convert(invoke, tmp_path, model_file(tmp_path, [1, 4, 5, 3], TensorProto.FLOAT16), block, "--input_format=NHWC")
    assert code == 0, output
    picture = random_bytes(1, 4, 5, 4)
    result = run(tmp_path, picture)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, picture[..., 1:])
    grey = """aipp_mode: static input_format: RGB888_U8 csc_switch: true matrix_r0c0: 76 matrix_r0c1: 150 matrix_r0c2: 30
        matrix_r1c0: 0 matrix_r1c1: 0 matrix_r1c2: 0 matrix_r2c0: 0 matrix_r2c1: 0 matrix_r2c2: 0 output_bias_0: 0"""
    assert convert(invoke, tmp_path, model_file(tmp_path, [1, 1, 4, 6]), grey)[0] == 0
    picture = random_bytes(1, 4, 6, 3)
    wanted = (picture.astype(int) @ np.array([76, 150, 30])) >> 8
    np.testing.assert_array_equal(run(tmp_path, picture)[0, 0], wanted[0])


def test_gears_count_pixels_of_the_picture(invoke: Invoke, tmp_path: Path) -> None:
    block = f"aipp_mode: static input_format: YUV420SP_U8 csc_switch: true {RGB_OF_YUV}"
    model = model_file(tmp_path, [1, 3, "h", "w"])
    code, output = convert(invoke, tmp_path, model, block, "--input_shape=x:1,3,-1,-1", "--dynamic_image_size=4,6;8,10")
    assert code == 0, output
    session = InferenceSession(tmp_path / "m.om")
    for rows, columns in ((4, 6), (8, 10)):
        picture = random_bytes(1, rows * 3 // 2, columns)
        np.testing.assert_array_equal(session.run(None, {"x": picture})[0], yuv_to_rgb(picture, rows))
    assert all(report.engine == "AiCore" for report in session.engines())


def test_aipp_joins_the_kernel_of_what_reads_it(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, kind, [1, 3, 8, 10]) for name, kind in (("x", TensorProto.FLOAT), ("y", TensorProto.UINT8)))
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("QuantizeLinear", ["a", "scale"], ["y"])]
    scale = onnx.numpy_helper.from_array(np.float32(2), "scale")
    model = ir.from_proto(helper.make_model(helper.make_graph(nodes, "g", [x], [y], [scale]), opset_imports=[helper.make_opsetid("", 20)]))
    (block,) = read_aipp(f"aipp_op {{ aipp_mode: static input_format: YUV420SP_U8 csc_switch: true {RGB_OF_YUV} }}", "here")
    insert_aipp(model.graph, [block], "NCHW")
    program = ModelPrograms(model, SessionOptions(), 1).find([TensorSpec("x", "uint8", (1, 12, 10))]).executable
    picture, kernels = random_bytes(1, 12, 10), []
    with program.observe(lambda event: kernels.append(event.op_types)):
        (result,) = program.run([picture])
    np.testing.assert_array_equal(result, np.rint(yuv_to_rgb(picture, 8) / 2))
    assert kernels == [("Aipp", "Relu", "QuantizeLinear")]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("input_format: RGB888_U8", "aipp_mode is missing; accepted: static, dynamic"),
        ("aipp_mode: static", "input_format is missing"),
        ("aipp_mode: static input_format: RGB888_U8 mean_chn_0: 300", "mean_chn_0 is 300; accepted: 0 to 255"),
        ("aipp_mode: static input_format: RGB888_U8 crop_sise_w: 3", "crop_sise_w"),
        ("aipp_mode: static input_format: RGB888_U8 related_input_rank: 3", "the model has inputs 0 to 0"),
        ("aipp_mode: static input_format: RGB888_U8 src_image_size_h: 20 src_image_size_w: 20", "comes to 20 x 20 by crop and padding"),
        ("aipp_mode: static input_format: YUV400_U8", "YUV400_U8 gives 1 channels; the model takes 3"),
        ("aipp_mode: static input_format: YUV420SP_U8 load_start_pos_w: 3", "even numbers only"),
        ("aipp_mode: static input_format: RGB888_U8 resize: true", "resize is reserved"),
        ("aipp_mode: dynamic related_input_rank: 0", "max_src_image_size is 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(invoke: Invoke, tmp_path: Path, block: str, words: str) -> None:
    code, output = convert(invoke, tmp_path, model_file(tmp_path, [1, 3, 8, 8]), block)
    assert code != 0
    assert words in output
