"""A model with AIPP and two picture sizes, as a program that asks for everything sees it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from click.testing import CliRunner
import numpy as np
import onnx

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
    assert "batch" not in info
    first, second = info["outDims"]
    assert first["srcDims"] == first["aippOutdims"] == {"name": "x", "dimCount": 4, "dims": [1, 4, 6, 3]}
    assert (first["srcSize"], first["aippOutSize"], second["aippOutdims"]["dims"]) == (72, 4 * 72, [1, 2, 8, 3])
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


def test_what_goes_into_aipp_and_what_comes_out_is_told(acl: ModuleType, tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float16[2, 3, 9, 8] x) => (float16[2, 3, 9, 8] y) { y = Identity(x) }'
    model_file, config = tmp_path / "m.onnx", tmp_path / "aipp.cfg"
    onnx.save(onnx.parser.parse_model(text), model_file)
    frame = "crop: true load_start_pos_h: 2 crop_size_h: 8 crop_size_w: 6 padding: true top_padding_size: 1 left_padding_size: 2"
    config.write_text(f"aipp_op {{ aipp_mode: static input_format: YUV420SP_U8 src_image_size_w: 10 src_image_size_h: 12 {frame} }}")
    words = ["atc", f"--model={model_file}", "--framework=5", f"--output={tmp_path / 'm'}", f"--insert_op_conf={config}"]
    assert CliRunner().invoke(main, words).exit_code == 0
    model, _ = acl.mdl.load_from_file(str(tmp_path / "m.om"))
    info, ret = acl.mdl.get_first_aipp_info(model, 0)
    (dims,) = info["outDims"]
    assert (ret, dims["srcDims"]["dims"], dims["srcSize"]) == (0, [2, 12, 10, 3], 2 * 12 * 10 * 3 // 2)
    assert (dims["aippOutdims"]["dims"], dims["aippOutSize"]) == ([2, 3, 9, 8], 2 * 2 * 3 * 9 * 8)
