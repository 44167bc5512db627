"""The checks of the programs whose names are given, one after the other in one world: starting a rank takes as long as many checks."""

from __future__ import annotations

from importlib import import_module
import sys

from tests.torch_distributed.worlds import main

if __name__ == "__main__":
    main(*(vars(import_module(f"tests.torch_distributed.programs.{name}")) for name in sys.argv[1:]))
