"""Dynamic AIPP in models whose batch, height and width gears or runs decide: in the first kernel of each, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from anycann.om.plan import NativeStep
from anycann.om.reader import read_offline_model
from tests.acl.test_dynamic_aipp import INVALID, RGB, YUV, buffers, convert, load, random_bytes, settings
from tests.acl.test_models import dataset, put

MATRIX = (256, 0, 359, 256, -88, -183, 256, 454, 0)
WEIGHTS = np.random.default_rng(0).integers(-2, 3, (4, 3, 3, 3)).astype(np.float32)
CONV = "{ c = Conv<pads = [1, 1, 1, 1]>(x, w) y = Relu(c) }"
EXACT = ("--precision_mode=must_keep_origin_dtype", "--soc_version=host")
GEARS = {
    "batches": ("-1,3,10,14", "--dynamic_batch_size=3,1", [(3, 10, 14), (1, 10, 14)]),
    "image sizes": ("2,3,-1,-1", "--dynamic_image_size=6,14;22,18", [(2, 6, 14), (2, 22, 18)]),
    "dims": ("-1,3,-1,-1", "--dynamic_dims=1,6,14;3,12,34", [(1, 6, 14), (3, 12, 34)]),
}


def converting(folder: Path, shape: str, *words: str, block: str = "aipp_mode: dynamic max_src_image_size: 5000") -> Path:
    text = f"g (float[n, 3, h, w] x) => (float[n, 4, h, w] y) {CONV}"
    return convert(folder, text, block, f"--input_shape=x:{shape}", *EXACT, *words, w=WEIGHTS)


def first_kernels(path: Path) -> set[tuple[str, ...]]:
    """The operators of the first kernel of each program."""
    steps = [step for program in read_offline_model(str(path)).programs.values() for step in program.steps[:1]]
    return {step.tasks[0].op_types for step in steps if isinstance(step, NativeStep)}


def convolved(pixels: np.ndarray) -> np.ndarray:
    """What the model makes of [n, rows, columns, 3]."""
    padded = np.pad(pixels, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return np.maximum(np.einsum("nyxcij,ocij->noyx", windows, WEIGHTS), 0)


def nv12(batch: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures, and R, G and B of them."""
    pictures = random_bytes(batch, rows * 3 // 2, columns)
    colours = pictures[:, rows:].reshape(batch, rows // 2, columns // 2, 2).repeat(2, 1).repeat(2, 2)
    pixels = np.concatenate([pictures[:, :rows, :, None], colours], -1).astype(int) - [0, 128, 128]
    return pictures, np.clip((pixels @ np.reshape(MATRIX, (3, 3)).T) >> 8, 0, 255)


def nv12_settings(acl: ModuleType, batch: int, rows: int, columns: int) -> int:
    aipp = settings(acl, batch, YUV, columns, rows)
    assert acl.mdl.set_aipp_csc_params(aipp, 1, *MATRIX, 0, 0, 0, 0, 128, 128) == 0
    return aipp


def choose(acl: ModuleType, kind: str, model: int, inputs: int, sizes: tuple[int, int, int]) -> int:
    if kind == "batches":
        return int(acl.mdl.set_dynamic_batch_size(model, inputs, 2, sizes[0]))
    if kind == "image sizes":
        return int(acl.mdl.set_dynamic_hw_size(model, inputs, 2, *sizes[1:]))
    dims = [sizes[0], 3, *sizes[1:]]
    return int(acl.mdl.set_input_dynamic_dims(model, inputs, 2, {"name": "", "dimCount": 4, "dims": dims}))


@pytest.mark.parametrize("kind", GEARS)
def test_pictures_of_each_gear_are_made_in_the_kernel_of_its_first_convolution(acl: ModuleType, tmp_path: Path, kind: str) -> None:
    shape, option, gears = GEARS[kind]
    path = converting(tmp_path, shape, option)
    assert first_kernels(path) == {("DynamicAipp", "Conv", "Relu")}
    model = load(acl, path)
    desc, most = acl.mdl.create_desc(), max(batch for batch, _, _ in gears)
    acl.mdl.get_desc(desc, model)
    assert acl.mdl.get_input_dims(desc, 0)[0]["dims"] == [2 if kind == "image sizes" else -1, -1, -1, -1]
    assert acl.mdl.get_input_dims_range(desc, 1) == ({"rangeCount": 1, "range": [[64 + 96 * most] * 2]}, 0)
    inputs, outputs, (at_x, *_), (at_y,) = buffers(acl, model)
    for turn, (batch, rows, columns) in enumerate(gears * 2):
        pictures, pixels = nv12(batch, rows, columns)
        put(acl, at_x, pictures)
        calls = [
            lambda size=(rows, columns): acl.mdl.set_aipp_by_input_index(model, inputs, 0, nv12_settings(acl, most, *size)),
            lambda sizes=(batch, rows, columns): choose(acl, kind, model, inputs, sizes),
        ]
        for call in calls[:: 1 - turn // len(gears) * 2]:  # in either order
            assert call() == 0, acl.get_recent_err_msg()
        assert acl.mdl.execute(model, inputs, outputs) == 0, acl.get_recent_err_msg()
        assert np.array_equal(acl.util.ptr_to_numpy(at_y, (batch, 4, rows, columns), 11), convolved(pixels))


def test_open_sizes_are_those_that_the_settings_make(acl: ModuleType, tmp_path: Path) -> None:
    converting(tmp_path, "1~3,3,2~20,2~40")
    model = load(acl, next(tmp_path.glob("m_*.om")))
    inputs, (at_x, _) = dataset(acl, [5000, acl.mdl.get_aipp_data_size(3)[0]])
    outputs, (at_y,) = dataset(acl, [2 * 4 * 20 * 30 * 4])
    assert acl.mdl.execute(model, inputs, outputs) == 145016
    for batch, rows, columns in ((1, 6, 14), (2, 20, 30)):
        pictures, pixels = nv12(batch, rows, columns)
        put(acl, at_x, pictures)
        assert acl.mdl.set_input_aipp(model, inputs, 1, nv12_settings(acl, batch, rows, columns)) == 0, acl.get_recent_err_msg()
        assert acl.mdl.execute(model, inputs, outputs) == 0, acl.get_recent_err_msg()
        assert np.array_equal(acl.util.ptr_to_numpy(at_y, (batch, 4, rows, columns), 11), convolved(pixels))
    assert acl.mdl.set_input_aipp(model, inputs, 1, nv12_settings(acl, 1, 22, 14)) == 0, acl.get_recent_err_msg()
    assert acl.mdl.execute(model, inputs, outputs) == 145021
    assert "converted for" in acl.get_recent_err_msg()


def test_a_size_that_is_not_open_stays(acl: ModuleType, tmp_path: Path) -> None:
    converting(tmp_path, "1,3,6,-1")
    model = load(acl, next(tmp_path.glob("m_*.om")))
    inputs, _ = dataset(acl, [5000, acl.mdl.get_aipp_data_size(1)[0]])
    outputs, _ = dataset(acl, [4 * 8 * 14 * 4])
    assert acl.mdl.set_input_aipp(model, inputs, 1, nv12_settings(acl, 1, 8, 14)) == 0, acl.get_recent_err_msg()
    assert acl.mdl.execute(model, inputs, outputs) == 145021
    assert "is given shape [1, 3, 8, 14]; accepted: [1, 3, 6, -1]" in acl.get_recent_err_msg()


@pytest.mark.parametrize("kind", GEARS)
def test_a_static_aipp_is_in_the_first_kernel_of_each_gear(tmp_path: Path, kind: str) -> None:
    shape, option, _ = GEARS[kind]
    path = converting(tmp_path, shape, option, block="aipp_mode: static input_format: RGB888_U8 mean_chn_1: 3")
    assert first_kernels(path) == {("Aipp", "Conv", "Relu")}


@pytest.mark.parametrize(
    ("mode", "operator"), [("static input_format: RGB888_U8", "Aipp"), ("dynamic max_src_image_size: 5000", "DynamicAipp")]
)
def test_nothing_comes_between_for_half_precision_with_channels_last(tmp_path: Path, mode: str, operator: str) -> None:
    text = """g (float16[1, h, w, 3] x) => (float16[1, 4, h, w] y) {
        t = Transpose<perm = [0, 3, 1, 2]>(x) c = Conv<pads = [1, 1, 1, 1]>(t, w) y = Relu(c) }"""
    words = ("--input_format=NHWC", "--input_shape=x:1,-1,-1,3", "--dynamic_image_size=6,14;12,34")
    path = convert(tmp_path, text, f"aipp_mode: {mode}", *words, *EXACT, w=WEIGHTS.astype(np.float16))
    assert first_kernels(path) == {(operator, "Cast", "Conv", "Relu")}


def test_settings_that_no_gear_takes_are_refused_and_those_of_another_gear_when_it_runs(acl: ModuleType, tmp_path: Path) -> None:
    shape, option, _ = GEARS["image sizes"]
    model = load(acl, converting(tmp_path, shape, option))
    inputs, outputs, _, _ = buffers(acl, model)
    assert acl.mdl.set_dynamic_hw_size(model, inputs, 2, 6, 14) == 0
    assert acl.mdl.execute(model, inputs, outputs) == 145016
    assert acl.mdl.set_input_aipp(model, inputs, 1, settings(acl, 2, RGB, 14, 7)) == INVALID
    assert "come to 7 x 14 (height x width); accepted: 6 x 14, 22 x 18" in acl.get_recent_err_msg()
    assert acl.mdl.set_input_aipp(model, inputs, 1, settings(acl, 1, RGB, 14, 6)) == INVALID
    assert "is for 1 pictures" in acl.get_recent_err_msg()
    assert acl.mdl.set_input_aipp(model, inputs, 1, settings(acl, 2, RGB, 18, 22)) == 0
    assert acl.mdl.execute(model, inputs, outputs) == INVALID
    assert "comes to 22 x 18 by crop and padding; the model takes 6 x 14" in acl.get_recent_err_msg()
    assert acl.mdl.set_dynamic_hw_size(model, inputs, 2, 22, 18) == 0
    assert acl.mdl.execute(model, inputs, outputs) == 0, acl.get_recent_err_msg()
