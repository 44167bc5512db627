"""Pictures whose settings a program gives while it runs: batch by batch, gear by gear, and what is said to settings that do not fit."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from click.testing import CliRunner
import numpy as np
import onnx
import pytest

from anycann.om.plan import NativeStep
from anycann.om.reader import read_offline_model
from anycann.tools.cli import main
from tests.acl.test_models import dataset, put

RGB, YUV = 3, 1
INVALID = 100000


def convert(folder: Path, text: str, block: str, *words: str, **weights: np.ndarray) -> Path:
    """The offline model of a graph in ONNX text whose first input has AIPP."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(model, folder / "m.onnx")
    (folder / "aipp.cfg").write_text(f"aipp_op {{ {block} }}")
    given = [f"--model={folder / 'm.onnx'}", "--framework=5", f"--output={folder / 'm'}", f"--insert_op_conf={folder / 'aipp.cfg'}"]
    result = CliRunner().invoke(main, ["atc", *given, *words])
    assert result.exit_code == 0, result.output
    return folder / "m.om"


def load(acl: ModuleType, path: Path) -> int:
    model, ret = acl.mdl.load_from_file(str(path))
    assert ret == 0, acl.get_recent_err_msg()
    return int(model)


def settings(acl: ModuleType, batch: int, form: int, width: int, height: int) -> int:
    aipp = int(acl.mdl.create_aipp(batch))
    assert acl.mdl.set_aipp_input_format(aipp, form) == 0
    assert acl.mdl.set_aipp_src_image_size(aipp, width, height) == 0
    return aipp


def buffers(acl: ModuleType, model: int) -> tuple[int, int, list[int], list[int]]:
    """Datasets of inputs and outputs, and their addresses."""
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model)
    sizes = [acl.mdl.get_input_size_by_index(desc, n) for n in range(acl.mdl.get_num_inputs(desc))]
    inputs, taken = dataset(acl, sizes)
    outputs, given = dataset(acl, [acl.mdl.get_output_size_by_index(desc, n) for n in range(acl.mdl.get_num_outputs(desc))])
    return inputs, outputs, taken, given


def random_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, shape, np.uint8)


@pytest.fixture
def two(acl: ModuleType, tmp_path: Path) -> int:
    """Two pictures of 4 x 6 with settings that a program gives."""
    text = "g (float[2, 3, 4, 6] x) => (float[2, 3, 4, 6] y) { y = Identity(x) }"
    return load(acl, convert(tmp_path, text, "aipp_mode: dynamic max_src_image_size: 400"))


def test_settings_of_each_picture_are_given_while_running(acl: ModuleType, two: int) -> None:
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, two)
    index, ret = acl.mdl.get_input_index_by_name(desc, "ascend_dynamic_aipp_data")
    assert (index, ret, acl.mdl.get_num_inputs(desc)) == (1, 0, 2)
    assert acl.mdl.get_input_size_by_index(desc, 0) == 400
    assert acl.mdl.get_input_size_by_index(desc, 1) == acl.mdl.get_aipp_data_size(2)[0]
    assert [acl.mdl.get_aipp_type(two, n)[0] for n in range(2)] == [2, 3]
    inputs, outputs, (at_x, at_settings), (at_y,) = buffers(acl, two)
    assert acl.mdl.execute(two, inputs, outputs) == 145016
    for seed in (1, 2):  # other settings, another source size
        picture = random_bytes(2, 4 + seed, 6 + seed, 3)
        put(acl, at_x, picture)
        aipp = settings(acl, 2, RGB, 6 + seed, 4 + seed)
        assert acl.mdl.set_aipp_rbuv_swap_switch(aipp, 1) == 0
        for number in range(2):
            assert acl.mdl.set_aipp_crop_params(aipp, 1, number, 0, 6, 4, number) == 0
            assert acl.mdl.set_aipp_dtc_pixel_mean(aipp, 10 * number, 0, 5, 0, number) == 0
            assert acl.mdl.set_aipp_pixel_var_reci(aipp, 1.0, 0.5, 1.0, 1.0, number) == 0
        assert acl.mdl.set_input_aipp(two, inputs, index, aipp) == 0
        head = acl.util.ptr_to_numpy(at_settings, (256,), 2)
        assert (head[0], head[2], head[4], head[8:16].view(np.int32).tolist()) == (RGB, 1, 2, [6 + seed, 4 + seed])
        assert acl.mdl.destroy_aipp(aipp) == 0
        for again in range(2):  # the same settings, another picture
            put(acl, at_x, picture := picture + np.uint8(again))
            assert acl.mdl.execute(two, inputs, outputs) == 0, acl.get_recent_err_msg()
            made = acl.util.ptr_to_numpy(at_y, (2, 3, 4, 6), 11)
            for number in range(2):
                cut = picture[number, :4, number : number + 6, ::-1].transpose(2, 0, 1)
                means, factors = np.array([10 * number, 0, 5]), np.array([1, 0.5, 1])
                assert np.array_equal(made[number], (cut - means.reshape(3, 1, 1)) * factors.reshape(3, 1, 1))


def test_a_batch_may_be_larger_than_the_byte_that_tells_it(acl: ModuleType, tmp_path: Path) -> None:
    text = "g (float[300, 1, 2, 2] x) => (float[300, 1, 2, 2] y) { y = Identity(x) }"
    model = load(acl, convert(tmp_path, text, "aipp_mode: dynamic max_src_image_size: 1200"))
    inputs, outputs, (at_x, at_settings), (at_y,) = buffers(acl, model)
    pictures = random_bytes(300, 2, 2)
    put(acl, at_x, pictures)
    aipp = settings(acl, 300, 4, 2, 2)
    assert acl.mdl.set_aipp_dtc_pixel_mean(aipp, 5, 0, 0, 0, 299) == 0
    assert acl.mdl.set_input_aipp(model, inputs, 1, aipp) == 0, acl.get_recent_err_msg()
    assert acl.util.ptr_to_numpy(at_settings, (64,), 2)[4] == 300 % 256
    assert acl.mdl.execute(model, inputs, outputs) == 0, acl.get_recent_err_msg()
    expected = pictures - np.where(np.arange(300) == 299, np.float32(5), np.float32(0)).reshape(-1, 1, 1)
    assert np.array_equal(acl.util.ptr_to_numpy(at_y, (300, 2, 2), 11), expected)


def test_pictures_are_made_in_the_kernel_of_the_first_convolution(acl: ModuleType, tmp_path: Path) -> None:
    text = "g (float[1, 3, 32, 40] x) => (float[1, 4, 32, 40] y) { c = Conv<pads = [1, 1, 1, 1]>(x, w) y = Relu(c) }"
    weights = np.random.default_rng(0).integers(-2, 3, (4, 3, 3, 3)).astype(np.float32)
    block, exact = "aipp_mode: dynamic max_src_image_size: 2600", ("--precision_mode=must_keep_origin_dtype", "--soc_version=host")
    path = convert(tmp_path, text, block, *exact, w=weights)
    (program,) = read_offline_model(str(path)).programs.values()
    kernels = [task.op_types for step in program.steps if isinstance(step, NativeStep) for task in step.tasks]
    assert kernels[0] == ("DynamicAipp", "Conv", "Relu")
    assert set(kernels[1:]) <= {("TransData",)}  # from blocks of four channels, where vectors have four lanes
    model = load(acl, path)
    inputs, outputs, (at_x, _), (at_y,) = buffers(acl, model)
    picture = random_bytes(32 * 3 // 2 + 6, 44)
    put(acl, at_x, picture)
    aipp = settings(acl, 1, YUV, 44, 36)
    matrix = (256, 0, 359, 256, -88, -183, 256, 454, 0)
    assert acl.mdl.set_aipp_csc_params(aipp, 1, *matrix, 0, 0, 0, 0, 128, 128) == 0
    assert acl.mdl.set_aipp_crop_params(aipp, 1, 4, 2, 38, 30, 0) == 0
    assert acl.mdl.set_aipp_padding_params(aipp, 1, 2, 0, 1, 1, 0) == 0
    assert acl.mdl.set_aipp_by_input_index(model, inputs, 0, aipp) == 0, acl.get_recent_err_msg()
    assert acl.mdl.execute(model, inputs, outputs) == 0, acl.get_recent_err_msg()
    colours = picture[36:].reshape(18, 22, 2).repeat(2, 0).repeat(2, 1)
    pixels = np.concatenate([picture[:36, :, None], colours], -1)[2:32, 4:42].astype(int) - [0, 128, 128]
    rgb = np.clip((pixels @ np.reshape(matrix, (3, 3)).T) >> 8, 0, 255)
    padded = np.pad(rgb, ((3, 1), (2, 2), (0, 0)))  # by AIPP and by the convolution
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))  # [rows, columns, channels, 3, 3]
    expected = np.maximum(np.einsum("yxcij,ocij->oyx", windows, weights), 0)
    assert np.array_equal(acl.util.ptr_to_numpy(at_y, (4, 32, 40), 11), expected)


@pytest.mark.parametrize("ranks", [(0, 1), (1, 0)])
def test_two_inputs_have_settings_of_their_own(acl: ModuleType, tmp_path: Path, ranks: tuple[int, int]) -> None:
    text = (
        """g (float[1, 3, 4, 6] a, float[1, 1, 6, 8] b) => (float[1, 3, 4, 6] x, float[1, 1, 6, 8] y) { x = Identity(a) y = Identity(b) }"""
    )
    block = " } aipp_op { ".join(f"aipp_mode: dynamic max_src_image_size: 100 related_input_rank: {rank}" for rank in ranks)
    model = load(acl, convert(tmp_path, text, block))
    inputs, outputs, taken, given = buffers(acl, model)
    pictures = random_bytes(4, 6, 3), random_bytes(6, 8)
    assert [acl.mdl.get_aipp_type(model, number)[:2] for number in range(2)] == [(2, 2), (2, 3)]
    for number, (picture, form) in enumerate(zip(pictures, (RGB, 4), strict=True)):
        put(acl, taken[number], picture)
        aipp = settings(acl, 1, form, picture.shape[1], picture.shape[0])
        assert acl.mdl.set_aipp_dtc_pixel_mean(aipp, 9 * number, 0, 0, 0, 0) == 0
        assert acl.mdl.set_input_aipp(model, inputs, 2 + number, aipp) == 0, acl.get_recent_err_msg()
    assert acl.mdl.execute(model, inputs, outputs) == 0, acl.get_recent_err_msg()
    assert np.array_equal(acl.util.ptr_to_numpy(given[0], (3, 4, 6), 11), pictures[0].transpose(2, 0, 1))
    assert np.array_equal(acl.util.ptr_to_numpy(given[1], (6, 8), 11), pictures[1] - np.float32(9))


@pytest.mark.parametrize(
    ("shape", "option", "name", "sizes"),
    [
        ("-1,3,4,6", "--dynamic_batch_size=1,2", "set_dynamic_batch_size", [(1,), (2,)]),
        ("2,3,-1,-1", "--dynamic_image_size=4,6;2,8", "set_dynamic_hw_size", [(4, 6), (2, 8)]),
    ],
)
def test_gears_take_pictures(acl: ModuleType, tmp_path: Path, shape: str, option: str, name: str, sizes: list[tuple[int, ...]]) -> None:
    text = "g (float[n, 3, h, w] x) => (float[n, 3, h, w] y) { y = Identity(x) }"
    model = load(acl, convert(tmp_path, text, "aipp_mode: dynamic max_src_image_size: 400", f"--input_shape=x:{shape}", option))
    inputs, outputs, (at_x, *_), (at_y,) = buffers(acl, model)
    for gear in sizes:
        batch, (rows, columns) = (gear[0], (4, 6)) if len(gear) == 1 else (2, gear)
        picture = random_bytes(batch, rows, columns, 3)
        put(acl, at_x, picture)
        aipp = settings(acl, 2, RGB, columns, rows)
        assert acl.mdl.set_aipp_dtc_pixel_mean(aipp, 0, 7, 0, 0, batch - 1) == 0
        assert acl.mdl.set_input_aipp(model, inputs, 1, aipp) == 0, acl.get_recent_err_msg()
        assert getattr(acl.mdl, name)(model, inputs, 2, *gear) == 0
        assert acl.mdl.execute(model, inputs, outputs) == 0, acl.get_recent_err_msg()
        expected = picture.transpose(0, 3, 1, 2).astype(np.float32)
        expected[-1, 1] -= 7
        assert np.array_equal(acl.util.ptr_to_numpy(at_y, expected.shape, 11), expected)


BAD_CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("set_aipp_input_format", (9,)),
    ("set_aipp_src_image_size", (1, 4)),
    ("set_aipp_src_image_size", (4, 4097)),
    ("set_aipp_csc_params", (2, *[0] * 15)),
    ("set_aipp_csc_params", (1, 40000, *[0] * 14)),
    ("set_aipp_csc_params", (1, *[0] * 14, 256)),
    ("set_aipp_rbuv_swap_switch", (2,)),
    ("set_aipp_ax_swap_switch", (-1,)),
    ("set_aipp_crop_params", (1, 4096, 0, 2, 2, 0)),
    ("set_aipp_crop_params", (1, 0, 0, 0, 2, 0)),
    ("set_aipp_crop_params", (1, 0, 0, 2, 2, 2)),
    ("set_aipp_padding_params", (1, 33, 0, 0, 0, 0)),
    ("set_aipp_padding_params", (1, 0, 0, 0, -1, 1)),
    ("set_aipp_scf_params", (1, 10, 20, 20, 20, 0)),
    ("set_aipp_scf_params", (1, 20, 20, 2000, 20, 0)),
    ("set_aipp_dtc_pixel_mean", (0, 0, 256, 0, 0)),
    ("set_aipp_dtc_pixel_min", (0.0, -1.0, 0.0, 0.0, 0)),
    ("set_aipp_pixel_var_reci", (0.0, 0.0, 0.0, 7e4, 0)),
    ("set_aipp_pixel_var_reci", (0.0, 0.0, 0.0, 0.0, 7)),
]


@pytest.mark.parametrize(("name", "arguments"), BAD_CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_setting_out_of_range_is_refused_and_changes_nothing(acl: ModuleType, name: str, arguments: tuple[Any, ...]) -> None:
    aipp = acl.mdl.create_aipp(2)
    assert getattr(acl.mdl, name)(aipp, *arguments) == INVALID
    assert acl.get_recent_err_msg()
    assert getattr(acl.mdl, name)(aipp + 1, *arguments) != 0


def test_what_a_switch_turns_off_is_not_looked_at(acl: ModuleType, two: int) -> None:
    inputs, _, _, _ = buffers(acl, two)
    aipp = settings(acl, 2, RGB, 6, 4)
    assert acl.mdl.set_aipp_crop_params(aipp, 0, -1, -1, 0, 0, 0) == 0
    assert acl.mdl.set_aipp_padding_params(aipp, 0, 99, 99, 99, 99, 0) == 0
    assert acl.mdl.set_aipp_scf_params(aipp, 0, 0, 0, 0, 0, 0) == 0
    assert acl.mdl.set_aipp_csc_params(aipp, 0, *[99999] * 15) == 0
    assert acl.mdl.set_input_aipp(two, inputs, 1, aipp) == 0


def test_settings_that_do_not_fit_the_model_are_refused_when_they_are_set(acl: ModuleType, two: int) -> None:
    inputs, outputs, _, _ = buffers(acl, two)

    def refusal(aipp: int) -> str:
        assert acl.mdl.set_input_aipp(two, inputs, 1, aipp) == INVALID
        return str(acl.get_recent_err_msg())

    assert acl.mdl.create_aipp(0) == 0
    assert acl.mdl.get_aipp_data_size(0) == (0, INVALID)
    assert "is for 1 pictures" in refusal(settings(acl, 1, RGB, 6, 4))
    assert "has no input format" in refusal(acl.mdl.create_aipp(2))
    assert "40 x 30 (height x width) comes to 40 x 30 by crop and padding" in refusal(settings(acl, 2, YUV, 30, 40))
    assert "even" in refusal(settings(acl, 2, YUV, 7, 4))
    assert "YUV400_U8 gives 1 channels" in refusal(settings(acl, 2, 4, 6, 4))
    large = settings(acl, 2, RGB, 20, 20)
    for number in range(2):
        acl.mdl.set_aipp_crop_params(large, 1, 0, 0, 6, 4, number)
    assert "max_src_image_size of the model is 400" in refusal(large)
    cut = settings(acl, 2, RGB, 6, 5)
    acl.mdl.set_aipp_crop_params(cut, 1, 1, 0, 6, 4, 0)
    assert "reaches beyond a picture of 5 x 6" in refusal(cut)
    scaled = settings(acl, 2, RGB, 6, 4)
    assert acl.mdl.set_aipp_scf_params(scaled, 1, 16, 16, 32, 32, 1) == 0
    assert "picture 1 is to be scaled" in refusal(scaled)
    fitting = settings(acl, 2, RGB, 6, 4)
    assert acl.mdl.set_input_aipp(two, inputs, 0, fitting) == INVALID
    assert acl.mdl.set_input_aipp(two, inputs, 9, fitting) == INVALID
    assert acl.mdl.set_aipp_by_input_index(two, inputs, 1, fitting) == 500001
    assert acl.mdl.execute(two, inputs, outputs) == 145016  # nothing was taken over


def test_settings_of_another_model_are_refused_where_their_pictures_are_larger(acl: ModuleType, tmp_path: Path, two: int) -> None:
    """They belong to the dataset; the memory in it is as large as this model's pictures."""
    text = "g (float[2, 3, 4, 6] x) => (float[2, 3, 4, 6] y) { y = Identity(x) }"
    (tmp_path / "other").mkdir()
    larger = load(acl, convert(tmp_path / "other", text, "aipp_mode: dynamic max_src_image_size: 4000"))
    inputs, outputs, _, _ = buffers(acl, two)
    aipp = settings(acl, 2, RGB, 20, 20)
    for number in range(2):
        acl.mdl.set_aipp_crop_params(aipp, 1, 0, 0, 6, 4, number)
    assert acl.mdl.set_input_aipp(larger, inputs, 1, aipp) == 0
    assert acl.mdl.execute(two, inputs, outputs) == INVALID
    assert "the pictures have 2400 bytes; max_src_image_size of the model is 400" in acl.get_recent_err_msg()
