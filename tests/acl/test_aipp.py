"""A model with AIPP and two picture sizes, as a program that asks for everything sees it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from click.testing import CliRunner
import numpy as np
import onnx
import pytest

from anycann.tools.cli import main
from tests.acl.test_models import dataset, put

TEXT = '<ir_version: 10, opset_import: ["": 20]> g (float[1, h, w, 3] x) => (float[1, h, w, 3] y) { y = Identity(x) }'
BLOCK = "aipp_op { aipp_mode: static input_format: RGB888_U8 rbuv_swap_switch: true mean_chn_0: 10 var_reci_chn_2: 0.5 }"


def test_pictures_of_two_sizes_go_through_aipp(acl: ModuleType, tmp_path: Path) -> None:
    model_file, config = tmp_path / "m.onnx", tmp_path / "aipp.cfg"
    onnx.save(onnx.parser.parse_model(TEXT), model_file)
    config.write_text(BLOCK)
    words = ["atc", f"--model={model_file}", "--framework=5", f"--output={tmp_path / 'm'}", f"--insert_op_conf={config}"]
    words += ["--input_format=NHWC", "--input_shape=x:1,-1,-1,3", "--dynamic_image_size=4,6;2,8"]
    assert CliRunner().invoke(main, words).exit_code == 0
    model, ret = acl.mdl.load_from_file(str(tmp_path / "m.om"))
    desc = acl.mdl.create_desc()
    assert (ret, acl.mdl.get_desc(desc, model)) == (0, 0)
    assert acl.mdl.get_dynamic_hw(desc, -1) == ({"hwCount": 2, "hw": [[4, 6], [2, 8]]}, 0)
    assert acl.mdl.get_input_dims(desc, 0)[0]["dims"] == [1, -1, -1, 3]
    assert (acl.mdl.get_input_data_type(desc, 0), acl.mdl.get_input_format(desc, 0)) == (4, 1)
    assert acl.mdl.get_input_size_by_index(desc, 0) == 72
    assert acl.mdl.get_aipp_type(model, 0)[::2] == (1, 0)
    info, ret = acl.mdl.get_first_aipp_info(model, 0)
    assert (ret, info["inputFormat"], info["rbuvSwapSwitch"], info["meanChn0"], info["varReciChn2"]) == (0, 3, 1, 10, 0.5)
    inputs, (at_x, _) = dataset(acl, [72, acl.mdl.get_input_size_by_index(desc, 1)])
    outputs, (at_y,) = dataset(acl, [acl.mdl.get_output_size_by_index(desc, 0)])
    for rows, columns in ((2, 8), (4, 6)):
        picture = np.random.default_rng(rows).integers(0, 256, (1, rows, columns, 3), np.uint8)
        put(acl, at_x, picture)
        assert acl.mdl.set_dynamic_hw_size(model, inputs, 1, rows, columns) == 0
        assert acl.mdl.execute(model, inputs, outputs) == 0
        wanted = (picture[..., ::-1] - np.array([10.0, 0, 0])) * np.array([1, 1, 0.5])
        assert np.array_equal(acl.util.ptr_to_numpy(at_y, picture.shape, 11), wanted)
        assert acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [1, rows, columns, 3]
    assert acl.mdl.set_dynamic_hw_size(model, inputs, 1, 5, 5) == 145013


@pytest.fixture
def dynamic(acl: ModuleType, tmp_path: Path) -> int:
    """Two pictures of 4 x 6 with settings that a program gives."""
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[2, 3, 4, 6] x) => (float[2, 3, 4, 6] y) { y = Identity(x) }'
    model_file, config = tmp_path / "m.onnx", tmp_path / "aipp.cfg"
    onnx.save(onnx.parser.parse_model(text), model_file)
    config.write_text("aipp_op { aipp_mode: dynamic max_src_image_size: 400 }")
    words = ["atc", f"--model={model_file}", "--framework=5", f"--output={tmp_path / 'm'}", f"--insert_op_conf={config}"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    model, ret = acl.mdl.load_from_file(str(tmp_path / "m.om"))
    assert ret == 0
    return int(model)


def test_settings_of_each_picture_are_given_while_running(acl: ModuleType, dynamic: int) -> None:
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, dynamic)
    index, ret = acl.mdl.get_input_index_by_name(desc, "ascend_dynamic_aipp_data")
    assert (index, ret, acl.mdl.get_num_inputs(desc)) == (1, 0, 2)
    assert acl.mdl.get_input_size_by_index(desc, 0) == 400
    assert acl.mdl.get_input_size_by_index(desc, 1) == acl.mdl.get_aipp_data_size(2)[0]
    assert [acl.mdl.get_aipp_type(dynamic, n)[0] for n in range(2)] == [2, 3]
    inputs, (at_x, _) = dataset(acl, [400, acl.mdl.get_input_size_by_index(desc, 1)])
    outputs, (at_y,) = dataset(acl, [acl.mdl.get_output_size_by_index(desc, 0)])
    assert acl.mdl.execute(dynamic, inputs, outputs) == 145016
    for seed in (1, 2):  # other settings, another source size
        picture = np.random.default_rng(seed).integers(0, 256, (2, 4 + seed, 6 + seed, 3), np.uint8)
        put(acl, at_x, picture)
        aipp = acl.mdl.create_aipp(2)
        assert acl.mdl.set_aipp_input_format(aipp, 3) == 0
        assert acl.mdl.set_aipp_src_image_size(aipp, 6 + seed, 4 + seed) == 0
        assert acl.mdl.set_aipp_rbuv_swap_switch(aipp, 1) == 0
        for number in range(2):
            assert acl.mdl.set_aipp_crop_params(aipp, 1, number, 0, 6, 4, number) == 0
            assert acl.mdl.set_aipp_dtc_pixel_mean(aipp, 10 * number, 0, 5, 0, number) == 0
            assert acl.mdl.set_aipp_pixel_var_reci(aipp, 1.0, 0.5, 1.0, 1.0, number) == 0
        assert acl.mdl.set_input_aipp(dynamic, inputs, index, aipp) == 0
        assert acl.mdl.destroy_aipp(aipp) == 0
        assert acl.mdl.execute(dynamic, inputs, outputs) == 0, acl.get_recent_err_msg()
        made = acl.util.ptr_to_numpy(at_y, (2, 3, 4, 6), 11)
        for number in range(2):
            cut = picture[number, :4, number : number + 6, ::-1].transpose(2, 0, 1)
            means, factors = np.array([10 * number, 0, 5]), np.array([1, 0.5, 1])
            assert np.array_equal(made[number], (cut - means.reshape(3, 1, 1)) * factors.reshape(3, 1, 1))


def test_settings_that_do_not_fit_are_refused(acl: ModuleType, dynamic: int) -> None:
    inputs, _ = dataset(acl, [400, 256])
    outputs, _ = dataset(acl, [2 * 3 * 4 * 6 * 4])
    aipp = acl.mdl.create_aipp(1)
    assert acl.mdl.create_aipp(0) == 0
    assert acl.mdl.set_aipp_input_format(aipp, 9) == 100000
    assert acl.mdl.set_aipp_crop_params(aipp, 1, 0, 0, 2, 2, 3) == 100000
    assert acl.mdl.set_aipp_scf_params(aipp, 1, 10, 10, 5, 5, 0) == 200006
    assert acl.mdl.set_input_aipp(dynamic, inputs, 0, aipp) == 145015
    assert acl.mdl.set_input_aipp(dynamic, inputs, 1, aipp) == 0
    assert acl.mdl.execute(dynamic, inputs, outputs) == 145014
    two = acl.mdl.create_aipp(2)
    acl.mdl.set_aipp_input_format(two, 1)
    acl.mdl.set_aipp_src_image_size(two, 30, 40)
    assert acl.mdl.set_aipp_by_input_index(dynamic, inputs, 0, two) == 0
    assert acl.mdl.execute(dynamic, inputs, outputs) != 0
    assert "40 x 30 (height x width) comes to 40 x 30 by crop and padding" in acl.get_recent_err_msg()
