"""What programs ask of descriptions, of gears of any shape and of this process, and no other test does."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from anycann.compiler import CompileOptions
from tests.acl.media_calls import INVALID
from tests.acl.test_models import OPEN, dataset, offline_model, put


def test_the_sizes_of_types_tensors_and_buffers(acl: ModuleType) -> None:
    sizes = {0: 4, 1: 2, 2: 1, 3: 4, 9: 8, 11: 8, 12: 1, 27: 2}  # float, float16, int8, int32, int64, double, bool, bfloat16
    assert {kind: acl.data_type_size(kind) for kind in sizes} == sizes
    assert acl.data_type_size(99) == 0
    for kind, nbytes in sizes.items():
        assert acl.get_tensor_desc_size(acl.create_tensor_desc(kind, [2, 3, 5], 2)) == 30 * nbytes
    address, _ = acl.rt.malloc(100, 0)
    assert acl.get_data_buffer_size(acl.create_data_buffer(address, 100)) == 100


def test_the_chip_is_the_one_of_the_environment(acl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCANN_SOC", "Ascend310P3")
    assert acl.get_soc_name() == "Ascend310P3"


def test_what_a_program_logs_has_its_level(acl: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "anycann")
    for level in range(4):
        assert acl.app_log(level, f"entry {level}") is None
    assert [(record.levelname, record.message) for record in caplog.records if record.message.startswith("entry")] == [
        ("DEBUG", "entry 0"), ("INFO", "entry 1"), ("WARNING", "entry 2"), ("ERROR", "entry 3"),
    ]  # fmt: skip


def test_gears_of_any_shape_are_listed_and_chosen(acl: ModuleType, tmp_path: Path) -> None:
    options = CompileOptions(
        gears=({"x": (2, 3)}, {"x": (5, 3)}), arguments={"dynamic_dims": "2;5", "input_shape": "x:-1,3"}, input_shapes={"x": (-1, 3)}
    )
    model, ret = acl.mdl.load_from_file(offline_model(tmp_path, OPEN, options))
    assert ret == 0
    desc = acl.mdl.create_desc()
    assert acl.mdl.get_desc(desc, model) == 0
    assert acl.mdl.get_output_name_by_index(desc, 0).endswith("y")
    assert acl.mdl.get_input_dynamic_gear_count(desc, -1) == (2, 0)
    gears, ret = acl.mdl.get_input_dynamic_dims(desc, -1, 2)
    assert (ret, [gear["dims"][: gear["dimCount"]] for gear in gears]) == (0, [[2, 3], [5, 3]])
    assert acl.mdl.get_input_dynamic_dims(desc, -1, 1) == (None, INVALID)
    assert "accepted: 2" in acl.get_recent_err_msg()
    index, _ = acl.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")
    inputs, (at_x, _) = dataset(acl, [60, acl.mdl.get_input_size_by_index(desc, index)])
    outputs, (at_y,) = dataset(acl, [60])
    for gear in gears:
        x = np.random.default_rng().random(gear["dims"], np.float32)
        put(acl, at_x, x)
        assert acl.mdl.set_input_dynamic_dims(model, inputs, index, gear) == 0
        assert acl.mdl.execute(model, inputs, outputs) == 0
        assert np.array_equal(acl.util.ptr_to_numpy(at_y, x.shape, 11), x * 2)


def test_how_decoders_give_pictures_and_which_pictures_are_key_frames(acl: ModuleType) -> None:
    channel, config = acl.media.vdec_create_channel_desc(), acl.media.venc_create_frame_config()
    for mode in (1, 0):
        assert acl.media.vdec_set_channel_desc_out_mode(channel, mode) == 0
        assert acl.media.vdec_get_channel_desc_out_mode(channel) == mode
    assert acl.media.vdec_set_channel_desc_out_mode(channel, 2) == INVALID
    assert acl.media.venc_set_frame_config_force_i_frame(config, 1) == 0
    assert acl.media.venc_get_frame_config_force_i_frame(config) == 1
    assert acl.media.venc_set_frame_config_force_i_frame(config, 2) == INVALID
