"""The file that RANK_TABLE_FILE names: which device of which server is which rank. Both templates that Ascend documents are read.

Template one has "version", "server_list", and in each server a list "device" with a rank_id for each device. Template two, kept for
older programs, has "group_list", in it "instance_list", and in each instance a pod_name and a list "devices"; ranks are counted in the
order of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
from pathlib import Path
from typing import Any

from anycann.support.errors import UsageError
from anycann.support.records import dataclass

VERSIONS = ("1.0", "1.2")


@dataclass(frozen=True)
class Member:
    """One rank: where its device is. `name` is what RANK_ID says in the process of this rank."""

    rank: int
    name: str
    server_id: str
    host: str | None
    device_id: int


@dataclass(frozen=True)
class RankTable:
    """The members, by rank."""

    members: tuple[Member, ...]

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return len(self.members)

    def member(self, name: str) -> Member:
        """The member that RANK_ID `name` stands for. Raises UsageError with the names that are there."""
        for member in self.members:
            if member.name == name:
                return member
        raise UsageError(f"RANK_ID is {name!r}, which the rank table has not; it has {', '.join(member.name for member in self.members)}")

    def neighbours(self, rank: int) -> tuple[Member, ...]:
        """The members on the server of `rank`, itself included, by rank."""
        server = self.members[rank].server_id
        return tuple(member for member in self.members if member.server_id == server)

    @property
    def chief_address(self) -> str:
        """The address of the server of rank 0: its host_ip, a server_id that is an address, or this machine if there is one server."""
        chief = self.members[0]
        if chief.host is not None:
            return chief.host
        if len({member.server_id for member in self.members}) == 1:
            return "127.0.0.1"
        return chief.server_id


def read_rank_table(path: str | Path) -> RankTable:
    """Read the file `path`. Raises UsageError that names the file, the entry, what was got and what is accepted."""
    try:
        content = json.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"rank table {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"rank table {path} is not JSON: {error}") from error
    try:
        return parse_rank_table(content)
    except UsageError as error:
        raise UsageError(f"rank table {path}: {error}") from error


def parse_rank_table(content: object) -> RankTable:
    """The table in `content`, as json.load gives it. Raises UsageError."""
    if not isinstance(content, Mapping):
        raise UsageError(f"an object was expected, got {type(content).__name__}")
    if content.get("status") != "completed":
        raise UsageError(f"status is {content.get('status')!r}; only a table that is 'completed' can be used")
    members = _from_groups(content) if "group_list" in content else _from_servers(content)
    return RankTable(_checked(members))


def _from_servers(content: Mapping[str, Any]) -> list[Member]:
    """Template one."""
    if content.get("version") not in VERSIONS:
        raise UsageError(f"version is {content.get('version')!r}; accepted: {', '.join(VERSIONS)}, or a group_list")
    servers = _entries(content, "server_list", "server_count")
    return [
        Member(
            _number(device, "rank_id"), _text(device, "rank_id"), _text(server, "server_id"), _host(server), _number(device, "device_id")
        )
        for server in servers
        for device in _entries(server, "device")
    ]


def _from_groups(content: Mapping[str, Any]) -> list[Member]:
    """Template two: devices in the order of the file; a pod of one device gives its pod_name as RANK_ID."""
    groups = _entries(content, "group_list", "group_count")
    members: list[Member] = []
    for group in groups:
        for instance in _entries(group, "instance_list", "instance_count"):
            devices = _entries(instance, "devices")
            for device in devices:
                name = _text(instance, "pod_name") if len(devices) == 1 else str(len(members))
                server = _text(instance, "server_id")
                members.append(Member(len(members), name, server, _host(instance), _number(device, "device_id")))
    return members


def _checked(members: Sequence[Member]) -> tuple[Member, ...]:
    ordered = tuple(sorted(members, key=lambda member: member.rank))
    if [member.rank for member in ordered] != list(range(len(ordered))):
        raise UsageError(f"the ranks are {[member.rank for member in ordered]}; they must be 0 to {len(ordered) - 1}, each once")
    names = [member.name for member in ordered]
    if len(set(names)) != len(names):
        raise UsageError(f"two ranks have the same name: {names}")
    places = [(member.server_id, member.device_id) for member in ordered]
    if len(set(places)) != len(places):
        raise UsageError(f"two ranks have the same device: {places}")
    return ordered


def _entries(content: Mapping[str, Any], key: str, count_key: str | None = None) -> list[Mapping[str, Any]]:
    entries = content.get(key)
    if not (isinstance(entries, list) and entries and all(isinstance(entry, Mapping) for entry in entries)):
        raise UsageError(f"{key} must be a list of objects that is not empty, got {entries!r}")
    if count_key is not None and count_key in content and str(content[count_key]) != str(len(entries)):
        raise UsageError(f"{count_key} is {content[count_key]!r}, {key} has {len(entries)}")
    return entries


def _text(content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    if not isinstance(value, (str, int)) or isinstance(value, bool) or value == "":
        raise UsageError(f"{key} is missing or no text in {dict(content)!r}")
    return str(value)


def _number(content: Mapping[str, Any], key: str) -> int:
    text = _text(content, key)
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{key} is {text!r}; a number from 0 was expected")
    return int(text)


def _host(content: Mapping[str, Any]) -> str | None:
    host = content.get("host_ip")
    return host if isinstance(host, str) and host else None
