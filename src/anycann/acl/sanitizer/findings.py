"""What was found: kinds, their texts, and the report that collects, prints and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
import json
import sys
from typing import Literal, TypeAlias

from anycann.acl.sanitizer.places import Place
from anycann.support.files import write_whole
from anycann.support.logging import get_logger
from anycann.support.records import dataclass

Level: TypeAlias = Literal["error", "note"]  # note: Ascend puts up with it, but the program says something that is not so
_log = get_logger("acl.sanitizer")


@dataclass
class Finding:
    """One mistake at one line. `others`: role ("allocated", "freed", ...) -> line. `facts`: addresses, sizes."""

    kind: str
    text: str
    where: Place | None
    others: Mapping[str, Place | None] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)
    level: Level = "error"
    count: int = 1

    def __str__(self) -> str:
        lines = [
            f"AnyCANN sanitizer: {self.level}: {self.kind}: {self.text}",
            *(f"    {role:<10} {place}" for role, place in self._places()),
        ]
        return "\n".join(lines)

    def _places(self) -> list[tuple[str, Place]]:
        listed = {"here": self.where, **self.others}
        return [(role, place) for role, place in listed.items() if place is not None]

    def as_json(self) -> dict[str, object]:
        places = {role: place.as_json() for role, place in self._places()}
        facts = {name: hex(fact) if name.endswith("address") and isinstance(fact, int) else fact for name, fact in self.facts.items()}
        return {"kind": self.kind, "level": self.level, "text": self.text, "places": places, "facts": facts, "count": self.count}


class Report:
    """All findings, each once for each line. Printed as they come; `close` prints how many, and writes the file."""

    def __init__(self, json_path: str | None = None):
        self.findings: dict[tuple[str, Place | None, str], Finding] = {}
        self._json_path = json_path
        self._told: tuple[int, int] | None = None

    def add(self, finding: Finding) -> None:
        """Keep and print it; the same mistake at the same line is only counted."""
        key = (finding.kind, finding.where, "" if finding.where else finding.text)
        known = self.findings.get(key)
        if known is not None:
            known.count += 1
            return
        self.findings[key] = finding
        _print(str(finding))

    def count(self, level: Level) -> int:
        """How many of a level there are."""
        return sum(finding.level == level for finding in self.findings.values())

    def close(self) -> None:
        """Print the number of findings and write the JSON file; called again, it says only what has changed."""
        numbers = (self.count("error"), self.count("note"))
        if numbers != self._told:
            _print(f"AnyCANN sanitizer: {_many(numbers[0], 'error')}, {_many(numbers[1], 'note')}")
            self._told = numbers
        if self._json_path:
            try:
                write_whole(self._json_path, json.dumps(self.as_json(), indent=1).encode())
            except OSError as error:
                _log.warning("the findings cannot be written to %s: %s", self._json_path, error)

    def as_json(self) -> dict[str, object]:
        found = [finding.as_json() for finding in self.findings.values()]
        return {"version": 1, "errors": self.count("error"), "notes": self.count("note"), "findings": found}


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _many(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
