"""The command line of npu-smi."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import sys
import time

from anycann.support.errors import AnyCANNError, UsageError, describe
from anycann.tools.npu_smi.facts import Npu, npus
from anycann.tools.npu_smi.queries import QUERIES, card_list, mapping, query, topology
from anycann.tools.npu_smi.tables import VERSION, info_table
from anycann.tools.npu_smi.watch import COLUMNS, USUAL, head, rows


def main(words: Sequence[str] | None = None) -> int:
    """Answers with the exit status."""
    given = list(sys.argv[1:] if words is None else words)
    if given[:1] == ["-v"]:
        print(f"npu-smi version: {VERSION}")
        return 0
    watching = given[:2] == ["info", "watch"]
    options = _watch_parser().parse_args(given[2:]) if watching else _parser().parse_args(given)
    try:
        if watching:
            _watch(options)
        else:
            print(_answer(options))
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
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
    which.add_argument("-t", dest="type", choices=(*QUERIES, "topo"), help="facts of one kind, of the device of -i or of all")
    info.add_argument("-i", "-p", dest="card", type=int, help="number of the device")
    info.add_argument("-c", dest="chip", type=int, help="number of the chip on the device: 0")
    return made


def _watch_parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="npu-smi info watch", description="A row for each device, until it is interrupted.")
    made.add_argument("-i", "-p", dest="card", type=int, help="number of the device")
    made.add_argument("-c", dest="chip", type=int, help="number of the chip on the device: 0")
    made.add_argument("-d", dest="delay", type=int, choices=range(1, 101), default=1, metavar="1..100", help="seconds between rows")
    facts = ", ".join(f"{letter} - {column.name}" for letter, column in COLUMNS.items()).replace("%", "%%")
    made.add_argument("-s", dest="letters", default=USUAL, help=f"which facts: {facts}")
    return made


def _watch(options: argparse.Namespace) -> None:
    _check_chip(options.chip)
    print(head(options.letters), flush=True)
    while True:
        for row in rows(_chosen(npus(), options.card), options.letters):
            print(row, flush=True)
        time.sleep(options.delay)


def _answer(options: argparse.Namespace) -> str:
    _check_chip(options.chip)
    found = npus()
    if options.list:
        return card_list(found)
    if options.mapping:
        return mapping(found)
    if options.type == "topo":
        return topology(found)
    chosen = _chosen(found, options.card)
    return "\n\n".join(query(npu, options.type) for npu in chosen) if options.type else info_table(chosen)


def _check_chip(chip: int | None) -> None:
    if chip not in (None, 0):
        raise UsageError(f"chip {chip} is not there; accepted: 0")


def _chosen(found: list[Npu], card: int | None) -> list[Npu]:
    if card is not None and not 0 <= card < len(found):
        raise UsageError(f"NPU {card} is not there; accepted: 0 to {len(found) - 1} (ANYCANN_DEVICES sets how many there are)")
    return found if card is None else [found[card]]
