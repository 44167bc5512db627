"""Which rank a process is, by its environment."""

from __future__ import annotations

from datetime import timedelta
import json
from pathlib import Path
import subprocess
import sys

import pytest

from anycann.collective.ranks import fill_torch_variables, placement
from anycann.collective.timeouts import connect_timeout, execute_timeout
from anycann.support import options
from anycann.support.errors import UsageError
from tests.collective.test_rank_table import server, table

VARIABLES = [
    name
    for name in (declared.name for declared in options.all_options())
    if name.startswith(("RANK", "CM_", "MASTER_", "LOCAL_", "HCCL_")) or name in ("WORLD_SIZE", "DEVICE_ID")
]


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def given(monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


def test_without_variables_a_process_is_alone() -> None:
    here = placement()
    assert (here.rank, here.size, here.device_id, here.local_rank, here.local_size) == (0, 1, 0, 0, 1)


def test_rank_id_and_rank_size_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, RANK_ID=2, RANK_SIZE=4, DEVICE_ID=6, MASTER_ADDR="10.1.1.1", MASTER_PORT=1234)
    here = placement()
    assert (here.rank, here.size, here.device_id, here.local_rank, here.local_size) == (2, 4, 6, 2, 4)
    assert (here.address, here.port) == ("10.1.1.1", 1234)


def test_the_chief_of_a_tensorflow_program_is_where_ranks_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, RANK_ID=1, CM_WORKER_SIZE=2, CM_CHIEF_IP="10.2.2.2", CM_CHIEF_PORT=6000)
    assert (placement().size, placement().address, placement().port) == (2, "10.2.2.2", 6000)


def test_a_rank_table_knows_servers_and_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "hccl.json"
    path.write_text(json.dumps(table(server("a", 0, 2, host_ip="10.0.0.1"), server("b", 2, 2, host_ip="10.0.0.2"))))
    given(monkeypatch, RANK_TABLE_FILE=path, RANK_ID=3, RANK_SIZE=4)
    here = placement()
    assert (here.rank, here.size, here.device_id, here.local_rank, here.neighbours) == (3, 4, 1, 1, (2, 3))
    assert here.address == "10.0.0.1"


def test_torchruns_variables_win_over_an_exported_rank_id(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, RANK_ID=0, RANK_SIZE=8, RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4)
    here = placement()
    assert (here.rank, here.size, here.device_id, here.local_rank, here.neighbours) == (5, 8, 1, 1, (4, 5, 6, 7))


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": 0}, "RANK is set, WORLD_SIZE is not"),
        ({"RANK": 2, "WORLD_SIZE": 2}, "accepted: 0 to 1"),
        ({"RANK_ID": 1}, "RANK_ID is 1, RANK_SIZE 1"),
        ({"RANK_ID": "x", "RANK_SIZE": 2}, "RANK_ID is 'x'"),
        ({"RANK_ID": 0, "RANK_SIZE": "two"}, "RANK_SIZE is 'two'"),
    ],
)
def test_variables_that_contradict_each_other_are_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, object], message: str
) -> None:
    given(monkeypatch, **variables)
    with pytest.raises(UsageError, match=message):
        placement()


def test_a_rank_table_without_rank_id_or_with_another_size_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "hccl.json"
    path.write_text(json.dumps(table(server("a", 0, 2))))
    given(monkeypatch, RANK_TABLE_FILE=path)
    with pytest.raises(UsageError, match="RANK_ID does not say which of its 2 ranks"):
        placement()
    given(monkeypatch, RANK_ID=4)
    with pytest.raises(UsageError, match="RANK_ID is '4', which the rank table has not; it has 0, 1"):
        placement()
    given(monkeypatch, RANK_ID=1, RANK_SIZE=3)
    with pytest.raises(UsageError, match="RANK_SIZE is 3, the rank table"):
        placement()


def test_torch_gets_its_variables_from_ascends(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, RANK_ID=1, RANK_SIZE=2)
    environment = {"MASTER_PORT": "1111"}
    fill_torch_variables(environment)
    assert environment == {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1111"}


def test_nothing_is_filled_in_where_nothing_is_said() -> None:
    environment: dict[str, str] = {}
    fill_torch_variables(environment)
    assert environment == {}


def test_timeouts_come_from_the_program_then_the_variable_then_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (connect_timeout(), execute_timeout()) == (timedelta(seconds=120), timedelta(seconds=1800))
    given(monkeypatch, HCCL_CONNECT_TIMEOUT=7, HCCL_EXEC_TIMEOUT=9)
    assert (connect_timeout(), execute_timeout(timedelta(minutes=30))) == (timedelta(seconds=7), timedelta(seconds=9))
    assert execute_timeout(timedelta(seconds=3)) == timedelta(seconds=3)


def test_no_framework_is_imported() -> None:
    program = "import sys, hccl.manage.api as api; print(api.get_rank_size(), [name for name in ('torch', 'numpy') if name in sys.modules])"
    shims = Path(__file__).parents[2] / "src" / "anycann" / "shims" / "python"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": f"{shims}:{shims.parents[2]}"}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "[]"], done.stderr
