"""ais_bench --dump-npy: dump files as arrays beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anycann.runtime.dump.files import operator_name, write_operator_file
from anycann.runtime.dump.records import DumpedTensor, Record, record_bytes
from anycann.tools.ais_bench.files import dumps_as_npy
from anycann.tools.ais_bench.main import main


def test_dumps_with_long_names_become_arrays_and_other_files_stay_what_they_are(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    record = Record("a", 0, outputs=(DumpedTensor(array),))
    write_operator_file(tmp_path / operator_name("Add", "long" * 100, 1, 2, 3), record_bytes(record))
    write_operator_file(tmp_path / operator_name("Add", "long" * 100, 1, 2, 3, ".csv"), b"Max\n1\n")
    dumps_as_npy(tmp_path)
    (made,) = tmp_path.glob("*.npy")
    assert np.array_equal(np.load(made), array)


def test_a_configuration_without_a_dump_is_told_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "acl.json").write_text("{}")
    words = ["--model", "not_there.om", "--dump-npy", "1", "--output", str(tmp_path), "--acl_json_path", str(tmp_path / "acl.json")]
    assert main(words) == 1
    assert "dump is None; accepted: a JSON object" in capsys.readouterr().out
