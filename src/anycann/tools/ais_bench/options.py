"""The options of `python -m ais_bench`, by their old names and the new ones of `msit benchmark`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from anycann.support.records import dataclass


def yes_or_no(text: str) -> bool:
    """1, true, yes ... as True. Raises ArgumentTypeError."""
    words = {**dict.fromkeys(("yes", "true", "t", "y", "1"), True), **dict.fromkeys(("no", "false", "f", "n", "0"), False)}
    if text.lower() not in words:
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no; accepted: true, 1, false, 0")
    return words[text.lower()]


def at_least(least: int) -> Callable[[str], int]:
    """A whole number."""

    def parse(text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}; accepted: a whole number from {least} on")
        return int(text)

    return parse


def device_list(text: str) -> list[int]:
    """ "0" or "0,1" as numbers of devices."""
    numbers = text.split(",")
    if not all(number.strip().isdigit() and int(number) <= 255 for number in numbers):
        raise argparse.ArgumentTypeError(f"device {text!r} is invalid; valid value range is [0, 255]")
    return [int(number) for number in numbers]


@dataclass(frozen=True)
class _Row:
    names: str
    parse: Callable[[str], object]
    default: object
    help: str
    choices: tuple[str, ...] | None = None


_ROWS = (
    _Row("--model -m -om --om-model", str, None, "the offline model"),
    _Row("--input -i", str, None, "files or folders of .npy and .bin, with commas; none: data made up by --pure_data_type"),
    _Row("--output -o", str, None, "folder for results; they go to a folder below, named by the time"),
    _Row("--output_dirname -od --output-dirname", str, None, "name of the folder below --output"),
    _Row("--outfmt", str.upper, "BIN", "format of the results", ("NPY", "BIN", "TXT")),
    _Row("--loop -l", at_least(1), 1, "how often each run is repeated"),
    _Row("--debug", yes_or_no, False, "print more"),
    _Row("--device -d", device_list, [0], "devices, with commas; with several, each has its share of the input"),
    _Row("--dymBatch -db --dym-batch", at_least(0), 0, "batch of a model with gears"),
    _Row("--dymHW -dhw --dym-hw", str, None, "image size of a model with gears: 300,500"),
    _Row("--dymDims -dd --dym-dims", str, None, "shapes of a model with gears: data:1,600;info:1,2"),
    _Row("--dymShape -ds --dym-shape", str, None, "shapes of a model with open shapes: data:1,600;info:1,2"),
    _Row("--dymShape_range -dr --dym-shape-range", str, None, "shapes to try in turn: data:1,600~700~50;info:1,2-4, or a file of them"),
    _Row("--aipp-config --aipp_config -aipp", str, None, "the settings of every dynamic AIPP: [aipp_op] with `name : value`"),
    _Row("--outputSize -outsize --output-size", str, None, "bytes of each output at most, for open shapes"),
    _Row("--auto_set_dymshape_mode -asdsm --auto-set-dymshape-mode", yes_or_no, False, "shapes are those of the .npy files"),
    _Row("--auto_set_dymdims_mode -asddm --auto-set-dymdims-mode", yes_or_no, False, "the gear is that of the .npy files"),
    _Row("--batchsize --batch-size", at_least(1), None, "batch for the throughput; default: that of the model"),
    _Row("--pure_data_type -pdt --pure-data-type", str, "zero", "what the data is without --input", ("zero", "random")),
    _Row("--profiler -pf", yes_or_no, False, "profile into <output>/profiler"),
    _Row("--dump", yes_or_no, False, "dump inputs and outputs of operators below --output"),
    _Row("--acl_json_path -acl --acl-json-path", str, None, "configuration for acl.init"),
    _Row("--output_batchsize_axis -oba --output-batchsize-axis", at_least(0), 0, "the axis of the outputs that the batch is on"),
    _Row("--run_mode -rm --run-mode", str, "array", "array, tensor: from arrays; files: raw files; full: all first, then all runs",
         ("array", "files", "tensor", "full")),
    _Row("--display_all_summary -das --display-all-summary", yes_or_no, False, "print the times of copies too"),
    _Row("--warmup_count -wcount --warmup-count", at_least(0), 1, "runs before the times are taken"),
    _Row("--pipeline", yes_or_no, False, "read, run and write side by side"),
    _Row("--threads", at_least(1), 1, "threads that read with --pipeline"),
    _Row("--dump-npy --dump_npy", yes_or_no, False, "write what --dump or the configuration dumps as .npy files too"),
    _Row("--divide-input --divide_input", yes_or_no, False, "several devices share the input, with it or without"),
    _Row("--profiler-rename --profiler_rename", yes_or_no, True, "files of a profile have the names of msprof, with it or without"),
)  # fmt: skip
_ENERGY = "a virtual device does not tell its energy"
_REFUSED = {
    "--backend": "trtexec is another runtime",
    "--perf": "trtexec is another runtime",
    "--energy-consumption": _ENERGY,
    "--energy_consumption": _ENERGY,
    "-ec": _ENERGY,
    "--npu-id": _ENERGY,
    "--npu_id": _ENERGY,
}


def parser() -> argparse.ArgumentParser:
    """All options."""
    refused = ", ".join(f"{name} ({why})" for name, why in _REFUSED.items() if "_" not in name)
    made = argparse.ArgumentParser(
        prog="ais_bench", description="Benchmark of offline models, with Ascend's options.", epilog=f"Not there: {refused}."
    )
    for row in _ROWS:
        first = row.names.split()[0]
        made.add_argument(
            *row.names.split(), type=row.parse, default=row.default, help=row.help, choices=row.choices, required=first == "--model",
            dest=first.lstrip("-").replace("-", "_"), metavar=None if row.choices else first.lstrip("-").upper(),
        )  # fmt: skip
    return made


def parse_options(words: Sequence[str]) -> argparse.Namespace:
    """The options; ends the process with status 2 for those that cannot be."""
    made = parser()
    for word in words:
        name = word.partition("=")[0]
        if name in _REFUSED:
            made.error(f"{name} is not there: {_REFUSED[name]}")
    found = made.parse_args(words)
    if (found.profiler or found.dump or found.output_dirname) and not found.output:
        made.error("--profiler, --dump and --output_dirname need --output")
    if found.dump_npy and not (found.output and (found.dump or found.acl_json_path)):
        made.error("--dump-npy needs --output, and --dump or --acl_json_path with a dump")
    if found.profiler and found.dump:
        made.error("--profiler and --dump do not go together")
    return found
