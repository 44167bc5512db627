"""The command line of npu-smi."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import sys

from anycann.support.errors import AnyCANNError, UsageError, describe
from anycann.tools.npu_smi.facts import Npu, npus
from anycann.tools.npu_smi.queries import QUERIES, card_list, mapping, query
from anycann.tools.npu_smi.tables import VERSION, info_table


def main(words: Sequence[str] | None = None) -> int:
    """Answers with the exit status."""
    given = list(sys.argv[1:] if words is None else words)
    if given[:1] == ["-v"]:
        print(f"npu-smi version: {VERSION}")
        return 0
    options = _parser().parse_args(given)
    try:
        print(_answer(options))
    except AnyCANNError as error:
        print(f"npu-smi: {describe(error)}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="npu-smi", description="Virtual devices, and what this user's processes take of them.")
    info = made.add_subparsers(dest="command", required=True, metavar="info").add_parser("info", help="show devices and processes")
    which = info.add_mutually_exclusive_group()
    which.add_argument("-l", dest="list", action="store_true", help="list the devices")
    which.add_argument("-m", dest="mapping", action="store_true", help="show which chip has which number")
    which.add_argument("-t", dest="type", choices=tuple(QUERIES), help="facts of one kind, of the device of -i or of all")
    info.add_argument("-i", dest="card", type=int, help="number of the device")
    info.add_argument("-c", dest="chip", type=int, help="number of the chip on the device: 0")
    return made


def _answer(options: argparse.Namespace) -> str:
    found = npus()
    if options.chip not in (None, 0):
        raise UsageError(f"chip {options.chip} is not there; accepted: 0")
    if options.list:
        return card_list(found)
    if options.mapping:
        return mapping(found)
    chosen = _chosen(found, options.card)
    return "\n\n".join(query(npu, options.type) for npu in chosen) if options.type else info_table(chosen)


def _chosen(found: list[Npu], card: int | None) -> list[Npu]:
    if card is not None and not 0 <= card < len(found):
        raise UsageError(f"NPU {card} is not there; accepted: 0 to {len(found) - 1} (ANYCANN_DEVICES sets how many there are)")
    return found if card is None else [found[card]]
