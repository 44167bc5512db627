"""The command line of atc: words, the table of options, and options that depend on each other."""

from __future__ import annotations

from pathlib import Path
import platform

import pytest

from anycann.support.errors import UnsupportedError
from anycann.tools.atc_convert import switched_off_rules
from anycann.tools.atc_errors import AtcUnsupportedError, AtcUsageError
from anycann.tools.atc_option import Kind, State
from anycann.tools.atc_options import OPTIONS
from anycann.tools.atc_parse import CommandLine, check_value, nearest_option, parse_command_line
from anycann.tools.atc_request import ConvertRequest, convert_request


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"content is not looked at here")
    return str(path)


def line(model: str, *words: str) -> CommandLine:
    return parse_command_line([f"--model={model}", "--framework=5", "--output=out/net", *words])


def request(model: str, *words: str) -> ConvertRequest:
    return convert_request(line(model, *words))


def code_of(error: pytest.ExceptionInfo[AtcUsageError]) -> str:
    return error.value.code.code


def test_a_value_may_follow_an_equals_sign_or_a_blank(model: str) -> None:
    parsed = parse_command_line(["--model", model, "--framework", "5", "--input_shape=a:1,2", "-log=info"])
    assert parsed.given == {"model": model, "framework": "5", "input_shape": "a:1,2", "log": "info"}


def test_hyphens_in_the_name_of_an_option_are_underscores() -> None:
    assert parse_command_line(["--input-shape=a-b:1", "-out-nodes", "c-d:0"]).given == {"input_shape": "a-b:1", "out_nodes": "c-d:0"}


def test_the_last_of_a_repeated_option_counts() -> None:
    assert parse_command_line(["--log=info", "--log=debug"])["log"] == "debug"


def test_a_value_may_begin_with_a_minus_sign_and_a_digit() -> None:
    assert parse_command_line(["--input_shape", "-1"]).given == {"input_shape": "-1"}


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("--modle=x", "model"),
        ("--soc-versoin=Ascend310", "soc_version"),
        ("--ouput_type=FP32", "output_type"),
        ("--input_shap", "input_shape"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(word: str, near: str) -> None:
    with pytest.raises(AtcUsageError) as error:
        parse_command_line([word])
    assert code_of(error) == "E10001"
    assert f"did you mean --{near}?" in str(error.value)


def test_an_option_like_no_other_gets_no_guess() -> None:
    assert nearest_option("zzzzzzzz") is None
    with pytest.raises(AtcUsageError, match="atc --help"):
        parse_command_line(["--zzzzzzzz=1"])


def test_a_word_that_belongs_to_no_option_is_refused() -> None:
    with pytest.raises(AtcUsageError, match="quotation marks"):
        parse_command_line(["--log=info", "model.onnx"])


def test_an_option_without_its_value_is_refused() -> None:
    for words in (["--model"], ["--model", "--log=info"]):
        with pytest.raises(AtcUsageError) as error:
            parse_command_line(words)
        assert code_of(error) == "E10004"


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("--mode=2", "E10001"),
        ("--framework=four", "E10001"),
        ("--log=loud", "E10010"),
        ("--display_model_info=2", "E10006"),
        ("--allow_hf32=1", "E10005"),
        ("--workers=0", "E10001"),
        ("--model=/no/such/file.onnx", "E10001"),
        ("--precision_mode=fp16", "E10001"),
    ],
)
def test_a_wrong_value_is_refused_with_its_code(word: str, code: str) -> None:
    with pytest.raises(AtcUsageError) as error:
        parse_command_line([word])
    assert code_of(error) == code


def test_every_default_is_a_value_its_option_accepts() -> None:
    for option in OPTIONS.values():
        check_value(option, option.default)


def test_every_option_that_is_not_implemented_says_why() -> None:
    for option in OPTIONS.values():
        assert bool(option.reason) == (option.state is not State.IMPLEMENTED), option.name
        assert option.help.endswith((".", '"')), option.name


def test_options_that_only_tune_silicon_warn_unless_they_have_their_default() -> None:
    parsed = parse_command_line(["--buffer_optimize=off_optimize", "--enable_small_channel=0"])
    assert parsed.warnings == ("--buffer_optimize has no effect: it only tunes Ascend silicon",)


def test_files_for_debugging_kernels_are_no_reason_to_refuse_a_model() -> None:
    parsed = parse_command_line(["--op_debug_level=3", "--debug_dir=./kernels"])
    assert parsed.warnings == tuple(f"--{name} has no effect: kernel files are not kept yet" for name in ("op_debug_level", "debug_dir"))


def test_every_option_that_is_not_there_yet_is_refused(tmp_path: Path) -> None:
    some_file = tmp_path / "file"
    some_file.write_text("x")
    for option in OPTIONS.values():
        if option.state is State.NOT_YET:
            value = str(some_file) if option.kind is Kind.INPUT_FILE else option.choices[-1] if option.choices else "true"
            with pytest.raises(AtcUnsupportedError, match=f"E10055|--{option.name}="):
                parse_command_line([f"--{option.name}={value}"])


@pytest.mark.parametrize(("framework", "name"), [("0", "Caffe"), ("1", "MindSpore")])
def test_other_frameworks_are_refused_by_name(model: str, framework: str, name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{name} models are not there yet; export the model to ONNX"):
        convert_request(parse_command_line([f"--model={model}", f"--framework={framework}", "--output=x"]))


def test_required_options_are_asked_for(model: str) -> None:
    for words, code in (
        ([], "E10054"),
        ([f"--model={model}"], "E10054"),
        ([f"--model={model}", "--output=x"], "E10007"),
        ([f"--model={model}", "--output=folder/", "--framework=5"], "E10022"),
    ):
        with pytest.raises(AtcUsageError) as error:
            convert_request(parse_command_line(words))
        assert code_of(error) == code


def test_without_a_chip_the_dtypes_of_the_model_are_kept(model: str) -> None:
    assert request(model).precision_mode == "must_keep_origin_dtype"
    assert request(model, "--soc_version=host").precision_mode == "must_keep_origin_dtype"


def test_a_chip_brings_its_documented_precision(model: str) -> None:
    assert request(model, "--soc_version=Ascend310P3").precision_mode == "force_fp16"
    assert request(model, "--soc_version=Ascend310P3", "--precision_mode=allow_mix_precision").precision_mode == "allow_mix_precision"


@pytest.mark.parametrize(
    ("new", "old"), [("fp16", "force_fp16"), ("origin", "must_keep_origin_dtype"), ("mixed_bfloat16", "allow_mix_precision_bf16")]
)
def test_the_newer_names_of_precision_mean_the_older(model: str, new: str, old: str) -> None:
    assert request(model, f"--precision_mode_v2={new}").precision_mode == old


def test_the_two_precision_options_exclude_each_other(model: str) -> None:
    with pytest.raises(AtcUsageError) as error:
        request(model, "--precision_mode=force_fp16", "--precision_mode_v2=fp16")
    assert code_of(error) == "E10056"


def test_bfloat16_is_refused_for_a_chip_without_it(model: str) -> None:
    with pytest.raises(AtcUsageError, match="Ascend310 does not compute in bfloat16"):
        request(model, "--soc_version=Ascend310", "--precision_mode=allow_mix_precision_bf16")
    assert request(model, "--soc_version=Ascend910B2", "--precision_mode=allow_mix_precision_bf16").soc.name == "Ascend910B2"


def test_hif8_is_refused_as_not_there(model: str) -> None:
    with pytest.raises(AtcUnsupportedError, match="8-bit floats"):
        request(model, "--precision_mode_v2=mixed_hif8")


def test_an_unknown_chip_is_refused_with_the_nearest_name(model: str) -> None:
    with pytest.raises(AtcUsageError, match="did you mean Ascend310P3") as error:
        request(model, "--soc_version=ascend310p3")
    assert code_of(error) == "E10001"


def test_a_model_of_open_shape_has_the_system_in_its_file_name(model: str) -> None:
    assert request(model).named(is_dynamic=False) == "out/net.om"
    assert request(model).named(is_dynamic=True) == f"out/net_linux_{platform.machine()}.om"


def test_the_two_shape_options_exclude_each_other(model: str) -> None:
    with pytest.raises(AtcUsageError) as error:
        request(model, "--input_shape=a:1", "--input_shape_range=a:[1]")
    assert code_of(error) == "E10056"
    with pytest.raises(AtcUsageError) as error:
        request(model, "--input_shape_range=a:[-1]", "--dynamic_batch_size=1,2")
    assert code_of(error) == "E10009"


def test_switches_of_the_command_line_win_over_those_of_the_file(model: str, tmp_path: Path) -> None:
    switches = tmp_path / "switch.cfg"
    switches.write_text("A:off\nB:off\n")
    made = request(model, f"--fusion_switch_file={switches}", "--optimization_switch=A:on")
    assert made.switches == {"A": "on", "B": "off"}


@pytest.mark.parametrize(
    ("words", "off"),
    [
        ([], set()),
        (["--op_select_implmode=high_precision"], {"winograd", "strassen", "rounded_rows"}),
        (["--op_select_implmode=high_precision", "--optypelist_for_implmode=Conv"], {"winograd"}),
        (["--op_select_implmode=high_precision", "--optypelist_for_implmode=Gemm,Gelu"], {"strassen"}),
        (["--op_select_implmode=high_precision", "--optypelist_for_implmode=MatMulNBits"], {"rounded_rows"}),
        (["--optimization_switch=strassen:off"], {"strassen"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_high_precision_leaves_out_the_inexact_algorithms_of_its_operators(model: str, words: list[str], off: set[str]) -> None:
    found, unknown = switched_off_rules(request(model, *words))
    assert (found, unknown) == (off, ())


def test_precision_by_operator_excludes_the_choice_for_all(model: str, tmp_path: Path) -> None:
    ini = tmp_path / "op.ini"
    ini.write_text("Conv=high_precision\n")
    assert request(model, f"--op_precision_mode={ini}").op_precision == {"Conv": "high_precision"}
    with pytest.raises(AtcUsageError) as error:
        request(model, f"--op_precision_mode={ini}", "--op_select_implmode=high_precision")
    assert code_of(error) == "E10056"


def test_another_processor_is_a_target_of_its_own(model: str) -> None:
    other, target = ("aarch64", "neon") if platform.machine() == "x86_64" else ("x86_64", "avx2")
    assert request(model, f"--host_env_cpu={other}").target == target
    assert request(model, f"--host_env_cpu={platform.machine()}").target == "host"
    assert request(model, f"--host_env_cpu={other}", "--target=sve").target == "sve"
