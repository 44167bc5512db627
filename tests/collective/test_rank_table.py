"""Rank tables of both templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anycann.collective.rank_table import parse_rank_table, read_rank_table
from anycann.support.errors import UsageError


def server(name: str, first: int, count: int, **more: Any) -> dict[str, Any]:
    devices = [
        {"device_id": str(place), "device_ip": f"192.168.1.{first + place}", "rank_id": str(first + place)} for place in range(count)
    ]
    return {"server_id": name, "device": devices, **more}


def table(*servers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"status": "completed", "version": "1.0", "server_count": str(len(servers)), "server_list": list(servers), **more}


def pods(*pods: tuple[str, str, list[int]]) -> dict[str, Any]:
    instances = [
        {"pod_name": name, "server_id": server, "devices": [{"device_id": str(device), "device_ip": "192.168.1.8"} for device in devices]}
        for name, server, devices in pods
    ]
    group = {"group_name": "", "instance_count": str(len(pods)), "device_count": "2", "instance_list": instances}
    return {"status": "completed", "group_count": "1", "group_list": [group]}


def test_template_one_gives_each_device_its_rank() -> None:
    read = parse_rank_table(table(server("node_1", 2, 2, host_ip="10.0.0.2"), server("node_0", 0, 2, host_ip="10.0.0.1")))
    assert [(member.rank, member.server_id, member.device_id) for member in read.members] == [
        (0, "node_0", 0),
        (1, "node_0", 1),
        (2, "node_1", 0),
        (3, "node_1", 1),
    ]
    assert read.chief_address == "10.0.0.1"
    assert [member.rank for member in read.neighbours(3)] == [2, 3]


def test_template_two_counts_ranks_in_the_order_of_the_file_and_knows_them_by_pod() -> None:
    read = parse_rank_table(pods(("worker-7", "10.0.0.10", [4]), ("worker-3", "10.0.0.11", [6])))
    assert [(member.rank, member.server_id, member.device_id) for member in read.members] == [(0, "10.0.0.10", 4), (1, "10.0.0.11", 6)]
    assert read.member("worker-3").rank == 1
    assert read.chief_address == "10.0.0.10"


def test_several_devices_of_one_pod_are_known_by_their_rank() -> None:
    read = parse_rank_table(pods(("tf-bae41", "10.0.0.10", [0, 1])))
    assert read.member("1").device_id == 1
    assert read.chief_address == "127.0.0.1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "an object was expected, got list"),
        (table(server("a", 0, 1), status="initializing"), "only a table that is 'completed'"),
        (table(server("a", 0, 1), version="9"), r"version is '9'; accepted: 1.0, 1.2"),
        (table(server("a", 0, 1), server_list=[]), "server_list must be a list of objects that is not empty"),
        (table(server("a", 0, 1), server_count="3"), "server_count is '3', server_list has 1"),
        (table(server("a", 0, 2), server("b", 1, 1)), r"the ranks are \[0, 1, 1\]; they must be 0 to 2"),
        (table(server("a", 0, 1), server("a", 1, 1)), "two ranks have the same device"),
        (table({"server_id": "a", "device": [{"device_id": "x", "rank_id": "0"}]}), "device_id is 'x'"),
        (table({"server_id": "a", "device": [{"rank_id": "0"}]}), "device_id is missing"),
    ],
)
def test_a_wrong_table_says_what_is_wrong(content: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_rank_table(content)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    with pytest.raises(UsageError, match=r"table.json: No such file"):
        read_rank_table(path)
    path.write_text("{")
    with pytest.raises(UsageError, match=r"table.json is not JSON"):
        read_rank_table(path)
    path.write_text(json.dumps(table(server("a", 1, 1))))
    with pytest.raises(UsageError, match=r"table.json: the ranks are \[1\]"):
        read_rank_table(path)
