"""Files and random numbers as inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
import pytest

from anycann.om.plan import TensorSpec
from anycann.support.errors import UsageError
from anycann.tools.feeds import load_feeds, random_feeds
from anycann.tools.images import ImageOptions, guess_layout, load_image

X = TensorSpec("x", "float32", (2, 3))
Y = TensorSpec("y", "int64", (None, 2))
IMAGE = TensorSpec("image", "float32", (1, 3, 4, 5))


def load(words: list[str], *specs: TensorSpec, shapes: dict[str, tuple[int, ...]] | None = None, dtype: str = "") -> dict[str, np.ndarray]:
    return load_feeds(words, specs, ImageOptions(), shapes or {}, dtype)  # type: ignore[arg-type]


def test_unnamed_files_go_to_the_inputs_in_order(tmp_path: Path) -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((4, 2), np.int64)
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "b.npy", y)
    feeds = load([f"{tmp_path}/a.npy", f"{tmp_path}/b.npy"], X, Y)
    np.testing.assert_array_equal(feeds["x"], x)
    np.testing.assert_array_equal(feeds["y"], y)
    swapped = load([f"y={tmp_path}/b.npy", f"{tmp_path}/a.npy"], X, Y)
    np.testing.assert_array_equal(swapped["x"], x)


def test_an_npz_names_its_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", x=np.zeros((2, 3), np.float32), y=np.zeros((1, 2), np.int64))
    assert set(load([f"{tmp_path}/both.npz"], X, Y)) == {"x", "y"}


def test_a_path_with_an_equals_sign_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a=b.npy"
    np.save(path, np.zeros((2, 3), np.float32))
    assert set(load([str(path)], X)) == {"x"}


def test_a_raw_file_takes_dtype_and_shape_of_the_input(tmp_path: Path) -> None:
    np.arange(6, dtype=np.int64).tofile(tmp_path / "y.bin")
    np.testing.assert_array_equal(load([f"{tmp_path}/y.bin"], Y)["y"], np.arange(6).reshape(3, 2))


def test_shape_and_dtype_of_a_raw_file_can_be_given(tmp_path: Path) -> None:
    np.arange(6, dtype=np.float16).tofile(tmp_path / "x.bin")
    array = load([f"{tmp_path}/x.bin"], TensorSpec("x", "float32", (None, None)), shapes={"x": (3, 2)}, dtype="float16")["x"]
    assert array.dtype == np.float16
    assert array.shape == (3, 2)


def test_a_raw_file_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    np.zeros(5, np.float32).tofile(tmp_path / "x.bin")
    with pytest.raises(UsageError, match=r"holds 5 elements of float32, the shape \[2, 3\] needs 6"):
        load([f"{tmp_path}/x.bin"], X)
    with pytest.raises(UsageError, match="say with --shape"):
        load([f"{tmp_path}/x.bin"], TensorSpec("x", "float32", (None, None)))


def test_text_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1 2 3\n4 5 6\n")
    np.testing.assert_array_equal(load([f"{tmp_path}/x.txt"], X)["x"], np.arange(1, 7, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["z={}/a.npy"], "the model has no input z; its inputs: x, y"),
        (["xx={}/a.npy"], r"the model has no input xx; did you mean x\?"),
        (["{}/a.npy"], "inputs without a value: y"),
        (["x={}/a.npy", "x={}/a.npy"], "input x is given twice"),
        (["{}/a.npy", "{}/a.npy", "{}/a.npy"], "the model has only 2 inputs"),
        (["{}/no.npy"], r"no\.npy can not be read"),
        (["{}/a.mp4"], "of no known kind; accepted: .npy"),
        (["{}/broken.npy"], "can not be read"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3), np.float32))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UsageError, match=message):
        load([word.format(tmp_path) for word in words], X, Y)


def test_pickled_arrays_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="can not be read"):
        load([f"{tmp_path}/a.npy"], X)


def test_random_inputs_are_the_same_each_time_and_fit_the_model() -> None:
    specs = (IMAGE, TensorSpec("ids", "int64", ("batch", 7)), TensorSpec("mask", "bool", (2,)), TensorSpec("half", "bfloat16", ()))
    feeds, again = random_feeds(specs, {}), random_feeds(specs, {})
    assert {name: (array.shape, str(array.dtype)) for name, array in feeds.items()} == {
        "image": ((1, 3, 4, 5), "float32"),
        "ids": ((1, 7), "int64"),
        "mask": ((2,), "bool"),
        "half": ((), "bfloat16"),
    }
    assert set(np.unique(feeds["ids"])) <= {0, 1}
    assert all(np.array_equal(feeds[name], again[name]) for name in feeds)


def test_random_inputs_of_open_size_need_a_shape() -> None:
    spec = TensorSpec("x", "float32", ("n", 3, "h", "w"))
    with pytest.raises(UsageError, match=r'give them with --shape "x:1,\.\.\."'):
        random_feeds((spec,), {})
    assert random_feeds((spec,), {"x": (2, 3, 8, 9)})["x"].shape == (2, 3, 8, 9)
    with pytest.raises(UsageError, match="no input y"):
        random_feeds((spec,), {"y": (1,)})


def test_random_text_is_refused() -> None:
    with pytest.raises(UsageError, match="give its value with --input"):
        random_feeds((TensorSpec("s", "object", (1,)),), {})


@pytest.fixture
def picture(tmp_path: Path) -> tuple[str, np.ndarray]:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(pixels).save(path)
    return str(path), pixels


def test_a_picture_becomes_planes(picture: tuple[str, np.ndarray]) -> None:
    path, pixels = picture
    np.testing.assert_array_equal(load_image(path, IMAGE, ImageOptions()), pixels.transpose(2, 0, 1)[None].astype(np.float32))


def test_mean_std_and_channel_order_are_applied(picture: tuple[str, np.ndarray]) -> None:
    path, pixels = picture
    options = ImageOptions(mean=(1.0, 2.0, 3.0), std=(2.0,), bgr=True)
    expected = (pixels[:, :, ::-1].astype(np.float32) - np.array([1, 2, 3], np.float32)) / 2
    np.testing.assert_allclose(load_image(path, IMAGE, options)[0].transpose(1, 2, 0), expected, rtol=1e-6)


def test_a_picture_for_an_integer_input_keeps_its_pixels_in_the_layout_of_the_input(picture: tuple[str, np.ndarray]) -> None:
    path, pixels = picture
    array = load_image(path, TensorSpec("image", "uint8", (1, 4, 5, 3)), ImageOptions())
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array[0], pixels)


def test_the_size_is_the_models_the_given_or_the_pictures_own(picture: tuple[str, np.ndarray]) -> None:
    path, _ = picture
    open_size = TensorSpec("image", "float32", ("n", 3, "h", "w"))
    assert load_image(path, TensorSpec("image", "float32", (1, 3, 8, 6)), ImageOptions()).shape == (1, 3, 8, 6)
    assert load_image(path, open_size, ImageOptions(size=(7, 9))).shape == (1, 3, 7, 9)
    assert load_image(path, open_size, ImageOptions()).shape == (1, 3, 4, 5)


def test_one_channel_reads_grey(picture: tuple[str, np.ndarray]) -> None:
    assert load_image(picture[0], TensorSpec("image", "float32", (1, 1, 4, 5)), ImageOptions()).shape == (1, 1, 4, 5)


def test_the_layout_is_told_by_the_channels() -> None:
    assert guess_layout(IMAGE) == "NCHW"
    assert guess_layout(TensorSpec("image", "float32", (1, 224, 224, 3))) == "NHWC"


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        (TensorSpec("x", "float32", (2, 3)), ImageOptions(), "four axes"),
        (TensorSpec("x", "float32", (1, 7, 4, 5)), ImageOptions(), "7 channels"),
        (TensorSpec("x", "float32", (8, 3, 4, 5)), ImageOptions(), "takes 8 images at once"),
        (IMAGE, ImageOptions(mean=(1.0, 2.0)), "--mean has 2 numbers"),
        (IMAGE, ImageOptions(std=(0.0,)), "--std must not contain 0"),
    ],
)
def test_what_does_not_fit_a_picture_is_refused(
    picture: tuple[str, np.ndarray], spec: TensorSpec, options: ImageOptions, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load_image(picture[0], spec, options)


def test_a_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_text("no picture")
    with pytest.raises(UsageError, match=r"picture\.png can not be read"):
        load_image(str(path), IMAGE, ImageOptions())
    with pytest.raises(UsageError, match="does not exist"):
        load_image(str(tmp_path / "other.png"), IMAGE, ImageOptions())
