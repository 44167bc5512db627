"""Importing this module makes the cases of every family: of all files `*_cases.py` beside it."""

from importlib import import_module
from pathlib import Path

for _file in sorted(Path(__file__).parent.glob("*_cases.py")):
    import_module(f"{__package__}.{_file.stem}")
