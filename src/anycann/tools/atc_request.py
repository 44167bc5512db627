"""A checked command line as one request: what to convert, where to, and how. Everything that depends on two options is checked here."""

from __future__ import annotations

from dataclasses import field
import os
import platform

from anycann.passes.precision import Kept
from anycann.support.records import dataclass
from anycann.target.soc import HOST, SOC_VERSIONS, SocVersion, nearest
from anycann.tools.atc_errors import AtcUnsupportedError, AtcUsageError
from anycann.tools.atc_kept import kept_of
from anycann.tools.atc_option import PRECISION_V2
from anycann.tools.atc_parse import CommandLine
from anycann.tools.atc_shapes import GearOptions, Shape, Sizes, gear_shapes, parse_input_shape, parse_input_shape_range
from anycann.tools.atc_values import (
    OutNodes,
    OutputTypes,
    SwitchState,
    parse_names,
    parse_out_nodes,
    parse_output_type,
    parse_switches,
    read_fusion_switch_file,
    read_op_precision_mode,
)

TENSORFLOW, ONNX = "3", "5"
_LATER = {"0": "Caffe", "1": "MindSpore"}
_FRAMEWORK_CHOICES = "0(Caffe) or 1(MindSpore) or 3(TensorFlow) or 5(Onnx)"


@dataclass(frozen=True)
class ConvertRequest:
    """What `atc --mode=0` is to do. Shapes by input name; dtypes in numpy's names; `op_precision` by operator type."""

    model: str
    framework: str
    output: str
    soc: SocVersion
    target: str
    shapes: dict[str, Shape]
    gears: tuple[dict[str, Sizes], ...]
    precision_mode: str
    out_nodes: OutNodes
    output_types: OutputTypes
    input_fp16_nodes: tuple[str, ...]
    input_hw_layout: tuple[bool, ...]
    output_hw_layout: tuple[bool, ...]
    insert_op_conf: str
    input_format: str
    op_select_implmode: str
    optypelist: tuple[str, ...]
    op_precision: dict[str, str]
    switches: dict[str, SwitchState] = field(default_factory=dict)
    optimization_level: str = "O3"
    workers: int | None = None
    explain: bool = False
    kept: Kept = field(default_factory=Kept)

    def named(self, is_dynamic: bool) -> str:
        """The file to write: `.om`, with the system in its name for a model whose shapes are left open (gears do not count)."""
        suffix = f"_linux_{platform.machine()}" if is_dynamic else ""
        return f"{self.output}{suffix}.om"


def convert_request(line: CommandLine) -> ConvertRequest:
    """Check the options of mode 0 (and 3) against each other. Raises UsageError and UnsupportedError with Ascend's codes."""
    _require_model(line)
    soc = _soc(line["soc_version"])
    shapes, precision_mode = _shapes(line), _precision_mode(line, soc)
    gear_options = GearOptions(
        line["dynamic_batch_size"], line["dynamic_image_size"], line["dynamic_dims"], _input_format(line), soc.max_gears
    )
    return ConvertRequest(
        model=line["model"],
        framework=line["framework"],
        output=line["output"],
        soc=soc,
        target=_target(line),
        shapes=shapes,
        gears=gear_shapes(shapes, gear_options),
        precision_mode=precision_mode,
        out_nodes=parse_out_nodes(line["out_nodes"]),
        output_types=parse_output_type(line["output_type"]),
        input_fp16_nodes=parse_names(line["input_fp16_nodes"]),
        input_hw_layout=_flags(line, "is_input_adjust_hw_layout"),
        output_hw_layout=_flags(line, "is_output_adjust_hw_layout"),
        insert_op_conf=line["insert_op_conf"],
        input_format=_input_format(line),
        op_select_implmode=line["op_select_implmode"],
        optypelist=parse_names(line["optypelist_for_implmode"], ","),
        op_precision=_op_precision(line),
        switches=_switches(line),
        optimization_level=line["oo_level"],
        workers=int(line["workers"]) if line["workers"] else None,
        explain=line.switch("explain"),
        kept=kept_of(line, precision_mode),
    )


def check_framework(line: CommandLine) -> None:
    """Raise unless --framework says one that has a front end."""
    framework = line["framework"]
    if not framework:
        raise AtcUsageError("E10007", parameter="framework", support=_FRAMEWORK_CHOICES)
    if framework in _LATER:
        raise AtcUnsupportedError(
            f"--framework={framework}: {_LATER[framework]} models are not there yet; export the model to ONNX and use --framework=5"
        )


def _flags(line: CommandLine, name: str) -> tuple[bool, ...]:
    """`"true,false"`. Raises UsageError for other words."""
    words = parse_names(line[name], ",")
    for word in words:
        if word not in ("true", "false"):
            raise AtcUsageError("E10005", parameter=name, value=word)
    return tuple(word == "true" for word in words)


def _input_format(line: CommandLine) -> str:
    """TensorFlow's pictures have their channels last unless it is said otherwise."""
    return "NHWC" if line["framework"] == TENSORFLOW and "input_format" not in line.given else line["input_format"]


def _require_model(line: CommandLine) -> None:
    for name in ("model",) if line["mode"] == "3" else ("output", "model"):
        if not line[name]:
            raise AtcUsageError("E10054", parameter=f"--{name}")
    check_framework(line)
    if line["output"] and not os.path.basename(line["output"]):
        raise AtcUsageError("E10022", filename=line["output"], parameter="output")


def _soc(name: str) -> SocVersion:
    if not name:
        return HOST
    if name not in SOC_VERSIONS:
        near = nearest(name)
        hint = f"did you mean {near}?" if near else f"accepted: {', '.join(SOC_VERSIONS)}."
        raise AtcUsageError("E10001", value=name, parameter="--soc_version", reason=f"there is no such chip; {hint}")
    return SOC_VERSIONS[name]


def _target(line: CommandLine) -> str:
    """The instruction set: --target, or the processor of --host_env_cpu where that is another one than this."""
    cpu = line["host_env_cpu"]
    if not cpu or line["target"] != "host":
        return line["target"]
    here = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return "host" if cpu == here else {"x86_64": "avx2", "aarch64": "neon"}[cpu]


def _shapes(line: CommandLine) -> dict[str, Shape]:
    if line["input_shape"] and line["input_shape_range"]:
        raise AtcUsageError("E10056", first="--input_shape", second="--input_shape_range")
    if line["input_shape_range"]:
        if line["dynamic_batch_size"] or line["dynamic_image_size"] or line["dynamic_dims"]:
            raise AtcUsageError("E10009")
        return parse_input_shape_range(line["input_shape_range"])
    return parse_input_shape(line["input_shape"])


def _precision_mode(line: CommandLine, soc: SocVersion) -> str:
    """The mode in the names of --precision_mode."""
    old, new = line["precision_mode"], line["precision_mode_v2"]
    if old and new:
        raise AtcUsageError("E10056", first="--precision_mode", second="--precision_mode_v2")
    mode = PRECISION_V2[new] if new else old or soc.precision_mode
    if mode is None:
        raise AtcUnsupportedError(f"--precision_mode_v2={new}: 8-bit floats are not there yet")
    if "bf16" in mode and not soc.bfloat16:
        raise AtcUsageError("E10001", value=mode, parameter="--precision_mode", reason=f"{soc.name} does not compute in bfloat16.")
    return mode


def _op_precision(line: CommandLine) -> dict[str, str]:
    if not line["op_precision_mode"]:
        return {}
    for other in ("op_select_implmode", "optypelist_for_implmode"):
        if line.given.get(other):
            raise AtcUsageError("E10056", first="--op_precision_mode", second=f"--{other}")
    return read_op_precision_mode(line["op_precision_mode"])


def _switches(line: CommandLine) -> dict[str, SwitchState]:
    """Rules by name: the file first, then --optimization_switch."""
    switches: dict[str, SwitchState] = {}
    if line["fusion_switch_file"]:
        switches |= read_fusion_switch_file(line["fusion_switch_file"])
    switches |= parse_switches(line["optimization_switch"])
    return switches
