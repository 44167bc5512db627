"""What is wrong with a built-in bank: its entries have to be of these generators, found by their keys, legal, and measured to be faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import anycann.aoe.model_tasks
import anycann.codegen.kernels.attention_space  # noqa: F401
from anycann.codegen.space import Space, usable
from anycann.target.target import NAMED
from anycann.te import dtypes
from anycann.te.dtypes import DType
from anycann.tuning.bank import Bank
from anycann.tuning.bank_files import OF_CORES, bank_file
from anycann.tuning.identity import digest

FOUND_BY_TEXT = ("Nest", "Graph")  # any change of a generator makes it another one


def _below(space: type[Space[Any]]) -> Iterator[type[Space[Any]]]:
    for below in space.__subclasses__():
        yield below
        yield from _below(below)


FAMILIES = {kind.family: kind for kind in _below(Space) if hasattr(kind, "family") and kind.family not in FOUND_BY_TEXT}


def space_of(info: dict[str, Any]) -> Space[Any]:
    """The space that an entry was measured in, as far as it is found by it. Raises KeyError or TypeError if the entry does not say it."""
    family = FAMILIES[info["op_type"]]
    kinds = get_type_hints(family)
    told = [f.name for f in fields(family) if f.name in info and f.name not in ("problem", "target")]  # type: ignore[arg-type]
    context = {name: kinds[name](info[name]) for name in told}
    return family(_read(kinds["problem"], info), NAMED[info["target"]["name"]], **context)


def _read(kind: Any, value: Any) -> Any:
    """A value as JSON has it, as `kind` again."""
    if kind is DType:
        return dtypes.BY_NAME[value]
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{f.name: _read(kinds[f.name], value[f.name]) for f in fields(kind)})  # type: ignore[operator]
    if isinstance(value, list):
        return tuple(_read(get_args(kind)[0], item) for item in value)
    return value


def faults(folder: Path) -> list[str]:
    """A sentence for each fault of the bank in a folder; none for a bank that may be shipped."""
    contents = {path: json.loads(path.read_text()) for path in sorted(folder.rglob("*.json"))}
    listed = [(path, key, entry) for path, content in contents.items() for key, entries in content.items() for entry in entries]
    return [f"{path.name}: {key}: {text}" for path, key, entry in listed for text in _faults(folder, path, key, entry)]


def _faults(folder: Path, path: Path, key: str, entry: dict[str, Any]) -> Iterator[str]:
    info = entry["info_dict"]
    if info["op_type"] not in FAMILIES:
        yield f"{info['op_type']} is found by the text of a kernel, or is no family"
        return
    space = space_of(info)
    if info["version"] != space.version:
        yield "of another version of the generator; measure it again"
    elif digest(info) != key or OF_CORES.identity(space) != info:
        yield "its key is of something else"
    elif path != bank_file(folder, space, entry["core_num"], OF_CORES):
        yield "it lies in another file"
    elif usable(space, entry["knowledge"]) is None:
        yield "its point is not in the space"
    elif entry["knowledge"] == space.point(space.default()):
        yield "it is the default"
    elif Bank([], space.target, folder).find(space) != entry["knowledge"]:
        yield "the processor it is for does not find it"
    if not entry["performance_after_tune(us)"] <= 0.97 * entry["performance_before_tune(us)"]:
        yield "it was not measured to be faster"
    if entry["caches"]["l1_bytes"] < 1024:
        yield "nothing says how large the caches have to be"
