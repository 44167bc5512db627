"""`anycann explain` says what codes mean."""

from __future__ import annotations

import json

from click.testing import CliRunner
import pytest

from anycann.acl.codes import Code
from anycann.acl.far_codes import FAR_CODES
from anycann.tools.cli import main


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["explain", *words])
    return result.exit_code, result.output


@pytest.mark.parametrize("word", ["507011", "0x7bc83", "ACL_ERROR_RT_MODEL_EXECUTE", "rt_model_execute"])
def test_a_code_is_found_by_number_and_by_name(word: str) -> None:
    status, output = run(word)
    assert (status, output.splitlines()[0]) == (0, "507011 (ACL_ERROR_RT_MODEL_EXECUTE)")


def test_words_of_messages_and_of_atc_are_explained_too() -> None:
    assert "ANYCANN_DEBUG=1" in run("EZ9999")[1]
    assert "E10001 (atc error)" in run("e10001")[1]
    assert "please report it" in run("E19999")[1]
    assert "belongs to a part of Ascend that is not here" in run("507014")[1]


def test_every_code_is_explained() -> None:
    for code in Code:
        status, output = run(str(int(code)), "--json")
        facts = json.loads(output)
        assert (status, facts["name"]) == (0, code.header_name)
        assert all(facts[key] for key in ("code", "means", "cause", "action"))


def test_codes_that_only_a_chip_gives_are_explained_by_number_and_by_name() -> None:
    assert not set(FAR_CODES) & set(map(int, Code))
    for number, code in FAR_CODES.items():
        assert run(str(number), "--json") == run(code.name, "--json")
        assert json.loads(run(str(number), "--json")[1])["means"] == code.means
    assert "ACLNN_ERR_INNER_NULLPTR" in run("561103")[1]


UNKNOWN = {"5070110": "507011", "99": "0 (ACL_SUCCESS)", "ACL_ERROR_RT_CONTEXT_NUL": "ACL_ERROR_RT_CONTEXT_NULL"}


@pytest.mark.parametrize(("word", "near"), UNKNOWN.items())
def test_an_unknown_code_gets_the_nearest(word: str, near: str) -> None:
    status, output = run(word)
    assert status == 2
    assert near in output
