"""The programs section: the programs of a model and of its regions, each a part of its own, decoded and checked when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from anycann.om import codec
from anycann.om.blobs import BlobReader, BlobWriter
from anycann.om.model import Region
from anycann.om.plan import Program
from anycann.om.validate import Surroundings, check_program, check_region_program
from anycann.support.errors import ModelError, UnsupportedError

SCHEMA = 1
T = TypeVar("T")


class Lazy(Mapping[str, T], Generic[T]):
    """A mapping whose values are made when first asked for, and kept. `trusted` says if they may be signed again."""

    def __init__(self, makers: Mapping[str, Callable[[], T]], trusted: bool = True) -> None:
        self.trusted = trusted
        self._makers = makers
        self._made: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        if key not in self._made:
            self._made[key] = self._makers[key]()
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def __contains__(self, key: object) -> bool:
        return key in self._makers

    def __repr__(self) -> str:
        return f"Lazy({', '.join(self._makers)})"


def programs_to_bytes(programs: Mapping[str, Program], regions: Mapping[str, Region]) -> bytes:
    """The section; equal programs give equal bytes."""
    parts = BlobWriter()
    index: dict[str, object] = {
        "schema": SCHEMA,
        "programs": {key: parts.add(codec.to_json(program)) for key, program in sorted(programs.items())},
        "regions": {
            name: {
                "graph": parts.add(region.graph),
                "programs": {key: parts.add(codec.to_json(program)) for key, program in sorted(region.programs.items())},
            }
            for name, region in sorted(regions.items())
        },
    }
    return parts.finish(index)


def programs_from_bytes(
    data: bytes, constant_bytes: int, symbols: frozenset[str] | None, where: str, trusted: bool
) -> tuple[Mapping[str, Program], Mapping[str, Region]]:
    """The programs and regions of a section. Each is decoded and checked against the rest of the file at its first use.

    Raises ModelError for a damaged section, UnsupportedError for a schema from the future; damage within a program shows at its first use.
    """
    reader = BlobReader(data, where)
    _check_schema(reader.index.get("schema"), where)
    regions = reader.mapping(reader.index.get("regions"), "'regions'")
    surroundings = Surroundings(constant_bytes, regions.keys(), symbols)
    programs = _programs(reader, reader.index.get("programs"), surroundings, "", trusted)
    makers = {name: _region_maker(reader, name, entry, surroundings, trusted) for name, entry in regions.items()}
    return programs, Lazy(makers, trusted)


def _check_schema(schema: object, where: str) -> None:
    if isinstance(schema, int) and schema > SCHEMA:
        raise UnsupportedError(f"{where} has schema {schema}; this AnyCANN reads schemas 1 to {SCHEMA}")
    if schema != SCHEMA:
        raise ModelError(f"{where} has schema {schema!r:.60}; accepted: 1 to {SCHEMA}")


def _programs(reader: BlobReader, places: object, surroundings: Surroundings, owner: str, trusted: bool) -> Mapping[str, Program]:
    table = reader.mapping(places, f"'programs'{owner}")
    makers = {key: _program_maker(reader, key, place, surroundings, owner) for key, place in table.items()}
    return Lazy(makers, trusted)


def _program_maker(reader: BlobReader, key: str, place: object, surroundings: Surroundings, owner: str) -> Callable[[], Program]:
    what = f"program {key!r}{owner}"

    def make() -> Program:
        where = f"{reader.where}, {what}"
        program = codec.from_json(Program, reader.part(place, what), where)
        if owner:
            check_region_program(key, program, surroundings, where)
        else:
            check_program(program, surroundings, where)
        return program

    return make


def _region_maker(reader: BlobReader, name: str, value: object, surroundings: Surroundings, trusted: bool) -> Callable[[], Region]:
    owner = f" of region {name!r}"

    def make() -> Region:
        entry = reader.mapping(value, f"region {name!r}")
        graph = reader.part(entry.get("graph"), f"the graph{owner}")
        return Region(graph, _programs(reader, entry.get("programs"), surroundings, owner, trusted))

    return make
