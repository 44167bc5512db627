"""ais_bench: --aipp-config, for models of one shape, with gears and of open shapes, and for several inputs."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
import numpy as np
import onnx
import pytest

from anycann.compiler import compile_model
from anycann.om.writer import write_offline_model
from anycann.support.errors import UsageError
from anycann.tools.ais_bench.interface import InferSession
from anycann.tools.ais_bench.main import main
from anycann.tools.cli import main as anycann


def convert(folder: Path, text: str, *most_bytes: int, words: tuple[str, ...] = ()) -> str:
    """The offline model of a graph in ONNX text whose first inputs have dynamic AIPP for pictures of so many bytes."""
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    blocks = (f"aipp_op {{ aipp_mode: dynamic related_input_rank: {n} max_src_image_size: {most} }}" for n, most in enumerate(most_bytes))
    (folder / "aipp.cfg").write_text(" ".join(blocks))
    given = [f"--model={folder}/m.onnx", "--framework=5", f"--output={folder}/m", f"--insert_op_conf={folder}/aipp.cfg", *words]
    result = CliRunner().invoke(anycann, ["atc", *given])
    assert result.exit_code == 0, result.output
    return str(next(folder.glob("m*.om")))


def settings_file(folder: Path, rows: int, columns: int) -> str:
    """Pictures of RGB888_U8 whose mean is 3, 0, 0."""
    path = folder / f"{rows}x{columns}.config"
    path.write_text(f"[aipp_op]\ninput_format : RGB888_U8\nsrc_image_size_w : {columns}\nsrc_image_size_h : {rows}\nmean_chn_0 : 3\n")
    return str(path)


def random_pictures(*shape: int) -> np.ndarray:
    return np.random.default_rng().integers(0, 256, shape, np.uint8)


def converted(pictures: np.ndarray) -> np.ndarray:
    """What a model takes of them."""
    return pictures.transpose(0, 3, 1, 2) - np.array([3, 0, 0], np.float32).reshape(3, 1, 1)


def test_pictures_go_through_a_dynamic_aipp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = '<ir_version: 10, opset_import: ["": 20]> g (float[2, 3, 4, 6] x) => (float[2, 3, 4, 6] y) { y = Identity(x) }'
    convert(tmp_path, text, 400)
    settings = tmp_path / "actual.config"
    settings.write_text(
        "[aipp_op]\ninput_format : RGB888_U8\nsrc_image_size_w : 8\nsrc_image_size_h : 5\ncrop : 1\nload_start_pos_w : 1\n"
        "crop_size_w : 6\ncrop_size_h : 4\nrbuv_swap_switch : 1\nmean_chn_0 : 3\nvar_reci_chn_1 : 0.5\n"
    )
    pictures = np.random.default_rng(0).integers(0, 256, (2, 5, 8, 3), np.uint8)
    expected = pictures[:, :4, 1:7, ::-1].transpose(0, 3, 1, 2).astype(np.float32)
    expected[:, 0] -= 3
    expected[:, 1] *= 0.5
    session = InferSession(0, str(tmp_path / "m.om"))
    session.load_aipp_config_file(str(settings), 2)
    assert session.get_inputs()[0].shape == [2, 5 * 8 * 3]
    assert np.array_equal(session.infer([pictures])[0], expected)
    session.finalize()
    pictures.tofile(tmp_path / "p.bin")
    words = ["--model", f"{tmp_path}/m.om", "--input", f"{tmp_path}/p.bin", "--aipp_config", str(settings), "--outfmt", "NPY"]
    assert main([*words, "--output", str(tmp_path), "--output_dirname", "r"]) == 0
    assert np.array_equal(np.load(tmp_path / "r" / "p_0.npy"), expected)
    good = settings.read_text()
    for bad, sentence in (
        (good.replace("_w : 8", "_w : 80"), "the pictures have 2400 bytes; max_src_image_size of the model is 400"),
        (good.replace("_h : 5", "_h : 0"), "src_image_size_h is 0; accepted: the size of the pictures"),
        (f"{good}resize : 1\n", "resize is reserved by Ascend"),
    ):
        settings.write_text(bad)
        with pytest.raises(RuntimeError, match=sentence):
            InferSession(0, str(tmp_path / "m.om")).load_aipp_config_file(str(settings), 2)
    settings.write_text(f"{good}aipp_mode : dynamic\n")  # as atc has it
    InferSession(0, str(tmp_path / "m.om")).load_aipp_config_file(str(settings), 2)
    settings.write_text("[aipp_op]\ninput_format : RGB888_U8\nsrc_image_size_w : wide\nsrc_image_size_h : 5\n")
    assert main(words) != 0
    assert "src_image_size_w is 'wide'; accepted: a number" in capsys.readouterr().out
    write_offline_model(str(tmp_path / "none.om"), compile_model(onnx.parser.parse_model(text)))
    with pytest.raises(UsageError, match="has no dynamic AIPP"):
        InferSession(0, str(tmp_path / "none.om")).load_aipp_config_file(str(settings))


OPEN = '<ir_version: 10, opset_import: ["": 20]> g (float[n, 3, h, w] x) => (float[n, 3, h, w] y) { y = Identity(x) }'


def test_settings_follow_the_gear_of_an_image_size(tmp_path: Path) -> None:
    model = convert(tmp_path, OPEN, 600, words=("--input_shape=x:2,3,-1,-1", "--dynamic_image_size=5,7;9,11"))
    session = InferSession(0, model)
    for rows, columns in ((9, 11), (5, 7)):
        pictures = random_pictures(2, rows, columns, 3)
        session.set_dynamic_hw(rows, columns)
        session.load_aipp_config_file(settings_file(tmp_path, rows, columns), 2)
        assert session.get_inputs()[0].shape == [2, rows * columns * 3]
        assert np.array_equal(session.run([pictures], out_array=True)[0], converted(pictures))
        session.load_aipp_config_file(settings_file(tmp_path, 14 - rows, 18 - columns), 2)
        with pytest.raises(RuntimeError, match=f"the model takes {rows} x {columns}"):
            session.run([random_pictures(2, 14 - rows, 18 - columns, 3)])
    pictures = random_pictures(2, 9, 11, 3)
    assert np.array_equal(session.infer([pictures], "dymhw")[0], converted(pictures))  # the gear of what the settings make
    with pytest.raises(RuntimeError, match=r"come to 6 x 7 .*accepted: 5 x 7, 9 x 11"):
        session.load_aipp_config_file(settings_file(tmp_path, 6, 7), 2)
    session.finalize()
    pictures.tofile(tmp_path / "p.bin")
    words = ["--model", model, "--input", f"{tmp_path}/p.bin", "--dymHW", "9,11", "--aipp_config", settings_file(tmp_path, 9, 11)]
    assert main([*words, "--outfmt", "NPY", "--output", str(tmp_path), "--output_dirname", "r"]) == 0
    assert np.array_equal(np.load(tmp_path / "r" / "p_0.npy"), converted(pictures))


def test_settings_of_the_largest_batch_are_for_smaller_ones_too(tmp_path: Path) -> None:
    session = InferSession(0, convert(tmp_path, OPEN, 400, words=("--input_shape=x:-1,3,4,6", "--dynamic_batch_size=1,3")))
    session.load_aipp_config_file(settings_file(tmp_path, 4, 6))
    for batch in (1, 3):
        pictures = random_pictures(batch, 4, 6, 3)
        assert np.array_equal(session.infer([pictures], "dymbatch")[0], converted(pictures))
    with pytest.raises(RuntimeError, match="has 72 bytes; 3 pictures of 72 bytes have 216"):
        session.run([random_pictures(1, 4, 6, 3)])
    session.finalize()


def test_settings_are_for_every_input_and_choose_open_shapes(tmp_path: Path) -> None:
    text = OPEN.replace("{ y = Identity(x)", "{ y = Add(x, z)").replace("x) =>", "x, float[n, 3, h, w] z) =>")
    session = InferSession(0, convert(tmp_path, text, 400, 300, words=("--input_shape=x:-1,3,-1,-1;z:-1,3,-1,-1",)))
    with pytest.raises(RuntimeError, match="the batch of input 'x' is open"):
        session.load_aipp_config_file(settings_file(tmp_path, 3, 5))
    session.set_dynamic_shape("x:2,3,3,5;z:2,3,3,5")
    with pytest.raises(RuntimeError, match="the pictures have 360 bytes; max_src_image_size of the model is 300"):
        session.load_aipp_config_file(settings_file(tmp_path, 6, 10))
    session.load_aipp_config_file(settings_file(tmp_path, 3, 5))
    one, other = random_pictures(2, 3, 5, 3), random_pictures(2, 3, 5, 3)
    assert np.array_equal(session.infer([one, other], "dymshape")[0], converted(one) + converted(other))
    session.finalize()


def test_the_shapes_of_files_are_those_that_settings_make_of_them(tmp_path: Path) -> None:
    model, pictures = convert(tmp_path, OPEN, 400, words=("--input_shape=x:2,3,-1,-1",)), random_pictures(2, 3, 5, 3)
    np.save(tmp_path / "p.npy", pictures)
    words = ["--model", model, "--input", f"{tmp_path}/p.npy", "--auto_set_dymshape_mode", "1", "--outputSize", "1000"]
    words += ["--aipp_config", settings_file(tmp_path, 3, 5), "--outfmt", "NPY", "--output", str(tmp_path), "--output_dirname", "r"]
    assert main(words) == 0
    assert np.array_equal(np.load(tmp_path / "r" / "p_0.npy"), converted(pictures))


def test_a_run_without_settings_is_told_so(tmp_path: Path) -> None:
    session = InferSession(0, convert(tmp_path, OPEN, 400, words=("--input_shape=x:1,3,4,6",)))
    with pytest.raises(RuntimeError, match="has dynamic AIPP and no settings"):
        session.infer([random_pictures(1, 4, 6, 3)])
    session.finalize()
