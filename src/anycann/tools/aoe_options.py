"""The options of `aoe`: those it shares with atc, by name, and its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import click

from anycann.support.errors import UnsupportedError, UsageError
from anycann.tools.atc_options import OPTIONS

T = TypeVar("T")

# What atc does with these, aoe does too.
SHARED = (
    *("model", "weight", "framework", "input_format", "input_shape", "dynamic_batch_size", "dynamic_image_size", "dynamic_dims"),
    *("singleop", "output", "output_type", "out_nodes", "input_fp16_nodes", "insert_op_conf", "op_name_map"),
    *("is_input_adjust_hw_layout", "is_output_adjust_hw_layout", "disable_reuse_memory", "fusion_switch_file"),
    *("enable_scope_fusion_passes", "enable_small_channel", "compress_weight_conf", "compression_optimize_conf", "buffer_optimize"),
    *("precision_mode", "precision_mode_v2", "op_select_implmode", "optypelist_for_implmode", "op_debug_level", "virtual_type"),
    *("aicore_num", "host_env_os", "host_env_cpu", "log"),
)
_SHORT = {"model": "-m", "weight": "-w", "framework": "-f"}

_OWN = (
    click.option("--job_type", "-j", type=click.Choice(("1", "2")), required=True, help="1: subgraph tuning; 2: operator tuning."),
    click.option("--model_path", type=click.Path(exists=True, file_okay=False), help="Folder of .onnx models to tune one after the other."),
    click.option("--reload", is_flag=True, help="Go on with the last tuning of this model that was interrupted or killed."),
    click.option(
        "--tune_ops_file", type=click.Path(exists=True, dir_okay=False), help="File with a node name a line: only these are tuned."
    ),
    click.option(
        "--tune_optimization_level", type=click.Choice(("O1", "O2")), default="O2", show_default=True, help="O1 measures a third."
    ),
    click.option("--auto_tune_mode", default="RL,GA", show_default=True, help="Searches: RL (tree search), GA (genetic), or both."),
    click.option("--seconds", type=click.FloatRange(1), help="Time budget for searching; default: TUNE_TIMEOUT, else none."),
    click.option("--threads", type=click.IntRange(1), help="Threads to measure with; default: one for each processor."),
    click.option("--progress_bar", type=click.Choice(("on", "off")), default="on", show_default=True, help="Show progress."),
    click.option("--device", default="0", help="Device to tune on; there is one, 0."),
    click.option("--Fdeeper_opat", "fdeeper_opat", is_flag=True, help="Measure three times as many candidates."),
    click.option("--Fnonhomo_split", "fnonhomo_split", is_flag=True, help="No effect: it splits work for Ascend's cores."),
    click.option("--Fop_format", "fop_format", is_flag=True, help="No effect: layouts are tuned by --job_type=1."),
    click.option("--ip", help="Refused: Ascend's server; see --cluster."),
    click.option("--port", help="Refused: Ascend's server; see --cluster."),
    click.option(
        "--cluster",
        is_flag=False,
        flag_value="auto",
        metavar="[ADDRESS]",
        help="Measure on the machines of a Ray cluster that have this processor; default address: the cluster of this machine (auto).",
    ),
)


def aoe_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add every option; the command gets those of atc as words of its command line in `atc_words`, its own by name."""

    @wraps(command)
    def gathered(**given: Any) -> T:
        words = [f"--{name}={given.pop(name)}" for name in SHARED if given.get(name) is not None]
        return command(atc_words=words, **{name: value for name, value in given.items() if name not in SHARED})

    for option in reversed((*(_shared(name) for name in SHARED), *_OWN)):
        gathered = option(gathered)
    return gathered


def _shared(name: str) -> Callable[[Any], Any]:
    names = (f"--{name}", _SHORT[name]) if name in _SHORT else (f"--{name}",)
    return click.option(*names, name, help=OPTIONS[name].help)


def refuse_what_is_not_there(options: Mapping[str, Any]) -> None:
    """Raise UnsupportedError for options that are not there, UsageError for a device there is none of."""
    for name in ("ip", "port"):
        if options.get(name):
            raise UnsupportedError(f"--{name}: there is no tuning through Ascend's server; --cluster tunes on many machines with Ray")
    if options.get("cluster") and options["job_type"] != "2":
        raise UnsupportedError("--cluster: whole models are measured on this machine; accepted with --job_type=2")
    if options.get("device") not in (None, "0"):
        raise UsageError(f"--device={options['device']}: accepted: 0, the processor this runs on")
