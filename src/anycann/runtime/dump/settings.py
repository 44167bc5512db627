"""The `dump` section of acl.json: what is dumped of which models, and where to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import re
from typing import cast

from anycann.support.errors import UsageError
from anycann.support.records import dataclass

_CHOICES: dict[str, tuple[str, ...]] = {
    "dump_mode": ("input", "output", "all"),
    "dump_op_switch": ("on", "off"),
    "dump_data": ("tensor", "stats"),
    "dump_level": ("op", "kernel", "all"),
    "dump_debug": ("on", "off"),
}
_DEFAULTS = {"dump_mode": "output", "dump_op_switch": "off", "dump_data": "tensor", "dump_level": "all", "dump_debug": "off"}
STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
MOST_FILTERS = 100


@dataclass(frozen=True)
class Filter:
    """Tensors that are left out: those of operators of a type, or of a name; positions "input0", "output1", none for all."""

    name: str
    positions: frozenset[str]


@dataclass(frozen=True)
class ModelDump:
    """What is dumped of one model; "" is every model. No layers and no ranges: all of it. ranges: first and last name, both included."""

    model: str = ""
    layers: frozenset[str] = frozenset()
    ranges: tuple[tuple[str, str], ...] = ()
    types_left_out: tuple[Filter, ...] = ()
    names_left_out: tuple[Filter, ...] = ()


@dataclass(frozen=True)
class DumpSettings:
    """A checked `dump` section. steps: runs that are dumped, counted from 0; none: every run. statistics: names of STATISTICS."""

    path: str
    models: tuple[ModelDump, ...]
    mode: str = "output"
    operators: bool = False
    statistics: tuple[str, ...] = ()
    steps: tuple[range, ...] = ()
    overflow: bool = False

    @property
    def inputs(self) -> bool:
        """Whether inputs are dumped."""
        return self.mode in ("input", "all") or self.overflow

    @property
    def outputs(self) -> bool:
        """Whether outputs are dumped."""
        return self.mode in ("output", "all") or self.overflow

    def of_model(self, *names: str) -> ModelDump | None:
        """What is said of a model that has these names."""
        return next((entry for entry in self.models if not entry.model or entry.model in names), None)

    def has_step(self, number: int) -> bool:
        """Whether run `number` is dumped."""
        return not self.steps or any(number in steps for steps in self.steps)


def parse_dump(section: object) -> DumpSettings:
    """Check a `dump` section. Raises UsageError that names the key, what was got and what is accepted."""
    if not isinstance(section, Mapping):
        raise UsageError(f"dump is {section!r:.80}; accepted: a JSON object")
    chosen = {key: _choice(section, key) for key in _CHOICES}
    overflow = chosen["dump_debug"] == "on"
    if not isinstance(section.get("dump_path"), str) or not section["dump_path"]:
        raise UsageError(f"dump_path is {section.get('dump_path')!r:.80}; accepted: a folder")
    if not overflow and not isinstance(section.get("dump_list"), list):
        raise UsageError(f"dump_list is {section.get('dump_list')!r:.80}; accepted: a list of objects")
    operators = chosen["dump_op_switch"] == "on"
    listed = cast("list[object]", section.get("dump_list") or ([] if operators else [{}]))
    statistics = _statistics(section.get("dump_stats")) if chosen["dump_data"] == "stats" else ()
    models = tuple(_model(entry) for entry in listed)
    return DumpSettings(
        section["dump_path"], models, chosen["dump_mode"], operators, statistics, _steps(section.get("dump_step")), overflow
    )


def _choice(section: Mapping[str, object], key: str) -> str:
    found = section.get(key, _DEFAULTS[key])
    if found not in _CHOICES[key]:
        raise UsageError(f"{key} is {found!r:.80}; accepted: {', '.join(_CHOICES[key])}")
    return str(found)


def _statistics(given: object) -> tuple[str, ...]:
    if given is None:
        return STATISTICS[:-1]
    if not isinstance(given, list) or not given or any(name not in STATISTICS for name in given):
        raise UsageError(f"dump_stats is {given!r:.80}; accepted: a list of {', '.join(STATISTICS)}")
    return tuple(name for name in STATISTICS if name in given)


def _steps(given: object) -> tuple[range, ...]:
    """ "0|5|10-20" as ranges."""
    if given in (None, ""):
        return ()
    found = []
    for word in str(given).split("|"):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", word.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f'dump_step is {given!r:.80}; accepted: numbers and ranges, as "0|5|10-20"')
        found.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(found)


def _model(entry: object) -> ModelDump:
    if not isinstance(entry, Mapping):
        raise UsageError(f"an entry of dump_list is {entry!r:.80}; accepted: a JSON object")
    name, layers = entry.get("model_name", ""), entry.get("layer", [])
    if not isinstance(name, str) or not _is_texts(layers):
        raise UsageError(f"an entry of dump_list is {dict(entry)!r:.120}; accepted: model_name (text) and layer (a list of texts)")
    ranges = tuple((_text(item, "begin"), _text(item, "end")) for item in _list(entry, "opname_range"))
    if ranges and not name:
        raise UsageError("opname_range is given without model_name")
    filters = {key: tuple(_filter(item, key) for item in _list(entry, key)) for key in ("optype_blacklist", "opname_blacklist")}
    return ModelDump(name, frozenset(layers), ranges, filters["optype_blacklist"], filters["opname_blacklist"])


def _list(entry: Mapping[str, object], key: str) -> list[object]:
    found = entry.get(key, [])
    if not isinstance(found, list) or len(found) > MOST_FILTERS:
        raise UsageError(f"{key} is {found!r:.80}; accepted: a list of at most {MOST_FILTERS} objects")
    return found


def _filter(item: object, key: str) -> Filter:
    positions = item.get("pos", []) if isinstance(item, Mapping) else None
    if not _is_texts(positions) or any(not re.fullmatch(r"(input|output)\d+", place) for place in cast("Sequence[str]", positions)):
        raise UsageError(f'an entry of {key} is {item!r:.80}; accepted: {{"name": text, "pos": ["input0", "output1", ...]}}')
    return Filter(_text(item, "name"), frozenset(cast("Sequence[str]", positions)))


def _text(item: object, key: str) -> str:
    found = item.get(key) if isinstance(item, Mapping) else None
    if not isinstance(found, str):
        raise UsageError(f"{item!r:.80} has no text {key!r}")
    return found


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
